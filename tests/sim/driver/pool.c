/*
 * Stream-ordered allocation: memory pools, cuMemAllocAsync and relatives.
 *
 * A pool takes memory from the card in steps of 32 MiB and keeps it when pointers are freed.  A synchronisation gives
 * back what is above the release threshold (0 unless set), cuMemPoolTrimTo at any time.  The host view counts: a pointer
 * lives from the return of the alloc call to the free call.  Under stream capture both calls become graph nodes.
 * A pool destroyed while pointers live disappears with the last of them.
 */
#include "pool.h"

#include <string.h>

#define GROWTH (32 * SIM_MIB)

static struct sim_pool *pools;
static struct sim_pool *host_default, *host_current;
static unsigned int pools_epoch;

CUresult sim_pool_check(CUmemoryPool handle, struct sim_pool **out)
{
    *out = (struct sim_pool *)handle;
    return sim_object_is(*out, SIM_T_POOL) && !(*out)->destroyed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props)
{
    struct sim_pool *pool = sim_object_new(SIM_T_POOL, sizeof(*pool));

    pool->device = device;
    pool->heap.device = device != NULL ? device : &sim.device[0];
    pool->heap.host = device == NULL;
    pool->props = *props;
    memset(pool->reuse, 1, sizeof(pool->reuse));
    pool->next = pools;
    pools = pool;
    return pool;
}

static void pool_shrink(struct sim_pool *pool, size_t keep)
{
    size_t needed = sim_round_up(pool->used, SIM_PAGE);

    keep = keep > needed ? keep : needed;
    if (pool->reserved > keep) {
        if (pool->device != NULL) {
            sim_device_refund(pool->device, pool->reserved - keep);
        }
        pool->reserved = keep;
    }
}

static CUresult pool_grow(struct sim_pool *pool, size_t bytes)
{
    size_t missing, step;

    if (pool->used + bytes <= pool->reserved) {
        return CUDA_SUCCESS;
    }
    missing = pool->used + bytes - pool->reserved;
    if (pool->props.maxSize != 0 && pool->reserved + missing > pool->props.maxSize) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    step = sim_round_up(missing, GROWTH);
    if (pool->device != NULL && sim_device_charge(pool->device, step) != CUDA_SUCCESS) {
        step = sim_round_up(missing, SIM_PAGE);
        TRY(sim_device_charge(pool->device, step));
    }
    pool->reserved += step;
    if (pool->reserved > pool->reserved_high) {
        pool->reserved_high = pool->reserved;
    }
    return CUDA_SUCCESS;
}

static void pool_free(struct sim_pool *pool)
{
    struct sim_pool **at = &pools;

    while (*at != pool) {
        at = &(*at)->next;
    }
    *at = pool->next;
    pool_shrink(pool, 0);
    sim_object_free(pool);
}

CUresult sim_pool_start(struct sim_device *device)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->index}};

    if (pools_epoch != sim.epoch) { /* a forked child starts over */
        pools_epoch = sim.epoch;
        pools = NULL;
        host_default = NULL;
    }
    device->default_pool = sim_pool_new(device, &props);
    device->default_pool->is_default = true;
    device->current_pool = device->default_pool;
    if (host_default == NULL) {
        props.location.type = CU_MEM_LOCATION_TYPE_HOST;
        host_default = host_current = sim_pool_new(NULL, &props);
        host_default->is_default = true;
    }
    return CUDA_SUCCESS;
}

void sim_pool_settle(struct sim_device *device)
{
    struct sim_pool *pool;

    for (pool = pools; pool != NULL; pool = pool->next) {
        if (pool->device == device || pool->device == NULL) {
            pool_shrink(pool, pool->threshold);
        }
    }
}

