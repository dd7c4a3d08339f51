/*
 * Virtual memory management. Physical memory is an object with references (handles: created, retained, imported) and
 * mappings; it ends when both are gone, in whatever order (cuMemRelease right after cuMemMap is common practice).
 * Address space costs nothing: reservations and mappings are kinds of their own and never counted as memory.
 *
 * A handle's number may come back as soon as its last reference is given up, while the old object lives on in its
 * mappings. So objects are known by a serial number, and a handle only leads to one.
 */
#define __unused __attribute__((unused)) /* which tree.h needs and glibc's headers lack */
#include <bsd/sys/tree.h>

#include "preload/arena.h"
#include "preload/context.h"
#include "preload/torch/allocator.h"
#include "preload/track.h"

struct object {
    uint64_t serial; /* key in VT_SPACE_OBJECT; 0: not on the books (multicast) */
    uint32_t references, mappings;
    int16_t device;
};

struct handle {
    UT_hash_handle hh;
    uint64_t number;
    struct object *object;
};
static struct handle *handles;
static uint64_t last_serial;

struct mapping {
    RB_ENTRY(mapping) node;
    uint64_t start, end;
    struct object *object;
};

static int compare(const struct mapping *a, const struct mapping *b)
{
    return a->start < b->start ? -1 : a->start > b->start;
}

static RB_HEAD(tree, mapping) mappings = RB_INITIALIZER(&mappings);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_STATIC(tree, mapping, node, compare)
#pragma GCC diagnostic pop

static struct handle *find_handle(uint64_t number)
{
    struct handle *h = NULL;
    HASH_FIND(hh, handles, &number, sizeof number, h);
    return h;
}

static void add_handle(uint64_t number, struct object *o)
{
    struct handle *h = vt_arena_take(sizeof *h);
    if (!h)
        return;
    h->number = number;
    h->object = o;
    HASH_ADD(hh, handles, number, sizeof h->number, h);
}

static void drop_handle(struct handle *h)
{
    HASH_DEL(handles, h);
    vt_arena_give(h, sizeof *h);
}

/* The mapping that contains an address, or NULL. */
static struct mapping *mapping_at(uint64_t address)
{
    struct mapping probe = {.start = address}, *m = RB_NFIND(tree, &mappings, &probe);
    if (m && m->start == address)
        return m;
    m = m ? RB_PREV(tree, &mappings, m) : RB_MAX(tree, &mappings);
    return m && address < m->end ? m : NULL;
}

/* Makes the object behind a new handle. */
static void new_object(uint64_t number, uint64_t serial, int16_t device)
{
    if (!vt_state_lock(true))
        return;
    struct object *o = vt_arena_take(sizeof *o);
    struct handle *stale = find_handle(number);
    if (stale)
        drop_handle(stale);
    if (o) {
        *o = (struct object){.serial = serial, .references = 1, .device = device};
        add_handle(number, o);
    }
    vt_state_unlock();
}

static uint64_t new_serial(void)
{
    return __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
}

static struct vt_alloc physical(const CUmemAllocationProp *prop, uint64_t bytes)
{
    struct vt_alloc a = {
        .kind = VT_KIND_VMM_PHYSICAL, .space = VT_SPACE_OBJECT, .device = -1, .bytes = bytes, .requested = bytes};
    if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        a.device = (int16_t)prop->location.id;
    else
        a.kind = VT_KIND_PINNED; /* host memory that CUDA locked, by another way */
    return a;
}

VT_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                               unsigned long long flags)
{
    VT_BEGIN(cuMemCreate);
    CUresult r = real(handle, bytes, prop, flags);
    if (!call.record)
        return VT_END(r);
    struct vt_alloc a = physical(prop, bytes);
    if (r) {
        vt_torch_enter(__builtin_return_address(0));
        vt_record_failed_alloc(&call, &a, (int)r);
        vt_torch_leave();
        return VT_END(r);
    }
    vt_device_note(a.device);
    a.key = new_serial();
    a.address = *handle;
    vt_record_alloc(&call, &a);
    new_object(*handle, a.key, a.device);
    return VT_END(r);
}

/* Notes in the slot whether mappings alone keep the memory. */
static void mark_released(const struct object *o, bool released)
{
    struct vt_node *n = o->serial ? vt_live_find(VT_SPACE_OBJECT, o->serial) : NULL;
    if (!n)
        return;
    struct vt_slot *s = vt_live_slot(n);
    s->flags = (uint8_t)((s->flags & ~VT_SLOT_RELEASED) | (released ? VT_SLOT_RELEASED : 0));
}

