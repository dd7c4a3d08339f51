/*
 * CUDA arrays and mipmapped arrays: handles, not addresses. The driver tells no array's size (only that of deferred
 * ones), so it is computed from the descriptor: width x height x depth x channels x bytes per channel. Alignment of rows
 * is the driver's and is not in it.
 */
#include "preload/context.h"
#include "preload/track.h"

/* Bytes per element of all channels together. Block-compressed and planar video formats (enum values from CUDA 11.5 on)
 * count as whole bytes per element of their uncompressed kind: their exact layout is not documented. */
static uint64_t element_bytes(CUarray_format format, unsigned channels)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2ull * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4ull * channels;
    default:
        return channels ? channels : 1;
    }
}

static uint64_t at_least_one(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0; /* owns nothing until memory is mapped into it */
    return at_least_one(d->Width) * at_least_one(d->Height) * at_least_one(d->Depth) *
           element_bytes(d->Format, d->NumChannels);
}

static uint64_t mipmap_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR level = *d;
    bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        sum += array_bytes(&level);
        level.Width = at_least_one(level.Width / 2);
        level.Height = level.Height ? at_least_one(level.Height / 2) : 0;
        if (!layered && level.Depth)
            level.Depth = at_least_one(level.Depth / 2);
    }
    return sum;
}

static void array(const struct vt_call *call, enum vt_space space, CUresult r, const void *handle, uint64_t bytes)
{
    if (!call->record)
        return;
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_ARRAY,
                         .space = space,
                         .device = w.device,
                         .owner = w.context,
                         .bytes = bytes,
                         .requested = bytes};
    a.key = a.address = (uint64_t)(uintptr_t)handle;
    if (r)
        vt_record_failed_alloc(call, &a, (int)r);
    else
        vt_record_alloc(call, &a);
}

VT_EXPORT CUresult cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *d)
{
    VT_BEGIN(cuArrayCreate_v2);
    CUresult r = real(handle, d);
    if (d) {
        CUDA_ARRAY3D_DESCRIPTOR full = {
            .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
        array(&call, VT_SPACE_ARRAY, r, r ? NULL : *handle, array_bytes(&full));
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    VT_BEGIN(cuArray3DCreate_v2);
    CUresult r = real(handle, d);
    if (d)
        array(&call, VT_SPACE_ARRAY, r, r ? NULL : *handle, array_bytes(d));
    return VT_END(r);
}

VT_EXPORT CUresult cuArrayDestroy(CUarray handle)
{
    VT_BEGIN(cuArrayDestroy);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_ARRAY, (uint64_t)(uintptr_t)handle, VT_KINDS(VT_KIND_ARRAY), true);
    CUresult r = real(handle);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}

VT_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                          unsigned int levels)
{
    VT_BEGIN(cuMipmappedArrayCreate);
    CUresult r = real(handle, d, levels);
    if (d)
        array(&call, VT_SPACE_MIPMAP, r, r ? NULL : *handle, mipmap_bytes(d, levels));
    return VT_END(r);
}

VT_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    VT_BEGIN(cuMipmappedArrayDestroy);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_MIPMAP, (uint64_t)(uintptr_t)handle,
                  VT_KINDS(VT_KIND_ARRAY) | VT_KINDS(VT_KIND_IMPORTED), true);
    CUresult r = real(handle);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}
