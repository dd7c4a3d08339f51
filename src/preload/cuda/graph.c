/*
 * Graph memory nodes, explicit (cuGraphAddMemAllocNode, cuGraphAddNode) and captured (cuMemAllocAsync on a capturing
 * stream). Their address exists from the creation of the node on, their memory from the first launch until the graph and
 * its executables are destroyed; the driver may share it between graphs. The recording counts such an allocation (kind
 * graph) from its node's creation until it is freed by an ordinary call or its graph and executables are gone. A free
 * node frees within a launch and is not counted.
 */
#include "preload/cuda/graph.h"

#include "preload/arena.h"
#include "preload/context.h"
#include "preload/hot.h"
#include "preload/track.h"

VT_HOT_DATA int vt_graph_open_captures; /* begun and not ended, all threads */
static int open_global;                 /* of them, those in the mode `global` */
static uint32_t captures;               /* begun so far */

/* Captures end on the thread that began them, unless their mode is `relaxed`. */
static __thread struct {
    int open, global;
    uint32_t number; /* of the newest */
} own;

struct graph {
    UT_hash_handle hh;
    uint64_t handle, id; /* a destroyed graph keeps its id while executables live; its handle may come back */
};
static struct graph *graphs;

struct family { /* what lives of a graph with memory nodes */
    UT_hash_handle hh;
    uint64_t id;
    uint32_t executables;
    bool destroyed;
};
static struct family *families;

struct link { /* executable -> graph, or address -> graph */
    UT_hash_handle hh;
    uint64_t key, id;
};
static struct link *executables, *addresses;
static uint64_t last_id;
static int tracked; /* graphs with memory: while there are none, destroying graphs costs nothing */

