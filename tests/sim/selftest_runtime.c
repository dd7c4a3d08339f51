/*
 * Self-test of the simulated CUDA runtime, dynamic or static: that calls reach the driver as they should.
 */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void linear(void)
{
    struct cudaPitchedPtr cube;
    unsigned long long calls;
    size_t pitch, unused, total;
    void *p, *q;

    OK(cudaFree(NULL)); /* makes the context */
    EQ(sim_contexts(), 1);
    EQ(sim_calls("cuMemFree_v2"), 0);
    OK(cudaMemGetInfo(&unused, &total));
    EQ(unused, (16384 - 300) * MIB);
    OK(cudaMalloc(&p, 5000));
    EQ(sim_live_bytes(0), 5000);
    EQ(sim_calls("cuMemAlloc_v2"), 1);
    OK(cudaMalloc(&q, 0));
    TRUE(q == NULL);
    EQ(sim_calls("cuMemAlloc_v2"), 1);
    OK(cudaFree(p));
    EQ(cudaFree(p), cudaErrorInvalidValue);
    EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
    EQ(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaGetLastError());
    EQ(cudaMalloc(&p, (size_t)1 << 40), cudaErrorMemoryAllocation);
    EQ(strcmp(cudaGetErrorString(cudaGetLastError()), "out of memory"), 0);
    OK(cudaMallocPitch(&p, &pitch, 100, 10));
    EQ(pitch, 512);
    OK(cudaFree(p));
    OK(cudaMalloc3D(&cube, (struct cudaExtent){100, 10, 10}));
    EQ(sim_live_bytes(0), 512 * 100);
    OK(cudaFree(cube.ptr));
    OK(cudaMallocManaged(&p, 4096, cudaMemAttachGlobal));
    OK(cudaFree(p));
    calls = sim_calls("cuMemHostAlloc");
    OK(cudaMallocHost(&p, 4096));
    EQ(sim_calls("cuMemHostAlloc"), calls + 1);
    EQ(sim_calls("cuMemAllocHost_v2"), 0);
    memset(p, 1, 4096);
    OK(cudaFreeHost(p));
    p = malloc(8192);
    OK(cudaHostRegister(p, 8192, 0));
    OK(cudaHostUnregister(p));
    free(p);
}

static void arrays(void)
{
    struct cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 32, 0, 0, cudaChannelFormatKindFloat);
    cudaMipmappedArray_t mipmap;
    cudaArray_t array;

    OK(cudaMallocArray(&array, &desc, 256, 256, 0));
    EQ(sim_live_bytes(0), 256 * 256 * 8);
    OK(cudaFreeArray(array));
    OK(cudaMalloc3DArray(&array, &desc, (struct cudaExtent){64, 64, 4}, 0));
    EQ(sim_calls("cuArray3DCreate_v2"), 1);
    OK(cudaFreeArray(array));
    OK(cudaMallocMipmappedArray(&mipmap, &desc, (struct cudaExtent){64, 64, 0}, 2, 0));
    EQ(sim_live_bytes(0), 64 * 64 * 8 + 32 * 32 * 8);
    OK(cudaFreeMipmappedArray(mipmap));
}

static void stream_ordered(void)
{
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {.type = cudaMemLocationTypeDevice}};
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    cudaGraphExec_t exec;
    cudaStream_t stream;
    cudaMemPool_t pool;
    cudaGraph_t graph;
    uint64_t used;
    void *p, *q;

    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync(&p, MIB, stream));
    EQ(sim_calls("cuMemAllocAsync"), 1);
    OK(cudaMallocAsync_ptsz(&q, MIB, 0));
    EQ(sim_calls("cuMemAllocAsync_ptsz"), 1);
    OK(cudaDeviceGetMemPool(&pool, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    EQ(used, 2 * MIB);
    OK(cudaFreeAsync(p, stream));
    OK(cudaFree(q));
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMallocFromPoolAsync(&p, MIB, pool, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaMemPoolDestroy(pool));

    OK(cudaStreamBeginCapture(stream, mode));
    OK(cudaMallocAsync(&p, MIB, stream));
    OK(cudaLaunchKernel((void *)stream_ordered, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaDeviceGraphMemTrim(0));
    OK(cudaStreamDestroy(stream));
}

static void entry_points(void)
{
    const char *way = getenv("SIM_CUDART_GPA");
    enum cudaDriverEntryPointQueryResult status;
    void *found;

    if (way != NULL && strcmp(way, "none") == 0) {
        EQ(cudaGetDriverEntryPointByVersion("cuInit", &found, 12000, cudaEnableDefault, &status),
           cudaErrorCallRequiresNewerDriver);
        return;
    }

    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 12000, cudaEnableDefault, &status));
    EQ(status, cudaDriverEntryPointSuccess);
    TRUE(found == (void *)cuMemAlloc_v2);
    OK(cudaGetDriverEntryPointByVersion_ptsz("cuMemFreeAsync", &found, 12000, cudaEnableDefault, &status));
    TRUE(found == (void *)cuMemFreeAsync_ptsz);
    OK(cudaGetDriverEntryPointByVersion("cuMemCreate", &found, 12000, cudaEnablePerThreadDefaultStream, &status));
    TRUE(found == (void *)cuMemCreate);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuch", &found, 12000, cudaEnableDefault, &status));
    EQ(status, cudaDriverEntryPointSymbolNotFound);
    TRUE(found == NULL);
}

static void devices(void)
{
    struct cudaDeviceProp prop;
    int count, version;
    void *p;

    OK(cudaGetDeviceCount(&count));
    EQ(count, 1);
    OK(cudaGetDeviceProperties(&prop, 0));
    EQ(strcmp(prop.name, "Simulated GPU"), 0);
    EQ(prop.totalGlobalMem, 16384 * MIB);
    EQ(prop.major, 9);
    OK(cudaRuntimeGetVersion(&version));
    EQ(version, CUDART_VERSION);
    EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
    OK(cudaMalloc(&p, MIB));
    OK(cudaDeviceReset());
    EQ(sim_device_used(0), 0);
    OK(cudaMalloc(&p, MIB)); /* a fresh context */
    EQ(sim_contexts(), 1);
    EQ(sim_live_bytes(0), MIB);
    OK(cudaFree(p));
}

static void after_runtime_ended(void)
{
    const char *release = getenv("SIM_CUDART_RELEASE");
    void *p;

    if (cudaMalloc(&p, 512) != cudaErrorCudartUnloading || sim_contexts() != (release != NULL ? 1 : 0)) {
        fprintf(stderr, "runtime at exit: contexts %u\n", sim_contexts());
        _exit(9);
    }
}

void test_runtime(void)
{
    atexit(after_runtime_ended); /* before the runtime's own, hence called after it */
    EQ(sim_calls("cuInit"), 0);
    linear();
    EQ(sim_calls("cuInit"), 1);
    arrays();
    stream_ordered();
    entry_points();
    devices();
    EQ(sim_live_bytes(0), 0);
}
