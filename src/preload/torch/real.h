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

#include "preload/stack.h"
#include "preload/torch/table.h"

enum vt_torch_function {
#define X(name, library) VT_T_##name,
    VT_TORCH_EXPORTS(X)
#undef X
        VT_T_COUNT
};

/* Behind vt_torch_real(): where each was found, and what vt_stack_salt() was then. */
extern struct vt_torch_found {
    void *function;
    uint64_t salt;
} vt_torch_found[VT_T_COUNT];
void *vt_torch_look_up(enum vt_torch_function f);

/* The real function; NULL if it is not loaded. Two loads once it was found; it is looked for again after a dlclose. */
static inline void *vt_torch_real(enum vt_torch_function f)
{
    if (__atomic_load_n(&vt_torch_found[f].salt, __ATOMIC_ACQUIRE) == vt_stack_salt()) {
        void *known = __atomic_load_n(&vt_torch_found[f].function, __ATOMIC_RELAXED);
        if (known)
            return known;
    }
    return vt_torch_look_up(f);
}

/* Does this PyTorch tell of requests that it refuses? */
bool vt_torch_has_refusals(void);

/* Was caching switched off by the environment (PYTORCH_NO_CUDA_MEMORY_CACHING), as PyTorch found it at its first use? */
bool vt_torch_uncached(void);

/* The path of the loaded libc10_cuda; "" if there is none. */
const char *vt_torch_library(void);

#endif