static bool is_capturing(CUstream stream, bool per_thread)
{
    __typeof__(&cuStreamIsCapturing) f = per_thread ? VT_HELPER(cuStreamIsCapturing_ptsz)
                                                    : VT_HELPER(cuStreamIsCapturing);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return f && !f(stream, &status) && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUgraph capture_graph(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    __typeof__(&cuStreamGetCaptureInfo_v3) v3 = per_thread ? VT_HELPER(cuStreamGetCaptureInfo_v3_ptsz)
                                                           : VT_HELPER(cuStreamGetCaptureInfo_v3);
    if (v3)
        return v3(stream, &status, NULL, &graph, NULL, NULL, NULL) ? NULL : graph;
    __typeof__(&cuStreamGetCaptureInfo_v2) v2 = per_thread ? VT_HELPER(cuStreamGetCaptureInfo_v2_ptsz)
                                                           : VT_HELPER(cuStreamGetCaptureInfo_v2);
    return !v2 || v2(stream, &status, NULL, &graph, NULL, NULL) ? NULL : graph;
}

bool vt_graph_captures(CUstream stream, bool per_thread, void **graph)
{
    if (!vt_graph_may_capture() || !is_capturing(stream, per_thread))
        return false;
    *graph = capture_graph(stream, per_thread);
    return true;
}

static struct link *add_link(struct link **table, uint64_t key, uint64_t id)
{
    struct link *l = NULL;
    HASH_FIND(hh, *table, &key, sizeof key, l);
    if (l) {
        l->id = id;
        return l;
    }
    if (!(l = vt_arena_take(sizeof *l)))
        return NULL;
    l->key = key;
    l->id = id;
    HASH_ADD(hh, *table, key, sizeof l->key, l);
    return l;
}

static struct graph *find_graph(uint64_t handle)
{
    struct graph *g = NULL;
    HASH_FIND(hh, graphs, &handle, sizeof handle, g);
    return g;
}

static struct family *find_family(uint64_t id)
{
    struct family *f = NULL;
    HASH_FIND(hh, families, &id, sizeof id, f);
    return f;
}

static uint64_t id_of_graph(uint64_t handle)
{
    struct graph *g = find_graph(handle);
    if (g)
        return g->id;
    struct family *f = vt_arena_take(sizeof *f);
    g = vt_arena_take(sizeof *g);
    if (!g || !f)
        return 0;
    f->id = g->id = ++last_id;
    g->handle = handle;
    HASH_ADD(hh, graphs, handle, sizeof g->handle, g);
    HASH_ADD(hh, families, id, sizeof f->id, f);
    __atomic_fetch_add(&tracked, 1, __ATOMIC_RELEASE);
    return g->id;
}

void vt_graph_owns(void *graph, uint64_t address)
{
    if (!graph || !vt_state_lock(false))
        return;
    uint64_t id = id_of_graph((uint64_t)(uintptr_t)graph);
    if (id)
        add_link(&addresses, address, id);
    vt_state_unlock();
}

/* Graph and executables are gone: what they own ends. With the lock held. */
static void end_family(struct family *f)
{
    struct link *l, *next;
    HASH_ITER(hh, addresses, l, next)
    {
        if (l->id != f->id)
            continue;
        struct vt_node *n = vt_live_find(VT_SPACE_POINTER, l->key);
        if (n && vt_live_slot(n)->kind == VT_KIND_GRAPH && !vt_state.ending) {
            vt_retire_node(n, vt_now());
            vt_live_remove(n);
        }
        HASH_DEL(addresses, l);
        vt_arena_give(l, sizeof *l);
    }
    HASH_DEL(families, f);
    vt_arena_give(f, sizeof *f);
    __atomic_fetch_sub(&tracked, 1, __ATOMIC_RELEASE);
}

static bool nothing_tracked(void)
{
    return !__atomic_load_n(&tracked, __ATOMIC_ACQUIRE);
}

static void graph_destroyed(uint64_t id)
{
    if (!vt_state_lock(false))
        return;
    struct family *f = find_family(id);
    if (f) {
        f->destroyed = true;
        if (!f->executables)
            end_family(f);
    }
    vt_state_unlock();
}

/* Before a graph is destroyed: its handle is free from then on. Returns its id, 0 if it has no memory. */
static uint64_t forget_handle(uint64_t handle)
{
    uint64_t id = 0;
    if (nothing_tracked() || !vt_state_lock(false))
        return 0;
    struct graph *g = find_graph(handle);
    if (g) {
        id = g->id;
        HASH_DEL(graphs, g);
        vt_arena_give(g, sizeof *g);
    }
    vt_state_unlock();
    return id;
}

static void instantiated(CUresult r, const CUgraphExec *exec, CUgraph graph)
{
    if (r || nothing_tracked() || !vt_state_lock(false))
        return;
    struct graph *g = find_graph((uint64_t)(uintptr_t)graph);
    struct family *f = g ? find_family(g->id) : NULL;
    if (f && add_link(&executables, (uint64_t)(uintptr_t)*exec, g->id))
        f->executables++;
    vt_state_unlock();
}

static void executable_destroyed(uint64_t exec)
{
    if (nothing_tracked() || !vt_state_lock(false))
        return;
    struct link *l = NULL;
    HASH_FIND(hh, executables, &exec, sizeof exec, l);
    struct family *f = l ? find_family(l->id) : NULL;
    if (l) {
        HASH_DEL(executables, l);
        vt_arena_give(l, sizeof *l);
    }
    if (f && --f->executables == 0 && f->destroyed)
        end_family(f);
    vt_state_unlock();
}

static void node_added(const struct vt_call *call, CUresult r, CUgraph graph, const CUmemPoolProps *props,
                       CUdeviceptr address, size_t bytes)
{
    if (!call->record)
        return;
    struct vt_alloc a = {.kind = VT_KIND_GRAPH,
                         .space = VT_SPACE_POINTER,
                         .device = (int16_t)props->location.id,
                         .key = address,
                         .address = address,
                         .bytes = bytes,
                         .requested = bytes};
    if (r) {
        vt_record_failed_alloc(call, &a, (int)r);
        return;
    }
    vt_device_note(a.device);
    vt_record_alloc(call, &a);
    vt_graph_owns(graph, address);
}

VT_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                          CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    VT_BEGIN(cuGraphAddMemAllocNode);
    CUresult r = real(node, graph, after, count, params);
    if (params)
        node_added(&call, r, graph, &params->poolProps, params->dptr, params->bytesize);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraphNodeParams *params)
{
    VT_BEGIN(cuGraphAddNode);
    CUresult r = real(node, graph, after, count, params);
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        node_added(&call, r, graph, &params->alloc.poolProps, params->alloc.dptr, params->alloc.bytesize);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                     const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    VT_BEGIN(cuGraphAddNode_v2);
    CUresult r = real(node, graph, after, edges, count, params);
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        node_added(&call, r, graph, &params->alloc.poolProps, params->alloc.dptr, params->alloc.bytesize);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    VT_BEGIN(cuGraphDestroy);
    uint64_t id = forget_handle((uint64_t)(uintptr_t)graph);
    CUresult r = real(graph);
    if (id)
        graph_destroyed(id);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                      size_t log_bytes)
{
    VT_BEGIN(cuGraphInstantiate);
    CUresult r = real(exec, graph, error_node, log, log_bytes);
    instantiated(r, exec, graph);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                                         size_t log_bytes)
{
    VT_BEGIN(cuGraphInstantiate_v2);
    CUresult r = real(exec, graph, error_node, log, log_bytes);
    instantiated(r, exec, graph);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    VT_BEGIN(cuGraphInstantiateWithFlags);
    CUresult r = real(exec, graph, flags);
    instantiated(r, exec, graph);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    VT_BEGIN(cuGraphInstantiateWithParams);
    CUresult r = real(exec, graph, params);
    instantiated(r, exec, graph);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                     CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    VT_BEGIN(cuGraphInstantiateWithParams_ptsz);
    CUresult r = real(exec, graph, params);
    instantiated(r, exec, graph);
    return VT_END(r);
}

