/*
 * Self-test of the simulated GPU: every kind of memory, through the driver API.  Values are checked against what the
 * real driver's documentation promises and what the simulator promises in README.md.
 */
#include "selftest.h"

#include <string.h>
#include <unistd.h>

size_t free_bytes(void)
{
    size_t free, total;

    OK(cuMemGetInfo_v2(&free, &total));
    return free;
}

void test_linear(void)
{
    size_t before = free_bytes(), free, total, pitch, size;
    CUdeviceptr a, b, c, base;
    unsigned int small;

    OK(cuMemGetInfo_v2(&free, &total));
    EQ(total, 16384 * MIB);
    EQ(free, (16384 - 300) * MIB);
    OK(cuMemAlloc_v2(&a, 1000));
    EQ(free_bytes(), before - 2 * MIB);
    OK(cuMemAlloc_v2(&b, 1));
    EQ(free_bytes(), before - 2 * MIB); /* shares the page */
    EQ(a % 512 + b % 512, 0);
    TRUE(a >> 21 == b >> 21);
    EQ(sim_live_bytes(0), 1001);
    OK(cuMemAlloc_v2(&c, 3 * MIB));
    EQ(free_bytes(), before - 6 * MIB);
    EQ(cuMemFree_v2(a + 512), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemFree_v2(c + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemFree_v2((CUdeviceptr)&small), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    OK(cuMemGetAddressRange_v2(&base, &size, c + 12345));
    EQ(base, c);
    EQ(size, 3 * MIB);
    EQ(cuMemGetAddressRange_v2(&base, &size, 4096), CUDA_ERROR_NOT_FOUND);
    OK(cuMemFree_v2(c));
    EQ(cuMemFree_v2(c), CUDA_ERROR_INVALID_VALUE);
    base = c;
    OK(cuMemAlloc_v2(&c, 3 * MIB));
    EQ(c, base); /* freed last, used first */
    OK(cuMemFree_v2(c));
    OK(cuMemFree_v2(a));
    EQ(free_bytes(), before - 2 * MIB);
    OK(cuMemFree_v2(b));
    EQ(free_bytes(), before);

    OK(cuMemAllocPitch_v2(&a, &pitch, 1000, 300, 4));
    EQ(pitch, 1024);
    EQ(sim_live_bytes(0), 1024 * 300);
    OK(cuMemFree_v2(a));
    EQ(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemAlloc_v2(&a, before + 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&a, before));
    EQ(free_bytes(), 0);
    EQ(cuMemAlloc_v2(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(a));
    sim_set_free(0, 10 * MIB);
    EQ(free_bytes(), 10 * MIB);
    EQ(cuMemAlloc_v2(&a, 11 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    sim_other_process_bytes(0, 0);
    EQ(free_bytes(), before);
    EQ(cuMemAlloc(&small, 4096), CUDA_ERROR_OUT_OF_MEMORY); /* the 32-bit call can't say where it is */
    EQ(free_bytes(), before);
}

void test_host(void)
{
    CUDA_ARRAY3D_DESCRIPTOR volume = {
        .Width = 64, .Height = 64, .Depth = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    static char own[3 * 4096];
    CUmipmappedArray mipmap;
    CUarray array, level;
    CUmemorytype type;
    CUdeviceptr m, d;
    size_t before = free_bytes();
    char *p;

    OK(cuMemAllocManaged(&m, 5 * MIB, CU_MEM_ATTACH_GLOBAL));
    EQ(free_bytes(), before);
    OK(cuMemHostAlloc((void **)&p, 10000, 0));
    EQ(sim_pinned_bytes(), 10000);
    memset(p, 'x', 10000);
    OK(cuMemcpy(m, (CUdeviceptr)p, 10000));
    EQ(*(char *)(m + 9999), 'x');
    OK(cuMemAlloc_v2(&d, 4096));
    OK(cuMemcpyHtoD_v2(d, p, 4096));
    EQ(cuMemcpyHtoD_v2(d, p, 4097), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoH_v2(p, d, 4096));
    EQ(p[0], 0);
    OK(cuMemsetD32_v2((CUdeviceptr)p, 0x01020304, 4));
    EQ(p[0] + p[3] * 16, 4 + 16);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 100));
    EQ(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)p));
    EQ(type, CU_MEMORYTYPE_HOST);
    EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)own), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemFree_v2((CUdeviceptr)p), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemFreeHost((void *)d), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(p));
    OK(cuMemFree_v2(m));
    OK(cuMemFree_v2(d));

    OK(cuMemHostRegister_v2(own, 4096, 0));
    EQ(cuMemHostRegister_v2(own + 4095, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostRegister_v2(own + 4096, 4096, 0));
    OK(cuMemHostGetDevicePointer_v2(&d, own + 5000, 0));
    EQ(d, (CUdeviceptr)own + 5000);
    EQ(cuMemHostUnregister(own + 1), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemHostUnregister(own));
    OK(cuMemHostUnregister(own + 4096));

    OK(cuArray3DCreate_v2(&array, &volume));
    EQ(sim_live_bytes(0), 4 * MIB);
    OK(cuArrayDestroy(array));
    EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMipmappedArrayCreate(&mipmap, &volume, 3));
    EQ(sim_live_bytes(0), 4 * MIB + 4 * MIB / 8 + 4 * MIB / 64);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(mipmap));
    EQ(sim_live_bytes(0), 0);
    EQ(free_bytes(), before);
}

