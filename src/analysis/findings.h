/*
 * Findings: what the figures mean, each with its evidence, its confidence and what would help.
 *
 * Rules that keep them honest: every finding carries the numbers that it rests on; "live at exit" in a framework's pool
 * is a cache and not a leak; a killed process had no chance to free, so nothing it held is called a likely leak; and if
 * nothing is found, that is the finding (family "none").
 *
 * Uses malloc, no stdio streams, never exits. Strings and arrays belong to the findings.
 */
#ifndef VRAMTRACK_FINDINGS_H
#define VRAMTRACK_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/model.h"
#include "analysis/stack.h"
#include "analysis/symbols.h"

/* Said at other moments than the end where nothing else is. */
#define VT_JUDGED_AT_END "Leaks and growth are judged at the end: see the report without --moment."

enum vt_family {
    VT_FAMILY_LEAK,
    VT_FAMILY_GROWTH,
    VT_FAMILY_FRAGMENTATION,
    VT_FAMILY_CACHE,
    VT_FAMILY_WASTE,
    VT_FAMILY_PENDING,
    VT_FAMILY_CAPACITY,
    VT_FAMILY_OTHER_PROCESS,
    VT_FAMILY_LIMIT,
    VT_FAMILY_MISUSE,
    VT_FAMILY_OVERHEAD,
    VT_FAMILY_NONE,
    VT_FAMILY_COUNT
};

enum vt_confidence { VT_CERTAIN, VT_LIKELY, VT_POSSIBLE };

struct vt_advice {
    char *text;
    uint64_t saves_bytes; /* 0: nothing, or not known */
    bool enough;          /* that alone would have let the request succeed that failed */
};

struct vt_finding {
    enum vt_family family;
    enum vt_confidence confidence;
    char *title;
    char **evidence;
    uint32_t evidence_count;
    struct vt_advice *advice;
    uint32_t advice_count;
    uint32_t *sites; /* indices of sites */
    uint32_t site_count;
};

struct vt_findings {
    struct vt_finding *list; /* most certain and largest first; never empty after success */
    uint32_t count;
};

/* Fills findings from a model, and sets the verdicts of the model's sites. symbols and style may be NULL. 0 or
 * -ENOMEM. */
int vt_findings_build(struct vt_findings *findings, struct vt_model *model, struct vt_symbols *symbols,
                      const struct vt_stack_style *style);
void vt_findings_free(struct vt_findings *findings);

/* Worth a line on a terminal: not "nothing found", and more than possible. (What is held by design is no more.) */
bool vt_finding_is_loud(const struct vt_finding *finding);

/* Its first evidence names a place that is worth a line beside the title. */
bool vt_finding_is_placed(const struct vt_finding *finding);

/* Schema words. */
const char *vt_family_name(enum vt_family family);
const char *vt_confidence_name(enum vt_confidence confidence);

#endif
