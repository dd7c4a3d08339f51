/*
 * The table of places as CSV (RFC 4180, except that lines end with LF): every text in quotes, the stack in one cell,
 * innermost first. Unlike the other exports it has all levels and kinds unless one is asked for, as the JSON report has.
 */
#include "views/export.h"

static void put_text(struct vt_export *x, const char *text)
{
    const char *at = vt_export_clean(x, text);

    vt_out_text(&x->out, ",\"");
    for (; *at; at++)
        vt_out_bytes(&x->out, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
    vt_out_text(&x->out, "\"");
}

static void put_number(struct vt_export *x, uint64_t number)
{
    vt_out_format(&x->out, ",%llu", (unsigned long long)number);
}

static void put_stack(struct vt_export *x, const struct vt_trace *trace)
{
    char label[VT_EXPORT_LABEL];
    bool any = false;
    uint32_t i;

    vt_out_text(&x->out, ",\"");
    for (i = 0; i < trace->count; i++) {
        const char *at;

        if (!vt_export_has_frame(x, &trace->frames[i]))
            continue;
        vt_out_text(&x->out, any ? " < " : "");
        for (at = vt_export_clean(x, vt_export_label(label, &trace->frames[i])); *at; at++)
            vt_out_bytes(&x->out, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
        any = true;
    }
    vt_out_text(&x->out, "\"\n");
}

static void put_frames(struct vt_export *x, const struct vt_site *site)
{
    const struct vt_display_frame *user;
    struct vt_trace trace;

    vt_view_trace(&x->a, &trace, site->stack, site->python_stack);
    user = vt_trace_user(&trace);
    put_text(x, user ? user->function : NULL);
    put_text(x, user ? user->file : NULL);
    if (user && user->line)
        put_number(x, user->line);
    else
        vt_out_text(&x->out, ",");
    put_stack(x, &trace);
    vt_trace_free(&trace);
}

static void put_site(struct vt_export *x, const struct vt_site_row *row)
{
    const struct vt_site *s = row->record;
    const struct vt_reading *reading = x->a.model.reading;

    vt_out_format(&x->out, "%u,%s,%s,%d", row->index, vt_level_name(s->level), vt_kind_name(s->kind), s->device);
    put_text(x, vt_reading_chars(reading, s->api));
    put_text(x, vt_export_category(x, row));
    put_text(x, row->verdict);
    put_text(x, vt_phase_name(s->phase));
    put_text(x, vt_reading_chars(reading, s->range));
    put_number(x, row->live_bytes);
    put_number(x, row->live_count);
    put_number(x, row->at_peak_bytes);
    put_number(x, s->peak_bytes);
    put_number(x, s->total_bytes);
    put_number(x, s->alloc_calls);
    put_number(x, s->free_calls);
    put_number(x, vt_export_value(row, VT_EXPORT_LEAKED).bytes);
    vt_out_format(&x->out, ",%lld,%d", (long long)row->growth.bytes, row->pool);
    put_frames(x, s);
}

int vt_csv_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct vt_export x;
    uint32_t i;
    int error = vt_export_open(&x, reading, request);

    if (error)
        return error;
    vt_out_text(&x.out, "id,level,kind,device,api,category,verdict,phase,range,live_bytes,live_count,at_peak_bytes,"
                        "peak_bytes,total_bytes,alloc_calls,free_calls,leaked_bytes,growth_bytes,holds_tensors,"
                        "function,file,line,stack\n");
    for (i = 0; i < x.a.model.site_count && !x.out.error; i++)
        if (request->level == VT_EXPORT_ALL || vt_export_shows(&x, &x.a.model.sites[i]))
            put_site(&x, &x.a.model.sites[i]);
    return vt_export_close(&x);
}
