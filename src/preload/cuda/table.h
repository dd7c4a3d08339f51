/*
 * Every entry point, once. The table makes the enum, the list of real functions, the substitutions of dlsym and
 * cuGetProcAddress, the export list of the library and the generated tests. A new entry point is one line here and one
 * wrapper; the compiler compares the wrapper with the declaration in cuda.h / cuda_runtime_api.h.
 *
 * Names are ELF names as libcuda exports them. The 32-bit v1 names (cuMemAlloc, cuMemFree ...) are left out on purpose:
 * they are other functions, and callers that ask for them get them.
 */
#define VT_DRIVER_TABLE(X)                                                                                             \
    X(cuInit)                                                                                                          \
    X(cuGetProcAddress)                                                                                                \
    X(cuGetProcAddress_v2)                                                                                             \
    /* linear */                                                                                                       \
    X(cuMemAlloc_v2)                                                                                                   \
    X(cuMemAllocPitch_v2)                                                                                              \
    X(cuMemAllocManaged)                                                                                               \
    X(cuMemFree_v2)                                                                                                    \
    /* host */                                                                                                         \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemAllocHost_v2)                                                                                               \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemHostRegister_v2)                                                                                            \
    X(cuMemHostUnregister)                                                                                             \
    /* arrays */                                                                                                       \
    X(cuArrayCreate_v2)                                                                                                \
    X(cuArray3DCreate_v2)                                                                                              \
    X(cuArrayDestroy)                                                                                                  \
    X(cuMipmappedArrayCreate)                                                                                          \
    X(cuMipmappedArrayDestroy)                                                                                         \
    /* stream-ordered */                                                                                               \
    X(cuMemAllocAsync)                                                                                                 \
    X(cuMemAllocAsync_ptsz)                                                                                            \
    X(cuMemAllocFromPoolAsync)                                                                                         \
    X(cuMemAllocFromPoolAsync_ptsz)                                                                                    \
    X(cuMemFreeAsync)                                                                                                  \
    X(cuMemFreeAsync_ptsz)                                                                                             \
    X(cuStreamDestroy_v2)                                                                                              \
    X(cuMemPoolCreate)                                                                                                 \
    X(cuMemPoolDestroy)                                                                                                \
    X(cuMemPoolTrimTo)                                                                                                 \
    X(cuMemPoolSetAttribute)                                                                                           \
    X(cuDeviceSetMemPool)                                                                                              \
    X(cuMemSetMemPool)                                                                                                 \
    X(cuMemPoolImportFromShareableHandle)                                                                              \
    X(cuMemPoolImportPointer)                                                                                          \
    /* virtual memory management */                                                                                    \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemRetainAllocationHandle)                                                                                     \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemImportFromShareableHandle)                                                                                  \
    X(cuMulticastCreate)                                                                                               \
    X(cuMulticastBindMem)                                                                                              \
    X(cuMulticastBindAddr)                                                                                             \
    /* other processes, other APIs */                                                                                  \
    X(cuIpcOpenMemHandle_v2)                                                                                           \
    X(cuIpcCloseMemHandle)                                                                                             \
    X(cuImportExternalMemory)                                                                                          \
    X(cuExternalMemoryGetMappedBuffer)                                                                                 \
    X(cuExternalMemoryGetMappedMipmappedArray)                                                                         \
    X(cuDestroyExternalMemory)                                                                                         \
    /* graphs */                                                                                                       \
    X(cuGraphAddMemAllocNode)                                                                                          \
    X(cuGraphAddNode)                                                                                                  \
    X(cuGraphAddNode_v2)                                                                                               \
    X(cuGraphDestroy)                                                                                                  \
    X(cuGraphInstantiate)                                                                                              \
    X(cuGraphInstantiate_v2)                                                                                           \
    X(cuGraphInstantiateWithFlags)                                                                                     \
    X(cuGraphInstantiateWithParams)                                                                                    \
    X(cuGraphInstantiateWithParams_ptsz)                                                                               \
    X(cuGraphExecDestroy)                                                                                              \
    X(cuStreamBeginCapture)                                                                                            \
    X(cuStreamBeginCapture_ptsz)                                                                                       \
    X(cuStreamBeginCapture_v2)                                                                                         \
    X(cuStreamBeginCapture_v2_ptsz)                                                                                    \
    X(cuStreamBeginCaptureToGraph)                                                                                     \
    X(cuStreamBeginCaptureToGraph_ptsz)                                                                                \
    X(cuStreamEndCapture)                                                                                              \
    X(cuStreamEndCapture_ptsz)                                                                                         \
    /* asked by programs */                                                                                            \
    X(cuMemGetInfo_v2)                                                                                                 \
    /* contexts */                                                                                                     \
    X(cuCtxCreate_v2)                                                                                                  \
    X(cuCtxCreate_v3)                                                                                                  \
    X(cuCtxCreate_v4)                                                                                                  \
    X(cuCtxDestroy_v2)                                                                                                 \
    X(cuCtxDetach)                                                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuDevicePrimaryCtxRelease_v2)                                                                                    \
    X(cuDevicePrimaryCtxReset)                                                                                         \
    X(cuDevicePrimaryCtxReset_v2)                                                                                      \
    /* marks */                                                                                                        \
    X(cuProfilerStart)                                                                                                 \
    X(cuProfilerStop)

