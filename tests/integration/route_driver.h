/*
 * Scenes of the driver's entry points. An entry that makes memory has a taker `call_ENTRY`, whose name is what the report
 * must show as the innermost function, and a giver; acts[] says which entry points each scene exercises. What makes no
 * memory of its own has a scene that shows by figures that its wrapper did its work.
 */
#define IPC_BYTES 12288
#define SCENE static __attribute__((noinline, used))

static int device; /* current */
static CUcontext primary[2];
static CUmemoryPool pools[2], shared_pool[2], imported_pool[2];

static void on(int d)
{
    device = d;
    OK(via.cuCtxSetCurrent(primary[d]));
}

typedef unsigned long long item;

/* Memory that a scene needs besides what it is about. */
SCENE CUmemGenericAllocationHandle support_create(size_t bytes, int d)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d}, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle h;
    OK(via.cuMemCreate(&h, bytes, &prop, 0));
    took(__func__, "vmm_physical", d, "cuMemCreate", bytes, bytes);
    return h;
}

SCENE CUdeviceptr support_reserve(size_t bytes)
{
    CUdeviceptr p;
    OK(via.cuMemAddressReserve(&p, bytes, 0, 0, 0));
    took(__func__, "vmm_reserved_va", -1, "cuMemAddressReserve", bytes, bytes);
    return p;
}

SCENE CUexternalMemory support_external(size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = open("/dev/null", O_RDONLY), .size = bytes};
    CUexternalMemory m;
    OK(via.cuImportExternalMemory(&m, &d));
    took(__func__, "imported", device, "cuImportExternalMemory", bytes, bytes);
    return m;
}

SCENE CUdeviceptr support_shared(size_t bytes)
{
    CUdeviceptr p;
    OK(via.cuMemAllocFromPoolAsync(&p, bytes, shared_pool[device], NULL));
    took(__func__, "async", device, "cuMemAllocFromPoolAsync", bytes, bytes);
    return p;
}

/* ---- takers: the code of the call in question, *p what it gave ---- */

#define TAKER(entry) SCENE int call_##entry(item *p, size_t n)

TAKER(cuMemAlloc_v2) { return via.cuMemAlloc_v2(p, n); }
TAKER(cuMemAllocManaged) { return via.cuMemAllocManaged(p, n, CU_MEM_ATTACH_GLOBAL); }
TAKER(cuMemHostAlloc) { return via.cuMemHostAlloc((void **)p, n, 0); }
TAKER(cuMemAllocHost_v2) { return via.cuMemAllocHost_v2((void **)p, n); }
TAKER(cuMemAllocAsync) { return via.cuMemAllocAsync(p, n, NULL); }
TAKER(cuMemAllocAsync_ptsz) { return via.cuMemAllocAsync_ptsz(p, n, NULL); }
TAKER(cuMemAllocFromPoolAsync) { return via.cuMemAllocFromPoolAsync(p, n, pools[device], NULL); }
TAKER(cuMemAllocFromPoolAsync_ptsz) { return via.cuMemAllocFromPoolAsync_ptsz(p, n, pools[device], NULL); }
TAKER(cuMemAddressReserve) { return via.cuMemAddressReserve(p, n, 0, 0, 0); }

TAKER(cuMemAllocPitch_v2)
{
    size_t pitch = 0;
    int r = via.cuMemAllocPitch_v2(p, &pitch, n / 4 - 100, 4, 4);
    MUST(r || pitch == n / 4);
    return r;
}

TAKER(cuMemHostRegister_v2)
{
    *p = (item)(uintptr_t)aligned_alloc(4096, n);
    return via.cuMemHostRegister_v2((void *)*p, n, 0);
}

TAKER(cuArrayCreate_v2)
{
    CUDA_ARRAY_DESCRIPTOR d = {.Width = n / 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
    return via.cuArrayCreate_v2((CUarray *)p, &d);
}

TAKER(cuArray3DCreate_v2)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = n / 64, .Height = 2, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    return via.cuArray3DCreate_v2((CUarray *)p, &d);
}

