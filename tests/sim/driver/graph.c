/*
 * Graphs, as far as memory goes: allocation and free nodes, instantiation, launch, upload, trim.
 *
 * The address of a graph allocation is fixed when its node is made; memory comes with the first upload or launch and
 * stays reserved on the device for graphs until cuDeviceGraphMemTrim.  An allocation that the graph doesn't free lives
 * on after the launch and may be freed by cuMemFree, cuMemFreeAsync, another graph, or the next launch of an executable
 * with AUTO_FREE_ON_LAUNCH.  Its block is kept by every graph and executable that knows it and by being live.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct sim_node {
    struct sim_graph *graph;
    CUgraphNodeType type;
    struct sim_block *block; /* allocation and free nodes */
};

struct sim_graph {
    CUgraphNode *node; /* in the order in which they were added, which is the order in which they run */
    size_t count, room;
};

struct step {
    CUgraphNodeType type;
    struct sim_block *block;
};

struct sim_exec {
    unsigned long long flags;
    size_t count;
    struct step step[];
};

/* ---- blocks of graphs ---- */

static void block_release(struct sim_block *block)
{
    if (block != NULL && --block->refs == 0) {
        sim_block_free(block);
    }
}

static void block_start(struct sim_block *block)
{
    struct sim_device *device = block->device;

    block->live = true;
    block->refs++;
    device->graph_used += sim_round_up(block->bytes, SIM_UNIT);
    device->live_bytes += block->bytes;
    device->live_count++;
    if (device->graph_used > device->graph_used_high) {
        device->graph_used_high = device->graph_used;
    }
}

static void block_end(struct sim_block *block)
{
    struct sim_device *device = block->device;

    block->live = false;
    device->graph_used -= sim_round_up(block->bytes, SIM_UNIT);
    device->live_bytes -= block->bytes;
    device->live_count--;
    block_release(block);
}

CUresult sim_graph_free_live(struct sim_block *block)
{
    REQUIRE(block->live);
    block_end(block);
    return CUDA_SUCCESS;
}

/* ---- graphs and nodes ---- */

struct sim_graph *sim_graph_new(void)
{
    return sim_object_new(SIM_T_GRAPH, sizeof(struct sim_graph));
}

bool sim_graph_is(CUgraph graph)
{
    return sim_object_is(graph, SIM_T_GRAPH);
}

CUgraphNode *sim_graph_last(struct sim_graph *graph, size_t *count)
{
    *count = graph->count > 0;
    return graph->count > 0 ? &graph->node[graph->count - 1] : NULL;
}

static struct sim_node *node_new(struct sim_graph *graph, CUgraphNodeType type, struct sim_block *block,
                                 CUgraphNode *out)
{
    struct sim_node *node = sim_object_new(SIM_T_NODE, sizeof(*node));

    node->graph = graph;
    node->type = type;
    node->block = block;
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 16;
        graph->node = realloc(graph->node, graph->room * sizeof(CUgraphNode));
    }
    graph->node[graph->count++] = (CUgraphNode)node;
    if (out != NULL) {
        *out = (CUgraphNode)node;
    }
    return node;
}

void sim_graph_drop(struct sim_graph *graph)
{
    size_t i;

    for (i = 0; i < graph->count; i++) {
        block_release(((struct sim_node *)graph->node[i])->block);
        sim_object_free(graph->node[i]);
    }
    free(graph->node);
    sim_object_free(graph);
}

