/* Finds PyTorch's functions in the loaded libraries; see real.h. */
#include "preload/torch/real.h"

#include <stdlib.h>
#include <string.h>

#include "preload/hot.h"
#include "preload/loaded.h"
#include "preload/stack.h"

VT_HOT_DATA struct vt_loaded_function vt_torch_found[VT_T_COUNT];

const struct vt_torch_name vt_torch_names[VT_T_COUNT] = {
#define X(name, library) {#name, library},
    VT_TORCH_EXPORTS(X)
#undef X
};

bool vt_torch_has_refusals(void)
{
    return vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE) ||
           vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE) ||
           vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE);
}

bool vt_torch_uncached(void)
{
    static int known; /* 1: no, 2: yes */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        const char *value = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
        answer = value && strcmp(value, "0") ? 2 : 1; /* before 2.7 "0" switched it off as well */
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

const char *vt_torch_library(void)
{
    return vt_loaded_path("libc10_cuda.so");
}
