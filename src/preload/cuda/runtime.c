/*
 * The runtime API as label and safety net. Each call ends in the driver, whose wrappers record it under the name that
 * the program used. Only if nothing was recorded inside a successful call (a runtime that reaches a driver which our
 * hooks do not) it is recorded here.
 *
 * Which real function is the caller's depends on the caller: a process may hold several runtimes, some of them opened
 * RTLD_LOCAL (resolve.c).
 */
#include "preload/context.h"
#include "preload/torch/allocator.h"
#include "preload/track.h"

struct runtime_call {
    bool outermost, by_torch;
    uint16_t events;
    struct vt_call call;
};

static void *runtime_enter(struct runtime_call *c, enum vt_entry_id e, void *caller)
{
    void *real = vt_real_runtime(e, caller, &c->by_torch);
    c->outermost = !vt_tls.runtime;
    c->events = vt_tls.driver_events;
    c->call = (struct vt_call){
        .entry = (uint16_t)e, .label = (uint16_t)e, .record = c->outermost && !vt_options()->off && !vt_state.stopped};
    if (c->outermost && real) {
        vt_tls.runtime = (uint16_t)(e + 1);
        vt_tls.torch = c->by_torch ? VT_TORCH_CALLS : VT_TORCH_NO;
    }
    return real;
}

/* True if the call succeeded and no wrapper of the driver saw it. */
static bool runtime_leave(const struct runtime_call *c, cudaError_t r)
{
    if (c->outermost) {
        vt_tls.runtime = 0;
        vt_tls.torch = VT_TORCH_NO;
    }
    return c->call.record && r == cudaSuccess && vt_tls.driver_events == c->events;
}

#define RUNTIME_BEGIN(name)                                                                                   \
    struct runtime_call rc;                                                                                   \
    __typeof__(&name) real = (__typeof__(&name))runtime_enter(&rc, VT_E_##name, __builtin_return_address(0)); \
    if (!real)                                                                                                \
    return VT_RUNTIME_NOT_LOADED

static int net_used; /* something was recorded here: frees have to look */

/* The safety net's record. `p` NULL: a request for nothing. */
static void unseen(const struct runtime_call *c, enum vt_kind kind, enum vt_space space, const void *p, uint64_t bytes,
                   uint64_t requested)
{
    struct vt_where w = vt_where_now();
    bool host = vt_class_of(kind) == VT_CLASS_HOST;
    struct vt_alloc a = {.kind = kind,
                         .space = space,
                         .device = host ? -1 : w.device,
                         .owner = kind == VT_KIND_ASYNC ? 0 : w.context,
                         .bytes = bytes,
                         .requested = requested,
                         .flags = VT_SLOT_RUNTIME};
    a.key = a.address = (uint64_t)(uintptr_t)p;
    if (!p)
        return;
    __atomic_store_n(&net_used, 1, __ATOMIC_RELEASE);
    vt_tls.torch = c->by_torch ? VT_TORCH_CALLS : VT_TORCH_NO;
    vt_record_alloc(&c->call, &a);
    vt_tls.torch = VT_TORCH_NO;
}

/* Takes an allocation off the books that only the safety net knows; otherwise the driver's wrapper will. */
static void free_unseen(const struct runtime_call *c, struct vt_freeing *f, enum vt_space space, const void *p)
{
    f->recorded = false;
    if (!__atomic_load_n(&net_used, __ATOMIC_ACQUIRE) || !c->call.record || !p || !vt_state_lock(false))
        return;
    struct vt_node *n = vt_live_find(space, (uint64_t)(uintptr_t)p);
    bool mine = n && vt_live_slot(n)->flags & VT_SLOT_RUNTIME;
    vt_state_unlock();
    if (mine)
        vt_free_begin(&c->call, f, space, (uint64_t)(uintptr_t)p, ~0u, false);
}

VT_EXPORT cudaError_t cudaMalloc(void **p, size_t bytes)
{
    RUNTIME_BEGIN(cudaMalloc);
    if (rc.by_torch)
        vt_torch_asks(bytes);
    cudaError_t r = real(p, bytes);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_DEVICE, VT_SPACE_POINTER, *p, bytes, bytes);
    return r;
}

VT_EXPORT cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)
{
    RUNTIME_BEGIN(cudaMallocPitch);
    cudaError_t r = real(p, pitch, width, height);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_DEVICE, VT_SPACE_POINTER, *p, *pitch * height, width * height);
    return r;
}

VT_EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent extent)
{
    RUNTIME_BEGIN(cudaMalloc3D);
    cudaError_t r = real(p, extent);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_DEVICE, VT_SPACE_POINTER, p->ptr, p->pitch * extent.height * extent.depth,
               extent.width * extent.height * extent.depth);
    return r;
}

VT_EXPORT cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned int flags)
{
    RUNTIME_BEGIN(cudaMallocManaged);
    cudaError_t r = real(p, bytes, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_MANAGED, VT_SPACE_POINTER, *p, bytes, bytes);
    return r;
}

VT_EXPORT cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    RUNTIME_BEGIN(cudaMallocHost);
    cudaError_t r = real(p, bytes);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_PINNED, VT_SPACE_POINTER, *p, bytes, bytes);
    return r;
}

