/*
 * Graphs and their nodes, as far as memory goes.
 *
 * The address of a graph allocation is fixed when its node is made; memory comes when an executable of the graph is
 * uploaded or launched (exec.c).  Nodes run in the order in which they were added; dependencies are accepted and not
 * kept.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

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
        sim_graph_block_release(((struct sim_node *)graph->node[i])->block);
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

CUresult sim_graph_find(CUgraph handle, struct sim_graph **out)
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

    TRY(sim_graph_find(handle, &graph));
    sim_graph_drop(graph);
    return CUDA_SUCCESS;
}

static CUresult add_work(CUgraphNode *out, CUgraph handle, CUgraphNodeType type)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL);
    TRY(sim_graph_find(handle, &graph));
    return sim_graph_add_work(graph, type, out);
}

static CUresult add_alloc(CUgraphNode *out, CUgraph handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL && params != NULL && params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    TRY(sim_graph_find(handle, &graph));
    TRY(sim_device_check(params->poolProps.location.id));
    return sim_graph_add_alloc(graph, &sim.device[params->poolProps.location.id], params->bytesize, out, &params->dptr);
}

static CUresult add_free(CUgraphNode *out, CUgraph handle, CUdeviceptr ptr)
{
    struct sim_graph *graph;

    REQUIRE(out != NULL);
    TRY(sim_graph_find(handle, &graph));
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
    TRY(sim_graph_find(handle, &graph));
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
