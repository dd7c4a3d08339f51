/*
 * Opens and closes all parts of an analysis together; see analysis.h.
 */
#include "analysis/analysis.h"

#include <errno.h>
#include <string.h>

int vt_analysis_open(struct vt_analysis *a, struct vt_reading *reading, const char *moment, bool symbolize,
                     const struct vt_stack_style *style)
{
    int error;

    memset(a, 0, sizeof *a);
    a->style = style ? *style : vt_stack_style_for(reading, VT_SHOW_MERGED, NULL);
    if ((error = vt_model_build(&a->model, reading, moment)))
        return error;
    if (symbolize && !(a->symbols = vt_symbols_open())) {
        vt_model_free(&a->model);
        return -ENOMEM;
    }
    if ((error = vt_findings_build(&a->findings, &a->model, a->symbols, &a->style))) {
        vt_symbols_close(a->symbols);
        vt_model_free(&a->model);
    }
    return error;
}

void vt_analysis_close(struct vt_analysis *a)
{
    vt_findings_free(&a->findings);
    vt_model_free(&a->model);
    vt_symbols_close(a->symbols);
    memset(a, 0, sizeof *a);
}

void vt_analysis_take_notes(struct vt_analysis *a)
{
    uint32_t i, count = a->symbols ? vt_symbols_notes(a->symbols) : 0;

    for (i = 0; i < count; i++)
        vt_model_note(&a->model, "%s", vt_symbols_note(a->symbols, i));
}