/* Level 0 has 4/5 of it: n / 8 x 2 and n / 16 x 1 elements of 4 bytes. */
TAKER(cuMipmappedArrayCreate)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = n / 8, .Height = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    return via.cuMipmappedArrayCreate((CUmipmappedArray *)p, &d, 2);
}

TAKER(cuMemCreate)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    return via.cuMemCreate(p, n, &prop, 0);
}

static CUmemGenericAllocationHandle under[3]; /* what is mapped at the 1st, 2nd, 3rd address taken */
static CUdeviceptr where[3];
static int mapped;

/* Releases the handle at once, as most programs do: the mapping alone keeps the memory. */
TAKER(cuMemMap)
{
    int i = mapped % 3;
    if (!where[i])
        where[i] = support_reserve(n);
    under[i] = support_create(n, device);
    *p = where[i];
    int r = via.cuMemMap(*p, n, 0, under[i], 0);
    OK(via.cuMemRelease(under[i]));
    if (r)
        gave("support_create", "vmm_physical", device, "cuMemCreate", n, n);
    else
        mapped++;
    return r;
}

TAKER(cuMemImportFromShareableHandle)
{
    CUmemGenericAllocationHandle h = support_create(n, device);
    int fd = -1, d = device;
    OK(via.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    int r = via.cuMemImportFromShareableHandle(p, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(via.cuMemRelease(h));
    gave("support_create", "vmm_physical", d, "cuMemCreate", n, n);
    close(fd);
    return r;
}

TAKER(cuMemPoolImportPointer)
{
    CUmemPoolPtrExportData data;
    CUdeviceptr original = support_shared(n);
    OK(via.cuMemPoolExportPointer(&data, original));
    int r = via.cuMemPoolImportPointer(p, imported_pool[device], &data);
    OK(via.cuMemFreeAsync(original, NULL));
    gave("support_shared", "async", device, "cuMemAllocFromPoolAsync", n, n);
    return r;
}

TAKER(cuImportExternalMemory)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = open("/dev/null", O_RDONLY), .size = n};
    return via.cuImportExternalMemory((CUexternalMemory *)p, &d);
}

TAKER(cuExternalMemoryGetMappedBuffer)
{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC d = {.size = n};
    CUexternalMemory m = support_external(n);
    int r = via.cuExternalMemoryGetMappedBuffer(p, m, &d);
    OK(via.cuDestroyExternalMemory(m));
    gave("support_external", "imported", device, "cuImportExternalMemory", n, n);
    return r;
}

TAKER(cuExternalMemoryGetMappedMipmappedArray)
{
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC d = {.arrayDesc = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, .numLevels = 1};
    CUexternalMemory m = support_external(n);
    int r = via.cuExternalMemoryGetMappedMipmappedArray((CUmipmappedArray *)p, m, &d);
    OK(via.cuDestroyExternalMemory(m));
    gave("support_external", "imported", device, "cuImportExternalMemory", n, n);
    return r;
}

/* A node's memory exists once its graph has run; then an ordinary free ends it. */
static void run_graph(CUgraph g)
{
    CUgraphExec e;
    OK(via.cuGraphInstantiateWithFlags(&e, g, 0));
    OK(via.cuGraphLaunch(e, NULL));
}

static CUmemPoolProps node_pool(void)
{
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

TAKER(cuGraphAddMemAllocNode)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = node_pool(), .bytesize = n};
    CUgraphNode node;
    CUgraph g;
    OK(via.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddMemAllocNode(&node, g, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.dptr;
    return r;
}

TAKER(cuGraphAddNode)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = {.poolProps = node_pool(), .bytesize = n}};
    CUgraphNode node;
    CUgraph g;
    OK(via.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddNode(&node, g, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.alloc.dptr;
    return r;
}

TAKER(cuGraphAddNode_v2)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = {.poolProps = node_pool(), .bytesize = n}};
    CUgraphNode node;
    CUgraph g;
    OK(via.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.alloc.dptr;
    return r;
}

