/*
 * What the driver says about a pointer (cuPointerGetAttribute and relatives), and the hints for managed memory, which
 * are accepted and change nothing that can be seen.
 */
#include "driver.h"

#include <string.h>

struct facts {
    bool known, host, managed, registered;
    uintptr_t base;
    size_t bytes;
    int device;
    struct sim_block *block;
};

static struct facts facts_of(uintptr_t addr)
{
    struct sim_block *block = sim_block_around(addr);
    struct facts f = {.block = block};

    if (block != NULL) {
        f.known = true;
        f.managed = block->kind == SIM_MANAGED;
        f.host = block->kind == SIM_PINNED || block->heap->host;
        f.base = block->addr;
        f.bytes = block->bytes;
        f.device = block->device->index;
    } else if (sim_vmm_describe(addr, &f.base, &f.bytes, &f.device) == CUDA_SUCCESS) {
        f.known = true;
        f.host = f.device < 0;
    } else if (sim_host_registered(addr)) {
        f.known = f.host = f.registered = true;
        f.base = addr;
    }
    return f;
}

static CUresult one(void *out, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct facts f = facts_of(ptr);

    REQUIRE(out != NULL);
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
        *(int *)out = f.known;
        return CUDA_SUCCESS;
    }
    REQUIRE(f.known);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = f.block != NULL ? (CUcontext)f.block->ctx : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)out = f.host && !f.managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        REQUIRE(f.host || f.managed);
        *(void **)out = (void *)(uintptr_t)ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)out = f.block != NULL ? f.block->serial : f.base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)out = f.managed;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = f.device < 0 ? 0 : f.device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)out = f.block != NULL && f.block->kind == SIM_LINEAR;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = f.base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = f.bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = f.block != NULL ? (CUmemoryPool)f.block->pool : NULL;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult one_checked(void *out, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    return one(out, attribute, ptr);
}

/* Never fails for a pointer that the driver doesn't know: the answers are zero then. */
static CUresult several(unsigned int count, const CUpointer_attribute *attributes, void **out, CUdeviceptr ptr)
{
    struct sim_ctx *ctx;
    unsigned int i;

    REQUIRE(count != 0 && attributes != NULL && out != NULL);
    TRY(sim_ctx_current(&ctx));
    for (i = 0; i < count; i++) {
        if (one(out[i], attributes[i], ptr) == CUDA_SUCCESS) {
            continue;
        }
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)out[i] = -2; /* cudaInvalidDeviceId of the runtime */
            break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            memset(out[i], 0, sizeof(void *));
            break;
        default:
            memset(out[i], 0, sizeof(int));
        }
    }
    return CUDA_SUCCESS;
}

static CUresult set(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    REQUIRE(value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && facts_of(ptr).known);
    return CUDA_SUCCESS;
}

static CUresult hint(CUdeviceptr ptr, size_t bytes)
{
    struct sim_block *block = sim_block_around(ptr);

    REQUIRE(block != NULL && block->kind == SIM_MANAGED && bytes != 0);
    REQUIRE(ptr + bytes <= block->addr + block->bytes);
    return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr ptr, size_t bytes, CUstream stream, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(stream, per_thread, &s));
    return hint(ptr, bytes);
}

/* ---- exports ---- */

EXPORT(cuPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),
       one_checked(data, attribute, ptr))
EXPORT(cuPointerGetAttributes,
       (unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),
       several(numAttributes, attributes, data, ptr))
EXPORT(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
       set(value, attribute, ptr))
EXPORT(cuMemAdvise, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
       ((void)advice, (void)device, hint(devPtr, count)))
EXPORT(cuMemAdvise_v2, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
       ((void)advice, (void)location, hint(devPtr, count)))
EXPORT_STREAM(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
              (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
              ((void)dstDevice, prefetch(devPtr, count, hStream, per_thread)))
EXPORT_STREAM(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
              (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream),
              ((void)location, (void)flags, prefetch(devPtr, count, hStream, per_thread)))
