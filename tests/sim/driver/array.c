/*
 * Arrays and mipmapped arrays.  They are handles; their memory is taken on the card like any other, but its address is
 * never shown.  A level of a mipmapped array is a view: it owns nothing and dies with the mipmapped array.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct sim_array {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct sim_block *block; /* NULL for a level */
    uint64_t serial;         /* of the block */
};

struct sim_mipmap {
    CUDA_ARRAY3D_DESCRIPTOR desc;
    struct sim_block *block; /* NULL if it is mapped external memory */
    uint64_t serial;
    unsigned int levels;
    struct sim_array *level[32]; /* made when asked for */
};

static size_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

static size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return d->Width * (d->Height ? d->Height : 1) * (d->Depth ? d->Depth : 1) * format_bytes(d->Format) *
           d->NumChannels;
}

static CUresult check_desc(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    REQUIRE(d != NULL && d->Width != 0 && (d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4));
    REQUIRE(d->Width <= 1 << 20 && d->Height <= 1 << 17 && d->Depth <= 1 << 14);
    return CUDA_SUCCESS;
}

static CUresult take(size_t bytes, struct sim_block **out)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    TRY(sim_block_new(&ctx->device->heap, bytes, SIM_ARRAY, out));
    sim_ctx_adopt(ctx, *out);
    return CUDA_SUCCESS;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    struct sim_block *block;
    struct sim_array *array;

    REQUIRE(out != NULL);
    TRY(check_desc(desc));
    TRY(take(array_bytes(desc), &block));
    array = sim_object_new(SIM_T_ARRAY, sizeof(*array));
    array->desc = *desc;
    array->block = block;
    array->serial = block->serial;
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

static CUresult create_2d(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;

    REQUIRE(desc != NULL);
    wide = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = desc->Width, .Height = desc->Height, .Format = desc->Format, .NumChannels = desc->NumChannels};
    return create(out, &wide);
}

static CUresult create_2d_v1(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;

    REQUIRE(desc != NULL);
    wide = (CUDA_ARRAY3D_DESCRIPTOR){
        .Width = desc->Width, .Height = desc->Height, .Format = desc->Format, .NumChannels = desc->NumChannels};
    return create(out, &wide);
}

static CUresult create_3d_v1(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;

    REQUIRE(desc != NULL);
    wide = (CUDA_ARRAY3D_DESCRIPTOR){.Width = desc->Width,
                                     .Height = desc->Height,
                                     .Depth = desc->Depth,
                                     .Format = desc->Format,
                                     .NumChannels = desc->NumChannels,
                                     .Flags = desc->Flags};
    return create(out, &wide);
}

/* A context that went away took the memory with it; then the block belongs to someone else or to nobody. */
static void give(struct sim_block *block, uint64_t serial)
{
    if (block != NULL && block->serial == serial && block->kind == SIM_ARRAY) {
        sim_ctx_disown(block);
        sim_block_free(block);
    }
}

