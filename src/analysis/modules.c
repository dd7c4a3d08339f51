/*
 * Module classes by file name. One table, first match wins; a name that nothing matches is the application's.
 *
 * The class decides whose memory an allocation is: a buffer that cuBLAS keeps is a workspace, one that PyTorch's
 * allocator keeps is a pool, and only what is left can be the program's own leak.
 */
#include "analysis/modules.h"

#include <string.h>

/* prefix: of the file name; anywhere: a part of the whole path. Either may be NULL. */
static const struct {
    const char *prefix, *anywhere;
    enum vt_module_class class_;
} rules[] = {
    {"libvramtrack.so", NULL, VT_MODULE_OURS},

    {"libcuda.so", NULL, VT_MODULE_CUDA},
    {"libcudart.so", NULL, VT_MODULE_CUDA},
    {"libcudart-", NULL, VT_MODULE_CUDA}, /* renamed by Python wheels */
    {"libcudadebugger.so", NULL, VT_MODULE_CUDA},
    {"libnvidia-", NULL, VT_MODULE_CUDA},

    {"ld-linux", NULL, VT_MODULE_SYSTEM},
    {"ld-2.", NULL, VT_MODULE_SYSTEM},
    {"libc.so", NULL, VT_MODULE_SYSTEM},
    {"libc-2.", NULL, VT_MODULE_SYSTEM},
    {"libpthread", NULL, VT_MODULE_SYSTEM},
    {"libdl.so", NULL, VT_MODULE_SYSTEM},
    {"libstdc++.so", NULL, VT_MODULE_SYSTEM},
    {"libc++.so", NULL, VT_MODULE_SYSTEM},
    {"libc++abi.so", NULL, VT_MODULE_SYSTEM},
    {"libgcc_s.so", NULL, VT_MODULE_SYSTEM},
    {"libgomp", NULL, VT_MODULE_SYSTEM},
    {"libffi.so", NULL, VT_MODULE_SYSTEM},
    {"libffi-", NULL, VT_MODULE_SYSTEM},      /* renamed by Python wheels */
    {"memfd:libffi", NULL, VT_MODULE_SYSTEM}, /* its closures */
    {"_ctypes.", NULL, VT_MODULE_SYSTEM},
    {"linux-vdso", NULL, VT_MODULE_SYSTEM},
    {"[vdso]", NULL, VT_MODULE_SYSTEM},

    {"libcublas", NULL, VT_MODULE_LIBRARY},
    {"libcudnn", NULL, VT_MODULE_LIBRARY},
    {"libnccl", NULL, VT_MODULE_LIBRARY},
    {"libcusolver", NULL, VT_MODULE_LIBRARY},
    {"libcusparse", NULL, VT_MODULE_LIBRARY},
    {"libcufft", NULL, VT_MODULE_LIBRARY},
    {"libcurand", NULL, VT_MODULE_LIBRARY},
    {"libcutensor", NULL, VT_MODULE_LIBRARY},
    {"libcupti", NULL, VT_MODULE_LIBRARY},
    {"libnvrtc", NULL, VT_MODULE_LIBRARY},
    {"libnvJitLink", NULL, VT_MODULE_LIBRARY},
    {"libnvshmem", NULL, VT_MODULE_LIBRARY},
    {"libnvinfer", NULL, VT_MODULE_LIBRARY},
    {"libnvjpeg", NULL, VT_MODULE_LIBRARY},
    {"libnpp", NULL, VT_MODULE_LIBRARY},
    {"libucp.so", NULL, VT_MODULE_LIBRARY},
    {"libuct", NULL, VT_MODULE_LIBRARY},
    {"libucs", NULL, VT_MODULE_LIBRARY},
    {"libucm", NULL, VT_MODULE_LIBRARY},

    {"libc10", NULL, VT_MODULE_FRAMEWORK},
    {"libtorch", NULL, VT_MODULE_FRAMEWORK},
    {"libaoti", NULL, VT_MODULE_FRAMEWORK},
    {"xla_", NULL, VT_MODULE_FRAMEWORK},
    {"pjrt", NULL, VT_MODULE_FRAMEWORK},
    {"libjax", NULL, VT_MODULE_FRAMEWORK},
    {"librmm", NULL, VT_MODULE_FRAMEWORK},
    {"libonnxruntime", NULL, VT_MODULE_FRAMEWORK},
    {"onnxruntime", NULL, VT_MODULE_FRAMEWORK},
    {"libtensorflow", NULL, VT_MODULE_FRAMEWORK},
    {"_pywrap_tensorflow", NULL, VT_MODULE_FRAMEWORK},
    {"libpaddle", NULL, VT_MODULE_FRAMEWORK},
    {"libggml", NULL, VT_MODULE_FRAMEWORK},
    {NULL, "/jaxlib/", VT_MODULE_FRAMEWORK},
    {NULL, "/jax_plugins/", VT_MODULE_FRAMEWORK},
    {NULL, "/cupy", VT_MODULE_FRAMEWORK},
    {NULL, "/tensorflow/", VT_MODULE_FRAMEWORK},
    {NULL, "/torch/lib/", VT_MODULE_FRAMEWORK},
    {NULL, "/rmm/", VT_MODULE_FRAMEWORK},
    {NULL, "/onnxruntime/", VT_MODULE_FRAMEWORK},
    {NULL, "/llvmlite/", VT_MODULE_FRAMEWORK},
    {NULL, "/numba", VT_MODULE_FRAMEWORK},
};

