/*
 * All parts of the analysis of one recording at one moment, opened and closed together: what every view starts with.
 */
#ifndef VRAMTRACK_ANALYSIS_H
#define VRAMTRACK_ANALYSIS_H

#include <stdbool.h>

#include "analysis/findings.h"
#include "analysis/model.h"
#include "analysis/stack.h"
#include "analysis/symbols.h"

struct vt_analysis {
    struct vt_model model;
    struct vt_findings findings;
    struct vt_symbols *symbols; /* NULL: not asked for */
    bool own_symbols;
    struct vt_stack_style style;
};

/*
 * Builds model and findings; with `symbolize`, opens a symbolizer too, or uses `shared` (NULL: none), which stays open and
 * must outlive the analysis. moment as for vt_model_build();
 * style NULL: the default, vt_stack_style_for(reading, VT_SHOW_MERGED, NULL); its strings must outlive the analysis.
 * Returns 0, -ENOENT or -ENOMEM; after a failure there is nothing to close.
 */
int vt_analysis_open(struct vt_analysis *analysis, struct vt_reading *reading, const char *moment, bool symbolize,
                     struct vt_symbols *shared, const struct vt_stack_style *style);
void vt_analysis_close(struct vt_analysis *analysis);

/* Adds the symbolizer's notes to the model's, once all stacks of a view are built. */
void vt_analysis_take_notes(struct vt_analysis *analysis);

#endif