static cuuint64_t pool_value(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value;

    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

void test_pools(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    cuuint64_t threshold = 64 * MIB;
    CUmemPoolPtrExportData blob;
    CUmemoryPool pool, own, other;
    size_t before = free_bytes();
    CUdeviceptr a, b;
    int fd;

    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&a, 1000, NULL));
    EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
    EQ(free_bytes(), before - 32 * MIB);
    OK(cuMemAllocAsync_ptsz(&b, 40 * MIB, NULL));
    EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
    OK(cuMemFreeAsync(a, NULL));
    EQ(cuMemFreeAsync(a, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(b)); /* cuMemFree frees pool memory too */
    EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    EQ(free_bytes(), before - 64 * MIB);
    OK(cuStreamSynchronize(NULL));
    EQ(free_bytes(), before);
    EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 40 * MIB + 1024);

    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuMemAllocAsync(&a, 100 * MIB, NULL));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuCtxSynchronize());
    EQ(free_bytes(), before - 64 * MIB);
    OK(cuMemPoolTrimTo(pool, 10 * MIB));
    EQ(free_bytes(), before - 10 * MIB);
    OK(cuMemPoolTrimTo(pool, 0));
    threshold = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));

    OK(cuMemPoolCreate(&own, &props));
    OK(cuDeviceSetMemPool(0, own));
    OK(cuMemAllocAsync(&a, MIB, NULL));
    OK(cuMemAllocFromPoolAsync(&b, MIB, own, NULL));
    EQ(pool_value(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * MIB);
    OK(cuMemPoolExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemPoolImportFromShareableHandle(&other, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    OK(cuMemPoolExportPointer(&blob, a));
    OK(cuMemPoolDestroy(own)); /* lives until its last pointer is freed */
    OK(cuMemGetMemPool(&pool, &props.location, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRUE(pool != own);
    OK(cuMemFreeAsync(a, NULL));
    EQ(free_bytes(), before - 32 * MIB);
    OK(cuMemFreeAsync(b, NULL));
    EQ(free_bytes(), before);
    EQ(cuMemAllocFromPoolAsync(&b, MIB, own, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolImportPointer(&a, other, &blob));
    EQ(free_bytes(), before);
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemPoolDestroy(other));
    EQ(cuMemAllocAsync(&a, before + MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    EQ(free_bytes(), before);
}

void test_vmm(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmulticastObjectProp team = {.numDevices = 1, .size = 8 * MIB};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h, again, g;
    size_t before = free_bytes(), granularity;
    CUdeviceptr va;
    int fd;

    OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    EQ(granularity, 2 * MIB);
    OK(cuMemAddressReserve(&va, 64 * 1024 * MIB, 0, 0, 0)); /* more than the card has: it costs nothing */
    EQ(va % (2 * MIB), 0);
    EQ(free_bytes(), before);
    EQ(cuMemCreate(&h, 3 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    EQ(free_bytes(), before - 4 * MIB);
    OK(cuMemMap(va, 4 * MIB, 0, h, 0));
    EQ(cuMemMap(va + 2 * MIB, 2 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(va + 4 * MIB, 4 * MIB, 0, h, 0));
    OK(cuMemSetAccess(va, 8 * MIB, &access, 1));
    EQ(cuMemSetAccess(va, 10 * MIB, &access, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(h)); /* the mappings keep it */
    EQ(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    EQ(free_bytes(), before - 4 * MIB);
    OK(cuMemRetainAllocationHandle(&again, (void *)(va + 5 * MIB)));
    EQ(again, h);
    EQ(cuMemUnmap(va, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemUnmap(va, 10 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(va, 8 * MIB)); /* two mappings at once */
    EQ(free_bytes(), before - 4 * MIB);
    EQ(cuMemFree_v2(va), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&g, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemRelease(again));
    EQ(free_bytes(), before - 4 * MIB);
    OK(cuMemRelease(g));
    EQ(free_bytes(), before);
    EQ(cuMemAddressFree(va, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(va, 64 * 1024 * MIB));
    EQ(cuMemCreate(&h, before + 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);

    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    OK(cuMemCreate(&h, 4 * MIB, &prop, 0));
    OK(cuMulticastCreate(&g, &team));
    OK(cuMulticastAddDevice(g, 0));
    OK(cuMulticastBindMem(g, 0, h, 0, 4 * MIB, 0));
    OK(cuMulticastUnbind(g, 0, 0, 4 * MIB));
    EQ(free_bytes(), before);
    OK(cuMemRelease(h));
    OK(cuMemRelease(g));
}
