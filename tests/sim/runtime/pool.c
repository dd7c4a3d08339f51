/*
 * Stream-ordered memory and pools of the runtime API.  The structures of both APIs have the same layout.
 */
#include "runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "one layout");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "one layout");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "one layout");

static cudaError_t nothing(void **out)
{
    if (out == NULL) {
        return cudaErrorInvalidValue;
    }
    *out = NULL;
    return cudaSuccess;
}

RUNTIME_STREAM(cudaMallocAsync, cudaMallocAsync_ptsz, (void **devPtr, size_t size, cudaStream_t hStream),
               devPtr == NULL || size == 0
                   ? nothing(devPtr)
                   : (cudaError_t)PICK(cuMemAllocAsync)((CUdeviceptr *)devPtr, size, (CUstream)hStream))
RUNTIME_STREAM(cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz,
               (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
               ptr == NULL || size == 0
                   ? nothing(ptr)
                   : (cudaError_t)PICK(cuMemAllocFromPoolAsync)((CUdeviceptr *)ptr, size, (CUmemoryPool)memPool,
                                                                (CUstream)stream))
RUNTIME_STREAM(cudaFreeAsync, cudaFreeAsync_ptsz, (void *devPtr, cudaStream_t hStream),
               devPtr == NULL ? CUDA_SUCCESS : PICK(cuMemFreeAsync)((CUdeviceptr)devPtr, (CUstream)hStream))

RUNTIME(cudaMemPoolCreate, (cudaMemPool_t * memPool, const struct cudaMemPoolProps *poolProps), sim_rt_context,
        sim_rt.cuMemPoolCreate((CUmemoryPool *)memPool, (const CUmemPoolProps *)poolProps))
RUNTIME(cudaMemPoolDestroy, (cudaMemPool_t memPool), sim_rt_context, sim_rt.cuMemPoolDestroy((CUmemoryPool)memPool))
RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t memPool, size_t minBytesToKeep), sim_rt_context,
        sim_rt.cuMemPoolTrimTo((CUmemoryPool)memPool, minBytesToKeep))
RUNTIME(cudaMemPoolSetAttribute, (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value), sim_rt_context,
        sim_rt.cuMemPoolSetAttribute((CUmemoryPool)memPool, (CUmemPool_attribute)attr, value))
RUNTIME(cudaMemPoolGetAttribute, (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value), sim_rt_context,
        sim_rt.cuMemPoolGetAttribute((CUmemoryPool)memPool, (CUmemPool_attribute)attr, value))
RUNTIME(cudaMemPoolSetAccess, (cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count),
        sim_rt_context, sim_rt.cuMemPoolSetAccess((CUmemoryPool)memPool, (const CUmemAccessDesc *)descList, count))
RUNTIME(cudaMemPoolGetAccess,
        (enum cudaMemAccessFlags * flags, cudaMemPool_t memPool, struct cudaMemLocation *location), sim_rt_context,
        sim_rt.cuMemPoolGetAccess((CUmemAccess_flags *)flags, (CUmemoryPool)memPool, (CUmemLocation *)location))
RUNTIME(cudaMemPoolExportToShareableHandle,
        (void *shareableHandle, cudaMemPool_t memPool, enum cudaMemAllocationHandleType handleType, unsigned int flags),
        sim_rt_context,
        sim_rt.cuMemPoolExportToShareableHandle(shareableHandle, (CUmemoryPool)memPool,
                                                (CUmemAllocationHandleType)handleType, flags))
RUNTIME(cudaMemPoolImportFromShareableHandle,
        (cudaMemPool_t * memPool, void *shareableHandle, enum cudaMemAllocationHandleType handleType,
         unsigned int flags),
        sim_rt_context,
        sim_rt.cuMemPoolImportFromShareableHandle((CUmemoryPool *)memPool, shareableHandle,
                                                  (CUmemAllocationHandleType)handleType, flags))
RUNTIME(cudaMemPoolExportPointer, (struct cudaMemPoolPtrExportData * exportData, void *ptr), sim_rt_context,
        sim_rt.cuMemPoolExportPointer((CUmemPoolPtrExportData *)exportData, (CUdeviceptr)ptr))
RUNTIME(cudaMemPoolImportPointer, (void **ptr, cudaMemPool_t memPool, struct cudaMemPoolPtrExportData *exportData),
        sim_rt_context,
        sim_rt.cuMemPoolImportPointer((CUdeviceptr *)ptr, (CUmemoryPool)memPool, (CUmemPoolPtrExportData *)exportData))

RUNTIME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * memPool, int device), sim_rt_start,
        sim_rt.cuDeviceGetDefaultMemPool((CUmemoryPool *)memPool, device))
RUNTIME(cudaDeviceGetMemPool, (cudaMemPool_t * memPool, int device), sim_rt_start,
        sim_rt.cuDeviceGetMemPool((CUmemoryPool *)memPool, device))
RUNTIME(cudaDeviceSetMemPool, (int device, cudaMemPool_t memPool), sim_rt_start,
        sim_rt.cuDeviceSetMemPool(device, (CUmemoryPool)memPool))
RUNTIME(cudaMemGetDefaultMemPool,
        (cudaMemPool_t * memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type), sim_rt_start,
        sim_rt.cuMemGetDefaultMemPool((CUmemoryPool *)memPool, (CUmemLocation *)location, (CUmemAllocationType)type))
RUNTIME(cudaMemGetMemPool, (cudaMemPool_t * memPool, struct cudaMemLocation *location, enum cudaMemAllocationType type),
        sim_rt_start,
        sim_rt.cuMemGetMemPool((CUmemoryPool *)memPool, (CUmemLocation *)location, (CUmemAllocationType)type))
RUNTIME(cudaMemSetMemPool, (struct cudaMemLocation * location, enum cudaMemAllocationType type, cudaMemPool_t memPool),
        sim_rt_start,
        sim_rt.cuMemSetMemPool((CUmemLocation *)location, (CUmemAllocationType)type, (CUmemoryPool)memPool))