CUresult sim_graph_add_work(struct sim_graph *graph, CUgraphNodeType type, CUgraphNode *node)
{
    node_new(graph, type, NULL, node);
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_alloc(struct sim_graph *graph, struct sim_device *device, size_t bytes, CUgraphNode *node,
                             CUdeviceptr *out)
{
    struct sim_block *block;

    REQUIRE(bytes != 0);
    TRY(sim_block_new(&device->graph_heap, bytes, SIM_GRAPH, &block));
    block->refs = 1;
    node_new(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, block, node);
    *out = block->addr;
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_free(struct sim_graph *graph, CUdeviceptr ptr, CUgraphNode *node)
{
    struct sim_block *block = sim_block_at(ptr);

    REQUIRE(block != NULL && block->kind == SIM_GRAPH);
    block->refs++;
    node_new(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, block, node);
    return CUDA_SUCCESS;
}

static CUresult graph_find(CUgraph handle, struct sim_graph **out)
{
    *out = (struct sim_graph *)handle;
    return sim_graph_is(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(CUgraph *out, unsigned int flags)
{
    REQUIRE(out != NULL && flags == 0);
    *out = (CUgraph)sim_graph_new();
    return CUDA_SUCCESS;
}

static CUresult destroy(CUgraph handle)
{
    struct sim_graph *graph;

    TRY(graph_find(handle, &graph));
    sim_graph_drop(graph);
    return CUDA_SUCCESS;
}

static CUresult add_work(CUgraphNode *out, CUgraph handle, CUgraphNodeType type)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL);
    TRY(graph_find(handle, &graph));
    return sim_graph_add_work(graph, type, out);
}

static CUresult add_alloc(CUgraphNode *out, CUgraph handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL && params != NULL && params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    TRY(graph_find(handle, &graph));
    TRY(sim_device_check(params->poolProps.location.id));
    return sim_graph_add_alloc(graph, &sim.device[params->poolProps.location.id], params->bytesize, out,
                               &params->dptr);
}

static CUresult add_free(CUgraphNode *out, CUgraph handle, CUdeviceptr ptr)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL);
    TRY(graph_find(handle, &graph));
    return sim_graph_add_free(graph, ptr, out);
}

static CUresult add_any(CUgraphNode *out, CUgraph handle, CUgraphNodeParams *params)
{
    REQUIRE(params != NULL);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = params->alloc.poolProps, .bytesize = params->alloc.bytesize};

        TRY(add_alloc(out, handle, &alloc));
        params->alloc.dptr = alloc.dptr;
        return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return add_free(out, handle, params->free.dptr);
    default:
        return add_work(out, handle, params->type);
    }
}

static CUresult node_of_type(CUgraphNode handle, CUgraphNodeType type, struct sim_node **out)
{
    *out = (struct sim_node *)handle;
    REQUIRE(sim_object_is(handle, SIM_T_NODE) && (*out)->type == type);
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode handle, CUgraphNodeType *out)
{
    REQUIRE(out != NULL && sim_object_is(handle, SIM_T_NODE));
    *out = ((struct sim_node *)handle)->type;
    return CUDA_SUCCESS;
}

static CUresult alloc_params(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *out)
{
    struct sim_node *node;

    REQUIRE(out != NULL);
    TRY(node_of_type(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node));
    memset(out, 0, sizeof(*out));
    out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    out->poolProps.location.id = node->block->device->index;
    out->bytesize = node->block->bytes;
    out->dptr = node->block->addr;
    return CUDA_SUCCESS;
}

static CUresult free_params(CUgraphNode handle, CUdeviceptr *out)
{
    struct sim_node *node;

    REQUIRE(out != NULL);
    TRY(node_of_type(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, &node));
    *out = node->block->addr;
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *out, size_t *count)
{
    struct sim_graph *graph;

    REQUIRE(count != NULL);
    TRY(graph_find(handle, &graph));
    if (out != NULL) {
        size_t copied = *count < graph->count ? *count : graph->count;

        memcpy(out, graph->node, copied * sizeof(*out));
        memset(out + copied, 0, (*count - copied) * sizeof(*out));
        *count = copied;
    } else {
        *count = graph->count;
    }
    return CUDA_SUCCESS;
}

/* ---- executables ---- */

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    struct sim_graph *graph;
    struct sim_exec *exec;
    size_t i;

    REQUIRE(out != NULL && flags <= 15);
    TRY(graph_find(handle, &graph));
    exec = sim_object_new(SIM_T_EXEC, sizeof(*exec) + graph->count * sizeof(exec->step[0]));
    exec->flags = flags;
    exec->count = graph->count;
    for (i = 0; i < graph->count; i++) {
        struct sim_node *node = (struct sim_node *)graph->node[i];

        exec->step[i] = (struct step){node->type, node->block};
        if (node->block != NULL) {
            node->block->refs++;
        }
    }
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult instantiate_with(CUgraphExec *out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    REQUIRE(params != NULL);
    params->hErrNode_out = NULL;
    params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    TRY(instantiate(out, handle, params->flags));
    params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
}

