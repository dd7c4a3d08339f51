/*
 * What kind of code a module is, judged by its file name: our own library, CUDA's driver and runtime, the C library,
 * a math or communication library, a framework's allocator, or the application.
 *
 * Pure functions over names; usable from any thread.
 */
#ifndef VRAMTRACK_MODULES_H
#define VRAMTRACK_MODULES_H

#include <stdbool.h>
#include <stdint.h>

#include "recording/reader.h"

enum vt_module_class {
    VT_MODULE_APPLICATION,
    VT_MODULE_OURS,     /* this library */
    VT_MODULE_CUDA,     /* the driver and the CUDA runtime as a shared library */
    VT_MODULE_SYSTEM,   /* the loader, libc, libpthread, libstdc++, the Python interpreter */
    VT_MODULE_LIBRARY,  /* cuBLAS, cuDNN, NCCL ...: workspaces of their own */
    VT_MODULE_FRAMEWORK /* PyTorch, TensorFlow, JAX, CuPy, RMM, ONNX Runtime: allocators with pools */
};

/* The class of a module by its path (any length, need not exist). */
enum vt_module_class vt_module_class(const char *path);

/* The same for a module of a recording (index; VT_NONE and bad ones: application). */
enum vt_module_class vt_module_class_at(const struct vt_reading *reading, uint32_t module);

/* Who generates code at run time, by the path of its library: "numba/LLVM", "XLA", ...; NULL: nobody known. */
const char *vt_module_generator(const char *path);

/* What a file that a program made for itself is: "Triton launcher"; NULL: no such file. */
const char *vt_module_made_by_program(const char *path);

/* A python executable or libpython, by its path. */
bool vt_module_is_interpreter(const char *path);

/* Python code of a framework whose allocator keeps pools, by the file of its source. */
bool vt_python_is_framework(const char *file);

/* The part of a path after the last '/'; points into path. */
const char *vt_basename(const char *path);

/*
 * Index of the module that made the allocation with this stack: of the innermost frame that is neither ours, nor
 * CUDA's, nor the system's. VT_NONE if there is none.
 */
uint32_t vt_owner_module(const struct vt_reading *reading, uint32_t stack);

#endif
