/*
 * TensorFlow's tensors, as its allocator for a GPU hands them out: the functions of the virtual table (table.h).
 *
 * Each forwards to the real function and books what came of it at level tensor, with the size that the allocator itself
 * accounts for it, so that the sum is TensorFlow's own (get_memory_info). A block is taken off the books before the real
 * function gives it away again. What the driver refuses while the allocator works is its to tell (failure.h): it asks for
 * less and less to extend its arena, and may wait ten seconds for another thread's memory, before it refuses the request.
 *
 * No lock of the allocator's is held here, before or after the real function; callers may hold theirs, and the thread may
 * have no CUDA context.
 */
#include <errno.h>

#include "preload/context.h"
#include "preload/failure.h"
#include "preload/ledger.h"
#include "preload/process_hooks.h"
#include "preload/report.h"
#include "preload/tensorflow/bfc.h"
#include "preload/tensorflow/caller.h"
#include "preload/tensorflow/table.h"

#define DEVICES 64

/* Of live blocks: no context has it, nor JAX's clients (jax/plugin.h). */
#define OWNER(b) (uint16_t)(VT_OWNER_FRAMEWORK | (b)->number)

/* Index of the device's record, in the recording of the process of that generation + 1. With the state lock held. */
static struct {
    uint32_t generation, index;
} records[DEVICES];

/* The record, made at its first use; NULL: no room. With the lock held. */
static struct vt_allocator *record_of(const struct vt_bfc *b, int16_t device)
{
    uint64_t index;
    if (device < 0 || device >= DEVICES)
        return NULL;
    if (records[device].generation == vt_state.generation + 1)
        return vt_writer_at(&vt_state.writer, VT_ALLOCATORS, records[device].index);
    struct vt_allocator *a = vt_writer_append(&vt_state.writer, VT_ALLOCATORS, &index);
    if (!a)
        return NULL;
    a->name = vt_intern(b->library);
    a->device = device;
    a->framework = VT_FRAMEWORK_TENSORFLOW;
    vt_writer_publish(&vt_state.writer, VT_ALLOCATORS);
    records[device].index = (uint32_t)index;
    records[device].generation = vt_state.generation + 1;
    return a;
}

static int16_t device_of(const struct vt_bfc *b)
{
    return __atomic_load_n(&b->device, __ATOMIC_RELAXED);
}

static bool records_now(const struct vt_bfc *b)
{
    return b->gpu && !vt_options()->off && !vt_state.stopped && !vt_tls.busy;
}

/* --- sums --- */

