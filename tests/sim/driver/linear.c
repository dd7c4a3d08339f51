/*
 * Linear memory: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree, cuMemGetInfo, cuMemGetAddressRange, and the
 * 32-bit exports of CUDA 2, which still exist in the real driver and are distinct functions there too.
 *
 * cuMemFree frees more than cuMemAlloc returns: pitched and managed memory, pool memory, imported pool pointers, mapped
 * external buffers and what a graph left behind.  It doesn't free host memory, IPC mappings, module variables or VMM
 * mappings, and no pointer into the middle of a block.
 */
#include "driver.h"

#include <string.h>

#define PITCH_ALIGNMENT 512

static CUresult alloc(CUdeviceptr *out, size_t bytes)
{
    struct sim_block *block;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && bytes != 0);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    TRY(sim_block_new(&ctx->device->heap, bytes, SIM_LINEAR, &block));
    sim_ctx_adopt(ctx, block);
    *out = block->addr;
    return CUDA_SUCCESS;
}

static CUresult alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    size_t bytes;

    REQUIRE(out != NULL && pitch != NULL && width != 0 && height != 0);
    REQUIRE(element == 4 || element == 8 || element == 16);
    if (width > (size_t)1 << 46 || __builtin_mul_overflow(sim_round_up(width, PITCH_ALIGNMENT), height, &bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    TRY(alloc(out, bytes));
    *pitch = sim_round_up(width, PITCH_ALIGNMENT);
    return CUDA_SUCCESS;
}

static CUresult alloc_managed(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    struct sim_block *block;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && bytes != 0 && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    TRY(sim_block_new_host(bytes, SIM_MANAGED, &block));
    block->device = ctx->device;
    sim_ctx_adopt(ctx, block);
    *out = block->addr;
    return CUDA_SUCCESS;
}

CUresult sim_free_any(uintptr_t addr)
{
    struct sim_block *block = sim_block_at(addr);

    REQUIRE(block != NULL);
    switch (block->kind) {
    case SIM_LINEAR:
    case SIM_MANAGED:
    case SIM_EXTERNAL:
        sim_ctx_disown(block);
        sim_block_free(block);
        return CUDA_SUCCESS;
    case SIM_POOLED:
    case SIM_POOL_IMPORT:
        sim_pool_return(block);
        return CUDA_SUCCESS;
    case SIM_GRAPH:
        return sim_graph_free_live(block);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult release(CUdeviceptr ptr)
{
    struct sim_ctx *ctx;

    if (ptr == 0) {
        return CUDA_SUCCESS;
    }
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    return sim_free_any(ptr);
}

static CUresult get_info(size_t *free_bytes, size_t *total)
{
    struct sim_ctx *ctx;
    size_t taken;

    REQUIRE(free_bytes != NULL && total != NULL);
    TRY(sim_ctx_current(&ctx));
    taken = ctx->device->used + ctx->device->others;
    *total = ctx->device->total;
    *free_bytes = taken < *total ? *total - taken : 0;
    return CUDA_SUCCESS;
}

static CUresult address_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    struct sim_block *block = sim_block_around(ptr);
    uintptr_t start;
    size_t size;
    int device;

    if (block != NULL) {
        start = block->addr;
        size = block->bytes;
    } else if (sim_vmm_describe(ptr, &start, &size, &device) != CUDA_SUCCESS) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base != NULL) {
        *base = start;
    }
    if (bytes != NULL) {
        *bytes = size;
    }
    return CUDA_SUCCESS;
}

/* ---- the functions of CUDA 2: pointers and sizes of 32 bits ---- */

/* On a 64-bit driver the address doesn't fit, as a rule; then the allocation is undone and the call fails. */
static CUresult narrow(CUdeviceptr_v1 *out, CUdeviceptr ptr)
{
    if (ptr > UINT32_MAX) {
        sim_free_any(ptr);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = (CUdeviceptr_v1)ptr;
    return CUDA_SUCCESS;
}

static CUresult alloc_v1(CUdeviceptr_v1 *out, unsigned int bytes)
{
    CUdeviceptr ptr;

    REQUIRE(out != NULL);
    TRY(alloc(&ptr, bytes));
    return narrow(out, ptr);
}

static CUresult alloc_pitch_v1(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width, unsigned int height,
                               unsigned int element)
{
    CUdeviceptr ptr;
    size_t wide;

    REQUIRE(out != NULL && pitch != NULL);
    TRY(alloc_pitch(&ptr, &wide, width, height, element));
    *pitch = (unsigned int)wide;
    return narrow(out, ptr);
}

static CUresult get_info_v1(unsigned int *free_bytes, unsigned int *total)
{
    size_t free_wide, total_wide;

    REQUIRE(free_bytes != NULL && total != NULL);
    TRY(get_info(&free_wide, &total_wide));
    *free_bytes = free_wide > UINT32_MAX ? UINT32_MAX : (unsigned int)free_wide;
    *total = total_wide > UINT32_MAX ? UINT32_MAX : (unsigned int)total_wide;
    return CUDA_SUCCESS;
}

static CUresult address_range_v1(CUdeviceptr_v1 *base, unsigned int *bytes, CUdeviceptr_v1 ptr)
{
    CUdeviceptr base_wide;
    size_t wide;

    TRY(address_range(&base_wide, &wide, ptr));
    if (base != NULL) {
        *base = (CUdeviceptr_v1)base_wide;
    }
    if (bytes != NULL) {
        *bytes = (unsigned int)wide;
    }
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuMemAlloc, dptr, (CUdeviceptr_v1 * dptr, unsigned int bytesize), alloc_v1(dptr, bytesize))
EXPORT_OUT(cuMemAlloc_v2, dptr, (CUdeviceptr * dptr, size_t bytesize), alloc(dptr, bytesize))
EXPORT_OUT(cuMemAllocPitch, dptr,
           (CUdeviceptr_v1 * dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
            unsigned int ElementSizeBytes),
           alloc_pitch_v1(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
EXPORT_OUT(cuMemAllocPitch_v2, dptr,
           (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, unsigned int ElementSizeBytes),
           alloc_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
EXPORT_OUT(cuMemAllocManaged, dptr, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags),
           alloc_managed(dptr, bytesize, flags))
EXPORT(cuMemFree, (CUdeviceptr_v1 dptr), release(dptr))
EXPORT(cuMemFree_v2, (CUdeviceptr dptr), release(dptr))
EXPORT_OUT(cuMemGetInfo, free_bytes, (unsigned int *free_bytes, unsigned int *total), get_info_v1(free_bytes, total))
EXPORT_OUT(cuMemGetInfo_v2, free_bytes, (size_t * free_bytes, size_t *total), get_info(free_bytes, total))
EXPORT_OUT(cuMemGetAddressRange, pbase, (CUdeviceptr_v1 * pbase, unsigned int *psize, CUdeviceptr_v1 dptr),
           address_range_v1(pbase, psize, dptr))
EXPORT_OUT(cuMemGetAddressRange_v2, pbase, (CUdeviceptr * pbase, size_t *psize, CUdeviceptr dptr),
           address_range(pbase, psize, dptr))
