/*
 * A driver of a few functions that gives the number of a released handle out again at once, as the real one may, and puts
 * every mapping where it is asked to. Built as libcuda.so.1.
 */
#include <cuda.h>

#define API __attribute__((visibility("default")))
API CUresult cuInit(unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *c)
{
    *c = (CUcontext)16;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *d)
{
    *d = 0;
    return CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *prop,
                         unsigned long long flags)
{
    (void)n, (void)prop, (void)flags;
    *h = 7;
    return CUDA_SUCCESS;
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
    return h == 7 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemMap(CUdeviceptr p, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
    (void)p, (void)n, (void)offset, (void)flags;
    return h == 7 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t n)
{
    (void)p, (void)n;
    return CUDA_SUCCESS;
}
