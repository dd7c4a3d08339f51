/*
 * How the runtime reaches the driver, step by step as observed of the real one:
 *
 *   dlopen("libcuda.so.1"), one dlsym for cuGetProcAddress_v2, a probe with an empty name, cuInit, cuGetProcAddress asked
 *   of itself twice, and from then on the pointer that the second answer gave.  An interposer that doesn't replace that
 *   answer sees nothing of what follows.
 *
 * SIM_CUDART_GPA=v1 starts as a CUDA 11 runtime does, with the 4-argument cuGetProcAddress; SIM_CUDART_GPA=none acts as
 * on a driver without it and looks every suffixed name up by dlsym.  All of it happens at the first call, not when the
 * library is loaded.  Contexts are retained per device when they are first needed.
 */
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct sim_rt_driver sim_rt;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int started; /* read without the lock */
static int unloading;
static void *driver;
static bool use_v1;

static struct {
    CUcontext context;       /* retained by us */
    unsigned int generation; /* grows with every reset */
} devices[SIM_RT_MAX_DEVICES];

static _Thread_local struct {
    int device;
    int bound_device;
    unsigned int generation;
    bool bound;
    cudaError_t last;
} me;

cudaError_t sim_rt_result(cudaError_t e)
{
    if (e != cudaSuccess) {
        me.last = e;
    }
    return e;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = me.last;

    me.last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return me.last;
}

cudaError_t sim_rt_find(const char *name, int version, unsigned long long flags, void **out,
                        CUdriverProcAddressQueryResult *status)
{
    if (use_v1) {
        CUresult result = sim_rt.cuGetProcAddress(name, out, version, flags);

        *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return result == CUDA_ERROR_NOT_FOUND ? cudaSuccess : (cudaError_t)result;
    }
    if (sim_rt.cuGetProcAddress_v2 == NULL) {
        return cudaErrorCallRequiresNewerDriver;
    }
    return (cudaError_t)sim_rt.cuGetProcAddress_v2(name, out, version, flags, status);
}

static const struct request {
    const char *export_name, *base;
    int version;
    unsigned long long flags;
    size_t field;
} requests[] = {
#define SIM_X(export, base, version, flags) {#export, #base, version, flags, offsetof(struct sim_rt_driver, export)},
    SIM_REQUESTS(SIM_X)
#undef SIM_X
};

#define REQUESTS (sizeof(requests) / sizeof(requests[0]))

static void **field(const struct request *r)
{
    return (void **)((char *)&sim_rt + r->field);
}

static cudaError_t collect_by_name(void)
{
    size_t i;

    *(void **)&sim_rt.cuInit = dlsym(driver, "cuInit");
    for (i = 0; i < REQUESTS; i++) {
        *field(&requests[i]) = dlsym(driver, requests[i].export_name);
    }
    return sim_rt.cuInit != NULL && sim_rt.cuMemAlloc_v2 != NULL ? cudaSuccess : cudaErrorInsufficientDriver;
}

/* Ask cuGetProcAddress for itself; the last answer is used from here on. */
static void renew_lookup(void)
{
    CUdriverProcAddressQueryResult status;
    void *found = NULL;

    sim_rt_find("cuGetProcAddress", 11030, 0, &found, &status);
    if (use_v1) {
        if (found != NULL) {
            *(void **)&sim_rt.cuGetProcAddress = found;
        }
        return;
    }
    found = NULL;
    if (sim_rt_find("cuGetProcAddress", 12000, 0, &found, &status) == cudaSuccess && found != NULL) {
        *(void **)&sim_rt.cuGetProcAddress_v2 = found;
    }
}

static cudaError_t collect_by_lookup(const char *lookup_name)
{
    CUdriverProcAddressQueryResult status;
    void *found = dlsym(driver, lookup_name);
    size_t i;

    if (found == NULL) {
        return collect_by_name();
    }
    use_v1 = strcmp(lookup_name, "cuGetProcAddress") == 0;
    *(use_v1 ? (void **)&sim_rt.cuGetProcAddress : (void **)&sim_rt.cuGetProcAddress_v2) = found;

    found = NULL;
    sim_rt_find("", 0, 0, &found, &status); /* a probe: any answer will do */
    if (sim_rt_find("cuInit", 2000, 0, &found, &status) != cudaSuccess || found == NULL) {
        return cudaErrorInsufficientDriver;
    }
    *(void **)&sim_rt.cuInit = found;
    renew_lookup();
    for (i = 0; i < REQUESTS; i++) {
        found = NULL;
        sim_rt_find(requests[i].base, requests[i].version, requests[i].flags, &found, &status);
        *field(&requests[i]) = found; /* a name that an older driver lacks stays NULL */
    }
    return sim_rt.cuMemAlloc_v2 != NULL ? cudaSuccess : cudaErrorInsufficientDriver;
}

