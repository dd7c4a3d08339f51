/*
 * Scenes of the runtime's entry points. The report names a call by the runtime's function if the library can see it, else
 * (the static runtime) by the driver's function that it ends in.
 */
#define RTAKER(entry) SCENE int call_##entry(item *p, size_t n)

static cudaMemPool_t runtime_pools[2];
static int runtime_device;

RTAKER(cudaMalloc)
{
    return via.cudaMalloc((void **)p, n);
}
RTAKER(cudaMallocManaged)
{
    return via.cudaMallocManaged((void **)p, n, cudaMemAttachGlobal);
}
RTAKER(cudaMallocHost)
{
    return via.cudaMallocHost((void **)p, n);
}
RTAKER(cudaHostAlloc)
{
    return via.cudaHostAlloc((void **)p, n, cudaHostAllocPortable);
}
RTAKER(cudaMallocAsync)
{
    return via.cudaMallocAsync((void **)p, n, NULL);
}
RTAKER(cudaMallocAsync_ptsz)
{
    return via.cudaMallocAsync_ptsz((void **)p, n, NULL);
}
RTAKER(cudaMallocFromPoolAsync)
{
    return via.cudaMallocFromPoolAsync((void **)p, n, runtime_pools[runtime_device], NULL);
}
RTAKER(cudaMallocFromPoolAsync_ptsz)
{
    return via.cudaMallocFromPoolAsync_ptsz((void **)p, n, runtime_pools[runtime_device], NULL);
}

RTAKER(cudaHostRegister)
{
    *p = (item)(uintptr_t)aligned_alloc(4096, n);
    return via.cudaHostRegister((void *)*p, n, cudaHostRegisterDefault);
}

RTAKER(cudaMallocPitch)
{
    size_t pitch = 0;
    int r = via.cudaMallocPitch((void **)p, &pitch, n / 4 - 100, 4);
    MUST(r || pitch == n / 4);
    return r;
}

RTAKER(cudaMalloc3D)
{
    struct cudaPitchedPtr q = {0};
    int r = via.cudaMalloc3D(&q, (struct cudaExtent){n / 4 - 100, 2, 2});
    *p = (item)(uintptr_t)q.ptr;
    return r;
}

static const struct cudaChannelFormatDesc one_float = {32, 0, 0, 0, cudaChannelFormatKindFloat};

RTAKER(cudaMallocArray)
{
    return via.cudaMallocArray((cudaArray_t *)p, &one_float, n / 8, 2, 0);
}
RTAKER(cudaMalloc3DArray)
{
    return via.cudaMalloc3DArray((cudaArray_t *)p, &one_float, (struct cudaExtent){n / 16, 2, 2}, 0);
}
RTAKER(cudaMallocMipmappedArray)
{
    return via.cudaMallocMipmappedArray((cudaMipmappedArray_t *)p, &one_float, (struct cudaExtent){n / 8, 2, 0}, 2, 0);
}

#define RGIVER(entry, ...)                           \
    SCENE void give_##entry(item p, size_t n, int d) \
    {                                                \
        (void)n, (void)d;                            \
        OK(via.entry(__VA_ARGS__));                  \
    }
RGIVER(cudaFree, (void *)p)
RGIVER(cudaFreeHost, (void *)p)
RGIVER(cudaHostUnregister, (void *)p)
RGIVER(cudaFreeArray, (cudaArray_t)p)
RGIVER(cudaFreeMipmappedArray, (cudaMipmappedArray_t)p)
RGIVER(cudaFreeAsync, (void *)p, NULL)
RGIVER(cudaFreeAsync_ptsz, (void *)p, NULL)

