/*
 * Self-test of the simulated GPU: every kind of memory, through the driver API.  Values are checked against what the
 * real driver's documentation promises and what the simulator promises in README.md.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

static cuuint64_t graph_value(CUgraphMem_attribute attribute)
{
    cuuint64_t value;

    OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void graphs_by_hand(size_t before)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                                        .bytesize = 6 * MIB};
    CUgraphNode node, free_node;
    CUgraphExec exec;
    CUgraph graph;

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    TRUE(alloc.dptr != 0);
    OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    EQ(free_bytes(), before);
    OK(cuGraphLaunch(exec, NULL));
    EQ(free_bytes(), before - 6 * MIB);
    OK(cuGraphLaunch(exec, NULL));
    EQ(graph_value(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 6 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    EQ(free_bytes(), before - 6 * MIB); /* still live, although the graph is gone */
    OK(cuMemFreeAsync(alloc.dptr, NULL));
    EQ(cuMemFree_v2(alloc.dptr), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGraphMemTrim(0));
    EQ(free_bytes(), before);

    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0,
                         &(CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                              .alloc = {.poolProps = alloc.poolProps, .bytesize = MIB}}));
    OK(cuGraphMemAllocNodeGetParams(node, &alloc));
    OK(cuGraphAddMemFreeNode(&free_node, graph, &node, 1, alloc.dptr));
    OK(cuGraphInstantiate(&exec, graph, NULL, NULL, 0));
    OK(cuGraphUpload(exec, NULL));
    EQ(graph_value(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 2 * MIB);
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphLaunch(exec, NULL));
    EQ(graph_value(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
}

void test_graphs(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    size_t before = free_bytes();
    CUstream stream, second;
    CUdeviceptr kept, p, q;
    CUgraph graph, broken;
    CUgraphExec exec;
    CUevent event;
    size_t nodes;

    graphs_by_hand(before);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    EQ(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&kept, 3 * MIB, stream));
    EQ(free_bytes(), before); /* a node, not memory */
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuMemAllocAsync(&q, MIB, second)); /* the second stream has joined */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuMemAlloc_v2(&p, 512)); /* allowed in relaxed mode */
    OK(cuMemFree_v2(p));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuMemFreeAsync(q, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    EQ(nodes, 3);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* what it allocated is still live */
    EQ(graph_value(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 3 * MIB);
    EQ(graph_value(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 4 * MIB);

    OK(cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQ(cuMemAlloc_v2(&p, 512), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamIsCapturing(second, &status));
    EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EQ(cuMemAllocAsync(&p, 512, second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EQ(cuStreamEndCapture(second, &broken), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    TRUE(broken == NULL);
    OK(cuStreamIsCapturing(second, &status));
    EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree_v2(kept));
    OK(cuDeviceGraphMemTrim(0));
    EQ(free_bytes(), before);
    OK(cuStreamDestroy_v2(stream));
    OK(cuStreamDestroy_v2(second));
    OK(cuEventDestroy_v2(event));
}

void test_contexts(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle physical;
    CUcontext primary, own, current;
    CUdeviceptr a, b, c;
    unsigned int flags;
    void *host;
    int active;
    size_t before = free_bytes();

    OK(cuCtxGetCurrent(&primary));
    OK(cuCtxCreate_v4(&own, NULL, 0, 0));
    EQ(free_bytes(), before - 300 * MIB);
    EQ(sim_contexts(), 2);
    OK(cuMemAlloc_v2(&a, 5 * MIB));
    OK(cuMemAllocManaged(&b, MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemAllocHost_v2(&host, MIB));
    OK(cuMemAllocAsync(&c, MIB, NULL));
    OK(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    OK(cuCtxDestroy_v2(own));
    EQ(sim_pinned_bytes(), 0);
    EQ(free_bytes(), before - 2 * MIB - 2 * MIB); /* the pool's pointer and the physical memory stay */
    EQ(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(c, NULL));
    OK(cuMemRelease(physical));
    OK(cuCtxSynchronize());
    EQ(free_bytes(), before);
    OK(cuCtxGetCurrent(&current));
    TRUE(current == primary);
    EQ(cuCtxSetCurrent(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EQ(cuCtxSetCurrent((CUcontext)&own), CUDA_ERROR_INVALID_CONTEXT);

    OK(cuCtxPopCurrent_v2(NULL));
    EQ(cuMemAlloc_v2(&a, 512), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(primary));
    OK(cuMemAlloc_v2(&a, 5 * MIB));
    OK(cuDevicePrimaryCtxReset_v2(0));
    EQ(sim_device_used(0), 0);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQ(active, 0);
    EQ(cuMemAlloc_v2(&a, 512), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRetain(&current, 0));
    TRUE(current == primary);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSetCurrent(primary));
    EQ(free_bytes(), before);
}

/* ---- other processes ---- */

int ipc_child(const char *hex)
{
    CUipcMemHandle handle;
    CUcontext context;
    CUdeviceptr a, b;
    size_t i;

    for (i = 0; i < sizeof(handle); i++) {
        unsigned int byte;

        sscanf(hex + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuIpcOpenMemHandle_v2(&a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle_v2(&b, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EQ(a, b);
    EQ(sim_device_used(0), 300 * MIB);
    EQ(sim_live_bytes(0), 0);
    EQ(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(a));
    OK(cuIpcCloseMemHandle(a));
    EQ(cuIpcCloseMemHandle(a), CUDA_ERROR_INVALID_VALUE);
    return failures != 0;
}

void test_shared(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 8 * MIB};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = 4 * MIB, .size = 4 * MIB};
    char hex[2 * sizeof(CUipcMemHandle) + 1];
    CUipcMemHandle handle;
    CUexternalMemory memory;
    CUdeviceptr p, q;
    size_t i, before = free_bytes();
    int status;
    pid_t pid;

    OK(cuMemAlloc_v2(&p, 3 * MIB));
    OK(cuIpcGetMemHandle(&handle, p));
    EQ(cuIpcOpenMemHandle_v2(&q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    for (i = 0; i < sizeof(handle); i++) {
        sprintf(hex + 2 * i, "%02x", ((unsigned char *)&handle)[i]);
    }
    pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "sim_selftest", "ipc", hex, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    OK(status);
    OK(cuMemFree_v2(p));

    desc.handle.fd = memfd_create("external", 0);
    OK(cuImportExternalMemory(&memory, &desc));
    OK(cuExternalMemoryGetMappedBuffer(&p, memory, &part));
    part.size++;
    EQ(cuExternalMemoryGetMappedBuffer(&q, memory, &part), CUDA_ERROR_INVALID_VALUE);
    OK(cuDestroyExternalMemory(memory));
    EQ(free_bytes(), before);
    OK(cuMemFree_v2(p));
}
