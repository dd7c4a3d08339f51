/*
 * cuda.h and cuda_runtime_api.h with every version of every function declared under its ELF name: the switch below is
 * the headers' own for that purpose. What the headers still rename is taken back.
 */
#ifndef VT_PRELOAD_CUDA_HEADERS_H
#define VT_PRELOAD_CUDA_HEADERS_H

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <cuda_runtime_api.h>
#undef cuGetProcAddress_v2

/* Declared in cudaProfiler.h, which not every set of CUDA headers has. */
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#if CUDA_VERSION < 13000
#error "the headers of CUDA 13.0 or newer are needed to build (the library runs with drivers from 11.3 on)"
#endif

#endif
