/*
 * Memory of the runtime API, all but pools and graphs.  cudaMallocHost is cuMemHostAlloc, cudaMalloc of zero bytes is a
 * null pointer without a call to the driver, cudaFree(NULL) only makes the context.
 */
#include "runtime.h"

#include <string.h>

static cudaError_t malloc_linear(void **out, size_t bytes)
{
    if (out == NULL) {
        return cudaErrorInvalidValue;
    }
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    return (cudaError_t)sim_rt.cuMemAlloc_v2((CUdeviceptr *)out, bytes);
}

static cudaError_t malloc_pitch(void **out, size_t *pitch, size_t width, size_t height)
{
    if (out == NULL || pitch == NULL) {
        return cudaErrorInvalidValue;
    }
    if (width == 0 || height == 0) {
        *out = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    return (cudaError_t)sim_rt.cuMemAllocPitch_v2((CUdeviceptr *)out, pitch, width, height, 4);
}

static cudaError_t malloc_3d(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
    cudaError_t e;

    if (out == NULL) {
        return cudaErrorInvalidValue;
    }
    e = malloc_pitch(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth);
    out->xsize = extent.width;
    out->ysize = extent.height;
    return e;
}

static cudaError_t malloc_host(void **out, size_t bytes, unsigned int flags)
{
    if (out != NULL && bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    return (cudaError_t)sim_rt.cuMemHostAlloc(out, bytes, flags);
}

static cudaError_t free_linear(void *ptr)
{
    return ptr == NULL ? cudaSuccess : (cudaError_t)sim_rt.cuMemFree_v2((CUdeviceptr)ptr);
}

static cudaError_t free_host(void *ptr)
{
    return ptr == NULL ? cudaSuccess : (cudaError_t)sim_rt.cuMemFreeHost(ptr);
}

RUNTIME(cudaMalloc, (void **devPtr, size_t size), sim_rt_context, malloc_linear(devPtr, size))
RUNTIME(cudaMallocPitch, (void **devPtr, size_t *pitch, size_t width, size_t height), sim_rt_context,
        malloc_pitch(devPtr, pitch, width, height))
RUNTIME(cudaMalloc3D, (struct cudaPitchedPtr * pitchedDevPtr, struct cudaExtent extent), sim_rt_context,
        malloc_3d(pitchedDevPtr, extent))
RUNTIME(cudaMallocManaged, (void **devPtr, size_t size, unsigned int flags), sim_rt_context,
        sim_rt.cuMemAllocManaged((CUdeviceptr *)devPtr, size, flags))
RUNTIME(cudaMallocHost, (void **ptr, size_t size), sim_rt_context, malloc_host(ptr, size, 0))
RUNTIME(cudaHostAlloc, (void **pHost, size_t size, unsigned int flags), sim_rt_context, malloc_host(pHost, size, flags))
RUNTIME(cudaFree, (void *devPtr), sim_rt_context, free_linear(devPtr))
RUNTIME(cudaFreeHost, (void *ptr), sim_rt_context, free_host(ptr))
RUNTIME(cudaHostRegister, (void *ptr, size_t size, unsigned int flags), sim_rt_context,
        sim_rt.cuMemHostRegister_v2(ptr, size, flags))
RUNTIME(cudaHostUnregister, (void *ptr), sim_rt_context, sim_rt.cuMemHostUnregister(ptr))
RUNTIME(cudaHostGetDevicePointer, (void **pDevice, void *pHost, unsigned int flags), sim_rt_context,
        sim_rt.cuMemHostGetDevicePointer_v2((CUdeviceptr *)pDevice, pHost, flags))
RUNTIME(cudaHostGetFlags, (unsigned int *pFlags, void *pHost), sim_rt_context, sim_rt.cuMemHostGetFlags(pFlags, pHost))
RUNTIME(cudaMemGetInfo, (size_t * free, size_t *total), sim_rt_context, sim_rt.cuMemGetInfo_v2(free, total))

/* ---- arrays ---- */

static cudaError_t describe(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int flags,
                            CUDA_ARRAY3D_DESCRIPTOR *out)
{
    int bits = desc != NULL ? desc->x : 0;
    bool real = desc != NULL && desc->f == cudaChannelFormatKindFloat;
    bool is_signed = desc != NULL && desc->f == cudaChannelFormatKindSigned;

    if (desc == NULL || (bits != 8 && bits != 16 && bits != 32)) {
        return cudaErrorInvalidChannelDescriptor;
    }
    memset(out, 0, sizeof(*out));
    out->Width = extent.width;
    out->Height = extent.height;
    out->Depth = extent.depth;
    out->NumChannels = 1u + (desc->y != 0) + (desc->z != 0) + (desc->w != 0);
    out->Flags = flags;
    out->Format = real         ? bits == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT
                  : bits == 8  ? is_signed ? CU_AD_FORMAT_SIGNED_INT8 : CU_AD_FORMAT_UNSIGNED_INT8
                  : bits == 16 ? is_signed ? CU_AD_FORMAT_SIGNED_INT16 : CU_AD_FORMAT_UNSIGNED_INT16
                  : is_signed  ? CU_AD_FORMAT_SIGNED_INT32
                               : CU_AD_FORMAT_UNSIGNED_INT32;
    return cudaSuccess;
}

static cudaError_t malloc_array(cudaArray_t *out, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
                                unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    CUDA_ARRAY_DESCRIPTOR flat;
    cudaError_t e = describe(desc, extent, flags, &full);

    if (e != cudaSuccess) {
        return e;
    }
    if (extent.depth != 0 || flags != 0) {
        return (cudaError_t)sim_rt.cuArray3DCreate_v2((CUarray *)out, &full);
    }
    flat = (CUDA_ARRAY_DESCRIPTOR){
        .Width = full.Width, .Height = full.Height, .Format = full.Format, .NumChannels = full.NumChannels};
    return (cudaError_t)sim_rt.cuArrayCreate_v2((CUarray *)out, &flat);
}

static cudaError_t malloc_mipmap(cudaMipmappedArray_t *out, const struct cudaChannelFormatDesc *desc,
                                 struct cudaExtent extent, unsigned int levels, unsigned int flags)
{
    CUDA_ARRAY3D_DESCRIPTOR full;
    cudaError_t e = describe(desc, extent, flags, &full);

    return e != cudaSuccess ? e : (cudaError_t)sim_rt.cuMipmappedArrayCreate((CUmipmappedArray *)out, &full, levels);
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, f};
}

RUNTIME(cudaMallocArray,
        (cudaArray_t * array, const struct cudaChannelFormatDesc *desc, size_t width, size_t height,
         unsigned int flags),
        sim_rt_context, malloc_array(array, desc, ((struct cudaExtent){width, height, 0}), flags))
RUNTIME(cudaMalloc3DArray,
        (cudaArray_t * array, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int flags),
        sim_rt_context, malloc_array(array, desc, extent, flags))
RUNTIME(cudaMallocMipmappedArray,
        (cudaMipmappedArray_t * mipmappedArray, const struct cudaChannelFormatDesc *desc, struct cudaExtent extent,
         unsigned int numLevels, unsigned int flags),
        sim_rt_context, malloc_mipmap(mipmappedArray, desc, extent, numLevels, flags))
RUNTIME(cudaGetMipmappedArrayLevel,
        (cudaArray_t * levelArray, cudaMipmappedArray_const_t mipmappedArray, unsigned int level), sim_rt_context,
        sim_rt.cuMipmappedArrayGetLevel((CUarray *)levelArray, (CUmipmappedArray)mipmappedArray, level))
RUNTIME(cudaFreeArray, (cudaArray_t array), sim_rt_context,
        array == NULL ? CUDA_SUCCESS : sim_rt.cuArrayDestroy((CUarray)array))
RUNTIME(cudaFreeMipmappedArray, (cudaMipmappedArray_t mipmappedArray), sim_rt_context,
        mipmappedArray == NULL ? CUDA_SUCCESS : sim_rt.cuMipmappedArrayDestroy((CUmipmappedArray)mipmappedArray))

/* ---- memory of other processes and other APIs ---- */

static cudaError_t ipc_open(void **out, const cudaIpcMemHandle_t *handle, unsigned int flags)
{
    CUipcMemHandle same;

    memcpy(&same, handle, sizeof(same));
    return (cudaError_t)sim_rt.cuIpcOpenMemHandle_v2((CUdeviceptr *)out, same, flags);
}

static cudaError_t import_external(cudaExternalMemory_t *out, const struct cudaExternalMemoryHandleDesc *desc)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC same;

    if (desc == NULL) {
        return cudaErrorInvalidValue;
    }
    memset(&same, 0, sizeof(same));
    same.type = (CUexternalMemoryHandleType)desc->type;
    memcpy(&same.handle, &desc->handle, sizeof(same.handle));
    same.size = desc->size;
    same.flags = desc->flags;
    return (cudaError_t)sim_rt.cuImportExternalMemory((CUexternalMemory *)out, &same);
}