static CUresult exec_find(CUgraphExec handle, struct sim_exec **out)
{
    *out = (struct sim_exec *)handle;
    return sim_object_is(handle, SIM_T_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_destroy(CUgraphExec handle)
{
    struct sim_exec *exec;
    size_t i;

    TRY(exec_find(handle, &exec));
    for (i = 0; i < exec->count; i++) {
        block_release(exec->step[i].block);
    }
    sim_object_free(exec);
    return CUDA_SUCCESS;
}

static CUresult exec_flags(CUgraphExec handle, cuuint64_t *out)
{
    struct sim_exec *exec;

    REQUIRE(out != NULL);
    TRY(exec_find(handle, &exec));
    *out = exec->flags;
    return CUDA_SUCCESS;
}

/* Reserves what the executable needs on a device at its peak, beyond what graphs have there already. */
static CUresult reserve(struct sim_exec *exec, struct sim_device *device)
{
    size_t used = device->graph_used, peak = used, i, missing;

    for (i = 0; i < exec->count; i++) {
        struct sim_block *block = exec->step[i].block;

        if (block == NULL || block->device != device) {
            continue;
        }
        if (exec->step[i].type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            used += sim_round_up(block->bytes, SIM_UNIT);
        } else {
            used -= sim_round_up(block->bytes, SIM_UNIT);
        }
        peak = used > peak ? used : peak;
    }
    if (peak <= device->graph_reserved) {
        return CUDA_SUCCESS;
    }
    missing = sim_round_up(peak - device->graph_reserved, SIM_PAGE);
    TRY(sim_device_charge(device, missing));
    device->graph_reserved += missing;
    if (device->graph_reserved > device->graph_reserved_high) {
        device->graph_reserved_high = device->graph_reserved;
    }
    return CUDA_SUCCESS;
}

static CUresult reserve_everywhere(struct sim_exec *exec)
{
    int i;

    for (i = 0; i < sim.device_count; i++) {
        TRY(reserve(exec, &sim.device[i]));
    }
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec handle, CUstream stream, bool per_thread)
{
    struct sim_exec *exec;
    struct sim_stream *s;

    TRY(exec_find(handle, &exec));
    TRY(sim_stream_find(stream, per_thread, &s));
    return reserve_everywhere(exec);
}

static CUresult launch(CUgraphExec handle, CUstream stream, bool per_thread)
{
    struct sim_exec *exec;
    struct sim_stream *s;
    size_t i;

    TRY(exec_find(handle, &exec));
    TRY(sim_stream_find(stream, per_thread, &s));
    if (s->capture != NULL) {
        return sim_capture_work(s, CU_GRAPH_NODE_TYPE_GRAPH);
    }
    for (i = 0; i < exec->count; i++) {
        struct step *step = &exec->step[i];

        if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && step->block->live) {
            REQUIRE(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
            block_end(step->block);
        }
    }
    TRY(reserve_everywhere(exec));
    for (i = 0; i < exec->count; i++) {
        struct step *step = &exec->step[i];

        if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            block_start(step->block);
        } else if (step->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            TRY(sim_graph_free_live(step->block));
        }
    }
    return CUDA_SUCCESS;
}

/* ---- what graphs hold on a device ---- */

static CUresult trim(CUdevice dev)
{
    struct sim_device *device;
    size_t keep;

    TRY(sim_device_check(dev));
    device = &sim.device[dev];
    keep = sim_round_up(device->graph_used, SIM_PAGE);
    if (device->graph_reserved > keep) {
        sim_device_refund(device, device->graph_reserved - keep);
        device->graph_reserved = keep;
    }
    return CUDA_SUCCESS;
}

static CUresult get_attribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct sim_device *d;

    TRY(sim_device_check(dev));
    REQUIRE(value != NULL && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    d = &sim.device[dev];
    *(cuuint64_t *)value = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? d->graph_used
                           : attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH        ? d->graph_used_high
                           : attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? d->graph_reserved
                                                                                 : d->graph_reserved_high;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(CUdevice dev, CUgraphMem_attribute attribute, const void *value)
{
    TRY(sim_device_check(dev));
    REQUIRE(value != NULL && *(const cuuint64_t *)value == 0);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        sim.device[dev].graph_used_high = sim.device[dev].graph_used;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        sim.device[dev].graph_reserved_high = sim.device[dev].graph_reserved;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- exports ---- */

#define DEPENDENCIES const CUgraphNode *dependencies, size_t numDependencies
#define UNUSED_DEPENDENCIES (void)dependencies, (void)numDependencies

EXPORT_OUT(cuGraphCreate, phGraph, (CUgraph * phGraph, unsigned int flags), create(phGraph, flags))
EXPORT(cuGraphDestroy, (CUgraph hGraph), destroy(hGraph))
EXPORT_OUT(cuGraphAddMemAllocNode, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams),
           (UNUSED_DEPENDENCIES, add_alloc(phGraphNode, hGraph, nodeParams)))
EXPORT_OUT(cuGraphAddMemFreeNode, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES, CUdeviceptr dptr),
           (UNUSED_DEPENDENCIES, add_free(phGraphNode, hGraph, dptr)))
EXPORT_OUT(cuGraphMemAllocNodeGetParams, params_out, (CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out),
           alloc_params(hNode, params_out))
EXPORT_OUT(cuGraphMemFreeNodeGetParams, dptr_out, (CUgraphNode hNode, CUdeviceptr *dptr_out),
           free_params(hNode, dptr_out))
EXPORT_OUT(cuGraphAddNode, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES, CUgraphNodeParams *nodeParams),
           (UNUSED_DEPENDENCIES, add_any(phGraphNode, hGraph, nodeParams)))
