/*
 * Folded stacks, which flamegraph.pl, inferno, speedscope and others read: "outermost;...;innermost BYTES". The outermost
 * two frames are the device and what kind of memory it is. A ';' in a name becomes ':'.
 */
#include "views/export.h"

static void put(struct vt_export *x, const char *name)
{
    const char *at = vt_export_clean(x, name);

    for (; *at; at++)
        vt_out_bytes(&x->out, *at == ';' ? ":" : at, 1);
}

static void put_site(struct vt_export *x, const struct vt_site_row *row, uint64_t bytes)
{
    char label[VT_EXPORT_LABEL];
    struct vt_trace trace;
    bool any = false;
    uint32_t i;

    vt_view_trace(&x->a, &trace, row->record->stack, row->record->python_stack);
    put(x, vt_export_device(label, row->record->device));
    vt_out_text(&x->out, ";");
    put(x, vt_export_kind(row));
    for (i = trace.count; i-- > 0;)
        if (vt_export_has_frame(x, &trace.frames[i])) {
            vt_out_text(&x->out, ";");
            put(x, vt_export_label(label, &trace.frames[i]));
            any = true;
        }
    vt_out_text(&x->out, any ? "" : ";(no stack)");
    vt_out_format(&x->out, " %llu\n", (unsigned long long)bytes);
    vt_trace_free(&trace);
}

int vt_folded_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct vt_export x;
    uint32_t i;
    int error = vt_export_open(&x, reading, request);

    if (error)
        return error;
    for (i = 0; i < x.a.model.site_count && !x.out.error; i++) {
        const struct vt_site_row *row = &x.a.model.sites[i];
        uint64_t bytes = vt_export_value(row, request->type).bytes;

        if (bytes && vt_export_shows(&x, row))
            put_site(&x, row, bytes);
    }
    return vt_export_close(&x);
}
