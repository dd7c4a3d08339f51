/*
 * What the text views share; see common.h.
 */
#include "views/common.h"

#include <errno.h>
#include <string.h>

#include "analysis/format.h"

int vt_view_open(struct vt_analysis *a, struct vt_reading *reading, const struct vt_report_request *request)
{
    const struct vt_failure *failure = NULL;
    const struct vt_moment *moment;
    const char *name = request->moment;
    char taken[sizeof moment->name + 1];
    struct vt_stack_style style;

    if (request->cause == VT_REPORT_OOM && !(failure = vt_reading_failure(reading, request->failure)))
        return -ENOENT;
    if (!name && failure) {
        name = "end"; /* no snapshot: what is live now */
        moment = vt_reading_moment(reading, failure->moment);
        if (moment && moment->name[0]) {
            memcpy(taken, moment->name, sizeof moment->name);
            taken[sizeof moment->name] = '\0';
            name = taken;
        }
    }
    style = vt_stack_style_for(reading, request->stacks, request->user_paths);
    return vt_analysis_open(a, reading, name, !request->no_symbols, request->symbols, &style);
}

void vt_view_trace(const struct vt_analysis *a, struct vt_trace *trace, uint32_t stack, uint32_t python_stack)
{
    /* Without memory: an empty trace. */
    vt_trace_build(trace, a->model.reading, a->symbols, &a->style, stack, python_stack);
}

void vt_view_name(struct vt_out *out, const char *name, size_t most)
{
    vt_out_name(out, name, strlen(name), most);
}

void vt_view_place(struct vt_out *out, const struct vt_display_frame *frame)
{
    char place[512];

    vt_view_name(out, vt_format_place(place, sizeof place, frame), 0);
}

static bool has_python(const struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (trace->frames[i].lang == VT_LANG_PYTHON)
            return true;
    return false;
}

void vt_view_cut(struct vt_out *out, const char *indent, const struct vt_trace *trace, uint32_t depth)
{
    if (!trace->cut_native && !trace->cut_python)
        return;
    /* Python's frames may be whole where the native ones, which are many more, are not. */
    vt_out_format(out, "%s... cut at %u %sframes (VRAMTRACK_DEPTH)\n", indent, depth,
                  !trace->cut_python && has_python(trace) ? "native " : "");
}

void vt_view_leaf(struct vt_out *out, const struct vt_trace *trace)
{
    const struct vt_display_frame *leaf = vt_trace_leaf(trace);

    if (!leaf)
        return;
    vt_out_text(out, " [");
    vt_view_name(out, leaf->function, 80);
    vt_out_text(out, "]");
}

void vt_view_device(struct vt_out *out, int device)
{
    if (device < 0)
        vt_out_text(out, "host");
    else
        vt_out_format(out, "GPU %d", device);
}

void vt_view_failure_device(struct vt_out *out, const struct vt_failure *failure)
{
    if (failure->device >= 0 || failure->memory_kind == VT_KIND_PINNED || failure->memory_kind == VT_KIND_REGISTERED)
        vt_view_device(out, failure->device);
    else
        vt_out_text(out, "unknown device");
}

void vt_view_command(struct vt_out *out, const struct vt_reading *reading, size_t most)
{
    struct vt_text line = vt_reading_string(reading, vt_reading_header(reading)->cmdline);
    size_t start = 0, written = 0;

    while (start < line.length && written < most) {
        size_t length = strnlen(line.text + start, line.length - start);

        if (start)
            vt_out_text(out, " ");
        if (length <= most - written)
            vt_out_word(out, line.text + start, length);
        else
            vt_out_name(out, line.text + start, length, most - written);
        written += length + 1;
        start += length + 1;
    }
    if (start < line.length)
        vt_out_text(out, " ...");
}

void vt_view_next(struct vt_out *out, const struct vt_report_request *request)
{
    if (request->next_command) {
        vt_view_name(out, request->next_command, 0);
    } else if (request->recording_path) {
        vt_out_text(out, "vramtrack report ");
        vt_out_word(out, request->recording_path, strlen(request->recording_path));
    }
}

unsigned vt_view_advice(struct vt_out *out, const struct vt_finding *finding, const char *indent, unsigned most)
{
    char bytes[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < finding->advice_count && i < most; i++) {
        const struct vt_advice *advice = &finding->advice[i];

        vt_out_text(out, indent);
        vt_out_text(out, "try: ");
        vt_view_name(out, advice->text, 400);
        if (advice->saves_bytes)
            vt_out_format(out, " (saves up to %s%s)", vt_format_bytes(bytes, advice->saves_bytes),
                          advice->enough ? ": enough" : "");
        vt_out_text(out, "\n");
    }
    return i;
}
