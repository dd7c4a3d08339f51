/*
 * Stacks for people; see stack.h. Here recorded frames become display frames; which of them stand where, are hidden, or
 * are the user's is decided in stack_merge.c, stack_fold.c and stack_user.c.
 */
#include "analysis/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

/* Appends a frame; grows the array by doubling. */
static struct vt_display_frame *append(struct vt_trace *trace, uint32_t *room)
{
    struct vt_display_frame *grown;

    if (trace->count == *room) {
        *room = *room ? *room * 2 : 32;
        if (!(grown = realloc(trace->frames, *room * sizeof *grown)))
            return NULL;
        trace->frames = grown;
    }
    memset(&trace->frames[trace->count], 0, sizeof trace->frames[0]);
    return &trace->frames[trace->count++];
}

static const char *chars_or_null(const struct vt_reading *reading, uint32_t id)
{
    const char *text = vt_reading_chars(reading, id);

    return *text ? text : NULL;
}

/* A frame whose code object is not in the file stays a frame: what is lost is its name. */
static int add_python(struct vt_trace *trace, uint32_t *room, const struct vt_reading *reading,
                      const struct vt_frame *frame)
{
    const struct vt_code *code = vt_reading_frame_code(reading, frame);
    struct vt_display_frame *shown = append(trace, room);

    if (!shown)
        return -ENOMEM;
    shown->lang = VT_LANG_PYTHON;
    shown->entry = frame->where & VT_PYTHON_ENTRY;
    shown->empty = (frame->where & VT_PYTHON_EMPTY) >> VT_PYTHON_EMPTY_SHIFT;
    if (!code)
        return 0;
    shown->function = chars_or_null(reading, code->function);
    shown->file = chars_or_null(reading, code->file);
    shown->line = vt_frame_python_line(frame);
    return 0;
}

/* Code that is in no loaded object. Anonymous memory is no module to anybody. */
static int add_generated(struct vt_trace *trace, uint32_t *room, const struct vt_reading *reading,
                         struct vt_symbols *symbols, const struct vt_frame *frame)
{
    const struct vt_module *mapping = vt_reading_module(reading, frame->module);
    struct vt_display_frame *shown = append(trace, room);
    struct vt_symbol symbol = {NULL, 0};

    if (!shown)
        return -ENOMEM;
    shown->lang = VT_LANG_NATIVE;
    shown->module = mapping ? chars_or_null(reading, mapping->path) : NULL;
    shown->offset = frame->where;
    shown->generated = mapping != NULL;
    if (symbols)
        symbol = vt_symbols_frame(symbols, reading, frame, NULL);
    if (symbol.count)
        shown->function = symbol.frames[0].function;
    return 0;
}

/* The display frames of one recorded frame: the inlined ones, then the function itself. */
static int add_native(struct vt_trace *trace, uint32_t *room, const struct vt_reading *reading,
                      struct vt_symbols *symbols, const struct vt_frame *frame)
{
    const struct vt_module *module = vt_reading_module(reading, frame->module);
    bool ours = module && vt_module_class_at(reading, frame->module) == VT_MODULE_OURS;
    struct vt_symbol symbol = {NULL, 0};
    uint32_t i = 0;

    if (!module || module->flags & VT_MODULE_MAPPING)
        return add_generated(trace, room, reading, symbols, frame);
    if (symbols && !ours)
        symbol = vt_symbols_frame(symbols, reading, frame, NULL);
    do {
        struct vt_display_frame *shown = append(trace, room);

        if (!shown)
            return -ENOMEM;
        shown->lang = VT_LANG_NATIVE;
        shown->module = vt_reading_chars(reading, module->path);
        shown->offset = frame->where;
        shown->ours = ours;
        shown->origin = vt_module_made_by_program(shown->module);
        if (i < symbol.count) {
            shown->function = symbol.frames[i].nearest ? NULL : symbol.frames[i].function;
            shown->nearest = symbol.frames[i].nearest ? symbol.frames[i].function : NULL;
            shown->file = symbol.frames[i].file;
            shown->line = symbol.frames[i].line;
            shown->inlined = i + 1 < symbol.count;
        }
    } while (++i < symbol.count);
    return 0;
}

