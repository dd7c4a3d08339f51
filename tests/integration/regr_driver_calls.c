/*
 * Driver programs of the regression tests, linked to libcuda: `regr_driver_calls SCENE`. Each scene is one failure of the
 * catalogue acted out; what the report must say then is in test_regressions_books.py and test_regressions_drivers.py.
 */
#include "regr.h"
#include "sim.h"

static CUcontext primary[4];

static void start(int devices)
{
    OK(cuInit(0));
    for (int d = devices; d-- > 0;) {
        OK(cuDevicePrimaryCtxRetain(&primary[d], d));
        OK(cuCtxSetCurrent(primary[d]));
    }
}

NOINLINE static CUdeviceptr grab(size_t n)
{
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, n));
    return p;
}

NOINLINE static void first_free(CUdeviceptr p)
{
    OK(cuMemFree_v2(p));
}

NOINLINE static void second_free(CUdeviceptr p)
{
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
}

static CUmemGenericAllocationHandle physical(size_t n, int d)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d}};
    CUmemGenericAllocationHandle h;
    OK(cuMemCreate(&h, n, &prop, 0));
    return h;
}

static CUdeviceptr reserve(size_t n)
{
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, n, 0, 0, 0));
    return p;
}

/* 7: frees that go wrong or only look so */
static void misuse(void)
{
    CUdeviceptr p, q;
    void *host;
    start(1);
    OK(cuMemFree_v2(0));
    OK(cuMemFreeHost(NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0xdead000)); /* unknown */
    p = grab(1 * MIB);
    first_free(p);
    second_free(p); /* double */
    p = grab(4 * MIB);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p + 65536));  /* interior */
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost((void *)p)); /* wrong call */
    OK(cuMemHostAlloc(&host, 3 * MIB, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((CUdeviceptr)host)); /* wrong call */
    OK(cuMemAllocAsync(&q, 2 * MIB, NULL));
    OK(cuMemFree_v2(q)); /* allowed */
    OK(cuMemAllocAsync(&q, 2 * MIB, NULL));
    OK(cuMemFreeAsync(q, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(q, NULL)); /* double */
}

/* 7: the driver refuses a free: the memory is still there, and a second attempt ends it */
static void refused_free(void)
{
    CUdeviceptr p, q;
    CUmemGenericAllocationHandle h;
    void *host;
    start(1);
    p = grab(5 * MIB);
    sim_fail_next("cuMemFree_v2", 0, CUDA_ERROR_LAUNCH_FAILED);
    IS(CUDA_ERROR_LAUNCH_FAILED, cuMemFree_v2(p));
    q = grab(6 * MIB);
    sim_fail_next("cuMemFree_v2", 0, CUDA_ERROR_LAUNCH_FAILED);
    IS(CUDA_ERROR_LAUNCH_FAILED, cuMemFree_v2(q)); /* stays */
    OK(cuMemFree_v2(p));
    OK(cuMemAllocAsync(&p, 2 * MIB, NULL));
    sim_fail_next("cuMemFreeAsync", 0, 701);
    IS(701, cuMemFreeAsync(p, NULL));
    OK(cuMemHostAlloc(&host, 3 * MIB, 0));
    sim_fail_next("cuMemFreeHost", 0, 702);
    IS(702, cuMemFreeHost(host));
    h = physical(2 * MIB, 0);
    sim_fail_next("cuMemRelease", 0, 705);
    IS(705, cuMemRelease(h));
    OK(cuMemRelease(h));
    h = physical(4 * MIB, 0);
    sim_fail_next("cuMemRelease", 0, 703);
    IS(703, cuMemRelease(h));
    p = reserve(4 * MIB);
    OK(cuMemMap(p, 4 * MIB, 0, h, 0));
    OK(cuMemRelease(h));
    sim_fail_next("cuMemUnmap", 0, 704);
    IS(704, cuMemUnmap(p, 4 * MIB));
}

/* 7: refused allocations with garbage in the out-parameter (SIM_GARBAGE=1) */
static void refused_allocs(void)
{
    CUdeviceptr p = 0;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR d = {.Width = 512, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
    size_t pitch = 77;
    void *host;
    start(1);
    sim_set_garbage(1);
    sim_fail_always("cuMemAlloc_v2", 801);
    sim_fail_always("cuMemAllocPitch_v2", 802);
    sim_fail_always("cuMemAllocManaged", 803);
    sim_fail_always("cuMemAllocAsync", 804);
    sim_fail_always("cuMemHostAlloc", 805);
    sim_fail_always("cuMemCreate", 806);
    sim_fail_always("cuMemAddressReserve", 807);
    sim_fail_always("cuArrayCreate_v2", 808);
    IS(801, cuMemAlloc_v2(&p, 1 * MIB));
    MUST(p == 0xa5a5a5a5a5a5a5a5);
    IS(801, cuMemAlloc_v2(NULL, 9 * MIB));
    IS(802, cuMemAllocPitch_v2(&p, &pitch, 2048, 1024, 4));
    IS(802, cuMemAllocPitch_v2(NULL, NULL, 2048, 512, 4));
    IS(803, cuMemAllocManaged(&p, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    IS(804, cuMemAllocAsync(&p, 4 * MIB, NULL));
    IS(805, cuMemHostAlloc(&host, 5 * MIB, 0));
    IS(806, cuMemCreate(&h, 6 * MIB, &prop, 0));
    IS(806, cuMemCreate(NULL, 6 * MIB, NULL, 0));
    IS(807, cuMemAddressReserve(&p, 8 * MIB, 0, 0, 0));
    IS(808, cuArrayCreate_v2(&array, &d));
    IS(808, cuArrayCreate_v2(NULL, NULL));
}

/* 7: a card that is full */
NOINLINE static void too_much(void)
{
    CUdeviceptr p;
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, 500 * MIB));
}

static void out_of_memory(void)
{
    start(1);
    grab(100 * MIB);
    sim_set_free(0, 300 * MIB);
    sim_set_garbage(1);
    too_much();
}

/* 8: the device is the allocation's own, not the current one */
static void devices(void)
{
    CUdeviceptr p, q;
    CUmemGenericAllocationHandle h;
    start(2);
    p = grab(1 * MIB);
    OK(cuCtxSetCurrent(primary[1]));
    q = grab(2 * MIB);
    grab(4 * MIB);
    OK(cuMemFree_v2(p)); /* of device 0, 1 being current */
    OK(cuCtxSetCurrent(primary[0]));
    OK(cuMemFree_v2(q));
    OK(cuCtxSetCurrent(NULL)); /* none is current */
    h = physical(8 * MIB, 1);
    physical(16 * MIB, 0);
    OK(cuMemRelease(h));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 32 * MIB));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemFree_v2(0xdead000));
}

