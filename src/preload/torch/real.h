/*
 * PyTorch's own libraries: the real functions behind our exports, and which allocator is in use.
 *
 * Python opens these libraries RTLD_LOCAL, so RTLD_NEXT does not lead to them. They are found in the loader's list by name,
 * and the function in the library's own symbol table: no library is opened and no lock of the loader's is taken that
 * another thread could hold while it runs constructors (which may be waiting for the allocator whose lock we are under).
 */
#ifndef VT_PRELOAD_TORCH_REAL_H
#define VT_PRELOAD_TORCH_REAL_H

#include <stdbool.h>

#include "preload/loaded.h"
#include "preload/torch/table.h"

enum vt_torch_function {
#define X(name, library) VT_T_##name,
    VT_TORCH_EXPORTS(X)
#undef X
        VT_T_COUNT
};

/* Behind vt_torch_real(). */
extern struct vt_loaded_function vt_torch_found[VT_T_COUNT];
extern const struct vt_torch_name {
    const char *name, *library;
} vt_torch_names[VT_T_COUNT];

/* The real function; NULL if it is not loaded. */
static inline void *vt_torch_real(enum vt_torch_function f)
{
    return vt_loaded_function(&vt_torch_found[f], vt_torch_names[f].library, vt_torch_names[f].name);
}

/* Does this PyTorch tell of requests that it refuses? */
bool vt_torch_has_refusals(void);

/* Was caching switched off by the environment (PYTORCH_NO_CUDA_MEMORY_CACHING), as PyTorch found it at its first use? */
bool vt_torch_uncached(void);

/* The path of the loaded libc10_cuda; "" if there is none. */
const char *vt_torch_library(void);

#endif