VT_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    VT_BEGIN(cuGraphExecDestroy);
    executable_destroyed((uint64_t)(uintptr_t)exec);
    CUresult r = real(exec);
    return VT_END(r);
}

static void capture_begun(CUresult r, CUstreamCaptureMode mode)
{
    if (r)
        return;
    own.number = __atomic_add_fetch(&captures, 1, __ATOMIC_ACQ_REL);
    own.open++;
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        own.global++;
        __atomic_fetch_add(&open_global, 1, __ATOMIC_ACQ_REL);
    }
    __atomic_fetch_add(&vt_graph_open_captures, 1, __ATOMIC_ACQ_REL);
}

static void leave_capture(void)
{
    if (own.open > 0)
        own.open--;
    if (own.global > 0) {
        own.global--;
        __atomic_fetch_sub(&open_global, 1, __ATOMIC_ACQ_REL);
    }
    if (__atomic_sub_fetch(&vt_graph_open_captures, 1, __ATOMIC_ACQ_REL) < 0)
        __atomic_store_n(&vt_graph_open_captures, 0, __ATOMIC_RELEASE);
}

/* A capture ends whatever the call returns, unless there was none on this stream. */
static void capture_ended(CUresult r)
{
    if (r != CUDA_ERROR_ILLEGAL_STATE && r != CUDA_ERROR_INVALID_VALUE && r != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        leave_capture();
}

uint16_t vt_graph_capture(void)
{
    uint32_t number;
    if (!vt_graph_may_capture())
        return 0;
    if (own.open > 0)
        number = own.number;
    else
        number = __atomic_load_n(&open_global, __ATOMIC_ACQUIRE) > 0 ? __atomic_load_n(&captures, __ATOMIC_ACQUIRE) : 0;
    return (uint16_t)(number < UINT16_MAX ? number : UINT16_MAX);
}

#define CAPTURE_WRAPPER(name, parameters, arguments, after) \
    VT_EXPORT CUresult name parameters                      \
    {                                                       \
        VT_BEGIN(name);                                     \
        CUresult r = real arguments;                        \
        after;                                              \
        return VT_END(r);                                   \
    }

CAPTURE_WRAPPER(cuStreamBeginCapture, (CUstream s), (s), capture_begun(r, CU_STREAM_CAPTURE_MODE_GLOBAL))
CAPTURE_WRAPPER(cuStreamBeginCapture_ptsz, (CUstream s), (s), capture_begun(r, CU_STREAM_CAPTURE_MODE_GLOBAL))
CAPTURE_WRAPPER(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode mode), (s, mode), capture_begun(r, mode))
CAPTURE_WRAPPER(cuStreamBeginCapture_v2_ptsz, (CUstream s, CUstreamCaptureMode mode), (s, mode), capture_begun(r, mode))
CAPTURE_WRAPPER(cuStreamBeginCaptureToGraph,
                (CUstream s, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
                 CUstreamCaptureMode mode),
                (s, g, after, edges, n, mode), capture_begun(r, mode))
CAPTURE_WRAPPER(cuStreamBeginCaptureToGraph_ptsz,
                (CUstream s, CUgraph g, const CUgraphNode *after, const CUgraphEdgeData *edges, size_t n,
                 CUstreamCaptureMode mode),
                (s, g, after, edges, n, mode), capture_begun(r, mode))
CAPTURE_WRAPPER(cuStreamEndCapture, (CUstream s, CUgraph *graph), (s, graph), capture_ended(r))
CAPTURE_WRAPPER(cuStreamEndCapture_ptsz, (CUstream s, CUgraph *graph), (s, graph), capture_ended(r))

void vt_graph_forget(void)
{
    graphs = NULL;
    families = NULL;
    executables = addresses = NULL;
    tracked = 0;
    vt_graph_open_captures = open_global = 0;
    own.open = own.global = 0;
    captures = 0;
}