/* Gives up a reference before the driver does. *o is the object, whose serial is to be freed if *last. */
static void release_begin(uint64_t number, struct object **object, bool *last, bool *dropped)
{
    *object = NULL;
    *last = *dropped = false;
    if (!vt_state_lock(false))
        return;
    struct handle *h = find_handle(number);
    if (h) {
        struct object *o = *object = h->object;
        o->references--;
        *dropped = o->references == 0;
        if (*dropped)
            drop_handle(h);
        *last = *dropped && o->mappings == 0;
        mark_released(o, *dropped);
    }
    vt_state_unlock();
}

static void release_end(uint64_t number, struct object *o, bool last, bool dropped, bool ok)
{
    if (!o || !vt_state_lock(false))
        return;
    if (!ok) {
        o->references++;
        mark_released(o, false);
        if (dropped && !find_handle(number))
            add_handle(number, o);
    } else if (last)
        vt_arena_give(o, sizeof *o);
    vt_state_unlock();
}

VT_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle number)
{
    VT_BEGIN(cuMemRelease);
    struct object *o = NULL;
    bool last = false, dropped = false;
    struct vt_freeing f = {0};
    if (call.record && vt_state_recording())
        release_begin(number, &o, &last, &dropped);
    if (!o || (last && o->serial)) /* an unknown handle is looked at only if the driver refuses it */
        vt_free_begin(&call, &f, VT_SPACE_OBJECT, o ? o->serial : number | 1ull << 63,
                      VT_KINDS(VT_KIND_VMM_PHYSICAL) | VT_KINDS(VT_KIND_PINNED) | VT_KINDS(VT_KIND_IMPORTED), true);
    CUresult r = real(number);
    vt_free_end(&call, &f, (int)r);
    release_end(number, o, last, dropped, r == CUDA_SUCCESS);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *number, void *address)
{
    VT_BEGIN(cuMemRetainAllocationHandle);
    CUresult r = real(number, address);
    if (!r && call.record && vt_state_lock(false)) {
        struct mapping *m = mapping_at((uint64_t)(uintptr_t)address);
        if (m) {
            m->object->references++;
            if (!find_handle(*number))
                add_handle(*number, m->object);
        }
        vt_state_unlock();
    }
    return VT_END(r);
}

/* The device of a handle's memory, -1 if it is not a device's, -2 if the handle is not known. */
static int device_of(uint64_t number)
{
    if (!vt_state_lock(true))
        return -2;
    struct handle *h = find_handle(number);
    int device = h ? h->object->device : -2;
    vt_state_unlock();
    return device;
}

/* Adds a mapping; returns its object's device, or -2 if the handle is not known. */
static int map_object(uint64_t start, uint64_t bytes, uint64_t number)
{
    int device = -2;
    if (!vt_state_lock(true))
        return device;
    struct handle *h = find_handle(number);
    struct mapping *m = h ? vt_arena_take(sizeof *m) : NULL;
    if (m) {
        m->start = start;
        m->end = start + bytes;
        m->object = h->object;
        m->object->mappings++;
        device = m->object->device;
        if (RB_INSERT(tree, &mappings, m)) { /* that address is mapped, as far as we know: keep what is there */
            m->object->mappings--;
            vt_arena_give(m, sizeof *m);
        }
    }
    vt_state_unlock();
    return device;
}

VT_EXPORT CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                            unsigned long long flags)
{
    VT_BEGIN(cuMemMap);
    CUresult r = real(p, bytes, offset, handle, flags);
    if (!call.record)
        return VT_END(r);
    struct vt_alloc a = {.kind = VT_KIND_VMM_MAPPED,
                         .space = VT_SPACE_MAPPED,
                         .device = -1,
                         .key = p,
                         .address = p,
                         .bytes = bytes,
                         .requested = bytes};
    int device = r ? device_of(handle) : map_object(p, bytes, handle);
    a.device = (int16_t)(device >= 0 ? device : -1);
    if (r)
        vt_record_failed_alloc(&call, &a, (int)r);
    else
        vt_record_alloc(&call, &a);
    return VT_END(r);
}

