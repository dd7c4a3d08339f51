/*
 * Opens and closes all parts of an analysis together; see analysis.h.
 */
#include "analysis/analysis.h"

#include <errno.h>
#include <string.h>

#include "analysis/account.h"

static void close_symbols(const struct vt_analysis *a)
{
    if (a->own_symbols)
        vt_symbols_close(a->symbols);
}

int vt_analysis_open(struct vt_analysis *a, struct vt_reading *reading, const char *moment, bool symbolize,
                     struct vt_symbols *shared, const struct vt_stack_style *style)
{
    int error;

    memset(a, 0, sizeof *a);
    a->style = style ? *style : vt_stack_style_for(reading, VT_SHOW_MERGED, NULL);
    if ((error = vt_model_build(&a->model, reading, moment)))
        return error;
    a->own_symbols = symbolize && !shared;
    if (symbolize && !(a->symbols = shared ? shared : vt_symbols_open())) {
        vt_model_free(&a->model);
        return -ENOMEM;
    }
    vt_account_add_parts(&a->model, a->symbols);
    if ((error = vt_findings_build(&a->findings, &a->model, a->symbols, &a->style))) {
        close_symbols(a);
        vt_model_free(&a->model);
    }
    return error;
}

void vt_analysis_close(struct vt_analysis *a)
{
    vt_findings_free(&a->findings);
    vt_model_free(&a->model);
    close_symbols(a);
    memset(a, 0, sizeof *a);
}

void vt_analysis_take_notes(struct vt_analysis *a)
{
    uint32_t i, count = a->symbols ? vt_symbols_notes(a->symbols) : 0;

    for (i = 0; i < count; i++)
        vt_model_note(&a->model, "%s", vt_symbols_note(a->symbols, i));
}
