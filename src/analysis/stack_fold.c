/*
 * Which frames a report leaves out by default. Rules for native frames go by module first and by function name where
 * CUDA's runtime was linked into the program itself; those for Python frames go by file.
 */
#include <string.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

/* Sources that come with a compiler or with CUDA: their inline functions are not the user's code. */
bool vt_fold_is_foreign(const char *file)
{
    const char *name = vt_basename(file);

    return vt_starts(file, "/usr/include/") || vt_starts(file, "/rustc/") || strstr(file, "/include/c++/") ||
           strstr(file, "/thrust/") || strstr(file, "/cub/") || strstr(file, "/include/cuda") ||
           vt_starts(name, "cuda_runtime") || strstr(file, "/cccl/");
}

/* Entry points and internals of a CUDA runtime that was linked statically. `file` may be NULL. */
static bool is_runtime_function(const char *function, const char *file)
{
    if (vt_starts(function, "cudart::") || vt_starts(function, "__cudart") ||
        vt_starts(function, "libcudart_static_") || vt_starts(function, "__cudaRegister"))
        return true;
    if (!vt_starts(function, "cuda") || function[4] < 'A' || function[4] > 'Z')
        return false;
    return !file || vt_fold_is_foreign(file); /* a function of the user's may be called cudaSomething too */
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
    return vt_starts(function, "__libc_start_");
}

/* The C library without symbols: only start-up code of it stands on a stack that ends in cudaMalloc. */
static bool is_bare_system(const struct vt_display_frame *frame)
{
    return !frame->function && frame->module && vt_module_class(frame->module) == VT_MODULE_SYSTEM;
}

bool vt_fold_is_start(const struct vt_display_frame *frame)
{
    return frame->lang == VT_LANG_NATIVE &&
           ((frame->function && is_start_function(frame->function)) || is_bare_system(frame));
}

/* ctypes, and what it calls C functions with: the caller and the called one say it all. */
static bool is_bridge(const char *name)
{
    return vt_starts(name, "_ctypes.") || vt_starts(name, "libffi") || vt_starts(name, "memfd:libffi");
}

static bool hides(const struct vt_display_frame *frame)
{
    const char *name = frame->module ? vt_basename(frame->module) : NULL;

    if (frame->ours || frame->interpreter || vt_fold_is_start(frame))
        return true;
    if (name && (vt_module_class(frame->module) == VT_MODULE_CUDA || vt_starts(name, "ld-linux") || is_bridge(name)))
        return true;
    return frame->function && is_runtime_function(frame->function, frame->file);
}

void vt_fold_native(struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (trace->frames[i].lang == VT_LANG_NATIVE)
            trace->frames[i].hidden = hides(&trace->frames[i]);
    hide_runtime(trace);
}

/* The import machinery, and the wrappers through which torch calls each module's forward(). */
static bool hides_python(const struct vt_display_frame *frame)
{
    static const char wrappers[] = "torch/nn/modules/module.py";
    const char *name, *dot;
    size_t length;

    if (!frame->file)
        return false;
    if (vt_starts(frame->file, "<frozen "))
        return true;
    length = strlen(frame->file);
    if (!frame->function || length < sizeof wrappers - 1 ||
        strcmp(frame->file + length - (sizeof wrappers - 1), wrappers))
        return false;
    dot = strrchr(frame->function, '.');
    name = dot ? dot + 1 : frame->function;
    return !strcmp(name, "_wrapped_call_impl") || !strcmp(name, "_call_impl");
}

void vt_fold_python(struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (trace->frames[i].lang == VT_LANG_PYTHON)
            trace->frames[i].hidden = hides_python(&trace->frames[i]);
}

static bool shows_something(const struct vt_trace *trace)
{
    uint32_t i;

    for (i = 0; i < trace->count; i++)
        if (!trace->frames[i].hidden)
            return true;
    return false;
}

/* First what is not ours nor what Python frames stand for, then everything. */
void vt_fold_less(struct vt_trace *trace)
{
    uint32_t i;

    if (shows_something(trace))
        return;
    for (i = 0; i < trace->count; i++)
        trace->frames[i].hidden = trace->frames[i].ours || trace->frames[i].interpreter;
    if (shows_something(trace))
        return;
    for (i = 0; i < trace->count; i++)
        trace->frames[i].hidden = false;
}
