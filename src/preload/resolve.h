/*
 * Finding the real functions behind our wrappers, and knowing which real address belongs to which wrapper.
 *
 * The rule (docs/how-it-works.md): a caller's lookup is answered by the real dlsym or cuGetProcAddress first; only the
 * returned address decides whether a wrapper takes its place. Nothing here takes a lock of ours, opens a library or
 * calls CUDA: it runs inside dlsym, which libcuda itself calls while it is being loaded. Tables are filled with atomic
 * stores of values that every thread would compute alike.
 */
#ifndef VT_PRELOAD_RESOLVE_H
#define VT_PRELOAD_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/stack.h"

#define VT_EXPORT __attribute__((visibility("default")))

/* No entry points: what a record names instead where a framework's allocator did something. */
#define VT_FRAMEWORK_TABLE(X)                     \
    X(torch_caching, "torch.caching_allocator")   \
    X(torch_workspace, "torch.cublas_workspace")  \
    X(torch_async, "torch.async_allocator")       \
    X(torch_uncached, "torch.uncached_allocator") \
    X(jax, "jax")                                 \
    X(tensorflow, "tensorflow.bfc_allocator")

enum vt_entry_id {
#define X(name) VT_E_##name,
#include "preload/cuda/table.h"
    VT_DRIVER_TABLE(X) VT_E_driver_end,
    VT_E_runtime_begin = VT_E_driver_end - 1,
    VT_RUNTIME_TABLE(X) VT_E_wrapped_end,
    VT_E_helper_begin = VT_E_wrapped_end - 1,
    VT_HELPER_TABLE(X) VT_E_count,
#undef X
    VT_E_framework_begin = VT_E_count - 1,
#define X(id, name) VT_E_##id,
    VT_FRAMEWORK_TABLE(X)
#undef X
};

static inline bool vt_entry_is_runtime(unsigned e)
{
    return e >= VT_E_driver_end && e < VT_E_wrapped_end;
}

const char *vt_entry_name(unsigned e);

/* dlsym of the C library, found without our own (dlvsym); never NULL on glibc. */
void *vt_real_dlsym(void *handle, const char *name);
void *vt_real_dlsym_address(void);

/* The loaded object that contains an address; false if none does. Lock-free where the C library offers it. */
bool vt_object_at(const void *address, struct vt_object *object);

/* Is this the path of NVIDIA's driver library (or of the WSL stub, or of a simulated one)? */
bool vt_is_driver_path(const char *path);

/* The function that a driver wrapper or helper is to call, or NULL if no driver is loaded. */
void *vt_real(enum vt_entry_id e);

/* The same function inside the driver library itself, past any other interposer; NULL if unknown. */
void *vt_driver(enum vt_entry_id e);

/* The real runtime function for a caller (its return address), or NULL. May open (RTLD_NOLOAD): not from dlsym.
 * *by_torch: the caller is PyTorch's allocator library. */
void *vt_real_runtime(enum vt_entry_id e, void *caller, bool *by_torch);

/* Is this the path of PyTorch's library for CUDA allocation? */
bool vt_is_torch_path(const char *path);

/* What to hand out instead of a driver function's address: our wrapper, or the address itself. */
void *vt_substitute(void *address);

/* Path of the object that provides the driver API, for the recording; NULL: none seen. */
const char *vt_driver_path(void);

#endif
