/*
 * Devices, versions, error texts and driver entry points of the runtime API.
 */
#include "runtime.h"

#include <string.h>

static cudaError_t get_properties(struct cudaDeviceProp *p, int device)
{
    static const struct {
        CUdevice_attribute attribute;
        size_t offset;
    } ints[] = {
#define INT(field, attribute) {CU_DEVICE_ATTRIBUTE_##attribute, offsetof(struct cudaDeviceProp, field)}
        INT(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
        INT(warpSize, WARP_SIZE),
        INT(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
        INT(maxThreadsDim[0], MAX_BLOCK_DIM_X),
        INT(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
        INT(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
        INT(maxGridSize[0], MAX_GRID_DIM_X),
        INT(maxGridSize[1], MAX_GRID_DIM_Y),
        INT(maxGridSize[2], MAX_GRID_DIM_Z),
        INT(major, COMPUTE_CAPABILITY_MAJOR),
        INT(minor, COMPUTE_CAPABILITY_MINOR),
        INT(multiProcessorCount, MULTIPROCESSOR_COUNT),
        INT(canMapHostMemory, CAN_MAP_HOST_MEMORY),
        INT(concurrentKernels, CONCURRENT_KERNELS),
        INT(pciBusID, PCI_BUS_ID),
        INT(asyncEngineCount, ASYNC_ENGINE_COUNT),
        INT(unifiedAddressing, UNIFIED_ADDRESSING),
        INT(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
        INT(l2CacheSize, L2_CACHE_SIZE),
        INT(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
        INT(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
        INT(managedMemory, MANAGED_MEMORY),
        INT(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
        INT(cooperativeLaunch, COOPERATIVE_LAUNCH),
        INT(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
        INT(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
        INT(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
#undef INT
    };
    CUresult result;
    size_t i;

    if (p == NULL) {
        return cudaErrorInvalidValue;
    }
    memset(p, 0, sizeof(*p));
    result = sim_rt.cuDeviceGetName(p->name, (int)sizeof(p->name), device);
    if (result == CUDA_SUCCESS) {
        result = sim_rt.cuDeviceTotalMem_v2(&p->totalGlobalMem, device);
    }
    if (result == CUDA_SUCCESS) {
        result = sim_rt.cuDeviceGetUuid_v2((CUuuid *)&p->uuid, device);
    }
    for (i = 0; result == CUDA_SUCCESS && i < sizeof(ints) / sizeof(ints[0]); i++) {
        result = sim_rt.cuDeviceGetAttribute((int *)((char *)p + ints[i].offset), ints[i].attribute, device);
    }
    p->sharedMemPerBlock = 49152;
    p->totalConstMem = 65536;
    p->memPitch = 2147483647;
    p->textureAlignment = 512;
    return (cudaError_t)result;
}

static cudaError_t get_int(int *out, int value)
{
    if (out == NULL) {
        return cudaErrorInvalidValue;
    }
    *out = value;
    return cudaSuccess;
}

static cudaError_t synchronize(void)
{
    return (cudaError_t)sim_rt.cuCtxSynchronize();
}

RUNTIME(cudaGetDeviceCount, (int *count), sim_rt_start, sim_rt.cuDeviceGetCount(count))
RUNTIME(cudaGetDevice, (int *device), sim_rt_start, get_int(device, sim_rt_device()))
RUNTIME(cudaSetDevice, (int device), sim_rt_start, sim_rt_set_device(device))
RUNTIME(cudaInitDevice, (int device, unsigned int deviceFlags, unsigned int flags), sim_rt_start,
        ((void)deviceFlags, (void)flags, sim_rt_set_device(device)))
RUNTIME(cudaSetDeviceFlags, (unsigned int flags), sim_rt_start,
        sim_rt.cuDevicePrimaryCtxSetFlags(sim_rt_device(), flags))
RUNTIME(cudaGetDeviceFlags, (unsigned int *flags), sim_rt_context, sim_rt.cuCtxGetFlags(flags))
RUNTIME(cudaDeviceReset, (void), sim_rt_start, sim_rt_reset())
RUNTIME(cudaDeviceSynchronize, (void), sim_rt_context, synchronize())
RUNTIME(cudaGetDeviceProperties, (struct cudaDeviceProp * prop, int device), sim_rt_start, get_properties(prop, device))
RUNTIME(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attr, int device), sim_rt_start,
        sim_rt.cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device))
RUNTIME(cudaDeviceGetPCIBusId, (char *pciBusId, int len, int device), sim_rt_start,
        sim_rt.cuDeviceGetPCIBusId(pciBusId, len, device))
RUNTIME(cudaDeviceGetByPCIBusId, (int *device, const char *pciBusId), sim_rt_start,
        sim_rt.cuDeviceGetByPCIBusId(device, pciBusId))
RUNTIME(cudaDeviceCanAccessPeer, (int *canAccessPeer, int device, int peerDevice), sim_rt_start,
        sim_rt.cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice))
RUNTIME(cudaDeviceSetLimit, (enum cudaLimit limit, size_t value), sim_rt_context,
        sim_rt.cuCtxSetLimit((CUlimit)limit, value))
RUNTIME(cudaDeviceGetLimit, (size_t * pValue, enum cudaLimit limit), sim_rt_context,
        sim_rt.cuCtxGetLimit(pValue, (CUlimit)limit))
RUNTIME(cudaDeviceGetStreamPriorityRange, (int *leastPriority, int *greatestPriority), sim_rt_context,
        sim_rt.cuCtxGetStreamPriorityRange(leastPriority, greatestPriority))
RUNTIME(cudaDriverGetVersion, (int *driverVersion), sim_rt_start, sim_rt.cuDriverGetVersion(driverVersion))
RUNTIME(cudaProfilerStart, (void), sim_rt_context, sim_rt.cuProfilerStart())
RUNTIME(cudaProfilerStop, (void), sim_rt_context, sim_rt.cuProfilerStop())

cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)
{
    return sim_rt_result(get_int(runtimeVersion, CUDART_VERSION));
}

/* ---- driver functions for the program ---- */

static cudaError_t entry_point(const char *name, void **out, int version, unsigned long long flags, bool per_thread,
                               enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    cudaError_t e;

    if (name == NULL || out == NULL) {
        return cudaErrorInvalidValue;
    }
    if (flags == cudaEnableDefault) {
        flags = per_thread ? cudaEnablePerThreadDefaultStream : cudaEnableLegacyStream;
    }
    e = sim_rt_find(name, version, flags, out, &found);
    if (status != NULL) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
    }
    return e;
}

RUNTIME_STREAM(cudaGetDriverEntryPoint, cudaGetDriverEntryPoint_ptsz,
               (const char *symbol, void **funcPtr, unsigned long long flags,
                enum cudaDriverEntryPointQueryResult *driverStatus),
               entry_point(symbol, funcPtr, CUDART_VERSION, flags, per_thread, driverStatus))
RUNTIME_STREAM(cudaGetDriverEntryPointByVersion, cudaGetDriverEntryPointByVersion_ptsz,
               (const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
                enum cudaDriverEntryPointQueryResult *driverStatus),
               entry_point(symbol, funcPtr, (int)cudaVersion, flags, per_thread, driverStatus))

/* ---- errors ---- */

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define E(code, text)     \
    {                     \
        code, #code, text \
    }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorCudartUnloading, "driver shutting down"),
    E(cudaErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorDeviceUninitialized, "invalid device context"),
    E(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    E(cudaErrorSymbolNotFound, "named symbol not found"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorContextIsDestroyed, "context is destroyed"),
    E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

#define ERRORS (sizeof(errors) / sizeof(errors[0]))

const char *cudaGetErrorName(cudaError_t error)
{
    size_t i;

    for (i = 0; i < ERRORS && errors[i].code != error; i++) {
    }
    return i < ERRORS ? errors[i].name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    size_t i;

    for (i = 0; i < ERRORS && errors[i].code != error; i++) {
    }
    return i < ERRORS ? errors[i].text : "unrecognized error code";
}
