/*
 * What PyTorch's allocator says, put into the books; see allocator.h.
 *
 * Its reports come with totals of its own. They are compared with what we booked at every single report, and what differs
 * is counted and shown: the figures of the report are either PyTorch's or known to be wrong.
 */
#include "preload/torch/allocator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "preload/failure.h"
#include "preload/hot.h"
#include "preload/report.h"
#include "preload/tensor.h"
#include "preload/torch/real.h"
#include "preload/torch/scopes.h"
#include "preload/torch/table.h"
#include "preload/track.h"

#define DEVICES 64
#define CUDA 1 /* c10::DeviceType; HIP and others report through the same functions */

/* What an allocator told: of a block, or of a request that it refuses. */
struct telling {
    uint64_t key;    /* the block: its address (in old versions the allocator's own record of it) */
    int64_t bytes;   /* handed out; negative: taken back; of a request: asked for, as rounded by the allocator */
    bool has_totals; /* not before 1.10 */
    uint64_t allocated, reserved;
    int16_t device;
    struct vt_call_place at;
};

/* The device's record, in the recording of the process of that generation + 1. With the state lock held. */
static VT_HOT_DATA struct {
    uint32_t generation;
    struct vt_allocator *at;
} records[DEVICES];

static bool direct; /* there were tensors that are the driver's allocations */

/* --- the record of a device's allocator --- */

static bool has_record(int16_t device)
{
    return __atomic_load_n(&records[device].generation, __ATOMIC_RELAXED) == vt_state.generation + 1;
}

static inline struct vt_allocator *record_at(int16_t device)
{
    return __builtin_expect(has_record(device), 1) ? records[device].at : NULL;
}

/* Behind record_of: the record, made at its first use; NULL: no room. `library` is the path of the allocator. With the lock held. */
static __attribute__((noinline)) struct vt_allocator *new_record(int16_t device, const char *library)
{
    uint64_t index;
    struct vt_allocator *a = vt_writer_append(&vt_state.writer, VT_ALLOCATORS, &index);
    if (!a) {
        records[device].at = NULL;
        return NULL;
    }
    a->name = vt_intern(library);
    a->device = device;
    a->framework = VT_FRAMEWORK_TORCH;
    vt_writer_publish(&vt_state.writer, VT_ALLOCATORS);
    records[device].at = a;
    __atomic_store_n(&records[device].generation, vt_state.generation + 1, __ATOMIC_RELAXED);
    return a;
}

static inline struct vt_allocator *record_of(int16_t device, const char *library)
{
    struct vt_allocator *a = record_at(device);
    return a ? a : new_record(device, library);
}

/* The path of the object that contains an address, for a device's first record; "" later. Without a lock; keeps errno. */
static __attribute__((noinline)) const char *library_at(const void *address, int16_t device)
{
    struct vt_object o;
    int saved = errno;
    const char *name = !has_record(device) && vt_object_at(address, &o) && o.name ? o.name : "";
    errno = saved;
    return name;
}

/* One report: our sum changes by `change`, and the allocator has so many bytes after it. */
static inline void compare(struct vt_allocator *a, const struct telling *told, int64_t change)
{
    a->reports++;
    a->sum_bytes += (uint64_t)change;
    if (!told->has_totals || a->flags)
        return;
    if (a->reports == 1)
        a->base_bytes = told->allocated - (uint64_t)told->bytes;
    a->allocated_bytes = told->allocated;
    a->reserved_bytes = told->reserved;
    if (told->reserved > a->reserved_peak_bytes)
        a->reserved_peak_bytes = told->reserved;
    uint64_t ours = a->base_bytes + a->sum_bytes;
    if (ours == told->allocated)
        return;
    uint64_t off = ours > told->allocated ? ours - told->allocated : told->allocated - ours;
    a->mismatches++;
    if (off > a->worst_bytes)
        a->worst_bytes = off;
}

/* --- blocks --- */

