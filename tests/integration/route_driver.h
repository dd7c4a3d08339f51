/*
 * The driver's entry points that make memory and those that end it. Each maker has a taker `call_ENTRY`, whose name is
 * what the report must show as the innermost function, and a giver; acts[] puts them together. What makes no memory of
 * its own is in route_scenes.h.
 */
#define IPC_BYTES 12288
#define SCENE static __attribute__((noinline, used))

static int device; /* current */
static CUcontext primary[2];
static CUmemoryPool pools[2], shared_pool[2], imported_pool[2];

static void on(int d)
{
    device = d;
    OK(via.help.cuCtxSetCurrent(primary[d]));
}

typedef unsigned long long item;

/* Memory that a scene needs besides what it is about. */
SCENE CUmemGenericAllocationHandle support_create(size_t bytes, int d)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d},
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
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
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = open("/dev/null", O_RDONLY), .size = bytes};
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

TAKER(cuMemAlloc_v2)
{
    return via.cuMemAlloc_v2(p, n);
}
TAKER(cuMemAllocManaged)
{
    return via.cuMemAllocManaged(p, n, CU_MEM_ATTACH_GLOBAL);
}
TAKER(cuMemHostAlloc)
{
    return via.cuMemHostAlloc((void **)p, n, 0);
}
TAKER(cuMemAllocHost_v2)
{
    return via.cuMemAllocHost_v2((void **)p, n);
}
TAKER(cuMemAllocAsync)
{
    return via.cuMemAllocAsync(p, n, NULL);
}
TAKER(cuMemAllocAsync_ptsz)
{
    return via.cuMemAllocAsync_ptsz(p, n, NULL);
}
TAKER(cuMemAllocFromPoolAsync)
{
    return via.cuMemAllocFromPoolAsync(p, n, pools[device], NULL);
}
TAKER(cuMemAllocFromPoolAsync_ptsz)
{
    return via.cuMemAllocFromPoolAsync_ptsz(p, n, pools[device], NULL);
}
TAKER(cuMemAddressReserve)
{
    return via.cuMemAddressReserve(p, n, 0, 0, 0);
}

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
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = n / 64, .Height = 2, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
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
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
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
    OK(via.help.cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
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
    OK(via.help.cuMemPoolExportPointer(&data, original));
    int r = via.cuMemPoolImportPointer(p, imported_pool[device], &data);
    OK(via.cuMemFreeAsync(original, NULL));
    gave("support_shared", "async", device, "cuMemAllocFromPoolAsync", n, n);
    return r;
}

TAKER(cuImportExternalMemory)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC d = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = open("/dev/null", O_RDONLY), .size = n};
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
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC d = {
        .arrayDesc = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, .numLevels = 1};
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
    OK(via.help.cuGraphLaunch(e, NULL));
}

static CUmemPoolProps node_pool(void)
{
    return (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

TAKER(cuGraphAddMemAllocNode)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = node_pool(), .bytesize = n};
    CUgraphNode node;
    CUgraph g;
    OK(via.help.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddMemAllocNode(&node, g, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.dptr;
    return r;
}

TAKER(cuGraphAddNode)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                .alloc = {.poolProps = node_pool(), .bytesize = n}};
    CUgraphNode node;
    CUgraph g;
    OK(via.help.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddNode(&node, g, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.alloc.dptr;
    return r;
}

TAKER(cuGraphAddNode_v2)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                .alloc = {.poolProps = node_pool(), .bytesize = n}};
    CUgraphNode node;
    CUgraph g;
    OK(via.help.cuGraphCreate(&g, 0));
    int r = via.cuGraphAddNode_v2(&node, g, NULL, NULL, 0, &params);
    if (!r)
        run_graph(g);
    *p = params.alloc.dptr;
    return r;
}

/* ---- givers ---- */

#define GIVER(entry) SCENE void give_##entry(item p, size_t n, int d)
GIVER(cuMemFree_v2)
{
    (void)n, (void)d;
    OK(via.cuMemFree_v2(p));
}
GIVER(cuMemFreeHost)
{
    (void)n, (void)d;
    OK(via.cuMemFreeHost((void *)p));
}
GIVER(cuMemHostUnregister)
{
    (void)n, (void)d;
    OK(via.cuMemHostUnregister((void *)p));
}
GIVER(cuMemFreeAsync)
{
    (void)n, (void)d;
    OK(via.cuMemFreeAsync(p, NULL));
}
GIVER(cuMemFreeAsync_ptsz)
{
    (void)n, (void)d;
    OK(via.cuMemFreeAsync_ptsz(p, NULL));
}
GIVER(cuArrayDestroy)
{
    (void)n, (void)d;
    OK(via.cuArrayDestroy((CUarray)p));
}
GIVER(cuMipmappedArrayDestroy)
{
    (void)n, (void)d;
    OK(via.cuMipmappedArrayDestroy((CUmipmappedArray)p));
}
GIVER(cuMemRelease)
{
    (void)n, (void)d;
    OK(via.cuMemRelease(p));
}
GIVER(cuMemAddressFree)
{
    (void)d;
    OK(via.cuMemAddressFree(p, n));
}
GIVER(cuDestroyExternalMemory)
{
    (void)n, (void)d;
    OK(via.cuDestroyExternalMemory((CUexternalMemory)p));
}
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
#define ACT(entry, giver, ...)                      \
    {                                               \
#entry, "call_" #entry, #giver, __VA_ARGS__ \
    }
#define WITH(entry, giver) call_##entry, give_##giver
#define A(entry, giver, kind, where, unit, refusable, ...) \
    ACT(entry, giver, kind, where, unit, refusable, WITH(entry, giver), ##__VA_ARGS__)
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
    A(cuExternalMemoryGetMappedMipmappedArray, cuMipmappedArrayDestroy, "imported", OF_DEVICE, PAGE, 0,
      .bytes = NOTHING),
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
