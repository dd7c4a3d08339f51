/* Page-locked host memory: CUDA's own (pinned) and the application's (registered). It occupies no card: device -1. */
#include "preload/context.h"
#include "preload/track.h"

static void host(const struct vt_call *call, enum vt_kind kind, CUresult r, const void *p, uint64_t bytes)
{
    if (!call->record)
        return;
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = kind,
                         .space = kind == VT_KIND_PINNED ? VT_SPACE_POINTER : VT_SPACE_REGISTERED,
                         .device = -1,
                         .owner = w.context,
                         .bytes = bytes,
                         .requested = bytes};
    a.key = a.address = (uint64_t)(uintptr_t)p;
    if (r)
        vt_record_failed_alloc(call, &a, (int)r);
    else
        vt_record_alloc(call, &a);
}

VT_EXPORT CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    VT_BEGIN(cuMemHostAlloc);
    CUresult r = real(p, bytes, flags);
    host(&call, VT_KIND_PINNED, r, r ? NULL : *p, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocHost_v2(void **p, size_t bytes)
{
    VT_BEGIN(cuMemAllocHost_v2);
    CUresult r = real(p, bytes);
    host(&call, VT_KIND_PINNED, r, r ? NULL : *p, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemFreeHost(void *p)
{
    VT_BEGIN(cuMemFreeHost);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_POINTER, (uint64_t)(uintptr_t)p, VT_KINDS(VT_KIND_PINNED), true);
    CUresult r = real(p);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    VT_BEGIN(cuMemHostRegister_v2);
    CUresult r = real(p, bytes, flags);
    host(&call, VT_KIND_REGISTERED, r, p, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemHostUnregister(void *p)
{
    VT_BEGIN(cuMemHostUnregister);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_REGISTERED, (uint64_t)(uintptr_t)p, VT_KINDS(VT_KIND_REGISTERED), true);
    CUresult r = real(p);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}
