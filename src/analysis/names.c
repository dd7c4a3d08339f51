/*
 * The words of the report's schema, and the names of CUDA results.
 */
#include <string.h>

#include "analysis/findings.h"
#include "analysis/model.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *pick(const char *const *names, size_t count, size_t index)
{
    return index < count && names[index] ? names[index] : "unknown";
}

const char *vt_kind_name(unsigned kind)
{
    static const char *const names[VT_KIND_COUNT] = {
        [VT_KIND_DEVICE] = "device",
        [VT_KIND_PINNED] = "pinned",
        [VT_KIND_REGISTERED] = "registered",
        [VT_KIND_MANAGED] = "managed",
        [VT_KIND_ARRAY] = "array",
        [VT_KIND_ASYNC] = "async",
        [VT_KIND_VMM_PHYSICAL] = "vmm_physical",
        [VT_KIND_VMM_MAPPED] = "vmm_mapped",
        [VT_KIND_VMM_RESERVED_VA] = "vmm_reserved_va",
        [VT_KIND_GRAPH] = "graph",
        [VT_KIND_IMPORTED] = "imported",
    };

    return pick(names, COUNT(names), kind);
}

const char *vt_level_name(unsigned level)
{
    static const char *const names[VT_LEVEL_COUNT] = {[VT_LEVEL_DRIVER] = "driver", [VT_LEVEL_TENSOR] = "tensor"};

    return pick(names, COUNT(names), level);
}

const char *vt_phase_name(unsigned phase)
{
    static const char *const names[VT_PHASE_COUNT] = {[VT_PHASE_NONE] = "none",
                                                      [VT_PHASE_BACKWARD] = "backward",
                                                      [VT_PHASE_OPTIMIZER] = "optimizer",
                                                      [VT_PHASE_ZERO_GRAD] = "zero_grad",
                                                      [VT_PHASE_DATA] = "data"};

    return pick(names, COUNT(names), phase);
}

const char *vt_step_source_name(unsigned source)
{
    static const char *const names[VT_STEP_SOURCE_COUNT] = {[VT_STEP_NONE] = "none",
                                                            [VT_STEP_ZERO_GRAD] = "zero_grad",
                                                            [VT_STEP_PROFILER] = "profiler",
                                                            [VT_STEP_OPTIMIZER] = "optimizer",
                                                            [VT_STEP_MARK] = "mark"};

    return pick(names, COUNT(names), source);
}

const char *vt_failure_name(unsigned kind)
{
    static const char *const names[VT_FAILURE_KIND_COUNT] = {
        [VT_FAILURE_PENDING] = "oom",
        [VT_FAILURE_OOM] = "oom",
        [VT_FAILURE_RETRY] = "retry",
        [VT_FAILURE_FRAMEWORK_OOM] = "framework_oom",
        [VT_FAILURE_FAILED_ALLOC] = "failed_alloc",
        [VT_FAILURE_FAILED_FREE] = "failed_free",
        [VT_FAILURE_DOUBLE_FREE] = "double_free",
        [VT_FAILURE_INTERIOR_POINTER] = "interior_pointer",
        [VT_FAILURE_UNKNOWN_POINTER] = "unknown_pointer",
        [VT_FAILURE_WRONG_API] = "wrong_api",
    };

    return pick(names, COUNT(names), kind);
}

const char *vt_end_name(enum vt_process_end end)
{
    static const char *const names[] = {
        [VT_PROCESS_EXIT] = "exit", [VT_PROCESS_KILLED] = "killed", [VT_PROCESS_RUNNING] = "running"};

    return pick(names, COUNT(names), end);
}

const char *vt_owner_name(enum vt_owner owner)
{
    static const char *const names[] = {[VT_OWNER_UNKNOWN] = "unknown",
                                        [VT_OWNER_APPLICATION] = "application",
                                        [VT_OWNER_LIBRARY] = "library",
                                        [VT_OWNER_FRAMEWORK] = "framework"};

    return pick(names, COUNT(names), owner);
}

const char *vt_family_name(enum vt_family family)
{
    static const char *const names[VT_FAMILY_COUNT] = {
        [VT_FAMILY_LEAK] = "leak",
        [VT_FAMILY_GROWTH] = "growth",
        [VT_FAMILY_FRAGMENTATION] = "fragmentation",
        [VT_FAMILY_CACHE] = "cache",
        [VT_FAMILY_WASTE] = "waste",
        [VT_FAMILY_PENDING] = "pending",
        [VT_FAMILY_CAPACITY] = "capacity",
        [VT_FAMILY_OTHER_PROCESS] = "other_process",
        [VT_FAMILY_LIMIT] = "limit",
        [VT_FAMILY_MISUSE] = "misuse",
        [VT_FAMILY_OVERHEAD] = "overhead",
        [VT_FAMILY_NONE] = "none",
    };

    return pick(names, COUNT(names), family);
}

const char *vt_confidence_name(enum vt_confidence confidence)
{
    static const char *const names[] = {[VT_CERTAIN] = "certain", [VT_LIKELY] = "likely", [VT_POSSIBLE] = "possible"};

    return pick(names, COUNT(names), confidence);
}

/* The results that memory calls return; the numbers are the same in both APIs. */
static const struct {
    int code;
    const char *driver, *runtime;
} codes[] = {
    {0, "CUDA_SUCCESS", "cudaSuccess"},
    {1, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError"},
    {4, "CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading"},
    {17, NULL, "cudaErrorInvalidDevicePointer"},
    {35, NULL, "cudaErrorInsufficientDriver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "cudaErrorDevicesUnavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "cudaErrorOperatingSystem"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cudaErrorContextIsDestroyed"},
    {710, "CUDA_ERROR_ASSERT", "cudaErrorAssert"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit"},
    {999, "CUDA_ERROR_UNKNOWN", "cudaErrorUnknown"},
};

const char *vt_code_name(int code, const char *api)
{
    bool runtime = api && !strncmp(api, "cuda", 4);
    size_t i;

    for (i = 0; i < COUNT(codes); i++)
        if (codes[i].code == code)
            return runtime ? codes[i].runtime : codes[i].driver ? codes[i].driver : codes[i].runtime;
    return NULL;
}
