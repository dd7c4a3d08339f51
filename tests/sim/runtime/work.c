/*
 * Streams, events, copies, graphs and launches of the runtime API, and the functions that code compiled by nvcc calls
 * when it starts.
 */
#include "runtime.h"

#include <string.h>

/* ---- streams and events ---- */

RUNTIME(cudaStreamCreate, (cudaStream_t * pStream), sim_rt_context, sim_rt.cuStreamCreate((CUstream *)pStream, 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t * pStream, unsigned int flags), sim_rt_context,
        sim_rt.cuStreamCreate((CUstream *)pStream, flags))
RUNTIME(cudaStreamCreateWithPriority, (cudaStream_t * pStream, unsigned int flags, int priority), sim_rt_context,
        sim_rt.cuStreamCreateWithPriority((CUstream *)pStream, flags, priority))
RUNTIME(cudaStreamDestroy, (cudaStream_t stream), sim_rt_context, sim_rt.cuStreamDestroy_v2((CUstream)stream))
RUNTIME_STREAM(cudaStreamSynchronize, cudaStreamSynchronize_ptsz, (cudaStream_t stream),
               PICK(cuStreamSynchronize)((CUstream)stream))
RUNTIME_STREAM(cudaStreamQuery, cudaStreamQuery_ptsz, (cudaStream_t stream), PICK(cuStreamQuery)((CUstream)stream))
RUNTIME_STREAM(cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz,
               (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
               PICK(cuStreamWaitEvent)((CUstream)stream, (CUevent)event, flags))
RUNTIME_STREAM(cudaStreamGetPriority, cudaStreamGetPriority_ptsz, (cudaStream_t hStream, int *priority),
               PICK(cuStreamGetPriority)((CUstream)hStream, priority))
RUNTIME_STREAM(cudaStreamGetFlags, cudaStreamGetFlags_ptsz, (cudaStream_t hStream, unsigned int *flags),
               PICK(cuStreamGetFlags)((CUstream)hStream, flags))
RUNTIME_STREAM(cudaStreamGetId, cudaStreamGetId_ptsz, (cudaStream_t hStream, unsigned long long *streamId),
               PICK(cuStreamGetId)((CUstream)hStream, streamId))
RUNTIME_STREAM(cudaLaunchHostFunc, cudaLaunchHostFunc_ptsz, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
               PICK(cuLaunchHostFunc)((CUstream)stream, (CUhostFn)fn, userData))

RUNTIME(cudaEventCreate, (cudaEvent_t * event), sim_rt_context, sim_rt.cuEventCreate((CUevent *)event, 0))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), sim_rt_context,
        sim_rt.cuEventCreate((CUevent *)event, flags))
RUNTIME(cudaEventDestroy, (cudaEvent_t event), sim_rt_context, sim_rt.cuEventDestroy_v2((CUevent)event))
RUNTIME_STREAM(cudaEventRecord, cudaEventRecord_ptsz, (cudaEvent_t event, cudaStream_t stream),
               PICK(cuEventRecord)((CUevent)event, (CUstream)stream))
RUNTIME(cudaEventQuery, (cudaEvent_t event), sim_rt_context, sim_rt.cuEventQuery((CUevent)event))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), sim_rt_context, sim_rt.cuEventSynchronize((CUevent)event))
RUNTIME(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end), sim_rt_context,
        sim_rt.cuEventElapsedTime_v2(ms, (CUevent)start, (CUevent)end))

/* ---- copies and fills ---- */

RUNTIME_STREAM(cudaMemcpy, cudaMemcpy_ptds, (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind),
               ((void)kind, PICK_SYNC(cuMemcpy)((CUdeviceptr)dst, (CUdeviceptr)src, count)))
RUNTIME_STREAM(cudaMemcpyAsync, cudaMemcpyAsync_ptsz,
               (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
               ((void)kind, PICK(cuMemcpyAsync)((CUdeviceptr)dst, (CUdeviceptr)src, count, (CUstream)stream)))
RUNTIME_STREAM(cudaMemset, cudaMemset_ptds, (void *devPtr, int value, size_t count),
               PICK_SYNC(cuMemsetD8_v2)((CUdeviceptr)devPtr, (unsigned char)value, count))
RUNTIME_STREAM(cudaMemsetAsync, cudaMemsetAsync_ptsz, (void *devPtr, int value, size_t count, cudaStream_t stream),
               PICK(cuMemsetD8Async)((CUdeviceptr)devPtr, (unsigned char)value, count, (CUstream)stream))

static cudaError_t copy_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height)
{
    CUDA_MEMCPY2D c;

    memset(&c, 0, sizeof(c));
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    c.srcDevice = (CUdeviceptr)src;
    c.dstDevice = (CUdeviceptr)dst;
    c.srcPitch = spitch;
    c.dstPitch = dpitch;
    c.WidthInBytes = width;
    c.Height = height;
    return (cudaError_t)sim_rt.cuMemcpy2DUnaligned_v2(&c);
}

