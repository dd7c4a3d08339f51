/*
 * Stacks for people; see stack.h. Rules for hiding frames go by module first and by function name where CUDA's runtime
 * was linked into the program itself.
 */
#include "analysis/stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"

static bool starts(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* Headers that come with a compiler or with CUDA: their inline functions are not the user's code. */
static bool is_foreign_header(const char *file)
{
    const char *name = vt_basename(file);

    return starts(file, "/usr/include/") || strstr(file, "/include/c++/") || strstr(file, "/thrust/") ||
           strstr(file, "/cub/") || strstr(file, "/include/cuda") || starts(name, "cuda_runtime") ||
           strstr(file, "/cccl/");
}

/* Entry points and internals of a CUDA runtime that was linked statically. `file` may be NULL. */
static bool is_runtime_function(const char *function, const char *file)
{
    if (starts(function, "cudart::") || starts(function, "__cudart") || starts(function, "libcudart_static_") ||
        starts(function, "__cudaRegister"))
        return true;
    if (!starts(function, "cuda") || function[4] < 'A' || function[4] > 'Z')
        return false;
    return !file || is_foreign_header(file); /* a function of the user's may be called cudaSomething too */
}

/* The runtime's own memory calls, by their exact names: the user's functions are not called like that. */
static bool is_runtime_entry(const char *function)
{
    static const char *const names[] = {
        "cudaMalloc",           "cudaMallocPitch",       "cudaMalloc3D",      "cudaMallocHost",
        "cudaHostAlloc",        "cudaHostRegister",      "cudaMallocManaged", "cudaMallocArray",
        "cudaMalloc3DArray",    "cudaMallocAsync",       "cudaFree",          "cudaMallocMipmappedArray",
        "cudaFreeHost",         "cudaFreeAsync",         "cudaFreeArray",     "cudaMallocFromPoolAsync",
        "cudaHostUnregister",   "cudaDeviceReset",       "cudaGraphLaunch",   "cudaFreeMipmappedArray",
        "cudaIpcOpenMemHandle", "cudaIpcCloseMemHandle", "cudaMemPoolTrimTo", "cudaGraphAddMemAllocNode",
    };
    size_t length = strcspn(function, "_"), i; /* without _ptsz, _v11 ... */

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && !strncmp(function, names[i], length))
            return true;
    return false;
}

/* What a runtime call did inside is the runtime's, whatever its functions are called. */
static void hide_runtime(struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (trace->frames[i].function && is_runtime_entry(trace->frames[i].function))
            break;
    if (i == trace->count)
        return;
    trace->frames[i].hidden = true;
    while (i--)
        trace->frames[i].hidden = true;
}

static bool is_start_function(const char *function)
{
    static const char *const names[] = {
        "_start",  "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3",
        "__clone", "__clone3",          "_dl_start_user"};
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(function, names[i]))
            return true;
    return starts(function, "__libc_start_");
}

/* The C library without symbols: only start-up code of it stands on a stack that ends in cudaMalloc. */
static bool is_bare_system(const struct vt_display_frame *frame)
{
    return !frame->function && vt_module_class(frame->module) == VT_MODULE_SYSTEM &&
           !starts(vt_basename(frame->module), "python") && !starts(vt_basename(frame->module), "libpython");
}

static bool hides(const struct vt_display_frame *frame)
{
    if (frame->ours)
        return true;
    if (frame->module && (vt_module_class(frame->module) == VT_MODULE_CUDA ||
                          starts(vt_basename(frame->module), "ld-linux") || is_bare_system(frame)))
        return true;
    return frame->function && (is_runtime_function(frame->function, frame->file) || is_start_function(frame->function));
}

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

/* The display frames of one recorded frame: the inlined ones, then the function itself. */
static int add_native(struct vt_trace *trace, uint32_t *room, const struct vt_reading *reading,
                      struct vt_symbols *symbols, uint32_t id)
{
    const struct vt_frame *frame = vt_reading_frame(reading, id);
    const struct vt_module *module = frame ? vt_reading_module(reading, frame->module) : NULL;
    const char *path = module ? vt_reading_chars(reading, module->path) : NULL;
    bool ours = module && vt_module_class_at(reading, frame->module) == VT_MODULE_OURS;
    struct vt_symbol symbol = {NULL, 0};
    uint32_t i = 0;

    if (!frame)
        return 0;
    if (symbols && module && !ours && frame->where)
        symbol = vt_symbols_find(symbols, path, module->build_id,
                                 module->build_id_bytes <= sizeof module->build_id ? module->build_id_bytes : 0,
                                 frame->where - 1);
    do {
        struct vt_display_frame *shown = append(trace, room);

        if (!shown)
            return -ENOMEM;
        shown->lang = VT_LANG_NATIVE;
        shown->module = path;
        shown->offset = frame->where;
        shown->ours = ours;
        if (i < symbol.count) {
            shown->function = symbol.frames[i].function;
            shown->file = symbol.frames[i].file;
            shown->line = symbol.frames[i].line;
            shown->inlined = i + 1 < symbol.count;
        }
        shown->hidden = hides(shown);
    } while (++i < symbol.count);
    return 0;
}

/* Hiding must leave something to see. */
static void show_something(struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (!trace->frames[i].hidden)
            return;
    for (i = 0; i < trace->count; i++)
        trace->frames[i].hidden = trace->frames[i].ours;
    for (i = 0; i < trace->count; i++)
        if (!trace->frames[i].hidden)
            return;
    for (i = 0; i < trace->count; i++)
        trace->frames[i].hidden = false;
}

static void choose_user(struct vt_trace *trace)
{
    uint32_t i, visible = VT_NONE, sourced = VT_NONE;

    for (i = trace->count; i--;) {
        const struct vt_display_frame *frame = &trace->frames[i];

        if (frame->hidden)
            continue;
        visible = i;
        if (frame->file && frame->line && !is_foreign_header(frame->file))
            sourced = i;
    }
    trace->user = sourced != VT_NONE ? sourced : visible;
}

int vt_trace_build(struct vt_trace *trace, const struct vt_reading *reading, struct vt_symbols *symbols,
                   uint32_t native, uint32_t python)
{
    uint32_t ids[VT_STACK_FRAMES_MAX], count = vt_reading_stack(reading, native, ids, VT_STACK_FRAMES_MAX), i, room = 0;

    (void)python; /* Python frames are to replace the interpreter's frames that ran them, here */
    memset(trace, 0, sizeof *trace);
    trace->user = VT_NONE;
    for (i = 0; i < count; i++)
        if (add_native(trace, &room, reading, symbols, ids[i])) {
            vt_trace_free(trace);
            return -ENOMEM;
        }
    hide_runtime(trace);
    show_something(trace);
    choose_user(trace);
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
