/* The calls that failed, in the text report: what was asked for, what came back, and the stacks. */
#include "analysis/format.h"
#include "views/text.h"

#define CALLS 20 /* default number */

static void write_stack(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                        const char *indent, uint32_t stack, uint32_t python_stack)
{
    struct vt_trace trace;

    vt_view_trace(a, &trace, stack, python_stack);
    vt_view_frames(out, indent, &trace, vt_reading_header(a->model.reading)->stack_depth, request->all_frames);
    vt_trace_free(&trace);
}

static void write_result(struct vt_out *out, const struct vt_failure *f, const char *api)
{
    const char *code = vt_code_name(f->code, api);

    if (f->code || f->driver_visible)
        vt_out_format(out, " returned %d%s%s on ", f->code, code ? " " : "", code ? code : "");
    else
        vt_out_text(out, " refused, without a call of the driver, on ");
    vt_view_failure_device(out, f);
}

static void write_failure(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                          const struct vt_failure *f, const struct vt_oom_group *group)
{
    const char *api = vt_reading_chars(a->model.reading, f->api);
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], range[VT_FORMAT_RANGE];

    vt_out_text(out, "  ");
    vt_out_colour(out, VT_RED);
    vt_out_text(out, vt_failure_name(f->kind));
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_view_name(out, *api ? api : "?", 64);
    write_result(out, f, api);
    vt_out_format(out, ", %llu time%s", (unsigned long long)group->times, group->times == 1 ? "" : "s");
    if (f->requested_bytes)
        vt_out_format(out, ", %s requested", vt_format_range(range, group->low, group->high));
    if (f->total_bytes)
        vt_out_format(out, ", %s%s free of %s", group->low < group->high ? "at first " : "",
                      vt_format_bytes(one, f->free_bytes), vt_format_bytes(two, f->total_bytes));
    if (f->kind == VT_FAILURE_INTERIOR_POINTER)
        vt_out_format(out, ", %llu bytes into its allocation", (unsigned long long)f->pointer_offset);
    vt_out_text(out, "\n");
    write_stack(out, a, request, "      ", f->stack, f->python_stack);
    if (f->allocated_at || f->allocated_python) {
        vt_out_text(out, "    allocated at\n");
        write_stack(out, a, request, "      ", f->allocated_at, f->allocated_python);
    }
    if (f->freed_at || f->freed_python) {
        vt_out_text(out, "    freed before at\n");
        write_stack(out, a, request, "      ", f->freed_at, f->freed_python);
    }
}

void vt_text_failures(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint32_t i, most = request->top ? request->top : CALLS, shown = 0;

    if (!m->failure_count)
        return;
    vt_text_heading(out, "Failed calls");
    for (i = 0; i < m->failure_count && shown < most; i++) {
        struct vt_oom_group group = vt_model_oom_group(m, i);

        if (group.first)
            write_failure(out, a, request, m->failures[i].record, &group);
        shown += group.first;
    }
    if (i < m->failure_count)
        vt_out_format(out, "  and %u more\n", m->failure_count - i);
}