RUNTIME_STREAM(cudaMemcpy2D, cudaMemcpy2D_ptds,
               (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                enum cudaMemcpyKind kind),
               ((void)kind, copy_2d(dst, dpitch, src, spitch, width, height)))

static enum cudaMemoryType type_of(CUmemorytype type, unsigned int managed)
{
    return managed                        ? cudaMemoryTypeManaged
           : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
           : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                          : cudaMemoryTypeUnregistered;
}

static cudaError_t pointer_attributes(struct cudaPointerAttributes *out, const void *ptr)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    CUmemorytype type = 0;
    unsigned int managed = 0;
    void *data[5];
    CUresult result;

    if (out == NULL) {
        return cudaErrorInvalidValue;
    }
    memset(out, 0, sizeof(*out));
    data[0] = &type;
    data[1] = &out->device;
    data[2] = &out->devicePointer;
    data[3] = &out->hostPointer;
    data[4] = &managed;
    result = sim_rt.cuPointerGetAttributes(5, which, data, (CUdeviceptr)ptr);
    out->type = type_of(type, managed);
    if (out->type == cudaMemoryTypeUnregistered) {
        out->hostPointer = (void *)ptr;
    }
    return (cudaError_t)result;
}

RUNTIME(cudaPointerGetAttributes, (struct cudaPointerAttributes * attributes, const void *ptr), sim_rt_context,
        pointer_attributes(attributes, ptr))

/* ---- graphs and capture: the structures of both APIs have the same layout ---- */

_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "one layout");
_Static_assert(sizeof(struct cudaGraphNodeParams) == sizeof(CUgraphNodeParams), "one layout");

RUNTIME(cudaGraphCreate, (cudaGraph_t * pGraph, unsigned int flags), sim_rt_context,
        sim_rt.cuGraphCreate((CUgraph *)pGraph, flags))
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph), sim_rt_context, sim_rt.cuGraphDestroy((CUgraph)graph))
RUNTIME(cudaGraphAddMemAllocNode,
        (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, size_t numDependencies,
         struct cudaMemAllocNodeParams *nodeParams),
        sim_rt_context,
        sim_rt.cuGraphAddMemAllocNode((CUgraphNode *)pGraphNode, (CUgraph)graph, (const CUgraphNode *)pDependencies,
                                      numDependencies, (CUDA_MEM_ALLOC_NODE_PARAMS *)nodeParams))
RUNTIME(cudaGraphAddMemFreeNode,
        (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, size_t numDependencies,
         void *dptr),
        sim_rt_context,
        sim_rt.cuGraphAddMemFreeNode((CUgraphNode *)pGraphNode, (CUgraph)graph, (const CUgraphNode *)pDependencies,
                                     numDependencies, (CUdeviceptr)dptr))
RUNTIME(cudaGraphAddNode,
        (cudaGraphNode_t * pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
         const cudaGraphEdgeData *dependencyData, size_t numDependencies, struct cudaGraphNodeParams *nodeParams),
        sim_rt_context,
        sim_rt.cuGraphAddNode_v2((CUgraphNode *)pGraphNode, (CUgraph)graph, (const CUgraphNode *)pDependencies,
                                 (const CUgraphEdgeData *)dependencyData, numDependencies,
                                 (CUgraphNodeParams *)nodeParams))
RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
        sim_rt_context, sim_rt.cuGraphInstantiateWithFlags((CUgraphExec *)pGraphExec, (CUgraph)graph, flags))
RUNTIME(cudaGraphInstantiateWithFlags, (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, unsigned long long flags),
        sim_rt_context, sim_rt.cuGraphInstantiateWithFlags((CUgraphExec *)pGraphExec, (CUgraph)graph, flags))
