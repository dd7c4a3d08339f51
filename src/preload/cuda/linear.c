/* Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, and cuMemFree, which frees more than these. */
#include "preload/context.h"
#include "preload/track.h"

/* A linear allocation of the current context. */
static inline __attribute__((always_inline)) void linear(const struct vt_call *call, enum vt_kind kind, CUresult r,
                                                         const CUdeviceptr *p, uint64_t bytes, uint64_t requested)
{
    if (!call->record)
        return;
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = kind,
                         .space = VT_SPACE_POINTER,
                         .device = w.device,
                         .owner = w.context,
                         .bytes = bytes,
                         .requested = requested};
    if (r) {
        vt_record_failed_alloc(call, &a, (int)r);
        return;
    }
    a.key = a.address = *p;
    vt_record_alloc(call, &a);
}

VT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    VT_BEGIN(cuMemAlloc_v2);
    CUresult r = real(p, bytes);
    linear(&call, VT_KIND_DEVICE, r, p, bytes, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    VT_BEGIN(cuMemAllocPitch_v2);
    CUresult r = real(p, pitch, width, height, element);
    linear(&call, VT_KIND_DEVICE, r, p, (r ? width : *pitch) * height, width * height);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned int flags)
{
    VT_BEGIN(cuMemAllocManaged);
    CUresult r = real(p, bytes, flags);
    linear(&call, VT_KIND_MANAGED, r, p, bytes, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
    VT_BEGIN(cuMemFree_v2);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_POINTER, p,
                  VT_KINDS(VT_KIND_DEVICE) | VT_KINDS(VT_KIND_MANAGED) | VT_KINDS(VT_KIND_ASYNC) |
                      VT_KINDS(VT_KIND_GRAPH) | VT_KINDS(VT_KIND_IMPORTED),
                  true);
    CUresult r = real(p);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}