static cudaError_t map_buffer(void **out, cudaExternalMemory_t memory, const struct cudaExternalMemoryBufferDesc *desc)
{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC same;

    if (desc == NULL) {
        return cudaErrorInvalidValue;
    }
    memset(&same, 0, sizeof(same));
    same.offset = desc->offset;
    same.size = desc->size;
    same.flags = desc->flags;
    return (cudaError_t)sim_rt.cuExternalMemoryGetMappedBuffer((CUdeviceptr *)out, (CUexternalMemory)memory, &same);
}

static cudaError_t map_mipmap(cudaMipmappedArray_t *out, cudaExternalMemory_t memory,
                              const struct cudaExternalMemoryMipmappedArrayDesc *desc)
{
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC same;
    cudaError_t e;

    if (desc == NULL) {
        return cudaErrorInvalidValue;
    }
    memset(&same, 0, sizeof(same));
    e = describe(&desc->formatDesc, desc->extent, desc->flags, &same.arrayDesc);
    if (e != cudaSuccess) {
        return e;
    }
    same.offset = desc->offset;
    same.numLevels = desc->numLevels;
    return (cudaError_t)sim_rt.cuExternalMemoryGetMappedMipmappedArray((CUmipmappedArray *)out,
                                                                       (CUexternalMemory)memory, &same);
}

