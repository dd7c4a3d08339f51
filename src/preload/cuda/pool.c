/*
 * Stream-ordered memory. A pointer is live from the return of the allocation to the call of the free, as the host sees
 * it; what the pool holds beyond that is the pool's, and its figures (struct vt_pool) bound it.
 *
 * During stream capture the same calls make graph nodes instead: graph.c says whether a stream is capturing.
 */
#include "preload/cuda/pool.h"

#include "preload/context.h"
#include "preload/cuda/graph.h"
#include "preload/ledger.h"
#include "preload/track.h"

#define DEVICES 64

static uint16_t current_pool[DEVICES]; /* index + 1 of what cuMemAllocAsync uses; 0: not asked yet */

static uint16_t find_pool(uint64_t handle)
{
    for (uint64_t i = vt_header()->section[VT_POOLS].count; i-- > 0;) {
        const struct vt_pool *p = vt_writer_at(&vt_state.writer, VT_POOLS, i);
        if (p->handle == handle && !(p->flags & VT_POOL_DESTROYED))
            return (uint16_t)(i + 1);
    }
    return 0;
}

static uint16_t add_pool(uint64_t handle, int device, uint32_t flags)
{
    uint64_t i;
    uint16_t known = find_pool(handle);
    struct vt_pool *p = known ? NULL : vt_writer_append(&vt_state.writer, VT_POOLS, &i);
    if (!p || i >= UINT16_MAX)
        return known;
    p->handle = handle;
    p->device = device;
    p->flags = flags;
    vt_writer_publish(&vt_state.writer, VT_POOLS);
    return (uint16_t)(i + 1);
}

static struct vt_pool *pool_at(uint16_t number)
{
    return vt_writer_at(&vt_state.writer, VT_POOLS, number - 1u);
}

/* Index + 1 of the pool that a device allocates from by default. Without a lock: the driver is asked once. */
static uint16_t current_pool_of(int device)
{
    if (device < 0 || device >= DEVICES)
        return 0;
    uint16_t known = __atomic_load_n(&current_pool[device], __ATOMIC_ACQUIRE);
    if (known)
        return known;
    CUmemoryPool handle = NULL;
    __typeof__(&cuDeviceGetMemPool) get = VT_HELPER(cuDeviceGetMemPool);
    if (!get || get(&handle, device) || !vt_state_lock(true))
        return 0;
    known = add_pool((uint64_t)(uintptr_t)handle, device, VT_POOL_DEFAULT);
    __atomic_store_n(&current_pool[device], known, __ATOMIC_RELEASE);
    vt_state_unlock();
    return known;
}

static uint16_t pool_number(CUmemoryPool pool, int device)
{
    if (!pool)
        return current_pool_of(device);
    if (!vt_state_lock(true))
        return 0;
    uint16_t number = add_pool((uint64_t)(uintptr_t)pool, device, 0);
    vt_state_unlock();
    return number;
}

/* After a stream-ordered allocation: as graph memory if the stream is capturing, else in its pool. */
static inline __attribute__((always_inline)) void allocated(const struct vt_call *call, CUresult r,
                                                            const CUdeviceptr *p, size_t bytes, CUmemoryPool pool,
                                                            CUstream stream, bool per_thread)
{
    if (!call->record)
        return;
    struct vt_alloc a = {.kind = VT_KIND_ASYNC, .space = VT_SPACE_POINTER, .bytes = bytes, .requested = bytes};
    void *graph;
    bool captured = !r && vt_graph_captures(stream, per_thread, &graph);
    struct vt_stream_of s = vt_stream_note(stream, per_thread, r || captured ? 0 : *p);
    a.device = s.device;
    a.stream = s.number;
    if (r) {
        vt_record_failed_alloc(call, &a, (int)r);
        return;
    }
    a.key = a.address = *p;
    if (captured)
        a.kind = VT_KIND_GRAPH;
    else
        a.owner = pool_number(pool, a.device);
    vt_record_alloc(call, &a);
    if (captured)
        vt_graph_owns(graph, *p);
}

static CUresult free_async(const struct vt_call *call, __typeof__(&cuMemFreeAsync) real, CUdeviceptr p, CUstream stream,
                           bool per_thread)
{
    void *graph;
    struct vt_freeing f;
    f.recorded = false;
    if (vt_graph_captures(stream, per_thread, &graph)) /* it becomes a node, and frees nothing now */
        vt_free_direct(call, p);
    else
        vt_free_begin(call, &f, VT_SPACE_POINTER, p,
                      VT_KINDS(VT_KIND_ASYNC) | VT_KINDS(VT_KIND_GRAPH) | VT_KINDS(VT_KIND_IMPORTED) |
                          VT_KINDS(VT_KIND_DEVICE) | VT_KINDS(VT_KIND_MANAGED),
                      false);
    CUresult r = real(p, stream);
    vt_free_end(call, &f, (int)r);
    return r;
}