/* ---- givers ---- */

#define GIVER(entry) SCENE void give_##entry(item p, size_t n, int d)
GIVER(cuMemFree_v2) { (void)n, (void)d; OK(via.cuMemFree_v2(p)); }
GIVER(cuMemFreeHost) { (void)n, (void)d; OK(via.cuMemFreeHost((void *)p)); }
GIVER(cuMemHostUnregister) { (void)n, (void)d; OK(via.cuMemHostUnregister((void *)p)); }
GIVER(cuMemFreeAsync) { (void)n, (void)d; OK(via.cuMemFreeAsync(p, NULL)); }
GIVER(cuMemFreeAsync_ptsz) { (void)n, (void)d; OK(via.cuMemFreeAsync_ptsz(p, NULL)); }
GIVER(cuArrayDestroy) { (void)n, (void)d; OK(via.cuArrayDestroy((CUarray)p)); }
GIVER(cuMipmappedArrayDestroy) { (void)n, (void)d; OK(via.cuMipmappedArrayDestroy((CUmipmappedArray)p)); }
GIVER(cuMemRelease) { (void)n, (void)d; OK(via.cuMemRelease(p)); }
GIVER(cuMemAddressFree) { (void)d; OK(via.cuMemAddressFree(p, n)); }
GIVER(cuDestroyExternalMemory) { (void)n, (void)d; OK(via.cuDestroyExternalMemory((CUexternalMemory)p)); }
GIVER(cuMemUnmap)
{
    OK(via.cuMemUnmap(p, n));
    gave("support_create", "vmm_physical", d, "cuMemCreate", n, n);
}

/* ---- the acts: entry points that make memory, and those that end it ---- */

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
enum device_rule { OF_DEVICE, OF_HOST };
enum bytes_rule { WHOLE, NOTHING, FIVE_EIGHTHS_MORE };