#define VT_RUNTIME_TABLE(X)                                                                                            \
    X(cudaMalloc)                                                                                                      \
    X(cudaMallocPitch)                                                                                                 \
    X(cudaMalloc3D)                                                                                                    \
    X(cudaMallocManaged)                                                                                               \
    X(cudaFree)                                                                                                        \
    X(cudaMallocHost)                                                                                                  \
    X(cudaHostAlloc)                                                                                                   \
    X(cudaFreeHost)                                                                                                    \
    X(cudaHostRegister)                                                                                                \
    X(cudaHostUnregister)                                                                                              \
    X(cudaMallocArray)                                                                                                 \
    X(cudaMalloc3DArray)                                                                                               \
    X(cudaMallocMipmappedArray)                                                                                        \
    X(cudaFreeArray)                                                                                                   \
    X(cudaFreeMipmappedArray)                                                                                          \
    X(cudaMallocAsync)                                                                                                 \
    X(cudaMallocAsync_ptsz)                                                                                            \
    X(cudaMallocFromPoolAsync)                                                                                         \
    X(cudaMallocFromPoolAsync_ptsz)                                                                                    \
    X(cudaFreeAsync)                                                                                                   \
    X(cudaFreeAsync_ptsz)                                                                                              \
    X(cudaDeviceReset)                                                                                                 \
    X(cudaMemGetInfo)

/* Called by the library itself, never substituted. */
#define VT_HELPER_TABLE(X)                                                                                             \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxGetDevice)                                                                                                  \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceTotalMem_v2)                                                                                             \
    X(cuDeviceGetUuid)                                                                                                 \
    X(cuDeviceGetUuid_v2)                                                                                              \
    X(cuDriverGetVersion)                                                                                              \
    X(cuMemGetAddressRange_v2)                                                                                         \
    X(cuPointerGetAttribute)                                                                                           \
    X(cuStreamIsCapturing)                                                                                             \
    X(cuStreamIsCapturing_ptsz)                                                                                        \
    X(cuStreamGetCaptureInfo_v2)                                                                                       \
    X(cuStreamGetCaptureInfo_v2_ptsz)                                                                                  \
    X(cuStreamGetCaptureInfo_v3)                                                                                       \
    X(cuStreamGetCaptureInfo_v3_ptsz)                                                                                  \
    X(cuThreadExchangeStreamCaptureMode)                                                                               \
    X(cuDeviceGetMemPool)                                                                                              \
    X(cuDevicePrimaryCtxGetState)