static const struct runtime_act {
    struct act act;
    const char *driver; /* the driver's function that it ends in */
} runtime_acts[] = {
#define R(entry, giver, driver, kind, where, ...)                     \
    {                                                                 \
        A(entry, giver, kind, where, PAGE, 1, ##__VA_ARGS__), #driver \
    }
    R(cudaMalloc, cudaFree, cuMemAlloc_v2, "device", OF_DEVICE),
    R(cudaMallocPitch, cudaFree, cuMemAllocPitch_v2, "device", OF_DEVICE, .unasked = 400),
    R(cudaMalloc3D, cudaFree, cuMemAllocPitch_v2, "device", OF_DEVICE, .unasked = 400),
    R(cudaMallocManaged, cudaFree, cuMemAllocManaged, "managed", OF_DEVICE),
    R(cudaMallocHost, cudaFreeHost, cuMemHostAlloc, "pinned", OF_HOST),
    R(cudaHostAlloc, cudaFreeHost, cuMemHostAlloc, "pinned", OF_HOST),
    R(cudaHostRegister, cudaHostUnregister, cuMemHostRegister_v2, "registered", OF_HOST),
    R(cudaMallocArray, cudaFreeArray, cuArrayCreate_v2, "array", OF_DEVICE),
    R(cudaMalloc3DArray, cudaFreeArray, cuArray3DCreate_v2, "array", OF_DEVICE),
    R(cudaMallocMipmappedArray, cudaFreeMipmappedArray, cuMipmappedArrayCreate, "array", OF_DEVICE,
      .bytes = FIVE_EIGHTHS_MORE),
    R(cudaMallocAsync, cudaFreeAsync, cuMemAllocAsync, "async", OF_DEVICE),
    R(cudaMallocAsync_ptsz, cudaFreeAsync_ptsz, cuMemAllocAsync_ptsz, "async", OF_DEVICE),
    R(cudaMallocFromPoolAsync, cudaFreeAsync, cuMemAllocFromPoolAsync, "async", OF_DEVICE),
    R(cudaMallocFromPoolAsync_ptsz, cudaFreeAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, "async", OF_DEVICE),
};
#define RUNTIME_ACTS (sizeof runtime_acts / sizeof runtime_acts[0])

static void list_runtime(void)
{
    for (size_t i = 0; i < RUNTIME_ACTS; i++)
        printf("%s\n%s\n", runtime_acts[i].act.entry, runtime_acts[i].act.giver);
    printf("cudaDeviceReset\ncudaMemGetInfo\n");
}

static const char *runtime_api(const struct runtime_act *a)
{
#ifdef STATIC
    return a->driver;
#else
    return a->act.entry;
#endif
}

static void runtime_on(int d)
{
    runtime_device = d;
    OK(via.help.cudaSetDevice(d));
}

static item runtime_take(const struct runtime_act *a, size_t n)
{
    item p = 0;
    errno = 4711;
    int r = a->act.take(&p, n);
    if (r || !p || (errno != 4711 && a->act.take != call_cudaHostRegister))
        fail("%s returns %d, pointer %llx, errno %d", a->act.entry, r, p, errno);
    took(a->act.function, a->act.kind, a->act.where == OF_HOST ? -1 : runtime_device, runtime_api(a),
         bytes_of(&a->act, n), requested_of(&a->act, n));
    return p;
}

static void runtime_give(const struct runtime_act *a, item p, size_t n, int d)
{
    a->act.give(p, n, d);
    gave(a->act.function, a->act.kind, a->act.where == OF_HOST ? -1 : d, runtime_api(a), bytes_of(&a->act, n),
         requested_of(&a->act, n));
}

static void runtime_play(const struct runtime_act *a, size_t n)
{
    item none;
    runtime_on(0);
    item first = runtime_take(a, n);
    runtime_take(a, n);
    runtime_on(1);
    item other = runtime_take(a, n);
    runtime_give(a, first, n, 0);
    MUST(!SIM_FAIL_NEXT(a->driver, cudaErrorNotPermitted));
    MUST(a->act.take(&none, n) == cudaErrorNotPermitted && via.help.cudaGetLastError() == cudaErrorNotPermitted);
    refused(a->act.function, a->act.kind, a->act.where == OF_HOST ? -1 : 1, runtime_api(a), requested_of(&a->act, n),
            cudaErrorNotPermitted);
    runtime_on(0);
    runtime_give(a, other, n, 1);
}

SCENE void call_cudaDeviceReset(size_t n)
{
    void *p;
    runtime_on(3);
    OK(via.cudaMalloc(&p, n));
    took(__func__, "device", 3, runtime_api(&runtime_acts[0]), n, n);
    OK(via.cudaDeviceReset());
    gone(__func__, "device", 3, runtime_api(&runtime_acts[0]), n, n);
    runtime_on(0);
}

/* Books nothing, and passes on what it is told. */
SCENE void call_cudaMemGetInfo(size_t n)
{
    size_t before = 0, after = 0, total = 0, same = 0;
    void *p;
    OK(via.cudaMemGetInfo(&before, &total));
    OK(via.cudaMalloc(&p, n));
    took(__func__, "device", 0, runtime_api(&runtime_acts[0]), n, n);
    OK(via.cudaMemGetInfo(&after, &same));
    MUST(before - after == n && total == same);
    MUST(!SIM_FAIL_NEXT("cuMemGetInfo_v2", cudaErrorNotPermitted));
    MUST(via.cudaMemGetInfo(&after, &same) == cudaErrorNotPermitted);
    MUST(via.help.cudaGetLastError() == cudaErrorNotPermitted);
}

static void run_runtime(void)
{
    for (int d = 0; d < 2; d++) {
        struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                         .location = {.type = cudaMemLocationTypeDevice, .id = d}};
        runtime_on(d);
        OK(via.help.cudaMemPoolCreate(&runtime_pools[d], &props));
    }
    for (size_t i = 0; i < RUNTIME_ACTS; i++)
        runtime_play(&runtime_acts[i], (i + 1) * PAGE);
    call_cudaDeviceReset((RUNTIME_ACTS + 1) * PAGE);
    call_cudaMemGetInfo(HUGE);
}