/* 9: physical memory ends with the last reference and the last mapping, whichever comes last */
static void vmm(void)
{
    CUmemGenericAllocationHandle h, again;
    CUdeviceptr p = reserve(32 * MIB);
    (void)p;
    h = physical(2 * MIB, 0); /* released, then unmapped */
    OK(cuMemMap(p, 2 * MIB, 0, h, 0));
    OK(cuMemRelease(h));
    OK(cuMemUnmap(p, 2 * MIB));
    h = physical(4 * MIB, 0); /* unmapped, then released */
    OK(cuMemMap(p, 4 * MIB, 0, h, 0));
    OK(cuMemUnmap(p, 4 * MIB));
    OK(cuMemRelease(h));
    h = physical(6 * MIB, 0); /* released, still mapped: stays */
    OK(cuMemMap(p + 8 * MIB, 6 * MIB, 0, h, 0));
    OK(cuMemRelease(h));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(p + 8 * MIB, 2 * MIB)); /* a part of a mapping: refused */
    h = physical(8 * MIB, 0);                                       /* mapped in two pieces, one unmap over both */
    OK(cuMemMap(p + 16 * MIB, 4 * MIB, 0, h, 0));
    OK(cuMemMap(p + 20 * MIB, 4 * MIB, 4 * MIB, h, 0));
    OK(cuMemRelease(h));
    OK(cuMemUnmap(p + 16 * MIB, 8 * MIB));
    h = physical(10 * MIB, 0); /* retained by an address inside: two releases */
    OK(cuMemMap(p + 16 * MIB, 10 * MIB, 0, h, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(p + 18 * MIB)));
    OK(cuMemRelease(h));
    OK(cuMemUnmap(p + 16 * MIB, 10 * MIB));
    OK(cuMemRelease(again));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(again)); /* once too often */
    h = physical(12 * MIB, 0);                         /* two objects, three mappings, one unmap */
    again = physical(2 * MIB, 0);
    OK(cuMemMap(p, 6 * MIB, 0, h, 0));
    OK(cuMemMap(p + 6 * MIB, 2 * MIB, 0, again, 0));
    OK(cuMemUnmap(p, 8 * MIB));
    OK(cuMemRelease(again));
}

static void vmm_scene(void)
{
    start(1);
    vmm();
}