static void at_exit(void)
{
    const char *text = getenv("SIM_CUDART_RELEASE");
    bool release = text == NULL || strcmp(text, "0") != 0;
    int i;

    pthread_mutex_lock(&lock);
    for (i = 0; release && i < SIM_RT_MAX_DEVICES; i++) {
        if (devices[i].context != NULL) {
            sim_rt.cuDevicePrimaryCtxRelease(i);
            devices[i].context = NULL;
        }
    }
    __atomic_store_n(&unloading, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

static cudaError_t start(void)
{
    const char *way = getenv("SIM_CUDART_GPA");
    int version = 0, count = 0;
    cudaError_t e;

    driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == NULL) {
        return cudaErrorInsufficientDriver;
    }
    if (way != NULL && strcmp(way, "none") == 0) {
        e = collect_by_name();
    } else {
        e = collect_by_lookup(way != NULL && strcmp(way, "v1") == 0 ? "cuGetProcAddress" : "cuGetProcAddress_v2");
    }
    if (e != cudaSuccess) {
        return e;
    }
    sim_rt.cuDriverGetVersion(&version);
    e = (cudaError_t)sim_rt.cuInit(0);
    if (e != cudaSuccess) {
        return e;
    }
    sim_rt.cuDeviceGetCount(&count);
    atexit(at_exit); /* after cuInit, hence run before the driver's own */
    return cudaSuccess;
}

cudaError_t sim_rt_start(void)
{
    cudaError_t e = cudaSuccess;

    if (__atomic_load_n(&unloading, __ATOMIC_ACQUIRE)) {
        return cudaErrorCudartUnloading;
    }
    if (__atomic_load_n(&started, __ATOMIC_ACQUIRE)) {
        return cudaSuccess;
    }
    pthread_mutex_lock(&lock);
    if (!started) {
        e = start();
        if (e == cudaSuccess) {
            __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&lock);
    return e;
}

/* ---- devices and their contexts ---- */

static cudaError_t bind_primary(int device)
{
    cudaError_t e = cudaSuccess;

    pthread_mutex_lock(&lock);
    if (devices[device].context == NULL) {
        e = (cudaError_t)sim_rt.cuDevicePrimaryCtxRetain(&devices[device].context, device);
        if (e != cudaSuccess) {
            devices[device].context = NULL;
        }
    }
    if (e == cudaSuccess) {
        e = (cudaError_t)sim_rt.cuCtxSetCurrent(devices[device].context);
    }
    if (e == cudaSuccess) {
        me.bound = true;
        me.bound_device = device;
        me.generation = devices[device].generation;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

cudaError_t sim_rt_context(void)
{
    CUcontext current = NULL;
    cudaError_t e = sim_rt_start();

    if (e != cudaSuccess) {
        return e;
    }
    if (me.bound && me.bound_device == me.device &&
        me.generation == __atomic_load_n(&devices[me.device].generation, __ATOMIC_RELAXED)) {
        return cudaSuccess;
    }
    /* A context that the program made current through the driver is used as it is. */
    if (!me.bound && sim_rt.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL) {
        return cudaSuccess;
    }
    return bind_primary(me.device);
}

int sim_rt_device(void)
{
    return me.device;
}

cudaError_t sim_rt_set_device(int device)
{
    int count = 0;

    if (sim_rt.cuDeviceGetCount(&count) != CUDA_SUCCESS || device < 0 || device >= count) {
        return cudaErrorInvalidDevice;
    }
    me.device = device;
    return bind_primary(device);
}

cudaError_t sim_rt_reset(void)
{
    int device = me.device;
    cudaError_t e;

    pthread_mutex_lock(&lock);
    e = (cudaError_t)sim_rt.cuDevicePrimaryCtxReset(device);
    devices[device].context = NULL;
    __atomic_fetch_add(&devices[device].generation, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return e;
}

/* Kernels have no code here.  As with the real runtime's lazy loading, a module is loaded at the first launch. */
cudaError_t sim_rt_function(CUfunction *out)
{
    static _Thread_local struct {
        CUfunction function;
        unsigned int generation;
        int device;
    } cache;
    CUmodule module;
    cudaError_t e;

    if (cache.function == NULL || cache.device != me.device ||
        cache.generation != __atomic_load_n(&devices[me.device].generation, __ATOMIC_RELAXED)) {
        e = (cudaError_t)sim_rt.cuModuleLoadData(&module, "simulated");
        if (e == cudaSuccess) {
            e = (cudaError_t)sim_rt.cuModuleGetFunction(&cache.function, module, "kernel");
        }
        if (e != cudaSuccess) {
            return e;
        }
        cache.device = me.device;
        cache.generation = __atomic_load_n(&devices[me.device].generation, __ATOMIC_RELAXED);
    }
    *out = cache.function;
    return cudaSuccess;
}