static CUresult pool_take(struct sim_pool *pool, size_t bytes, CUdeviceptr *out)
{
    size_t rounded = sim_round_up(bytes, SIM_UNIT);
    struct sim_block *block;

    if (bytes > (size_t)1 << 46) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    TRY(pool_grow(pool, rounded));
    TRY(sim_block_new(&pool->heap, bytes, SIM_POOLED, &block));
    block->pool = pool;
    pool->live++;
    pool->used += rounded;
    if (pool->used > pool->used_high) {
        pool->used_high = pool->used;
    }
    *out = block->addr;
    return CUDA_SUCCESS;
}

void sim_pool_return(struct sim_block *block)
{
    struct sim_pool *pool = block->pool;

    if (block->kind == SIM_POOLED) {
        pool->used -= sim_round_up(block->bytes, SIM_UNIT);
    }
    sim_block_free(block);
    if (--pool->live == 0 && pool->destroyed) {
        pool_free(pool);
    }
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, struct sim_pool *pool, CUstream handle, bool per_thread)
{
    struct sim_stream *stream;

    REQUIRE(out != NULL && bytes != 0);
    TRY(sim_stream_find(handle, per_thread, &stream));
    if (stream->capture != NULL) {
        return sim_capture_alloc(stream, out, bytes);
    }
    if (pool == NULL) {
        pool = stream->ctx->device->current_pool;
    }
    REQUIRE(!pool->imported);
    return pool_take(pool, bytes, out);
}

static CUresult alloc_from(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream, bool per_thread)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    return alloc_async(out, bytes, pool, stream, per_thread);
}

static CUresult free_async(CUdeviceptr ptr, CUstream handle, bool per_thread)
{
    struct sim_stream *stream;
    struct sim_block *block;

    TRY(sim_stream_find(handle, per_thread, &stream));
    REQUIRE(ptr != 0);
    if (stream->capture != NULL) {
        return sim_capture_free(stream, ptr);
    }
    block = sim_block_at(ptr);
    REQUIRE(block != NULL);
    if (block->kind == SIM_GRAPH) {
        return sim_graph_free_live(block);
    }
    REQUIRE(block->kind == SIM_POOLED || block->kind == SIM_POOL_IMPORT);
    sim_pool_return(block);
    return CUDA_SUCCESS;
}

/* ---- pools as objects ---- */

static CUresult pool_create(CUmemoryPool *out, const CUmemPoolProps *props)
{
    struct sim_device *device = NULL;

    REQUIRE(out != NULL && props != NULL && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        TRY(sim_device_check(props->location.id));
        device = &sim.device[props->location.id];
    } else {
        REQUIRE(props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    }
    *out = (CUmemoryPool)sim_pool_new(device, props);
    return CUDA_SUCCESS;
}

static CUresult pool_destroy(CUmemoryPool handle)
{
    struct sim_pool *pool;
    int i;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(!pool->is_default);
    for (i = 0; i < sim.device_count; i++) {
        if (sim.device[i].current_pool == pool) {
            sim.device[i].current_pool = sim.device[i].default_pool;
        }
    }
    host_current = host_current == pool ? host_default : host_current;
    pool->destroyed = true;
    if (pool->live == 0) {
        pool_free(pool);
    }
    return CUDA_SUCCESS;
}

static CUresult pool_trim(CUmemoryPool handle, size_t keep)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    pool_shrink(pool, keep);
    return CUDA_SUCCESS;
}

static CUresult pool_set(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(value != NULL);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute] = *(int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        REQUIRE(*(cuuint64_t *)value == 0);
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        REQUIRE(*(cuuint64_t *)value == 0);
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult pool_get(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(value != NULL);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute] != 0;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = pool->reserved_high;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = pool->used;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = pool->used_high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(map != NULL && count != 0);
    return CUDA_SUCCESS;
}