VT_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t bytes, CUstream stream)
{
    VT_BEGIN(cuMemAllocAsync);
    CUresult r = real(p, bytes, stream);
    allocated(&call, r, p, bytes, NULL, stream, false);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t bytes, CUstream stream)
{
    VT_BEGIN(cuMemAllocAsync_ptsz);
    CUresult r = real(p, bytes, stream);
    allocated(&call, r, p, bytes, NULL, stream, true);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    VT_BEGIN(cuMemAllocFromPoolAsync);
    CUresult r = real(p, bytes, pool, stream);
    allocated(&call, r, p, bytes, pool, stream, false);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    VT_BEGIN(cuMemAllocFromPoolAsync_ptsz);
    CUresult r = real(p, bytes, pool, stream);
    allocated(&call, r, p, bytes, pool, stream, true);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream stream)
{
    VT_BEGIN(cuMemFreeAsync);
    CUresult r = free_async(&call, real, p, stream, false);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream stream)
{
    VT_BEGIN(cuMemFreeAsync_ptsz);
    CUresult r = free_async(&call, real, p, stream, true);
    return VT_END(r);
}

VT_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    VT_BEGIN(cuStreamDestroy_v2);
    if (call.record)
        vt_stream_gone(stream);
    CUresult r = real(stream);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    VT_BEGIN(cuMemPoolCreate);
    CUresult r = real(pool, props);
    int device = props && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : -1;
    if (!r && call.record && vt_state_lock(true)) {
        add_pool((uint64_t)(uintptr_t)*pool, device, 0);
        vt_state_unlock();
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    VT_BEGIN(cuMemPoolDestroy);
    uint16_t number = 0;
    if (call.record && vt_state_lock(false)) { /* before: the handle may come back at once */
        number = find_pool((uint64_t)(uintptr_t)pool);
        if (number)
            pool_at(number)->flags |= VT_POOL_DESTROYED;
        vt_state_unlock();
    }
    CUresult r = real(pool);
    if (r && number && vt_state_lock(false)) {
        pool_at(number)->flags &= ~VT_POOL_DESTROYED;
        vt_state_unlock();
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    VT_BEGIN(cuMemPoolTrimTo);
    CUresult r = real(pool, keep);
    if (!r && call.record && vt_state_lock(false)) {
        uint16_t number = find_pool((uint64_t)(uintptr_t)pool);
        if (number) {
            struct vt_pool *p = pool_at(number);
            p->trims++;
            vt_book_mark(VT_EVENT_POOL_TRIM, p->handle, keep);
            p->last_trim_ns = vt_now();
            if (p->after_trim_peak > keep)
                p->after_trim_peak = p->live_bytes > keep ? p->live_bytes : keep;
        }
        vt_state_unlock();
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    VT_BEGIN(cuMemPoolSetAttribute);
    CUresult r = real(pool, attribute, value);
    if (!r && call.record && value && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        struct vt_where w = vt_where_now();
        if (w.device >= 0)
            current_pool_of(w.device);
        uint16_t number = pool_number(pool, w.device);
        if (number && vt_state_lock(false)) {
            pool_at(number)->release_threshold = *(const cuuint64_t *)value;
            vt_state_unlock();
        }
    }
    return VT_END(r);
}

/* What cuMemAllocAsync uses on a device from now on. */
static void use_pool(const struct vt_call *call, CUresult r, int device, CUmemoryPool pool)
{
    if (r || !call->record || device < 0 || device >= DEVICES)
        return;
    uint16_t number = pool_number(pool, device);
    __atomic_store_n(&current_pool[device], number, __ATOMIC_RELEASE);
}

VT_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    VT_BEGIN(cuDeviceSetMemPool);
    CUresult r = real(device, pool);
    use_pool(&call, r, device, pool);
    return VT_END(r);
}

/* Since 13.0: pools by location and type. Only pinned device memory is what cuMemAllocAsync draws from. */
VT_EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    VT_BEGIN(cuMemSetMemPool);
    CUresult r = real(location, type, pool);
    if (location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED)
        use_pool(&call, r, location->id, pool);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
                                                      unsigned long long flags)
{
    VT_BEGIN(cuMemPoolImportFromShareableHandle);
    CUresult r = real(pool, handle, type, flags);
    if (!r && call.record && vt_state_lock(true)) {
        add_pool((uint64_t)(uintptr_t)*pool, -1, VT_POOL_IMPORTED);
        vt_state_unlock();
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    VT_BEGIN(cuMemPoolImportPointer);
    CUresult r = real(p, pool, data);
    if (!r && call.record) {
        struct vt_where w = vt_where_now();
        struct vt_alloc a = {
            .kind = VT_KIND_IMPORTED, .space = VT_SPACE_POINTER, .device = w.device, .key = *p, .address = *p};
        a.bytes = a.requested = vt_size_behind(*p);
        vt_record_alloc(&call, &a);
    }
    return VT_END(r);
}

void vt_pool_forget(void)
{
    for (int i = 0; i < DEVICES; i++)
        current_pool[i] = 0;
}
