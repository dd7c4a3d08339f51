/*
 * Devices: how many, how large, what they say about themselves; and the account of what is taken on each card.
 */
#include "driver.h"

#include <stdio.h>
#include <string.h>

CUresult sim_device_check(CUdevice dev)
{
    return dev >= 0 && dev < sim.device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult sim_device_charge(struct sim_device *device, size_t bytes)
{
    size_t taken = device->used + device->others;

    if (taken > device->total || bytes > device->total - taken) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    device->used += bytes;
    return CUDA_SUCCESS;
}

void sim_device_refund(struct sim_device *device, size_t bytes)
{
    device->used -= bytes;
}

static CUresult get(CUdevice *device, int ordinal)
{
    REQUIRE(device != NULL);
    TRY(sim_device_check(ordinal));
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult set_int(int *out, int value)
{
    REQUIRE(out != NULL);
    *out = value;
    return CUDA_SUCCESS;
}

static CUresult get_text(char *text, int room, CUdevice dev, const char *format)
{
    REQUIRE(text != NULL && room > 0);
    TRY(sim_device_check(dev));
    snprintf(text, (size_t)room, format, (unsigned int)dev + 1);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev, bool of_instance)
{
    REQUIRE(uuid != NULL);
    TRY(sim_device_check(dev));
    memcpy(uuid->bytes, of_instance ? "simulated-mig-" : "simulated-gpu-", 14);
    uuid->bytes[14] = '0';
    uuid->bytes[15] = (char)('0' + dev);
    return CUDA_SUCCESS;
}

static CUresult get_total(size_t *bytes, CUdevice dev)
{
    REQUIRE(bytes != NULL);
    TRY(sim_device_check(dev));
    *bytes = sim.device[dev].total;
    return CUDA_SUCCESS;
}

/* Attributes with a value of their own; the features listed after them are 1, all others 0. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} values[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1500000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 64},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 4096},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 32 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 128 << 20},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
};

static const CUdevice_attribute features[] = {
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
};

static CUresult get_attribute(int *out, CUdevice_attribute attribute, CUdevice dev)
{
    size_t i;

    REQUIRE(out != NULL && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
    TRY(sim_device_check(dev));
    *out = 0;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
        *out = dev + 1;
    }
    for (i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (values[i].attribute == attribute) {
            *out = values[i].value;
        }
    }
    for (i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        if (features[i] == attribute) {
            *out = 1;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult get_properties(CUdevprop *prop, CUdevice dev)
{
    REQUIRE(prop != NULL);
    TRY(sim_device_check(dev));
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
                        .maxThreadsDim = {1024, 1024, 64},
                        .maxGridSize = {2147483647, 65535, 65535},
                        .sharedMemPerBlock = 49152,
                        .totalConstantMemory = 65536,
                        .SIMDWidth = 32,
                        .memPitch = 2147483647,
                        .regsPerBlock = 65536,
                        .clockRate = 1500000,
                        .textureAlign = 512};
    return CUDA_SUCCESS;
}

static CUresult get_capability(int *major, int *minor, CUdevice dev)
{
    REQUIRE(major != NULL && minor != NULL);
    TRY(sim_device_check(dev));
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

static CUresult find_by_bus(CUdevice *dev, const char *text)
{
    unsigned int domain, bus, slot;

    REQUIRE(dev != NULL && text != NULL && sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3);
    REQUIRE(domain == 0 && slot == 0);
    TRY(sim_device_check((int)bus - 1));
    *dev = (int)bus - 1;
    return CUDA_SUCCESS;
}

static CUresult peer_check(int *out, CUdevice dev, CUdevice peer)
{
    TRY(sim_device_check(dev));
    TRY(sim_device_check(peer));
    return set_int(out, dev != peer);
}

static CUresult get_luid(char *luid, unsigned int *mask, CUdevice dev)
{
    (void)luid;
    (void)mask;
    TRY(sim_device_check(dev));
    return CUDA_ERROR_NOT_SUPPORTED; /* a Windows notion */
}

/* ---- exports ---- */

SIM_API CUresult cuDriverGetVersion(int *driverVersion)
{
    SIM_CALL_EARLY(cuDriverGetVersion, set_int(driverVersion, sim.driver_version));
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_CALL_OUT(cuDeviceGet, device, get(device, ordinal));
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
    SIM_CALL_OUT(cuDeviceGetCount, count, set_int(count, sim.device_count));
}

SIM_API CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    SIM_CALL(cuDeviceGetName, get_text(name, len, dev, "Simulated GPU"));
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceGetUuid, uuid, get_uuid(uuid, dev, false));
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceGetUuid_v2, uuid, get_uuid(uuid, dev, sim.mig));
}

SIM_API CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    SIM_CALL(cuDeviceGetLuid, get_luid(luid, deviceNodeMask, dev));
}

SIM_API CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceTotalMem, bytes,
                 sim_device_check(dev) ? CUDA_ERROR_INVALID_DEVICE : set_int((int *)bytes, (int)0xfffffffful));
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceTotalMem_v2, bytes, get_total(bytes, dev));
}

SIM_API CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceGetAttribute, pi, get_attribute(pi, attrib, dev));
}

SIM_API CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceGetProperties, prop, get_properties(prop, dev));
}

SIM_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    SIM_CALL_OUT(cuDeviceComputeCapability, major, get_capability(major, minor, dev));
}

SIM_API CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    SIM_CALL(cuDeviceGetPCIBusId, get_text(pciBusId, len, dev, "0000:%02X:00.0"));
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    SIM_CALL_OUT(cuDeviceGetByPCIBusId, dev, find_by_bus(dev, pciBusId));
}

SIM_API CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    SIM_CALL_OUT(cuDeviceCanAccessPeer, canAccessPeer, peer_check(canAccessPeer, dev, peerDev));
}

SIM_API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                         CUdevice dstDevice)
{
    SIM_CALL_OUT(cuDeviceGetP2PAttribute, value,
                 attrib == 0 ? CUDA_ERROR_INVALID_VALUE : peer_check(value, srcDevice, dstDevice));
}