static const struct act {
    const char *entry, *function, *giver, *kind;
    enum device_rule where;
    size_t unit;
    int refusable; /* 1: a refusal is a failure of the report */
    int (*take)(item *p, size_t n);
    void (*give)(item p, size_t n, int d);
    enum bytes_rule bytes;
    size_t unasked; /* requested: bytes less this */
} acts[] = {
#define ACT(entry, giver, ...) {#entry, "call_" #entry, #giver, __VA_ARGS__}
#define WITH(entry, giver) call_##entry, give_##giver
#define A(entry, giver, kind, where, unit, refusable, ...) ACT(entry, giver, kind, where, unit, refusable, WITH(entry, giver), ##__VA_ARGS__)
    A(cuMemAlloc_v2, cuMemFree_v2, "device", OF_DEVICE, PAGE, 1),
    A(cuMemAllocPitch_v2, cuMemFree_v2, "device", OF_DEVICE, PAGE, 1, .unasked = 400),
    A(cuMemAllocManaged, cuMemFree_v2, "managed", OF_DEVICE, PAGE, 1),
    A(cuMemHostAlloc, cuMemFreeHost, "pinned", OF_HOST, PAGE, 1),
    A(cuMemAllocHost_v2, cuMemFreeHost, "pinned", OF_HOST, PAGE, 1),
    A(cuMemHostRegister_v2, cuMemHostUnregister, "registered", OF_HOST, PAGE, 1),
    A(cuArrayCreate_v2, cuArrayDestroy, "array", OF_DEVICE, PAGE, 1),
    A(cuArray3DCreate_v2, cuArrayDestroy, "array", OF_DEVICE, PAGE, 1),
    A(cuMipmappedArrayCreate, cuMipmappedArrayDestroy, "array", OF_DEVICE, PAGE, 1, .bytes = FIVE_EIGHTHS_MORE),
    A(cuMemAllocAsync, cuMemFreeAsync, "async", OF_DEVICE, PAGE, 1),
    A(cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz, "async", OF_DEVICE, PAGE, 1),
    A(cuMemAllocFromPoolAsync, cuMemFreeAsync, "async", OF_DEVICE, PAGE, 1),
    A(cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz, "async", OF_DEVICE, PAGE, 1),
    A(cuMemPoolImportPointer, cuMemFreeAsync, "imported", OF_DEVICE, PAGE, 0),
    A(cuMemAddressReserve, cuMemAddressFree, "vmm_reserved_va", OF_HOST, HUGE, 1),
    A(cuMemCreate, cuMemRelease, "vmm_physical", OF_DEVICE, HUGE, 1),
    A(cuMemMap, cuMemUnmap, "vmm_mapped", OF_DEVICE, HUGE, 1),
    A(cuMemImportFromShareableHandle, cuMemRelease, "imported", OF_DEVICE, HUGE, 0, .bytes = NOTHING),
    A(cuImportExternalMemory, cuDestroyExternalMemory, "imported", OF_DEVICE, PAGE, 0),
    A(cuExternalMemoryGetMappedBuffer, cuMemFree_v2, "imported", OF_DEVICE, PAGE, 0, .bytes = NOTHING),
    A(cuExternalMemoryGetMappedMipmappedArray, cuMipmappedArrayDestroy, "imported", OF_DEVICE, PAGE, 0, .bytes = NOTHING),
    A(cuGraphAddMemAllocNode, cuMemFree_v2, "graph", OF_DEVICE, PAGE, 1),
    A(cuGraphAddNode, cuMemFreeAsync, "graph", OF_DEVICE, PAGE, 1),
    A(cuGraphAddNode_v2, cuMemFreeAsync_ptsz, "graph", OF_DEVICE, PAGE, 1),
};
#define ACTS (sizeof acts / sizeof acts[0])

static size_t bytes_of(const struct act *a, size_t n)
{
    return a->bytes == NOTHING ? 0 : a->bytes == WHOLE ? n : n / 8 * 2 * 4 + n / 16 * 4;
}

/* A mapped external buffer counts nothing but was asked for; everything else was asked for as counted. */
static size_t requested_of(const struct act *a, size_t n)
{
    return !strcmp(a->entry, "cuExternalMemoryGetMappedBuffer") ? n : bytes_of(a, n) - a->unasked;
}

static item take(const struct act *a, size_t n)
{
    item p = 0;
    errno = 4711;
    int r = a->take(&p, n);
    if (r || !p || (errno != 4711 && a->take != call_cuMemHostRegister_v2))
        fail("%s returns %d, pointer %llx, errno %d", a->entry, r, p, errno);
    took(a->function, a->kind, a->where == OF_HOST ? -1 : device, a->entry, bytes_of(a, n), requested_of(a, n));
    return p;
}

static void give(const struct act *a, item p, size_t n, int d)
{
    a->give(p, n, d);
    gave(a->function, a->kind, a->where == OF_HOST ? -1 : d, a->entry, bytes_of(a, n), requested_of(a, n));
}

/* Two on device 0, one on device 1; one of each is given back while the other device is current. One is refused. */
static void play(const struct act *a, size_t n)
{
    on(0);
    item first = take(a, n);
    take(a, n);
    on(1);
    item other = take(a, n);
    give(a, first, n, 0);
    MUST(!SIM_FAIL_NEXT(a->entry, CUDA_ERROR_NOT_PERMITTED));
    item none;
    errno = 4711;
    int r = a->take(&none, n);
    MUST(r == CUDA_ERROR_NOT_PERMITTED && (errno == 4711 || a->take == call_cuMemHostRegister_v2));
    if (a->refusable)
        refused(a->function, a->kind, a->where == OF_HOST ? -1 : 1, a->entry, requested_of(a, n), r);
    on(0);
    give(a, other, n, 1);
}