RUNTIME_STREAM(cudaGraphInstantiateWithParams, cudaGraphInstantiateWithParams_ptsz,
               (cudaGraphExec_t * pGraphExec, cudaGraph_t graph, cudaGraphInstantiateParams *instantiateParams),
               PICK(cuGraphInstantiateWithParams)((CUgraphExec *)pGraphExec, (CUgraph)graph,
                                                  (CUDA_GRAPH_INSTANTIATE_PARAMS *)instantiateParams))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t graphExec), sim_rt_context,
        sim_rt.cuGraphExecDestroy((CUgraphExec)graphExec))
RUNTIME_STREAM(cudaGraphUpload, cudaGraphUpload_ptsz, (cudaGraphExec_t graphExec, cudaStream_t stream),
               PICK(cuGraphUpload)((CUgraphExec)graphExec, (CUstream)stream))
RUNTIME_STREAM(cudaGraphLaunch, cudaGraphLaunch_ptsz, (cudaGraphExec_t graphExec, cudaStream_t stream),
               PICK(cuGraphLaunch)((CUgraphExec)graphExec, (CUstream)stream))
RUNTIME(cudaDeviceGraphMemTrim, (int device), sim_rt_context, sim_rt.cuDeviceGraphMemTrim(device))
RUNTIME(cudaDeviceGetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attr, void *value), sim_rt_context,
        sim_rt.cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value))
RUNTIME(cudaDeviceSetGraphMemAttribute, (int device, enum cudaGraphMemAttributeType attr, void *value), sim_rt_context,
        sim_rt.cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attr, value))

RUNTIME_STREAM(cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz,
               (cudaStream_t stream, enum cudaStreamCaptureMode mode),
               PICK(cuStreamBeginCapture_v2)((CUstream)stream, (CUstreamCaptureMode)mode))
RUNTIME_STREAM(cudaStreamEndCapture, cudaStreamEndCapture_ptsz, (cudaStream_t stream, cudaGraph_t *pGraph),
               PICK(cuStreamEndCapture)((CUstream)stream, (CUgraph *)pGraph))
RUNTIME_STREAM(cudaStreamIsCapturing, cudaStreamIsCapturing_ptsz,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus),
               PICK(cuStreamIsCapturing)((CUstream)stream, (CUstreamCaptureStatus *)pCaptureStatus))
RUNTIME_STREAM(cudaStreamGetCaptureInfo, cudaStreamGetCaptureInfo_ptsz,
               (cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus_out, unsigned long long *id_out,
                cudaGraph_t *graph_out, const cudaGraphNode_t **dependencies_out,
                const cudaGraphEdgeData **edgeData_out, size_t *numDependencies_out),
               PICK(cuStreamGetCaptureInfo_v3)((CUstream)stream, (CUstreamCaptureStatus *)captureStatus_out,
                                               (cuuint64_t *)id_out, (CUgraph *)graph_out,
                                               (const CUgraphNode **)dependencies_out,
                                               (const CUgraphEdgeData **)edgeData_out, numDependencies_out))
RUNTIME(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode), sim_rt_start,
        sim_rt.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))

/* ---- launches ---- */

static cudaError_t launch(bool per_thread, dim3 grid, dim3 block, cudaStream_t stream)
{
    CUfunction function;
    cudaError_t e = sim_rt_function(&function);

    if (e != cudaSuccess) {
        return e;
    }
    return (cudaError_t)PICK(cuLaunchKernel)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0,
                                             (CUstream)stream, NULL, NULL);
}

RUNTIME_STREAM(cudaLaunchKernel, cudaLaunchKernel_ptsz,
               (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, cudaStream_t stream),
               ((void)func, (void)args, (void)sharedMem, launch(per_thread, gridDim, blockDim, stream)))

/* What nvcc's code calls.  Kernels are known by any name, so there's nothing to remember but the launch arguments. */

static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configuration;

void **__cudaRegisterFatBinary(void *fatCubin)
{
    static void *handle;

    handle = fatCubin;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *tid,
                            void *bid, void *bdim, void *gdim, int *wsize)
{
    (void)handle, (void)host, (void)device, (void)name, (void)limit;
    (void)tid, (void)bid, (void)bdim, (void)gdim, (void)wsize;
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t size, int constant,
                       int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)size, (void)constant, (void)global;
}

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(cudaStream_t *)stream = configuration.stream;
    return cudaSuccess;
}