static uint64_t difference(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* The sum of what the allocator did, and what it says of that. */
static void compare(struct vt_bfc *b, int16_t device)
{
    struct vt_bfc_stats s;
    if (__atomic_load_n(&b->stats, __ATOMIC_ACQUIRE) <= 0 || !vt_bfc_ask(b, &s) || !vt_state_lock(false))
        return;
    struct vt_allocator *r = record_of(b, device);
    if (r) {
        r->reports++;
        r->allocated_bytes = s.bytes;
        if (s.sum + b->base != s.bytes) {
            r->mismatches++;
            if (difference(s.sum + b->base, s.bytes) > r->worst_bytes)
                r->worst_bytes = difference(s.sum + b->base, s.bytes);
        }
    }
    vt_state_unlock();
}

/* The proof that its answers can be read; `before` is from before the request that got `bytes`. */
static void prove(struct vt_bfc *b, const struct vt_bfc_stats *before, uint64_t bytes)
{
    struct vt_bfc_stats after;
    if (!vt_bfc_ask(b, &after) || after.turns != before->turns + 1)
        return;
    bool right = after.allocations == before->allocations + 1 && after.bytes == before->bytes + bytes;
    b->base = after.bytes - after.sum;
    __atomic_store_n(&b->stats, (int8_t)(right ? 1 : -1), __ATOMIC_RELEASE);
}

static bool is_due(uint64_t served)
{
    return served < 1024 ? !(served & (served - 1)) : !(served % 1024);
}

/* --- blocks --- */

static __attribute__((noinline)) void handed_out(struct vt_bfc *b, const void *memory, uint64_t bytes,
                                                 uint64_t requested, int16_t device)
{
    uint32_t site;
    struct vt_taken_stack t;
    struct vt_site_key key = {VT_LEVEL_TENSOR, VT_KIND_DEVICE, device, VT_E_tensorflow};
    struct vt_alloc a = {.kind = VT_KIND_DEVICE,
                         .space = VT_SPACE_TENSOR,
                         .level = VT_LEVEL_TENSOR,
                         .device = device,
                         .owner = OWNER(b),
                         .key = (uintptr_t)memory,
                         .address = (uintptr_t)memory,
                         .bytes = bytes,
                         .requested = requested};
    vt_take_tensor(&t);
    vt_tensorflow_adopt(&t);
    if (!vt_lock_with_site(&key, &t, &site))
        return;
    uint64_t before = vt_book(&a, site);
    struct vt_allocator *r = record_of(b, device);
    if (r)
        r->sum_bytes += bytes - before;
    if (vt_tls.pending)
        vt_failure_served();
    vt_state_unlock();
}

/* Returns the bytes that it had. */
static __attribute__((noinline)) uint64_t taken_back(struct vt_bfc *b, void *memory)
{
    struct vt_freeing f = {.space = VT_SPACE_TENSOR, .key = (uintptr_t)memory};
    bool known = false;
    vt_watch_finalizing();
    if (vt_state_lock(false)) {
        known = vt_take_off(&f, VT_KINDS(VT_KIND_DEVICE));
        struct vt_allocator *r = record_of(b, device_of(b));
        if (r && known)
            r->sum_bytes -= f.slot.bytes;
        vt_state_unlock();
    }
    if (known)
        return f.slot.bytes;
    return b->real.size ? b->real.size(b->self, memory) : 0; /* from before the recording: in its sum, not in a list */
}

/* --- requests that are refused --- */

/* With the lock held. */
static void count_refusal(struct vt_bfc *b, int16_t device)
{
    uint32_t total = vt_total_index(VT_LEVEL_TENSOR, VT_KIND_DEVICE, device);
    if (total != VT_NONE)
        ((struct vt_total *)vt_writer_at(&vt_state.writer, VT_TOTALS, total))->failed_allocs++;
    struct vt_allocator *r = record_of(b, device);
    if (r)
        r->ooms++;
}

static __attribute__((noinline)) void refused(struct vt_bfc *b, uint64_t bytes, int16_t device)
{
    struct vt_taken_stack t;
    struct vt_failing f = {
        .api = VT_E_tensorflow, .kind = VT_KIND_DEVICE, .level = VT_LEVEL_TENSOR, .device = device, .bytes = bytes};
    uint32_t report = VT_NONE;
    vt_take(&t);
    vt_tensorflow_adopt(&t);
    vt_locate(&t);
    if (vt_where_now().device == device) /* CUDA speaks of the current device only */
        vt_memory_info(&f.free_bytes, &f.total_bytes);
    compare(b, device);
    if (vt_state_lock(true)) {
        count_refusal(b, device);
        vt_failure_framework(&f, &t);
        report = vt_failure_due();
        vt_state_unlock();
    }
    if (report != VT_NONE)
        vt_report_oom(report);
}

/* It was asked whether it could, and would not: the caller does with less. What the driver refused meanwhile is no failure. */
static void declined(void)
{
    if (vt_tls.pending && vt_state_lock(false)) {
        vt_failure_served();
        vt_state_unlock();
    }
}

/* --- the virtual functions --- */

/* AllocationAttributes begins with bool retry_on_failure; where it is false, the caller is content with a refusal. So since
 * TensorFlow 2.2; older ones run in interpreters that this library does not read. */
static bool insists(const void *attributes)
{
    return !attributes || *(const bool *)attributes;
}

/* The allocator extends its arena under the context of its device, whatever the thread's is before and after. */
static void *ask_real(struct vt_bfc *b, uint64_t alignment, uint64_t bytes, const void *attributes)
{
    uint8_t outer = vt_tls.framework;
    vt_tls.framework = 1;
    vt_tls.framework_device = 0;
    void *memory = b->real.allocate((void *)b->self, alignment, bytes, attributes);
    vt_tls.framework = outer;
    if (vt_tls.framework_device)
        __atomic_store_n(&b->device, (int16_t)(vt_tls.framework_device - 1), __ATOMIC_RELAXED);
    return memory;
}

static void *recorded(struct vt_bfc *b, uint64_t alignment, uint64_t bytes, const void *attributes)
{
    struct vt_bfc_stats before;
    uint64_t served = __atomic_load_n(&b->served, __ATOMIC_RELAXED);
    if (!served) /* the interpreter has to be found before the first block */
        vt_process_hooks();
    bool unproved = !__atomic_load_n(&b->stats, __ATOMIC_ACQUIRE) && vt_bfc_ask(b, &before);
    vt_bfc_enter(b);
    void *memory = ask_real(b, alignment, bytes, attributes);
    int saved = errno;
    uint64_t size = !memory ? 0 : b->real.size ? b->real.size(b->self, memory) : bytes;
    int16_t device = device_of(b);
    if (memory)
        handed_out(b, memory, size, bytes, device);
    vt_bfc_leave(b, (int64_t)size);
    if (memory) {
        served = __atomic_add_fetch(&b->served, 1, __ATOMIC_RELAXED);
        if (unproved)
            prove(b, &before, size);
        if (is_due(served))
            compare(b, device);
    } else if (bytes && insists(attributes))
        refused(b, bytes, device);
    else
        declined();
    errno = saved;
    return memory;
}

static void *allocate(void *self, uint64_t alignment, uint64_t bytes, const void *attributes, enum vt_bfc_namespace n)
{
    int saved = errno;
    struct vt_bfc *b = vt_bfc_of(self, n);
    errno = saved;
    if (b)
        return records_now(b) ? recorded(b, alignment, bytes, attributes)
                              : b->real.allocate(self, alignment, bytes, attributes);
    vt_bfc_allocate_fn *real = vt_bfc_functions_of(self, n).allocate;
    return real ? real(self, alignment, bytes, attributes) : NULL;
}

static void deallocate(void *self, void *memory, enum vt_bfc_namespace n)
{
    int saved = errno;
    struct vt_bfc *b = vt_bfc_of(self, n);
    vt_bfc_deallocate_fn *real = b ? b->real.deallocate : vt_bfc_functions_of(self, n).deallocate;
    if (!b || !memory || !b->gpu || !vt_state_recording() || !records_now(b)) {
        errno = saved;
        if (real)
            real(self, memory);
        return;
    }
    vt_bfc_enter(b);
    uint64_t bytes = taken_back(b, memory);
    errno = saved;
    real(self, memory);
    vt_bfc_leave(b, -(int64_t)bytes);
}

static bool is_its(const struct vt_node *node, const struct vt_slot *slot, void *b)
{
    (void)slot;
    return node->space == VT_SPACE_TENSOR && node->owner == OWNER((struct vt_bfc *)b);
}

static void destroy(void *self, enum vt_bfc_namespace n)
{
    int saved = errno;
    struct vt_bfc *b = vt_bfc_of(self, n);
    vt_bfc_destroy_fn *real = b ? b->real.destroy : vt_bfc_functions_of(self, n).destroy;
    if (b && records_now(b) && vt_state_recording())
        vt_retire(is_its, b);
    if (b)
        vt_bfc_forget(b);
    errno = saved;
    if (real)
        real(self);
}

/* --- what TensorFlow is bound to --- */

#define HOOKS(prefix, name_space)                                                                          \
    VT_EXPORT void *prefix##11AllocateRawEmmRKNS_20AllocationAttributesE(void *self, uint64_t alignment,   \
                                                                         uint64_t bytes, const void *how); \
    VT_EXPORT void *prefix##11AllocateRawEmmRKNS_20AllocationAttributesE(void *self, uint64_t alignment,   \
                                                                         uint64_t bytes, const void *how)  \
    {                                                                                                      \
        return allocate(self, alignment, bytes, how, name_space);                                          \
    }                                                                                                      \
    VT_EXPORT void prefix##13DeallocateRawEPv(void *self, void *memory);                                   \
    VT_EXPORT void prefix##13DeallocateRawEPv(void *self, void *memory)                                    \
    {                                                                                                      \
        deallocate(self, memory, name_space);                                                              \
    }                                                                                                      \
    VT_EXPORT void prefix##D1Ev(void *self);                                                               \
    VT_EXPORT void prefix##D1Ev(void *self)                                                                \
    {                                                                                                      \
        destroy(self, name_space);                                                                         \
    }                                                                                                      \
    VT_EXPORT void prefix##D2Ev(void *self);                                                               \
    VT_EXPORT void prefix##D2Ev(void *self)                                                                \
    {                                                                                                      \
        destroy(self, name_space);                                                                         \
    }

HOOKS(_ZN3tsl12BFCAllocator, VT_BFC_TSL)
HOOKS(_ZN10tensorflow12BFCAllocator, VT_BFC_TENSORFLOW)