/* The same, for code that is generated at run time: its library is loaded, or calls it. */
static const struct {
    const char *prefix, *anywhere, *name;
} generators[] = {
    {"libllvmlite", NULL, "numba/LLVM"},
    {NULL, "/llvmlite/", "numba/LLVM"},
    {NULL, "/numba/", "numba/LLVM"},
    {"libjax", NULL, "XLA"},
    {"xla_", NULL, "XLA"},
    {NULL, "/jaxlib/", "XLA"},
    {"libtensorflow", NULL, "XLA"},
    {NULL, "/tensorflow/", "XLA"},
    {"libjulia", NULL, "Julia"},
    {"libjvm.so", NULL, "Java"},
    {"libclrjit.so", NULL, ".NET"},
    {"libluajit", NULL, "LuaJIT"},
    {"libnode.so", NULL, "V8"},
};

/* name is the path's last part. Written out: this is asked for every frame of every stack. */
static bool fits(const char *path, const char *name, const char *prefix, const char *anywhere)
{
    for (; prefix && *prefix; prefix++, name++)
        if (*name != *prefix)
            return false;
    return !anywhere || (strstr(name, ".so") && strstr(path, anywhere));
}

const char *vt_module_generator(const char *path)
{
    const char *name = vt_basename(path);
    size_t i;

    for (i = 0; i < sizeof generators / sizeof generators[0]; i++)
        if (fits(path, name, generators[i].prefix, generators[i].anywhere))
            return generators[i].name;
    return NULL;
}

/* Triton compiles one launcher per kernel into a folder of its own, and one helper for all. */
const char *vt_module_made_by_program(const char *path)
{
    const char *name = vt_basename(path);

    if (!strncmp(name, "__triton_launcher", 17))
        return "Triton launcher";
    if (!strncmp(name, "cuda_utils.", 11) && strstr(path, "/.triton/cache/"))
        return "Triton's CUDA helper";
    return NULL;
}

const char *vt_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* It runs the program, it is not the program. The executable's name: python3, python3.13t, python3.11-dbg. */
bool vt_module_is_interpreter(const char *path)
{
    const char *name = vt_basename(path), *rest;

    if (!strncmp(name, "libpython", 9))
        return true;
    if (strncmp(name, "python", 6))
        return false;
    rest = name + 6;
    rest += strspn(rest, "0123456789.");
    rest += strspn(rest, "dt");
    return !*rest || !strcmp(rest, "-dbg") || !strcmp(rest, " (deleted)"); /* upgraded while it ran */
}

bool vt_python_is_framework(const char *file)
{
    static const char *const packages[] = {"torch", "jax", "jaxlib", "cupy", "tensorflow", "rmm"};
    const char *at = strstr(file, "-packages/"); /* site-packages, dist-packages */
    size_t i, length;

    if (!at)
        return false;
    at += strlen("-packages/");
    length = strcspn(at, "/");
    for (i = 0; i < sizeof packages / sizeof packages[0]; i++)
        if (length == strlen(packages[i]) && !strncmp(at, packages[i], length))
            return true;
    return false;
}

enum vt_module_class vt_module_class(const char *path)
{
    const char *name = vt_basename(path);
    size_t i;

    for (i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (fits(path, name, rules[i].prefix, rules[i].anywhere))
            return rules[i].class_;
    return vt_module_is_interpreter(name) ? VT_MODULE_SYSTEM : VT_MODULE_APPLICATION;
}

enum vt_module_class vt_module_class_at(const struct vt_reading *reading, uint32_t module)
{
    const struct vt_module *m = vt_reading_module(reading, module);

    if (!m)
        return VT_MODULE_APPLICATION;
    return m->flags & VT_MODULE_SELF ? VT_MODULE_OURS : vt_module_class(vt_reading_chars(reading, m->path));
}

uint32_t vt_owner_module(const struct vt_reading *reading, uint32_t stack)
{
    const struct vt_frame *frame;
    uint32_t id = stack, steps;

    for (steps = 0; steps < VT_STACK_FRAMES_MAX && (frame = vt_reading_frame(reading, id)); steps++) {
        uint32_t module = frame->module;
        const struct vt_module *m = vt_reading_module(reading, module);

        if (m && !(m->flags & VT_MODULE_MAPPING)) { /* generated code works for whoever calls it */
            enum vt_module_class class_ = vt_module_class_at(reading, module);

            if (class_ != VT_MODULE_OURS && class_ != VT_MODULE_CUDA && class_ != VT_MODULE_SYSTEM)
                return module;
        }
        if (frame->parent >= id)
            break;
        id = frame->parent;
    }
    return VT_NONE;
}
