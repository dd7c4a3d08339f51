/*
 * Somebody else's preloaded library: counts cuMemAlloc_v2, cuMemFree_v2 and cudaMalloc and hands them on, and wraps dlsym
 * to give its own functions out. Built with VMM it is one that makes cudaMalloc of cuMemCreate and cuMemMap instead.
 */
#include "regr.h"

int other_allocs, other_frees, other_runtime_allocs;

static void *real(void *handle, const char *name)
{
    static void *(*f)(void *, const char *);
    if (!f)
        f = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!f)
        f = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return f(handle, name);
}

#ifndef VMM
static void *next(const char *name)
{
    void *p = real(RTLD_NEXT, name);
    return p ? p : real(dlopen("libcuda.so.1", RTLD_NOW), name);
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
    other_allocs++;
    MUST(other_allocs < 1000);
    return ((__typeof__(&cuMemAlloc_v2))next("cuMemAlloc_v2"))(p, n);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    other_frees++;
    MUST(other_frees < 1000);
    return ((__typeof__(&cuMemFree_v2))next("cuMemFree_v2"))(p);
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    other_runtime_allocs++;
    MUST(other_runtime_allocs < 1000);
    return ((__typeof__(&cudaMalloc))real(RTLD_NEXT, "cudaMalloc"))(p, n);
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    if (!strcmp(name, "cuMemAlloc_v2") && real(handle, name))
        return cuMemAlloc_v2;
    if (!strcmp(name, "cuMemFree_v2") && real(handle, name))
        return cuMemFree_v2;
    return real(handle, name);
}
#else
static struct {
    CUdeviceptr p;
    size_t n;
} taken[16];

cudaError_t cudaMalloc(void **p, size_t n)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle h;
    other_runtime_allocs++;
    for (int i = 0; i < 16; i++) {
        if (taken[i].p)
            continue;
        OK(cuMemAddressReserve(&taken[i].p, n, 0, 0, 0));
        OK(cuMemCreate(&h, n, &prop, 0));
        OK(cuMemMap(taken[i].p, n, 0, h, 0));
        OK(cuMemRelease(h));
        taken[i].n = n;
        *p = (void *)taken[i].p;
        return cudaSuccess;
    }
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    for (int i = 0; p && i < 16; i++) {
        if (taken[i].p != (CUdeviceptr)p)
            continue;
        OK(cuMemUnmap(taken[i].p, taken[i].n));
        OK(cuMemAddressFree(taken[i].p, taken[i].n));
        taken[i].p = 0;
        return cudaSuccess;
    }
    return p ? cudaErrorInvalidValue : cudaSuccess;
}
#endif