/* 10: one of each kind in the current context */
static CUdeviceptr one_of_each(void)
{
    CUDA_ARRAY_DESCRIPTOR d = {.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUdeviceptr p, q, s;
    CUarray array;
    size_t pitch;
    void *host;
    p = grab(1 * MIB);
    OK(cuMemAllocPitch_v2(&q, &pitch, 1024, 1024, 4));
    OK(cuMemAllocManaged(&q, 2 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemHostAlloc(&host, 3 * MIB, 0));
    OK(cuArrayCreate_v2(&array, &d));
    OK(cuMemAllocAsync(&s, 4 * MIB, NULL));
    physical(6 * MIB, 0);
    return p;
}

static void end_context(int how)
{
    CUcontext c = NULL, other = NULL;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&other, 1)); /* somebody else's memory on another device */
    OK(cuCtxSetCurrent(other));
    grab(7 * MIB);
    if (how == 0) {
        OK(cuCtxCreate_v2(&c, 0, 0));
    } else {
        OK(cuDevicePrimaryCtxRetain(&c, 0));
        OK(cuCtxSetCurrent(c));
    }
    p = one_of_each();
    if (how == 0)
        OK(cuCtxDestroy_v2(c));
    else if (how == 1)
        OK(cuDevicePrimaryCtxReset(0));
    else if (how == 2)
        OK(cuDevicePrimaryCtxReset_v2(0));
    else if (how == 3)
        OK(cuDevicePrimaryCtxRelease(0));
    else
        OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSetCurrent(other));
    second_free(p); /* too late: went with the context */
}

static void ctx_destroy(void)
{
    end_context(0);
}
static void primary_reset(void)
{
    end_context(1);
}
static void primary_reset_v2(void)
{
    end_context(2);
}
static void primary_release(void)
{
    end_context(3);
}
static void primary_release_v2(void)
{
    end_context(4);
}

/* 10: one reference of two is given up: nothing ends. A destroy that is refused ends nothing either. */
static void contexts_that_stay(void)
{
    CUcontext c;
    start(1);
    grab(1 * MIB);
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(c)); /* a primary context */
    first_free(grab(2 * MIB));
    OK(cuCtxCreate_v2(&c, 0, 0));
    grab(4 * MIB);
    sim_fail_next("cuCtxDestroy_v2", 0, 999);
    IS(999, cuCtxDestroy_v2(c));
    first_free(grab(8 * MIB));
}

/* 11: memory of graphs */
static CUgraph graph_of(size_t n, CUdeviceptr *p)
{
    CUDA_MEM_ALLOC_NODE_PARAMS a = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
                                    .bytesize = n};
    CUgraphNode node;
    CUgraph g;
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&node, g, NULL, 0, &a));
    *p = a.dptr;
    return g;
}

static void graphs(void)
{
    CUdeviceptr p;
    CUgraphExec e;
    CUgraph g;
    CUstream s;
    start(1);
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* captured, launched, freed by an ordinary call */
    OK(cuMemAllocAsync(&p, 1 * MIB, s));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphLaunch(e, s));
    OK(cuMemFree_v2(p));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* captured with its free: a node, not a free */
    OK(cuMemAllocAsync(&p, 2 * MIB, s));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamEndCapture(s, &g));
    g = graph_of(4 * MIB, &p); /* destroyed without executables: gone */
    OK(cuGraphDestroy(g));
    g = graph_of(8 * MIB, &p); /* destroyed, but one executable is left: stays */
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphDestroy(g));
    OK(cuGraphExecDestroy(e));
    g = graph_of(16 * MIB, &p); /* both gone: gone */
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
    OK(cuMemAllocAsync(&p, 32 * MIB, s)); /* no capture is on any more */
}

/* 12: two threads that are handed each other's addresses */
static pthread_barrier_t together;
enum { ROUNDS = 20000 };

static void *churn(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(primary[0]));
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p;
        OK(cuMemAlloc_v2(&p, 65536));
        OK(cuMemFree_v2(p));
    }
    return NULL;
}

static void two_threads(void)
{
    pthread_t t[2];
    start(1);
    pthread_barrier_init(&together, NULL, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, churn, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

/* 4: a driver with habits of its own (SIM_CTOR_DLSYM, SIM_WSL) */
static void plain(void)
{
    start(1);
    first_free(grab(1 * MIB));
    grab(2 * MIB);
}

static const struct {
    const char *name;
    void (*play)(void);
} scenes[] = {
#define S(name)     \
    {               \
#name, name \
    }
    S(misuse),
    S(refused_free),
    S(refused_allocs),
    S(out_of_memory),
    S(devices),
    S(vmm_scene),
    S(ctx_destroy),
    S(primary_reset),
    S(primary_reset_v2),
    S(primary_release),
    S(primary_release_v2),
    S(contexts_that_stay),
    S(graphs),
    S(two_threads),
    S(plain),
};

int main(int argc, char **argv)
{
    for (unsigned i = 0; argc == 2 && i < sizeof scenes / sizeof scenes[0]; i++)
        if (!strcmp(scenes[i].name, argv[1]))
            return scenes[i].play(), 0;
    return 64;
}