/* From a place that is not known yet, or where the stack has to be taken. `learn`: a native one that was not recognised. */
static __attribute__((noinline)) void block_out_from(const struct vt_site_key *key, const struct telling *told,
                                                     bool learn)
{
    uint32_t site;
    struct vt_taken_stack t;
    struct vt_alloc a = {.kind = VT_KIND_DEVICE,
                         .space = VT_SPACE_TENSOR,
                         .level = VT_LEVEL_TENSOR,
                         .device = told->device,
                         .key = told->key,
                         .address = told->key,
                         .bytes = (uint64_t)told->bytes,
                         .requested = (uint64_t)told->bytes};
    struct vt_stack_places places;
    int saved = errno;
    vt_take_tensor(&t);
    places.count = 0;
    if (learn && !t.python.count)
        vt_recall_measure(&told->at, &t.stack, &places);
    const char *library = library_at(told->at.ip, told->device);
    if (vt_lock_with_site(key, &t, &site)) {
        vt_recall_learn(&told->at, &t.stack, &places);
        uint64_t before = vt_book(&a, site);
        struct vt_allocator *r = record_of(told->device, library);
        if (r)
            compare(r, told, told->bytes - (int64_t)before);
        if (vt_tls.pending)
            vt_failure_served();
        vt_state_unlock();
    }
    errno = saved;
}

/* A block that was not seen handed out: the allocator may have had it before we saw anything, or its report was missed.
 * Its own total says which; only in the first case it was part of ours. */
static __attribute__((noinline)) void unknown_block(const struct telling *told, const char *library)
{
    struct vt_allocator *a = record_of(told->device, library);
    if (!a)
        return;
    a->unknown_frees++;
    a->unknown_bytes += (uint64_t)-told->bytes;
    bool first = !a->reports, ours = a->base_bytes + a->sum_bytes + (uint64_t)told->bytes == told->allocated;
    compare(a, told, told->has_totals && (first || ours) ? told->bytes : 0);
}

/* What is usual of a block that is handed out: its slot is filled, and the state lock held. False: nothing was done. */
static inline bool block_begins(const struct telling *told, struct vt_tensor_change *change)
{
    struct vt_tensor_stack stack = {.at = told->at};
    struct vt_site_key key = {VT_LEVEL_TENSOR, VT_KIND_DEVICE, told->device, vt_torch_label()};
    vt_tls.torch_total = 0; /* what it was told of the device's memory is old now */
    bool usual = vt_tensor_stack(&stack) && has_record(told->device) &&
                 vt_tensor_begin(&key, &stack, told->key, (uint64_t)told->bytes, change);
    if (__builtin_expect(!usual, 0))
        block_out_from(&key, told, stack.native && !stack.hash);
    return usual;
}

/* The same of one that is taken back: its entry; NULL: all was done. */
static inline struct vt_node *block_ends(const struct telling *told, struct vt_tensor_change *change)
{
    const char *library = "";
    if (__builtin_expect(!has_record(told->device), 0))
        library = library_at(told->at.ip, told->device);
    vt_watch_finalizing();
    if (__builtin_expect(!vt_state_enter(), 0) && !vt_state_lock(false))
        return NULL;
    if (__builtin_expect(!has_record(told->device), 0))
        record_of(told->device, library);
    struct vt_node *node = vt_tensor_find(told->key, change);
    if (__builtin_expect(node != NULL, 1))
        return node;
    unknown_block(told, library);
    vt_state_leave();
    return NULL;
}

/* Both lead to the same lines of code: a program that has pushed them out of the cache waits for each. */
static inline __attribute__((always_inline)) void block_changes(const struct telling *told)
{
    struct vt_tensor_change change;
    struct vt_node *node = NULL;
    bool begins = told->bytes > 0;
    if (begins ? !block_begins(told, &change) : !(node = block_ends(told, &change)))
        return;
    int64_t bytes = begins ? (int64_t)change.slot->bytes : -(int64_t)change.slot->bytes;
    vt_tensor_book(&change, begins);
    if (!begins)
        vt_live_leave(node, change.slot);
    struct vt_allocator *r = records[told->device].at;
    if (__builtin_expect(r != NULL, 1)) /* else there is no room for one */
        compare(r, told, bytes);
    if (__builtin_expect(vt_tls.pending != 0, 0) && begins)
        vt_failure_served();
    vt_state_leave();
}

static bool records_now(void)
{
    return !vt_options()->off && !vt_state.stopped;
}

/* The device of a report as c10::Device is passed: type and index, one byte each, in one register whose other bytes mean
 * nothing. -1: none of ours. */
static inline int16_t device_of(uint64_t word)
{
    int8_t index = (int8_t)(word >> 8);
    return (uint8_t)word == CUDA && index >= 0 && index < DEVICES ? index : -1;
}

