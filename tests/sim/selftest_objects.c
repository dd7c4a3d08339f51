/*
 * Self-test of the simulated GPU: graphs and captures, contexts, and memory of other processes and other APIs.
 */
#include "selftest.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static cuuint64_t graph_value(CUgraphMem_attribute attribute)
{
    cuuint64_t value;

    OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static void graphs_by_hand(size_t before)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
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