/* A stack that begins where threads and programs do is whole, however long it is. Recordings without a depth (0) come
 * from no recorder of ours. */
static void note_cut(struct vt_trace *trace, uint32_t depth, const uint32_t taken[2])
{
    bool whole = trace->count && vt_fold_is_start(&trace->frames[trace->count - 1]);

    trace->cut_native = depth && taken[0] >= depth && !whole;
    trace->cut_python = depth && taken[1] >= depth;
}

/* All frames of a stack, each as what it is: a damaged file may mix the languages. */
static int take_stack(struct vt_trace *trace, const struct vt_reading *reading, struct vt_symbols *symbols,
                      uint32_t stack)
{
    uint32_t ids[VT_STACK_FRAMES_MAX], count = vt_reading_stack(reading, stack, ids, VT_STACK_FRAMES_MAX), i, room = 0;
    uint32_t taken[2] = {0, 0}; /* recorded frames, native and Python */

    memset(trace, 0, sizeof *trace);
    trace->user = VT_NONE;
    for (i = 0; i < count; i++) {
        const struct vt_frame *frame = vt_reading_frame(reading, ids[i]);

        if (frame)
            taken[frame->module == VT_PYTHON]++;
        if (frame && (frame->module == VT_PYTHON ? add_python(trace, &room, reading, frame)
                                                 : add_native(trace, &room, reading, symbols, frame))) {
            vt_trace_free(trace);
            return -ENOMEM;
        }
    }
    note_cut(trace, vt_reading_header(reading)->stack_depth, taken);
    return 0;
}

/* The x of CPython 3.x, from "CPython 3.12.3"; 0: not known. */
static unsigned python_minor(const struct vt_reading *reading)
{
    const char *text = vt_reading_chars(reading, vt_reading_header(reading)->python);

    return vt_starts(text, "CPython 3.") ? (unsigned)strtoul(text + 10, NULL, 10) : 0;
}

int vt_trace_build(struct vt_trace *trace, const struct vt_reading *reading, struct vt_symbols *symbols,
                   const struct vt_stack_style *style, uint32_t native, uint32_t python)
{
    const struct vt_stack_style plain = {0};
    struct vt_trace natives, pythons;
    bool cut_native, cut_python;
    int error;

    style = style ? style : &plain;
    memset(trace, 0, sizeof *trace);
    trace->user = VT_NONE;
    if ((error = take_stack(&natives, reading, symbols, style->stacks == VT_SHOW_PYTHON ? 0 : native)))
        return error;
    if ((error = take_stack(&pythons, reading, symbols, style->stacks == VT_SHOW_NATIVE ? 0 : python))) {
        vt_trace_free(&natives);
        return error;
    }
    cut_native = natives.cut_native || pythons.cut_native;
    cut_python = natives.cut_python || pythons.cut_python;
    vt_name_generated(&natives, reading);
    vt_mark_interpreter(&natives);
    vt_fold_native(&natives);
    vt_fold_python(&pythons);
    if (!pythons.count || !natives.count) {
        *trace = pythons.count ? pythons : natives;
        vt_trace_free(pythons.count ? &natives : &pythons);
    } else {
        error = vt_trace_merge(trace, &natives, &pythons, python_minor(reading));
        vt_trace_free(&natives);
        vt_trace_free(&pythons);
        if (error)
            return error;
    }
    trace->cut_native = cut_native;
    trace->cut_python = cut_python;
    vt_fold_less(trace);
    vt_choose_user(trace, style->user_paths);
    return 0;
}

void vt_trace_free(struct vt_trace *trace)
{
    free(trace->frames);
    memset(trace, 0, sizeof *trace);
    trace->user = VT_NONE;
}

const struct vt_display_frame *vt_trace_user(const struct vt_trace *trace)
{
    return trace->user < trace->count ? &trace->frames[trace->user] : NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

bool vt_same_place(const struct vt_display_frame *a, const struct vt_display_frame *b)
{
    if (!a || !b || a->lang != b->lang || !same_text(a->function, b->function))
        return false;
    if (a->line || b->line)
        return a->line == b->line && same_text(a->file, b->file);
    return same_text(a->file, b->file) && same_text(a->module, b->module) && (a->function || a->offset == b->offset);
}
