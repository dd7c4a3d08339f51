/*
 * What the text views share; see common.h.
 */
#include "views/common.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "recording/utf8.h"

#define LONG_NAME 160 /* from here on, template arguments of a function's name are left out: they hide the rest */

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

/* Does a '<' at `at` begin template arguments, and is it no operator's? */
static bool opens_arguments(const char *name, size_t at)
{
    static const char word[] = "operator";

    while (at && name[at - 1] == '<')
        at--;
    return at < sizeof word - 1 || memcmp(name + at - (sizeof word - 1), word, sizeof word - 1) != 0;
}

/* "f<...>::call" for a function whose name has template arguments. False: they can't be told, or it has none. */
static bool shorten(char *to, size_t room, const char *name)
{
    size_t i, used = 0;
    unsigned depth = 0;

    for (i = 0; name[i]; i++) {
        if (name[i] == '<' && opens_arguments(name, i) && !depth++)
            used += (size_t)snprintf(to + used, room - used, "<...>");
        else if (name[i] == '>' && depth && name[i - 1] != '-')
            depth--;
        else if (!depth)
            to[used++] = name[i];
        if (used + sizeof "<...>" >= room)
            return false;
    }
    to[used] = '\0';
    return !depth && used < i;
}

void vt_view_place(struct vt_out *out, const struct vt_display_frame *frame)
{
    char place[512], name[LONG_NAME];
    struct vt_display_frame shorter;

    if (frame && frame->function && strlen(frame->function) >= LONG_NAME &&
        shorten(name, sizeof name, frame->function)) {
        shorter = *frame;
        shorter.function = name;
        frame = &shorter;
    }
    vt_format_place(place, sizeof place, frame);
    vt_utf8_mend(place, sizeof place);
    vt_view_name(out, place, 0);
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

const char *vt_view_rank(char buffer[VT_VIEW_RANK], const struct vt_header *header)
{
    if (header->world_size > header->rank)
        snprintf(buffer, VT_VIEW_RANK, "rank %d of %d", header->rank, header->world_size);
    else
        snprintf(buffer, VT_VIEW_RANK, "rank %d", header->rank);
    return buffer;
}

const char *vt_view_are_missing(const struct vt_model *m)
{
    /* "what came after ..." alone is one thing; all others are several ("places"), as is a list */
    return !strncmp(m->missing, "what ", 5) && !strchr(m->missing, ',') ? "is missing" : "are missing";
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

void vt_view_finding(struct vt_out *out, const struct vt_finding *finding)
{
    vt_out_colour(out, finding->family == VT_FAMILY_NONE ? VT_GREEN : VT_YELLOW);
    vt_out_text(out, vt_family_name(finding->family));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " (%s): ", vt_confidence_name(finding->confidence));
    vt_view_name(out, finding->title, 400);
    vt_out_text(out, "\n");
}

void vt_view_requester(struct vt_out *out, const struct vt_reading *reading, const struct vt_failure *failure)
{
    const char *api = vt_reading_chars(reading, failure->api);

    if (!strncmp(api, "torch.", 6))
        vt_out_text(out, "PyTorch's allocator");
    else if (!strncmp(api, "tensorflow.", 11))
        vt_out_text(out, "TensorFlow's allocator");
    else if (!strncmp(api, "jax.", 4))
        vt_out_text(out, "JAX's allocator");
    else
        vt_view_name(out, *api ? api : "an allocation", 64);
}

/* ", in backward, after 12 steps": loading or training, and how far it had come. Nothing, if the program shows neither. */
static void write_progress(struct vt_out *out, const struct vt_reading *reading, const struct vt_failure *failure)
{
    const struct vt_moment *moment = vt_reading_moment(reading, failure->moment);
    bool steps = vt_reading_header(reading)->steps > 0;

    if (!moment || !moment->name[0])
        return;
    if (moment->phase != VT_PHASE_NONE)
        vt_out_format(out, ", in %s",
                      moment->phase == VT_PHASE_OPTIMIZER ? "the optimizer's step" : vt_phase_name(moment->phase));
    if (moment->steps)
        vt_out_format(out, ", after %llu step%s", (unsigned long long)moment->steps, moment->steps == 1 ? "" : "s");
    else if (steps || moment->phase != VT_PHASE_NONE)
        vt_out_text(out, ", before the first step was done");
}

void vt_view_requested_by(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *failure)
{
    struct vt_trace trace;

    vt_view_trace(a, &trace, failure->stack, failure->python_stack);
    vt_view_place(out, vt_trace_user(&trace));
    vt_view_leaf(out, &trace);
    vt_trace_free(&trace);
    write_progress(out, a->model.reading, failure);
}

unsigned vt_view_advice(struct vt_out *out, const struct vt_finding *finding, const char *indent, unsigned most)
{
    char bytes[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < finding->advice_count && i < most; i++) {
        const struct vt_advice *advice = &finding->advice[i];

        vt_out_text(out, indent);
        vt_out_text(out, "try");
        if (advice->saves_bytes)
            vt_out_format(out, " (saves up to %s%s)", vt_format_bytes(bytes, advice->saves_bytes),
                          advice->enough ? ", enough" : "");
        vt_out_text(out, ": ");
        vt_view_name(out, advice->text, 400);
        vt_out_text(out, "\n");
    }
    return i;
}

/* The largest of the peaks of level driver: one of another kind that is next to nothing beside it is not worth a word. */
static uint64_t highest(const struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SCOPES), most = 0;

    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i);

        if (scope && scope->level == VT_LEVEL_DRIVER && scope->peak_bytes > most)
            most = scope->peak_bytes;
    }
    return most;
}

bool vt_view_peaks(struct vt_out *out, const struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SCOPES), least = highest(m) / 1024;
    unsigned shown = 0;
    char bytes[VT_FORMAT_BYTES];

    for (i = 0; i < count && shown < 8; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i);

        if (!scope || scope->level != VT_LEVEL_DRIVER || !scope->peak_bytes ||
            (scope->class_ != VT_CLASS_DEVICE && scope->class_ != VT_CLASS_HOST && scope->class_ != VT_CLASS_MANAGED) ||
            scope->peak_bytes < least)
            continue;
        vt_out_format(out, "%s%s ", shown++ ? ", " : "peak ", vt_format_bytes(bytes, scope->peak_bytes));
        if (scope->class_ == VT_CLASS_HOST)
            vt_out_text(out, "page-locked");
        else
            vt_out_format(out, "%son ", scope->class_ == VT_CLASS_MANAGED ? "managed " : "");
        if (scope->class_ != VT_CLASS_HOST)
            vt_view_device(out, scope->device);
    }
    if (!shown)
        vt_out_text(out, *m->missing ? "what was allocated is not in the recording" : "nothing was allocated");
    return shown > 0;
}
