/*
 * Shared declarations of the simulated CUDA runtime.
 *
 * The same sources make libcudart.so.13 and libcudart_static.a.  Like the real runtime this one keeps no books: every
 * call ends in the driver, through pointers that sim_rt_start collected with cuGetProcAddress.
 */
#ifndef SIM_RUNTIME_H
#define SIM_RUNTIME_H

/* Makes both headers declare every function under its own name, per-thread-stream variants included. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "requests.h"

/* Declared in cudaProfiler.h, which not every set of CUDA headers has. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);

#define SIM_RT_MAX_DEVICES 16

struct sim_rt_driver {
    __typeof__(&cuInit) cuInit;
    __typeof__(&cuGetProcAddress_v2) cuGetProcAddress_v2;
    __typeof__(&cuGetProcAddress) cuGetProcAddress;
#define SIM_X(export, base, version, flags) __typeof__(&export) export;
    SIM_REQUESTS(SIM_X)
#undef SIM_X
};

extern struct sim_rt_driver sim_rt;

cudaError_t sim_rt_start(void);           /* the driver is loaded and initialised */
cudaError_t sim_rt_context(void);         /* and the calling thread has a current context */
cudaError_t sim_rt_result(cudaError_t e); /* remembers an error for cudaGetLastError */
cudaError_t sim_rt_find(const char *name, int version, unsigned long long flags, void **out,
                        CUdriverProcAddressQueryResult *status);
int sim_rt_device(void); /* the calling thread's device */
cudaError_t sim_rt_set_device(int device);
cudaError_t sim_rt_reset(void);
cudaError_t sim_rt_function(CUfunction *out); /* a function to launch, whatever kernel was meant */

/* A runtime function: `needs` is sim_rt_start or sim_rt_context, `call` gives a CUresult or cudaError_t. */
#define RUNTIME(name, parameters, needs, call) \
    cudaError_t name parameters                \
    {                                          \
        cudaError_t error_ = needs();          \
        if (error_ == cudaSuccess) {           \
            error_ = (cudaError_t)(call);      \
        }                                      \
        return sim_rt_result(error_);          \
    }

/* A function that takes a stream, twice; PICK chooses the driver function that goes with the variant. */
#define RUNTIME_STREAM(name, name_per_thread, parameters, call) \
    cudaError_t name parameters                                 \
    {                                                           \
        const bool per_thread = false;                          \
        cudaError_t error_ = sim_rt_context();                  \
        if (error_ == cudaSuccess) {                            \
            error_ = ((void)per_thread, (cudaError_t)(call));   \
        }                                                       \
        return sim_rt_result(error_);                           \
    }                                                           \
    cudaError_t name_per_thread parameters                      \
    {                                                           \
        const bool per_thread = true;                           \
        cudaError_t error_ = sim_rt_context();                  \
        if (error_ == cudaSuccess) {                            \
            error_ = ((void)per_thread, (cudaError_t)(call));   \
        }                                                       \
        return sim_rt_result(error_);                           \
    }

#define PICK(function) (per_thread ? sim_rt.function##_ptsz : sim_rt.function)
#define PICK_SYNC(function) (per_thread ? sim_rt.function##_ptds : sim_rt.function)

#endif