/* Takes the first mapping that lies in [start, end); false if there is none. *serial is the object that ended with it. */
static bool unmap_one(uint64_t start, uint64_t end, uint64_t *at, uint64_t *serial)
{
    if (!vt_state_lock(false))
        return false;
    struct mapping probe = {.start = start}, *m = RB_NFIND(tree, &mappings, &probe);
    bool found = m && m->end <= end;
    *serial = 0;
    if (found) {
        struct object *o = m->object;
        *at = m->start;
        RB_REMOVE(tree, &mappings, m);
        vt_arena_give(m, sizeof *m);
        if (--o->mappings == 0 && o->references == 0) {
            *serial = o->serial;
            vt_arena_give(o, sizeof *o);
        }
    }
    vt_state_unlock();
    return found;
}

/* After success: the range is the caller's until it maps or frees it, so nobody else can have mapped there meanwhile. */
static void unmapped(const struct vt_call *call, uint64_t start, uint64_t end)
{
    uint64_t at, serial;
    struct vt_freeing f;
    while (unmap_one(start, end, &at, &serial)) {
        vt_free_begin(call, &f, VT_SPACE_MAPPED, at, VT_KINDS(VT_KIND_VMM_MAPPED), false);
        vt_free_end(call, &f, 0);
        if (!serial)
            continue;
        vt_free_begin(call, &f, VT_SPACE_OBJECT, serial,
                      VT_KINDS(VT_KIND_VMM_PHYSICAL) | VT_KINDS(VT_KIND_PINNED) | VT_KINDS(VT_KIND_IMPORTED), true);
        vt_free_end(call, &f, 0);
    }
}

VT_EXPORT CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
    VT_BEGIN(cuMemUnmap);
    CUresult r = real(p, bytes);
    struct vt_freeing f = {0};
    if (!r && call.record && vt_state_recording())
        unmapped(&call, p, p + bytes);
    else if (r) {
        vt_free_begin(&call, &f, VT_SPACE_MAPPED, p, 0, false);
        vt_free_end(&call, &f, (int)r);
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t alignment, CUdeviceptr address,
                                       unsigned long long flags)
{
    VT_BEGIN(cuMemAddressReserve);
    CUresult r = real(p, bytes, alignment, address, flags);
    struct vt_alloc a = {
        .kind = VT_KIND_VMM_RESERVED_VA, .space = VT_SPACE_RESERVED, .device = -1, .bytes = bytes, .requested = bytes};
    if (r) {
        vt_record_failed_alloc(&call, &a, (int)r);
        return VT_END(r);
    }
    a.key = a.address = *p;
    vt_record_alloc(&call, &a);
    return VT_END(r);
}

VT_EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
    VT_BEGIN(cuMemAddressFree);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_RESERVED, p, VT_KINDS(VT_KIND_VMM_RESERVED_VA), true);
    CUresult r = real(p, bytes);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}

/* The size of an imported handle shows only when it is mapped: 0 here. */
VT_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from,
                                                  CUmemAllocationHandleType type)
{
    VT_BEGIN(cuMemImportFromShareableHandle);
    CUresult r = real(handle, from, type);
    if (r || !call.record)
        return VT_END(r);
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_IMPORTED,
                         .space = VT_SPACE_OBJECT,
                         .device = w.device,
                         .key = new_serial(),
                         .address = *handle};
    vt_record_alloc(&call, &a);
    new_object(*handle, a.key, w.device);
    return VT_END(r);
}

/* A multicast object is a name for memory of several devices: it holds none itself. */
VT_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
    VT_BEGIN(cuMulticastCreate);
    CUresult r = real(handle, prop);
    if (!r && call.record)
        new_object(*handle, 0, -1);
    return VT_END(r);
}

/* Binding can run out of memory although nothing is allocated by name. */
static void bound(const struct vt_call *call, CUresult r, size_t bytes)
{
    struct vt_alloc a = {
        .kind = VT_KIND_VMM_PHYSICAL, .space = VT_SPACE_OBJECT, .device = -1, .bytes = bytes, .requested = bytes};
    if (!r || !call->record)
        return;
    a.device = vt_where_now().device;
    vt_record_failed_alloc(call, &a, (int)r);
}

VT_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                                      CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
                                      unsigned long long flags)
{
    VT_BEGIN(cuMulticastBindMem);
    CUresult r = real(multicast, multicast_offset, handle, offset, bytes, flags);
    bound(&call, r, bytes);
    return VT_END(r);
}

VT_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr p,
                                       size_t bytes, unsigned long long flags)
{
    VT_BEGIN(cuMulticastBindAddr);
    CUresult r = real(multicast, offset, p, bytes, flags);
    bound(&call, r, bytes);
    return VT_END(r);
}

void vt_vmm_forget(void)
{
    handles = NULL;
    RB_INIT(&mappings);
}