static CUresult pool_get_access(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(flags != NULL && location != NULL);
    *flags = pool->device != NULL && location->id == pool->device->index ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

/* Which pool serves a place: the default one or the one set last. */
static CUresult pool_of(const CUmemLocation *location, bool current, struct sim_pool **out)
{
    REQUIRE(location != NULL);
    if (location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        *out = current ? host_current : host_default;
        return CUDA_SUCCESS;
    }
    REQUIRE(location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    TRY(sim_device_check(location->id));
    *out = current ? sim.device[location->id].current_pool : sim.device[location->id].default_pool;
    return CUDA_SUCCESS;
}

static CUresult pool_get_for(CUmemoryPool *out, const CUmemLocation *location, bool current)
{
    struct sim_pool *pool;

    REQUIRE(out != NULL);
    TRY(pool_of(location, current, &pool));
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult pool_set_for(const CUmemLocation *location, CUmemoryPool handle)
{
    struct sim_pool *pool, *before;

    TRY(sim_pool_check(handle, &pool));
    TRY(pool_of(location, true, &before));
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        REQUIRE(pool->device == &sim.device[location->id]);
        sim.device[location->id].current_pool = pool;
    } else {
        host_current = pool;
    }
    return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice dev, bool current)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};

    return pool_get_for(out, &location, current);
}

static CUresult device_set_pool(CUdevice dev, CUmemoryPool handle)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};

    return pool_set_for(&location, handle);
}

/* ---- exports ---- */

EXPORT_OUT(cuMemAllocAsync, dptr, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
           alloc_async(dptr, bytesize, NULL, hStream, false))
EXPORT_OUT(cuMemAllocAsync_ptsz, dptr, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
           alloc_async(dptr, bytesize, NULL, hStream, true))
EXPORT_OUT(cuMemAllocFromPoolAsync, dptr, (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
           alloc_from(dptr, bytesize, pool, hStream, false))
EXPORT_OUT(cuMemAllocFromPoolAsync_ptsz, dptr,
           (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
           alloc_from(dptr, bytesize, pool, hStream, true))
EXPORT_STREAM(cuMemFreeAsync, cuMemFreeAsync_ptsz, (CUdeviceptr dptr, CUstream hStream),
              free_async(dptr, hStream, per_thread))

EXPORT_OUT(cuMemPoolCreate, pool, (CUmemoryPool * pool, const CUmemPoolProps *poolProps), pool_create(pool, poolProps))
EXPORT(cuMemPoolDestroy, (CUmemoryPool pool), pool_destroy(pool))
EXPORT(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep), pool_trim(pool, minBytesToKeep))
EXPORT(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), pool_set(pool, attr, value))
EXPORT(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), pool_get(pool, attr, value))
EXPORT(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
       pool_set_access(pool, map, count))
EXPORT_OUT(cuMemPoolGetAccess, flags, (CUmemAccess_flags * flags, CUmemoryPool memPool, CUmemLocation *location),
           pool_get_access(flags, memPool, location))
EXPORT_OUT(cuDeviceGetDefaultMemPool, pool_out, (CUmemoryPool * pool_out, CUdevice dev),
           device_pool(pool_out, dev, false))
EXPORT_OUT(cuDeviceGetMemPool, pool, (CUmemoryPool * pool, CUdevice dev), device_pool(pool, dev, true))
EXPORT(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), device_set_pool(dev, pool))
EXPORT_OUT(cuMemGetDefaultMemPool, pool_out,
           (CUmemoryPool * pool_out, CUmemLocation *location, CUmemAllocationType type),
           type == CU_MEM_ALLOCATION_TYPE_PINNED ? pool_get_for(pool_out, location, false) : CUDA_ERROR_NOT_SUPPORTED)
EXPORT_OUT(cuMemGetMemPool, pool, (CUmemoryPool * pool, CUmemLocation *location, CUmemAllocationType type),
           type == CU_MEM_ALLOCATION_TYPE_PINNED ? pool_get_for(pool, location, true) : CUDA_ERROR_NOT_SUPPORTED)
EXPORT(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
       type == CU_MEM_ALLOCATION_TYPE_PINNED ? pool_set_for(location, pool) : CUDA_ERROR_NOT_SUPPORTED)
