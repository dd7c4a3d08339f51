/*
 * What cuda_runtime_api.h needs of crt/host_defines.h when a host compiler reads it.
 *
 * NVIDIA's wheel of the runtime headers leaves that file to another wheel, the compiler's.  This one is last in the
 * search path, so it's only used where the real one is missing.
 */
#ifndef SIM_FALLBACK_HOST_DEFINES_H
#define SIM_FALLBACK_HOST_DEFINES_H

#ifndef __HOST_DEFINES_H__
#define __HOST_DEFINES_H__

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)

#endif
#endif