static CUresult destroy(CUarray handle)
{
    struct sim_array *array = (struct sim_array *)handle;

    if (!sim_object_is(array, SIM_T_ARRAY)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    REQUIRE(array->block != NULL); /* a level belongs to its mipmapped array */
    TRY(sim_capture_forbids());
    give(array->block, array->serial);
    sim_object_free(array);
    return CUDA_SUCCESS;
}

static CUresult describe(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle)
{
    REQUIRE(out != NULL);
    if (!sim_object_is(handle, SIM_T_ARRAY)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = ((struct sim_array *)handle)->desc;
    return CUDA_SUCCESS;
}

static CUresult describe_2d(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle)
{
    CUDA_ARRAY3D_DESCRIPTOR d;

    REQUIRE(out != NULL);
    TRY(describe(&d, handle));
    *out = (CUDA_ARRAY_DESCRIPTOR){
        .Width = d.Width, .Height = d.Height, .Format = d.Format, .NumChannels = d.NumChannels};
    return CUDA_SUCCESS;
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray handle, CUdevice dev)
{
    CUDA_ARRAY3D_DESCRIPTOR d;

    REQUIRE(out != NULL);
    TRY(sim_device_check(dev));
    TRY(describe(&d, handle));
    memset(out, 0, sizeof(*out));
    out->size = sim_round_up(array_bytes(&d), SIM_UNIT);
    out->alignment = SIM_UNIT;
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays ---- */

static CUDA_ARRAY3D_DESCRIPTOR level_desc(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = *d;

    smaller.Width = d->Width >> level ? d->Width >> level : 1;
    smaller.Height = d->Height && !(d->Height >> level) ? 1 : d->Height >> level;
    smaller.Depth = d->Depth && !(d->Depth >> level) ? 1 : d->Depth >> level;
    return smaller;
}

CUresult sim_mipmap_new(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels, bool external)
{
    struct sim_block *block = NULL;
    struct sim_mipmap *mipmap;
    size_t bytes = 0;
    unsigned int i;

    REQUIRE(out != NULL && levels >= 1 && levels <= 32);
    TRY(check_desc(desc));
    for (i = 0; i < levels; i++) {
        CUDA_ARRAY3D_DESCRIPTOR level = level_desc(desc, i);

        bytes += array_bytes(&level);
    }
    if (!external) {
        TRY(take(bytes, &block));
    }
    mipmap = sim_object_new(SIM_T_MIPMAP, sizeof(*mipmap));
    mipmap->desc = *desc;
    mipmap->block = block;
    mipmap->serial = block != NULL ? block->serial : 0;
    mipmap->levels = levels;
    *out = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

static CUresult get_level(CUarray *out, CUmipmappedArray handle, unsigned int level)
{
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;

    if (!sim_object_is(mipmap, SIM_T_MIPMAP)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    REQUIRE(out != NULL && level < mipmap->levels);
    if (mipmap->level[level] == NULL) {
        mipmap->level[level] = sim_object_new(SIM_T_ARRAY, sizeof(struct sim_array));
        mipmap->level[level]->desc = level_desc(&mipmap->desc, level);
    }
    *out = (CUarray)mipmap->level[level];
    return CUDA_SUCCESS;
}

static CUresult mipmap_destroy(CUmipmappedArray handle)
{
    struct sim_mipmap *mipmap = (struct sim_mipmap *)handle;
    unsigned int i;

    if (!sim_object_is(mipmap, SIM_T_MIPMAP)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    TRY(sim_capture_forbids());
    for (i = 0; i < mipmap->levels; i++) {
        sim_object_free(mipmap->level[i]);
    }
    give(mipmap->block, mipmap->serial);
    sim_object_free(mipmap);
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuArrayCreate, pHandle, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray),
           create_2d_v1(pHandle, pAllocateArray))
EXPORT_OUT(cuArrayCreate_v2, pHandle, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
           create_2d(pHandle, pAllocateArray))
EXPORT_OUT(cuArray3DCreate, pHandle, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray),
           create_3d_v1(pHandle, pAllocateArray))
EXPORT_OUT(cuArray3DCreate_v2, pHandle, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray),
           create(pHandle, pAllocateArray))
EXPORT(cuArrayDestroy, (CUarray hArray), destroy(hArray))
EXPORT_OUT(cuArrayGetDescriptor_v2, pArrayDescriptor, (CUDA_ARRAY_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
           describe_2d(pArrayDescriptor, hArray))
EXPORT_OUT(cuArray3DGetDescriptor_v2, pArrayDescriptor, (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
           describe(pArrayDescriptor, hArray))
EXPORT_OUT(cuArrayGetMemoryRequirements, memoryRequirements,
           (CUDA_ARRAY_MEMORY_REQUIREMENTS * memoryRequirements, CUarray array, CUdevice device),
           requirements(memoryRequirements, array, device))
EXPORT_OUT(cuMipmappedArrayCreate, pHandle,
           (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
            unsigned int numMipmapLevels),
           sim_mipmap_new(pHandle, pMipmappedArrayDesc, numMipmapLevels, false))
EXPORT_OUT(cuMipmappedArrayGetLevel, pLevelArray,
           (CUarray * pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level),
           get_level(pLevelArray, hMipmappedArray, level))
EXPORT(cuMipmappedArrayDestroy, (CUmipmappedArray hMipmappedArray), mipmap_destroy(hMipmappedArray))
