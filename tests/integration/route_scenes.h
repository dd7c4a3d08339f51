/*
 * Scenes of the driver's entry points that make no memory themselves: each shows by figures that its wrapper did its work
 * (memory of a graph that stays with the executable, of a context that goes with it, ...) or that the call is untouched.
 */
static void scene_cuInit(size_t n)
{
    (void)n;
    MUST(via.cuInit(1) == CUDA_ERROR_INVALID_VALUE);
    OK(via.cuInit(0));
}

/* Programs linked to the library that is switched off hold its exports, which nothing else hands out then. */
#define SAME(a, b) ((a) == (void *)(b) || (getenv("VRAMTRACK_OFF") && !strcmp(route, "linked")))

static void scene_cuGetProcAddress(size_t n)
{
    void *p = NULL, *self = NULL;
    (void)n;
    OK(via.cuGetProcAddress("cuMemAlloc", &p, 3020, 0));
    OK(via.cuGetProcAddress("cuGetProcAddress", &self, 11030, 0));
    MUST(SAME(p, via.cuMemAlloc_v2) && SAME(self, via.cuGetProcAddress));
    MUST(via.cuGetProcAddress("cuNoSuchThing", &p, 3020, 0) == CUDA_ERROR_NOT_FOUND);
}

static void scene_cuGetProcAddress_v2(size_t n)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
    void *p = NULL, *self = NULL;
    (void)n;
    OK(via.cuGetProcAddress_v2("cuMemAllocAsync", &p, 11020, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    OK(via.cuGetProcAddress_v2("cuGetProcAddress", &self, 12000, 0, NULL));
    MUST(status == CU_GET_PROC_ADDRESS_SUCCESS && SAME(p, via.cuMemAllocAsync_ptsz) &&
         SAME(self, via.cuGetProcAddress_v2));
    OK(via.cuGetProcAddress_v2("cuMemAllocAsync", &p, 11010, 0, &status));
    MUST(!p && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(via.cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, &status));
    MUST(!p && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    MUST(via.cuGetProcAddress_v2("", &p, 0, 0, &status) == CUDA_ERROR_INVALID_VALUE);
}

static cuuint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute a)
{
    cuuint64_t value = 0;
    OK(via.help.cuMemPoolGetAttribute(pool, a, &value));
    return value;
}

static void scene_pools(size_t n)
{
    CUmemPoolProps props = node_pool();
    cuuint64_t keep = 100 << 20;
    CUmemoryPool pool, before, now;
    CUdeviceptr p;
    (void)n;
    OK(via.cuMemPoolCreate(&pool, &props));
    OK(via.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(pool_figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == keep);
    OK(via.help.cuDeviceGetMemPool(&before, device));
    OK(via.cuDeviceSetMemPool(device, pool));
    OK(via.help.cuDeviceGetMemPool(&now, device));
    MUST(now == pool);
    OK(via.cuMemAllocAsync(&p, n, NULL));
    took(__func__, "async", device, "cuMemAllocAsync", n, n);
    MUST(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == n);
    OK(via.cuMemFreeAsync(p, NULL));
    gave(__func__, "async", device, "cuMemAllocAsync", n, n);
    MUST(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) > 0);
    OK(via.cuMemPoolTrimTo(pool, 0));
    MUST(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
    OK(via.cuDeviceSetMemPool(device, before));
    OK(via.cuMemPoolDestroy(pool));
    MUST(via.cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
}

/* The pool that is set by location is the one that the next allocation comes from. */
static void scene_cuMemSetMemPool(size_t n)
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    CUmemPoolProps props = node_pool();
    CUmemoryPool pool, before;
    CUdeviceptr p;
    OK(via.help.cuDeviceGetMemPool(&before, device));
    OK(via.cuMemPoolCreate(&pool, &props));
    OK(via.cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    OK(via.cuMemAllocAsync(&p, n, NULL));
    took(__func__, "async", device, "cuMemAllocAsync", n, n);
    MUST(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == n);
    OK(via.cuMemFreeAsync(p, NULL));
    gave(__func__, "async", device, "cuMemAllocAsync", n, n);
    OK(via.cuDeviceSetMemPool(device, before));
    OK(via.cuMemPoolDestroy(pool));
}

/* Streams are gone and their handles come back on another device: the memory is where the new stream is. */
static void scene_cuStreamDestroy_v2(size_t n)
{
    CUstream before[16], now[16];
    CUdeviceptr p;
    int same = 0;
    for (int i = 0; i < 16; i++) {
        OK(via.help.cuStreamCreate(&before[i], CU_STREAM_NON_BLOCKING));
        OK(via.cuMemAllocAsync(&p, n, before[i]));
        took(__func__, "async", 0, "cuMemAllocAsync", n, n);
    }
    for (int i = 0; i < 16; i++)
        OK(via.cuStreamDestroy_v2(before[i]));
    on(1);
    for (int i = 0; i < 16; i++)
        OK(via.help.cuStreamCreate(&now[i], CU_STREAM_NON_BLOCKING));
    on(0);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++)
            same += now[i] == before[j];
        OK(via.cuMemAllocAsync(&p, n, now[i]));
        took(__func__, "async", 1, "cuMemAllocAsync", n, n); /* the stream's device, not the current one */
    }
    MUST(same > 0); /* else this shows nothing */
    for (int i = 0; i < 16; i++)
        OK(via.cuStreamDestroy_v2(now[i]));
}

/* A question, which is passed on whatever else is made of it. */
static void scene_cuMemGetInfo_v2(size_t n)
{
    size_t before = 0, after = 0, total = 0, same = 0;
    CUdeviceptr p;
    n *= HUGE / PAGE;
    OK(via.cuMemGetInfo_v2(&before, &total));
    OK(via.cuMemAlloc_v2(&p, n));
    took(__func__, "device", device, "cuMemAlloc_v2", n, n);
    OK(via.cuMemGetInfo_v2(&after, &same));
    MUST(before - after == n && total == same);
    MUST(via.cuMemGetInfo_v2(NULL, &total) == CUDA_ERROR_INVALID_VALUE);
}

/* Retained, then released once and unmapped: one reference is left, and so is the memory. */
static void scene_cuMemRetainAllocationHandle(size_t n)
{
    n *= HUGE / PAGE;
    CUmemGenericAllocationHandle h = support_create(n, device), again;
    CUdeviceptr p = support_reserve(n);
    OK(via.cuMemMap(p, n, 0, h, 0));
    took(__func__, "vmm_mapped", device, "cuMemMap", n, n);
    OK(via.cuMemRetainAllocationHandle(&again, (void *)(p + n / 2)));
    OK(via.cuMemRelease(h));
    OK(via.cuMemUnmap(p, n));
    gave(__func__, "vmm_mapped", device, "cuMemMap", n, n);
}

/* Handles of their own that hold nothing; what can fail is the binding. */
static void scene_multicast(size_t n)
{
    n *= HUGE / PAGE;
    CUmulticastObjectProp prop = {.numDevices = 1, .size = n};
    CUmemGenericAllocationHandle m, h = support_create(n, device);
    CUdeviceptr p = support_reserve(n), q = support_reserve(n);
    OK(via.cuMulticastCreate(&m, &prop));
    OK(via.cuMemMap(p, n, 0, h, 0));
    took(__func__, "vmm_mapped", device, "cuMemMap", n, n);
    OK(via.cuMemMap(q, n, 0, m, 0)); /* belongs to no device */
    took(__func__, "vmm_mapped", -1, "cuMemMap", n, n);
    OK(via.cuMulticastBindMem(m, 0, h, 0, n, 0));
    OK(via.cuMulticastBindAddr(m, 0, p, n, 0));
    MUST(!SIM_FAIL_NEXT("cuMulticastBindMem", CUDA_ERROR_NOT_SUPPORTED) &&
         !SIM_FAIL_NEXT("cuMulticastBindAddr", CUDA_ERROR_NOT_SUPPORTED));
    MUST(via.cuMulticastBindMem(m, 0, h, 0, n, 0) == CUDA_ERROR_NOT_SUPPORTED);
    refused(__func__, "vmm_physical", device, "cuMulticastBindMem", n, CUDA_ERROR_NOT_SUPPORTED);
    MUST(via.cuMulticastBindAddr(m, 0, p, n, 0) == CUDA_ERROR_NOT_SUPPORTED);
    refused(__func__, "vmm_physical", device, "cuMulticastBindAddr", n, CUDA_ERROR_NOT_SUPPORTED);
    OK(via.cuMemUnmap(q, n));
    gave(__func__, "vmm_mapped", -1, "cuMemMap", n, n);
    OK(via.cuMemRelease(m));
}

/* Opened twice in one context it is one pointer, and one allocation until it was closed twice. */
static void scene_ipc(size_t n)
{
    const char *hex = getenv("ROUTE_IPC");
    CUipcMemHandle handle;
    CUdeviceptr p, again, other;
    (void)n;
    MUST(hex && strlen(hex) == 2 * sizeof handle);
    for (unsigned i = 0; i < sizeof handle; i++)
        sscanf(hex + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]);
    OK(via.cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    took(__func__, "imported", 0, "cuIpcOpenMemHandle_v2", IPC_BYTES, IPC_BYTES);
    OK(via.cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    MUST(p == again);
    OK(via.cuIpcCloseMemHandle(p)); /* one reference is left */
    on(1);
    OK(via.cuIpcOpenMemHandle_v2(&other, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    took(__func__, "imported", 1, "cuIpcOpenMemHandle_v2", IPC_BYTES, IPC_BYTES);
    on(0);
    OK(via.cuIpcCloseMemHandle(other));
    gave(__func__, "imported", 1, "cuIpcOpenMemHandle_v2", IPC_BYTES, IPC_BYTES);
}

/* ---- graphs: memory lives as long as the graph or what was made of it ---- */

/* A macro, so that the scene itself is the caller. */
#define GRAPH_WITH_MEMORY(g)                                                           \
    CUgraph g;                                                                         \
    do {                                                                               \
        CUDA_MEM_ALLOC_NODE_PARAMS alloc_ = {.poolProps = node_pool(), .bytesize = n}; \
        CUgraphNode node_;                                                             \
        OK(via.help.cuGraphCreate(&g, 0));                                             \
        OK(via.cuGraphAddMemAllocNode(&node_, g, NULL, 0, &alloc_));                   \
        took(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n);               \
    } while (0)

#define INSTANTIATE_SCENE(entry, ...)                                    \
    static void scene_##entry(size_t n)                                  \
    {                                                                    \
        GRAPH_WITH_MEMORY(kept);                                         \
        GRAPH_WITH_MEMORY(ended);                                        \
        GRAPH_WITH_MEMORY(unused);                                       \
        CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};                      \
        CUgraphExec e = NULL;                                            \
        CUgraph g = kept;                                                \
        (void)params;                                                    \
        OK(via.entry(&e, g, __VA_ARGS__)); /* outlives its graph */      \
        OK(via.cuGraphDestroy(kept));                                    \
        g = ended;                                                       \
        OK(via.entry(&e, g, __VA_ARGS__));                               \
        OK(via.cuGraphDestroy(ended));                                   \
        OK(via.cuGraphExecDestroy(e));                                   \
        gone(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n); \
        OK(via.cuGraphDestroy(unused));                                  \
        gone(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n); \
    }
INSTANTIATE_SCENE(cuGraphInstantiate, NULL, NULL, 0)
INSTANTIATE_SCENE(cuGraphInstantiate_v2, NULL, NULL, 0)
INSTANTIATE_SCENE(cuGraphInstantiateWithFlags, 0)
INSTANTIATE_SCENE(cuGraphInstantiateWithParams, &params)
INSTANTIATE_SCENE(cuGraphInstantiateWithParams_ptsz, &params)

/* While a stream captures, its allocations are the graph's; afterwards they are the pool's, and nobody asks any more. */
SCENE void capture_scene(const char *function, int per_thread, int begin(CUstream, CUgraph), size_t n)
{
    __typeof__(&cuMemAllocAsync) alloc = per_thread ? via.cuMemAllocAsync_ptsz : via.cuMemAllocAsync;
    const char *api = per_thread ? "cuMemAllocAsync_ptsz" : "cuMemAllocAsync";
    const char *question = per_thread ? "cuStreamIsCapturing_ptsz" : "cuStreamIsCapturing";
    CUgraph g = NULL, given = NULL;
    CUstream s = NULL;
    CUdeviceptr p;
    if (!per_thread)
        OK(via.help.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(via.help.cuGraphCreate(&given, 0));
    OK(begin(s, given));
    OK(alloc(&p, n, s));
    took(function, "graph", device, api, n, n);
    OK((per_thread ? via.cuStreamEndCapture_ptsz : via.cuStreamEndCapture)(s, &g));
    unsigned long long asked = SIM_CALLS(question);
    OK(alloc(&p, n, s));
    took(function, "async", device, api, n, n);
    MUST(SIM_CALLS(question) == asked);
    OK((per_thread ? via.cuMemFreeAsync_ptsz : via.cuMemFreeAsync)(p, s));
    gave(function, "async", device, api, n, n);
    OK(via.cuGraphDestroy(g));
    gone(function, "graph", device, api, n, n);
    if (given != g)
        OK(via.cuGraphDestroy(given));
}

#define CAPTURE_SCENE(entry, per_thread, ...)                         \
    static int begin_##entry(CUstream s, CUgraph g)                   \
    {                                                                 \
        (void)g;                                                      \
        return via.entry(s, ##__VA_ARGS__);                           \
    }                                                                 \
    static void scene_##entry(size_t n)                               \
    {                                                                 \
        capture_scene("capture_scene", per_thread, begin_##entry, n); \
    }
CAPTURE_SCENE(cuStreamBeginCapture, 0)
CAPTURE_SCENE(cuStreamBeginCapture_ptsz, 1)
CAPTURE_SCENE(cuStreamBeginCapture_v2, 0, CU_STREAM_CAPTURE_MODE_RELAXED)
CAPTURE_SCENE(cuStreamBeginCapture_v2_ptsz, 1, CU_STREAM_CAPTURE_MODE_GLOBAL)
CAPTURE_SCENE(cuStreamBeginCaptureToGraph, 0, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
CAPTURE_SCENE(cuStreamBeginCaptureToGraph_ptsz, 1, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED)

/* ---- contexts: what is theirs goes with them, here on devices that nothing else uses ---- */

#define CONTEXT_SCENE(entry, d, make, end, lives)               \
    static void scene_##entry(size_t n)                         \
    {                                                           \
        CUcontext c, after;                                     \
        CUdeviceptr p;                                          \
        OK(make);                                               \
        OK(via.help.cuCtxSetCurrent(c));                        \
        OK(via.cuMemAlloc_v2(&p, n));                           \
        took(__func__, "device", d, "cuMemAlloc_v2", n, n);     \
        OK(end);                                                \
        if (!(lives))                                           \
            gone(__func__, "device", d, "cuMemAlloc_v2", n, n); \
        OK(via.help.cuCtxGetCurrent(&after));                   \
        on(0);                                                  \
    }
CONTEXT_SCENE(cuCtxCreate_v2, 2, via.cuCtxCreate_v2(&c, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxCreate_v3, 2, via.cuCtxCreate_v3(&c, NULL, 0, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxCreate_v4, 2, via.cuCtxCreate_v4(&c, NULL, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxDetach, 2, via.cuCtxCreate_v2(&c, 0, 2), via.cuCtxDetach(c), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxRelease, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxRelease(3), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxRelease_v2, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxRelease_v2(3),
              0)
CONTEXT_SCENE(cuDevicePrimaryCtxReset, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxReset(3), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxReset_v2, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxReset_v2(3), 0)
/* Two references, one given up: nothing ends. */
CONTEXT_SCENE(cuDevicePrimaryCtxRetain, 3, via.cuDevicePrimaryCtxRetain(&c, 3) | via.cuDevicePrimaryCtxRetain(&c, 3),
              via.cuDevicePrimaryCtxRelease(3), 1)

/* Marks: the calls are untouched. */
static void scene_profiler(size_t n)
{
    (void)n;
    OK(via.cuProfilerStart());
    OK(via.cuProfilerStop());
}

static const struct scene {
    const char *entries; /* separated by blanks */
    void (*play)(size_t n);
} scenes[] = {
#define S(entry)              \
    {                         \
#entry, scene_##entry \
    }
    S(cuInit),
    S(cuGetProcAddress),
    S(cuGetProcAddress_v2),
    {"cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute cuDeviceSetMemPool", scene_pools},
    S(cuMemSetMemPool),
    S(cuStreamDestroy_v2),
    S(cuMemGetInfo_v2),
    S(cuMemRetainAllocationHandle),
    {"cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr", scene_multicast},
    {"cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle", scene_ipc},
    {"cuGraphInstantiate cuGraphDestroy cuGraphExecDestroy", scene_cuGraphInstantiate},
    S(cuGraphInstantiate_v2),
    S(cuGraphInstantiateWithFlags),
    S(cuGraphInstantiateWithParams),
    S(cuGraphInstantiateWithParams_ptsz),
    {"cuStreamBeginCapture cuStreamEndCapture", scene_cuStreamBeginCapture},
    {"cuStreamBeginCapture_ptsz cuStreamEndCapture_ptsz", scene_cuStreamBeginCapture_ptsz},
    S(cuStreamBeginCapture_v2),
    S(cuStreamBeginCapture_v2_ptsz),
    S(cuStreamBeginCaptureToGraph),
    S(cuStreamBeginCaptureToGraph_ptsz),
    {"cuCtxCreate_v2 cuCtxDestroy_v2", scene_cuCtxCreate_v2},
    S(cuCtxCreate_v3),
    S(cuCtxCreate_v4),
    S(cuCtxDetach),
    S(cuDevicePrimaryCtxRelease),
    S(cuDevicePrimaryCtxRelease_v2),
    S(cuDevicePrimaryCtxReset),
    S(cuDevicePrimaryCtxReset_v2),
    S(cuDevicePrimaryCtxRetain),
    {"cuProfilerStart cuProfilerStop", scene_profiler},
    {"cuMemPoolImportFromShareableHandle", NULL}, /* by start_driver, for cuMemPoolImportPointer */
};
#define SCENES (sizeof scenes / sizeof scenes[0])

static void list_driver(void)
{
    for (size_t i = 0; i < ACTS; i++)
        printf("%s\n%s\n", acts[i].entry, acts[i].giver);
    for (size_t i = 0; i < SCENES; i++)
        printf("%s\n", scenes[i].entries);
}

static void start_driver(void)
{
    scene_cuInit(0);
    for (int d = 0; d < 2; d++) {
        int fd = -1;
        OK(via.cuDevicePrimaryCtxRetain(&primary[d], d));
        on(d);
        CUmemPoolProps props = node_pool();
        OK(via.cuMemPoolCreate(&pools[d], &props));
        props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        OK(via.cuMemPoolCreate(&shared_pool[d], &props));
        OK(via.help.cuMemPoolExportToShareableHandle(&fd, shared_pool[d], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        OK(via.cuMemPoolImportFromShareableHandle(&imported_pool[d], (void *)(intptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        close(fd);
    }
}

static void run_driver(void)
{
    start_driver();
    size_t n = 1; /* every act has a size of its own */
    for (size_t i = 0; i < ACTS; i++)
        play(&acts[i], n++ * acts[i].unit);
    for (size_t i = 0; i < SCENES; i++) {
        on(0);
        if (scenes[i].play)
            scenes[i].play(n++ * PAGE);
    }
}