static VT_HOT __attribute__((noinline)) void usage(void *block, int64_t bytes, uint64_t allocated, uint64_t reserved,
                                                   int16_t device, bool has_totals, struct vt_call_place at)
{
    struct telling told = {(uint64_t)(uintptr_t)block, bytes, has_totals, allocated, reserved, device, at};
    if (__builtin_expect(!records_now(), 0))
        return;
    vt_tensor_expect(told.key);
    if (__builtin_expect(bytes != 0, 1))
        block_changes(&told);
}

/* --- requests that are refused --- */

/* With the lock held. */
static void count_refusal(int16_t device, const char *library)
{
    uint32_t total = vt_total_index(VT_LEVEL_TENSOR, VT_KIND_DEVICE, device);
    if (total != VT_NONE)
        ((struct vt_total *)vt_writer_at(&vt_state.writer, VT_TOTALS, total))->failed_allocs++;
    struct vt_allocator *r = record_of(device, library);
    if (r)
        r->ooms++;
}

static __attribute__((noinline)) void refused(uint64_t bytes, uint64_t allocated, uint64_t reserved, int16_t device,
                                              const void *caller)
{
    struct vt_taken_stack t;
    struct vt_failing f = {.api = VT_E_torch_caching,
                           .kind = VT_KIND_DEVICE,
                           .level = VT_LEVEL_TENSOR,
                           .device = device,
                           .bytes = bytes,
                           .allocated_bytes = allocated,
                           .reserved_bytes = reserved};
    vt_phase_tls.workspace = 0;
    if (!records_now() || vt_tls.busy)
        return;
    int saved = errno;
    if (vt_tls.torch_total) { /* it asked when it gave up */
        f.free_bytes = vt_tls.torch_free;
        f.total_bytes = vt_tls.torch_total;
    }
    vt_take(&t);
    vt_locate(&t);
    const char *library = library_at(caller, device);
    if (vt_state_lock(true)) {
        count_refusal(device, library);
        vt_failure_framework(&f, &t);
        vt_state_unlock();
    }
    errno = saved;
}

void vt_torch_gave_up(int16_t device)
{
    count_refusal(device, "");
}

/* With a static runtime the driver's function is called from libc10_cuda itself. */
static bool is_by_torch(const struct vt_taken_stack *t)
{
    const struct vt_stack_objects *o = &t->objects;
    return vt_tls.torch || (t->stack.count && o->of[0] && vt_is_torch_path(o->object[o->of[0] - 1].name));
}

void vt_torch_claims(struct vt_failing *f, const struct vt_taken_stack *t)
{
    bool async = f->kind == VT_KIND_ASYNC || f->kind == VT_KIND_GRAPH, uncached = vt_torch_uncached();
    if (f->device < 0 || f->device >= DEVICES || !is_by_torch(t))
        return;
    if (async || (f->kind == VT_KIND_DEVICE && uncached)) {
        f->direct = vt_tls.torch == VT_TORCH_CALLS;
        f->api = !f->direct ? f->api : async ? VT_E_torch_async : VT_E_torch_uncached;
    } else
        f->told = !uncached && vt_torch_has_refusals();
}

void vt_torch_report(void)
{
    uint32_t failure = VT_NONE;
    if (!vt_failure_is_due() || vt_tls.busy)
        return;
    int saved = errno;
    if (vt_state_lock(false)) {
        failure = vt_failure_due();
        vt_state_unlock();
    }
    if (failure != VT_NONE)
        vt_report_oom(failure);
    errno = saved;
}

/* --- backends that cache nothing --- */

void vt_torch_told(uint64_t free_bytes, uint64_t total_bytes)
{
    vt_tls.torch_free = free_bytes;
    vt_tls.torch_total = total_bytes;
    vt_tls.torch_halvings = 0;
}

/* The backend for stream-ordered memory finds out how large a workspace could be by asking for all that is free, then for
 * half of it, until it gets it, and gives that back (cacheInfo, for cudnn.benchmark). */
void vt_torch_asks(uint64_t bytes)
{
    if (vt_tls.torch != VT_TORCH_CALLS)
        return;
    if (vt_tls.torch_total && bytes && vt_tls.torch_halvings < 64 &&
        bytes == vt_tls.torch_free >> vt_tls.torch_halvings) {
        vt_tls.torch_halvings++;
        vt_tls.torch = VT_TORCH_PROBES;
        return;
    }
    vt_tls.torch_total = 0;
}

void vt_torch_enter(const void *caller)
{
    struct vt_object o;
    int saved = errno;
    vt_tls.torch = vt_object_at(caller, &o) && vt_is_torch_path(o.name) ? VT_TORCH_CALLS : VT_TORCH_NO;
    errno = saved;
}