RUNTIME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *devPtr), sim_rt_context,
        sim_rt.cuIpcGetMemHandle((CUipcMemHandle *)handle, (CUdeviceptr)devPtr))
RUNTIME(cudaIpcOpenMemHandle, (void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags), sim_rt_context,
        ipc_open(devPtr, &handle, flags))
RUNTIME(cudaIpcCloseMemHandle, (void *devPtr), sim_rt_context, sim_rt.cuIpcCloseMemHandle((CUdeviceptr)devPtr))
RUNTIME(cudaImportExternalMemory,
        (cudaExternalMemory_t * extMem_out, const struct cudaExternalMemoryHandleDesc *memHandleDesc), sim_rt_context,
        import_external(extMem_out, memHandleDesc))
RUNTIME(cudaExternalMemoryGetMappedBuffer,
        (void **devPtr, cudaExternalMemory_t extMem, const struct cudaExternalMemoryBufferDesc *bufferDesc),
        sim_rt_context, map_buffer(devPtr, extMem, bufferDesc))
RUNTIME(cudaExternalMemoryGetMappedMipmappedArray,
        (cudaMipmappedArray_t * mipmap, cudaExternalMemory_t extMem,
         const struct cudaExternalMemoryMipmappedArrayDesc *mipmapDesc),
        sim_rt_context, map_mipmap(mipmap, extMem, mipmapDesc))
RUNTIME(cudaDestroyExternalMemory, (cudaExternalMemory_t extMem), sim_rt_context,
        sim_rt.cuDestroyExternalMemory((CUexternalMemory)extMem))