/* ---- entry points that make no memory themselves ---- */

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
    MUST(status == CU_GET_PROC_ADDRESS_SUCCESS && SAME(p, via.cuMemAllocAsync_ptsz) && SAME(self, via.cuGetProcAddress_v2));
    OK(via.cuGetProcAddress_v2("cuMemAllocAsync", &p, 11010, 0, &status));
    MUST(!p && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(via.cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, &status));
    MUST(!p && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    MUST(via.cuGetProcAddress_v2("", &p, 0, 0, &status) == CUDA_ERROR_INVALID_VALUE);
}

static cuuint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute a)
{
    cuuint64_t value = 0;
    OK(via.cuMemPoolGetAttribute(pool, a, &value));
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
    OK(via.cuDeviceGetMemPool(&before, device));
    OK(via.cuDeviceSetMemPool(device, pool));
    OK(via.cuDeviceGetMemPool(&now, device));
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
    MUST(!SIM_FAIL_NEXT("cuMulticastBindMem", CUDA_ERROR_NOT_SUPPORTED) && !SIM_FAIL_NEXT("cuMulticastBindAddr", CUDA_ERROR_NOT_SUPPORTED));
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
#define GRAPH_WITH_MEMORY(g)                                                                                           \
    CUgraph g;                                                                                                         \
    do {                                                                                                               \
        CUDA_MEM_ALLOC_NODE_PARAMS alloc_ = {.poolProps = node_pool(), .bytesize = n};                                 \
        CUgraphNode node_;                                                                                             \
        OK(via.cuGraphCreate(&g, 0));                                                                                  \
        OK(via.cuGraphAddMemAllocNode(&node_, g, NULL, 0, &alloc_));                                                   \
        took(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n);                                               \
    } while (0)

#define INSTANTIATE_SCENE(entry, ...)                                                                                  \
    static void scene_##entry(size_t n)                                                                                \
    {                                                                                                                  \
        GRAPH_WITH_MEMORY(kept);                                                                                       \
        GRAPH_WITH_MEMORY(ended);                                                                                      \
        GRAPH_WITH_MEMORY(unused);                                                                                     \
        CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};                                                                    \
        CUgraphExec e = NULL;                                                                                          \
        CUgraph g = kept;                                                                                              \
        (void)params;                                                                                                  \
        OK(via.entry(&e, g, __VA_ARGS__)); /* outlives its graph */                                                    \
        OK(via.cuGraphDestroy(kept));                                                                                  \
        g = ended;                                                                                                     \
        OK(via.entry(&e, g, __VA_ARGS__));                                                                             \
        OK(via.cuGraphDestroy(ended));                                                                                 \
        OK(via.cuGraphExecDestroy(e));                                                                                 \
        gone(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n);                                               \
        OK(via.cuGraphDestroy(unused));                                                                                \
        gone(__func__, "graph", device, "cuGraphAddMemAllocNode", n, n);                                               \
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
        OK(via.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(via.cuGraphCreate(&given, 0));
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

#define CAPTURE_SCENE(entry, per_thread, ...)                                                                          \
    static int begin_##entry(CUstream s, CUgraph g) { (void)g; return via.entry(s, ##__VA_ARGS__); }                   \
    static void scene_##entry(size_t n) { capture_scene("capture_scene", per_thread, begin_##entry, n); }
CAPTURE_SCENE(cuStreamBeginCapture, 0)
CAPTURE_SCENE(cuStreamBeginCapture_ptsz, 1)
CAPTURE_SCENE(cuStreamBeginCapture_v2, 0, CU_STREAM_CAPTURE_MODE_RELAXED)
CAPTURE_SCENE(cuStreamBeginCapture_v2_ptsz, 1, CU_STREAM_CAPTURE_MODE_GLOBAL)
CAPTURE_SCENE(cuStreamBeginCaptureToGraph, 0, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
CAPTURE_SCENE(cuStreamBeginCaptureToGraph_ptsz, 1, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED)

/* ---- contexts: what is theirs goes with them, here on devices that nothing else uses ---- */

#define CONTEXT_SCENE(entry, d, make, end, lives)                                                                      \
    static void scene_##entry(size_t n)                                                                                \
    {                                                                                                                  \
        CUcontext c, after;                                                                                            \
        CUdeviceptr p;                                                                                                 \
        OK(make);                                                                                                      \
        OK(via.cuCtxSetCurrent(c));                                                                                    \
        OK(via.cuMemAlloc_v2(&p, n));                                                                                  \
        took(__func__, "device", d, "cuMemAlloc_v2", n, n);                                                            \
        OK(end);                                                                                                       \
        if (!(lives))                                                                                                  \
            gone(__func__, "device", d, "cuMemAlloc_v2", n, n);                                                        \
        OK(via.cuCtxGetCurrent(&after));                                                                               \
        on(0);                                                                                                         \
    }
CONTEXT_SCENE(cuCtxCreate_v2, 2, via.cuCtxCreate_v2(&c, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxCreate_v3, 2, via.cuCtxCreate_v3(&c, NULL, 0, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxCreate_v4, 2, via.cuCtxCreate_v4(&c, NULL, 0, 2), via.cuCtxDestroy_v2(c), 0)
CONTEXT_SCENE(cuCtxDetach, 2, via.cuCtxCreate_v2(&c, 0, 2), via.cuCtxDetach(c), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxRelease, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxRelease(3), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxRelease_v2, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxRelease_v2(3), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxReset, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxReset(3), 0)
CONTEXT_SCENE(cuDevicePrimaryCtxReset_v2, 3, via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxReset_v2(3), 0)
/* Two references, one given up: nothing ends. */
CONTEXT_SCENE(cuDevicePrimaryCtxRetain, 3, via.cuDevicePrimaryCtxRetain(&c, 3) | via.cuDevicePrimaryCtxRetain(&c, 3), via.cuDevicePrimaryCtxRelease(3), 1)

static const struct scene {
    const char *entries; /* separated by blanks */
    void (*play)(size_t n);
} scenes[] = {
#define S(entry) {#entry, scene_##entry}
    S(cuInit), S(cuGetProcAddress), S(cuGetProcAddress_v2),
    {"cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute cuDeviceSetMemPool", scene_pools},
    S(cuMemRetainAllocationHandle),
    {"cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr", scene_multicast},
    {"cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle", scene_ipc},
    {"cuGraphInstantiate cuGraphDestroy cuGraphExecDestroy", scene_cuGraphInstantiate},
    S(cuGraphInstantiate_v2), S(cuGraphInstantiateWithFlags), S(cuGraphInstantiateWithParams), S(cuGraphInstantiateWithParams_ptsz),
    {"cuStreamBeginCapture cuStreamEndCapture", scene_cuStreamBeginCapture},
    {"cuStreamBeginCapture_ptsz cuStreamEndCapture_ptsz", scene_cuStreamBeginCapture_ptsz},
    S(cuStreamBeginCapture_v2), S(cuStreamBeginCapture_v2_ptsz), S(cuStreamBeginCaptureToGraph), S(cuStreamBeginCaptureToGraph_ptsz),
    {"cuCtxCreate_v2 cuCtxDestroy_v2", scene_cuCtxCreate_v2},
    S(cuCtxCreate_v3), S(cuCtxCreate_v4), S(cuCtxDetach),
    S(cuDevicePrimaryCtxRelease), S(cuDevicePrimaryCtxRelease_v2), S(cuDevicePrimaryCtxReset), S(cuDevicePrimaryCtxReset_v2),
    S(cuDevicePrimaryCtxRetain),
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
        OK(via.cuMemPoolExportToShareableHandle(&fd, shared_pool[d], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        OK(via.cuMemPoolImportFromShareableHandle(&imported_pool[d], (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
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
