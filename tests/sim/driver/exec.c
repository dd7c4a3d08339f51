/*
 * Executable graphs: instantiation, launch, upload, and the memory that graphs hold on a device.
 *
 * Memory is reserved by the first upload or launch and stays the graphs' until cuDeviceGraphMemTrim.  An allocation that
 * the graph doesn't free lives on after the launch and may be freed by cuMemFree, cuMemFreeAsync, another graph, or the
 * next launch of an executable with AUTO_FREE_ON_LAUNCH.  Its block is kept by every graph and executable that knows it
 * and by being live.
 */
#include "graph.h"

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

void sim_graph_block_release(struct sim_block *block)
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
    sim_graph_block_release(block);
}

CUresult sim_graph_free_live(struct sim_block *block)
{
    REQUIRE(block->live);
    block_end(block);
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    struct sim_graph *graph;
    struct sim_exec *exec;
    size_t i;

    REQUIRE(out != NULL && flags <= 15);
    TRY(sim_graph_find(handle, &graph));
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
        sim_graph_block_release(exec->step[i].block);
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
        } else if (used >= sim_round_up(block->bytes, SIM_UNIT)) {
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