VT_EXPORT cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    RUNTIME_BEGIN(cudaHostAlloc);
    cudaError_t r = real(p, bytes, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_PINNED, VT_SPACE_POINTER, *p, bytes, bytes);
    return r;
}

VT_EXPORT cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags)
{
    RUNTIME_BEGIN(cudaHostRegister);
    cudaError_t r = real(p, bytes, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_REGISTERED, VT_SPACE_REGISTERED, p, bytes, bytes);
    return r;
}

/* The runtime's array sizes are not computed a second time: what the net catches of them has 0 bytes, but is listed. */
VT_EXPORT cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *format, size_t width,
                                      size_t height, unsigned int flags)
{
    RUNTIME_BEGIN(cudaMallocArray);
    cudaError_t r = real(array, format, width, height, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_ARRAY, VT_SPACE_ARRAY, *array, 0, 0);
    return r;
}

VT_EXPORT cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *format,
                                        struct cudaExtent extent, unsigned int flags)
{
    RUNTIME_BEGIN(cudaMalloc3DArray);
    cudaError_t r = real(array, format, extent, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_ARRAY, VT_SPACE_ARRAY, *array, 0, 0);
    return r;
}

VT_EXPORT cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *array, const struct cudaChannelFormatDesc *format,
                                               struct cudaExtent extent, unsigned int levels, unsigned int flags)
{
    RUNTIME_BEGIN(cudaMallocMipmappedArray);
    cudaError_t r = real(array, format, extent, levels, flags);
    if (runtime_leave(&rc, r))
        unseen(&rc, VT_KIND_ARRAY, VT_SPACE_MIPMAP, *array, 0, 0);
    return r;
}

#define ASYNC_WRAPPER(name, parameters, arguments)                          \
    VT_EXPORT cudaError_t name parameters                                   \
    {                                                                       \
        RUNTIME_BEGIN(name);                                                \
        if (rc.by_torch)                                                    \
            vt_torch_asks(bytes);                                           \
        cudaError_t r = real arguments;                                     \
        if (runtime_leave(&rc, r))                                          \
            unseen(&rc, VT_KIND_ASYNC, VT_SPACE_POINTER, *p, bytes, bytes); \
        return r;                                                           \
    }

ASYNC_WRAPPER(cudaMallocAsync, (void **p, size_t bytes, cudaStream_t stream), (p, bytes, stream))
ASYNC_WRAPPER(cudaMallocAsync_ptsz, (void **p, size_t bytes, cudaStream_t stream), (p, bytes, stream))
ASYNC_WRAPPER(cudaMallocFromPoolAsync, (void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              (p, bytes, pool, stream))
ASYNC_WRAPPER(cudaMallocFromPoolAsync_ptsz, (void **p, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              (p, bytes, pool, stream))

#define FREE_WRAPPER(name, parameters, arguments, space, pointer) \
    VT_EXPORT cudaError_t name parameters                         \
    {                                                             \
        RUNTIME_BEGIN(name);                                      \
        struct vt_freeing f;                                      \
        free_unseen(&rc, &f, space, (const void *)pointer);       \
        cudaError_t r = real arguments;                           \
        vt_free_end(&rc.call, &f, (int)r);                        \
        runtime_leave(&rc, r);                                    \
        return r;                                                 \
    }

FREE_WRAPPER(cudaFree, (void *p), (p), VT_SPACE_POINTER, p)
FREE_WRAPPER(cudaFreeHost, (void *p), (p), VT_SPACE_POINTER, p)
FREE_WRAPPER(cudaHostUnregister, (void *p), (p), VT_SPACE_REGISTERED, p)
FREE_WRAPPER(cudaFreeArray, (cudaArray_t p), (p), VT_SPACE_ARRAY, p)
FREE_WRAPPER(cudaFreeMipmappedArray, (cudaMipmappedArray_t p), (p), VT_SPACE_MIPMAP, p)
FREE_WRAPPER(cudaFreeAsync, (void *p, cudaStream_t stream), (p, stream), VT_SPACE_POINTER, p)
FREE_WRAPPER(cudaFreeAsync_ptsz, (void *p, cudaStream_t stream), (p, stream), VT_SPACE_POINTER, p)

/* Not an allocation: what PyTorch's allocator is told here, it acts on (torch/allocator.h). */
VT_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    RUNTIME_BEGIN(cudaMemGetInfo);
    cudaError_t r = real(free_bytes, total_bytes);
    runtime_leave(&rc, r);
    if (rc.by_torch && r == cudaSuccess)
        vt_torch_told(*free_bytes, *total_bytes);
    return r;
}

static bool seen_by_net(const struct vt_node *n, const struct vt_slot *s, void *argument)
{
    (void)n, (void)argument;
    return s->flags & VT_SLOT_RUNTIME;
}

VT_EXPORT cudaError_t cudaDeviceReset(void)
{
    RUNTIME_BEGIN(cudaDeviceReset);
    cudaError_t r = real();
    runtime_leave(&rc, r);
    if (r == cudaSuccess && rc.call.record)
        vt_retire(seen_by_net, NULL);
    return r;
}