EXPORT_OUT(cuGraphAddNode_v2, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
            const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams),
           (UNUSED_DEPENDENCIES, (void)dependencyData, add_any(phGraphNode, hGraph, nodeParams)))
EXPORT_OUT(cuGraphAddKernelNode, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams),
           (UNUSED_DEPENDENCIES, (void)nodeParams, add_work(phGraphNode, hGraph, CU_GRAPH_NODE_TYPE_KERNEL)))
EXPORT_OUT(cuGraphAddKernelNode_v2, phGraphNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES, const CUDA_KERNEL_NODE_PARAMS *nodeParams),
           (UNUSED_DEPENDENCIES, (void)nodeParams, add_work(phGraphNode, hGraph, CU_GRAPH_NODE_TYPE_KERNEL)))
EXPORT_OUT(cuGraphAddEmptyNode, phGraphNode, (CUgraphNode * phGraphNode, CUgraph hGraph, DEPENDENCIES),
           (UNUSED_DEPENDENCIES, add_work(phGraphNode, hGraph, CU_GRAPH_NODE_TYPE_EMPTY)))
EXPORT_OUT(cuGraphNodeGetType, type, (CUgraphNode hNode, CUgraphNodeType *type), get_type(hNode, type))
EXPORT(cuGraphGetNodes, (CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes), get_nodes(hGraph, nodes, numNodes))

EXPORT_OUT(cuGraphInstantiate, phGraphExec,
           (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
           ((void)phErrorNode, (void)logBuffer, (void)bufferSize, instantiate(phGraphExec, hGraph, 0)))
EXPORT_OUT(cuGraphInstantiate_v2, phGraphExec,
           (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize),
           ((void)phErrorNode, (void)logBuffer, (void)bufferSize, instantiate(phGraphExec, hGraph, 0)))
EXPORT_OUT(cuGraphInstantiateWithFlags, phGraphExec,
           (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
           instantiate(phGraphExec, hGraph, flags))
EXPORT_STREAM(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,
              (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
              instantiate_with(phGraphExec, hGraph, instantiateParams))
EXPORT(cuGraphExecDestroy, (CUgraphExec hGraphExec), exec_destroy(hGraphExec))
EXPORT_OUT(cuGraphExecGetFlags, flags, (CUgraphExec hGraphExec, cuuint64_t *flags), exec_flags(hGraphExec, flags))
EXPORT_STREAM(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec hGraphExec, CUstream hStream),
              upload(hGraphExec, hStream, per_thread))
EXPORT_STREAM(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec hGraphExec, CUstream hStream),
              launch(hGraphExec, hStream, per_thread))
EXPORT(cuDeviceGraphMemTrim, (CUdevice device), trim(device))
EXPORT(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value),
       get_attribute(device, attr, value))
EXPORT(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value),
       set_attribute(device, attr, value))
