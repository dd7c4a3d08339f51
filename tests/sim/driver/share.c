/*
 * Memory that comes from elsewhere: IPC between processes and external memory.
 *
 * An IPC handle carries the exporter's process id, the base address and the size.  Opening it maps address space, not
 * memory: the exporter has paid.  Opening it twice in one context returns the same pointer, which must be closed twice.
 * External memory (Vulkan and the like) is a size with a descriptor; a mapped buffer is freed by cuMemFree, a mapped
 * mipmapped array by cuMipmappedArrayDestroy, and destroying the external memory frees no mapping.
 */
#include "driver.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ipc {
    char magic[8];
    int pid;
    int device;
    uint64_t base, bytes;
};

_Static_assert(sizeof(struct ipc) <= sizeof(CUipcMemHandle), "must fit");

struct external {
    size_t bytes;
};

static CUresult ipc_get(CUipcMemHandle *out, CUdeviceptr ptr)
{
    struct sim_block *block = sim_block_around(ptr);
    struct ipc ipc = {.magic = "sim-ipc", .pid = getpid()};

    REQUIRE(out != NULL && block != NULL && block->kind == SIM_LINEAR);
    ipc.device = block->device->index;
    ipc.base = block->addr;
    ipc.bytes = block->bytes;
    memset(out, 0, sizeof(*out));
    memcpy(out, &ipc, sizeof(ipc));
    return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned int flags)
{
    struct sim_block *block;
    struct sim_ctx *ctx;
    struct ipc ipc;

    memcpy(&ipc, handle, sizeof(ipc));
    REQUIRE(out != NULL && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && memcmp(ipc.magic, "sim-ipc", 8) == 0);
    TRY(sim_ctx_current(&ctx));
    if (ipc.pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT; /* one's own memory can't be opened */
    }
    if (kill(ipc.pid, 0) != 0 && errno == ESRCH) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (block = ctx->blocks; block != NULL; block = block->next) {
        if (block->kind == SIM_IPC && block->origin_pid == ipc.pid && block->origin_ptr == ipc.base) {
            block->refs++;
            *out = block->addr;
            return CUDA_SUCCESS;
        }
    }
    TRY(sim_block_new(&ctx->device->graph_heap, ipc.bytes, SIM_IPC, &block));
    block->refs = 1;
    block->origin_pid = ipc.pid;
    block->origin_ptr = ipc.base;
    sim_ctx_adopt(ctx, block);
    *out = block->addr;
    return CUDA_SUCCESS;
}

static CUresult ipc_close(CUdeviceptr ptr)
{
    struct sim_block *block = sim_block_at(ptr);

    REQUIRE(block != NULL && block->kind == SIM_IPC);
    if (--block->refs == 0) {
        sim_ctx_disown(block);
        sim_block_free(block);
    }
    return CUDA_SUCCESS;
}

/* ---- external memory ---- */

static CUresult import(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    struct external *external;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && desc != NULL && desc->size != 0);
    TRY(sim_ctx_current(&ctx));
    if (desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) {
        REQUIRE(close(desc->handle.fd) == 0); /* an imported descriptor is the driver's */
    }
    external = sim_object_new(SIM_T_EXTERNAL, sizeof(*external));
    external->bytes = desc->size;
    *out = (CUexternalMemory)external;
    return CUDA_SUCCESS;
}

static CUresult external_find(CUexternalMemory handle, struct external **out)
{
    *out = (struct external *)handle;
    return sim_object_is(handle, SIM_T_EXTERNAL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult map_buffer(CUdeviceptr *out, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    struct external *external;
    struct sim_block *block;
    struct sim_ctx *ctx;

    TRY(external_find(handle, &external));
    REQUIRE(out != NULL && desc != NULL && desc->size != 0 && desc->size <= external->bytes &&
            desc->offset <= external->bytes - desc->size);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_block_new(&ctx->device->graph_heap, desc->size, SIM_EXTERNAL, &block));
    sim_ctx_adopt(ctx, block);
    *out = block->addr;
    return CUDA_SUCCESS;
}

static CUresult map_mipmap(CUmipmappedArray *out, CUexternalMemory handle,
                           const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
    struct external *external;

    TRY(external_find(handle, &external));
    REQUIRE(desc != NULL);
    return sim_mipmap_new(out, &desc->arrayDesc, desc->numLevels, true);
}

static CUresult external_destroy(CUexternalMemory handle)
{
    struct external *external;

    TRY(external_find(handle, &external));
    sim_object_free(external);
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuIpcGetMemHandle, pHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr), ipc_get(pHandle, dptr))
EXPORT_OUT(cuIpcOpenMemHandle, pdptr, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
           ipc_open(pdptr, &handle, Flags))
EXPORT_OUT(cuIpcOpenMemHandle_v2, pdptr, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
           ipc_open(pdptr, &handle, Flags))
EXPORT(cuIpcCloseMemHandle, (CUdeviceptr dptr), ipc_close(dptr))
EXPORT_OUT(cuImportExternalMemory, extMem_out,
           (CUexternalMemory * extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc),
           import(extMem_out, memHandleDesc))
EXPORT_OUT(cuExternalMemoryGetMappedBuffer, devPtr,
           (CUdeviceptr * devPtr, CUexternalMemory extMem, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc),
           map_buffer(devPtr, extMem, bufferDesc))
EXPORT_OUT(cuExternalMemoryGetMappedMipmappedArray, mipmap,
           (CUmipmappedArray * mipmap, CUexternalMemory extMem,
            const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc),
           map_mipmap(mipmap, extMem, mipmapDesc))
EXPORT(cuDestroyExternalMemory, (CUexternalMemory extMem), external_destroy(extMem))