void vt_torch_leave(void)
{
    vt_tls.torch = VT_TORCH_NO;
}

bool vt_torch_is_direct(void)
{
    return __atomic_load_n(&direct, __ATOMIC_RELAXED);
}

void vt_torch_direct_changed(uint32_t site, int64_t bytes)
{
    const struct vt_site *s = vt_writer_at(&vt_state.writer, VT_SITES, site);
    struct vt_allocator *a = s->device >= 0 && s->device < DEVICES ? record_at(s->device) : NULL;
    if (a)
        a->sum_bytes += (uint64_t)bytes;
}

void vt_torch_direct(const struct vt_alloc *a, struct vt_taken_stack *t)
{
    uint32_t site;
    bool async = a->kind == VT_KIND_ASYNC || a->kind == VT_KIND_GRAPH;
    if (vt_tls.torch != VT_TORCH_CALLS || a->device < 0 || a->device >= DEVICES ||
        !(async || (a->kind == VT_KIND_DEVICE && vt_torch_uncached())))
        return;
    struct vt_site_key key = {VT_LEVEL_TENSOR, VT_KIND_DEVICE, a->device,
                              async ? VT_E_torch_async : VT_E_torch_uncached};
    struct vt_alloc tensor = {.kind = VT_KIND_DEVICE,
                              .space = VT_SPACE_TENSOR,
                              .level = VT_LEVEL_TENSOR,
                              .device = a->device,
                              .stream = a->stream,
                              .key = a->key,
                              .address = a->address,
                              .bytes = a->requested,
                              .requested = a->requested,
                              .flags = VT_SLOT_DIRECT};
    const char *library = has_record(a->device) ? "" : vt_torch_library();
    if (!vt_lock_with_site(&key, t, &site))
        return;
    __atomic_store_n(&direct, true, __ATOMIC_RELAXED);
    uint64_t before = vt_book(&tensor, site);
    struct vt_allocator *r = record_of(a->device, library);
    if (r) {
        r->flags |= async ? VT_ALLOCATOR_ASYNC : VT_ALLOCATOR_UNCACHED;
        r->sum_bytes += tensor.bytes - before;
    }
    vt_state_unlock();
}

/* --- what libc10_cuda is bound to; the names say which arguments they have (table.h) --- */

#define PLACE ((struct vt_call_place){__builtin_dwarf_cfa(), __builtin_return_address(0)})

#define USAGE(name, totals, parameters, arguments, allocated, reserved)     \
    VT_EXPORT void name parameters;                                         \
    VT_EXPORT VT_HOT void name parameters                                   \
    {                                                                       \
        typedef void function parameters;                                   \
        int16_t index = device_of(device);                                  \
        if (index >= 0)                                                     \
            usage(block, bytes, allocated, reserved, index, totals, PLACE); \
        function *real = (function *)vt_torch_real(VT_T_##name);            \
        if (real)                                                           \
            real arguments;                                                 \
    }

USAGE(_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE, false, (void *block, int64_t bytes, uint64_t device),
      (block, bytes, device), 0, 0)
USAGE(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE, true,
      (void *block, int64_t bytes, int64_t allocated, int64_t reserved, uint64_t device),
      (block, bytes, allocated, reserved, device), (uint64_t)allocated, (uint64_t)reserved)
USAGE(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE, true,
      (void *block, int64_t bytes, uint64_t allocated, uint64_t reserved, uint64_t device),
      (block, bytes, allocated, reserved, device), allocated, reserved)

#define REFUSAL(name, number)                                                                                      \
    VT_EXPORT void name(number bytes, number allocated, number reserved, uint64_t device);                         \
    VT_EXPORT void name(number bytes, number allocated, number reserved, uint64_t device)                          \
    {                                                                                                              \
        typedef void function(number, number, number, uint64_t);                                                   \
        int16_t index = device_of(device);                                                                         \
        if (index >= 0)                                                                                            \
            refused((uint64_t)bytes, (uint64_t)allocated, (uint64_t)reserved, index, __builtin_return_address(0)); \
        function *real = (function *)vt_torch_real(VT_T_##name);                                                   \
        if (real)                                                                                                  \
            real(bytes, allocated, reserved, device);                                                              \
    }

REFUSAL(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE, int64_t)
REFUSAL(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE, uint64_t)
REFUSAL(_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE, uint64_t)
