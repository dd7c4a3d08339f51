/*
 * Failures and what became of them; see failure.h. A pending failure is a record of the recording already: if the
 * process is killed now, the reader finds it and takes it for what it most likely was. (The records: failure_record.c.)
 */
#include "preload/failure.h"

#include <string.h>

#include "preload/failure_record.h"
#include "preload/ledger.h"
#include "preload/moment.h"
#include "preload/torch/allocator.h"

#define PENDING_MAX 256

/* What each pending failure needs until it is resolved. */
static struct pending {
    uint32_t failure; /* index */
    bool used;
    bool told, direct; /* as in struct vt_failing */
    uint64_t bytes;
    uint32_t frees;  /* the thread's count then */
    uint32_t thread; /* index */
    uint64_t since_ns;
    struct vt_stack stack;
} pending[PENDING_MAX];
static unsigned pending_count;
#define PATIENCE_NS 2000000000ull /* allocators retry within milliseconds */

static uint32_t due; /* index + 1 of an out-of-memory whose report waits for a place */
static uint64_t due_ns;

/* Live bytes of a device at a level, for the figures beside a failure. */
static uint64_t live_bytes(uint8_t level, int16_t device)
{
    uint64_t sum = 0, count = vt_header()->section[VT_SCOPES].count;
    for (uint64_t i = 0; i < count; i++) {
        struct vt_scope *s = vt_writer_at(&vt_state.writer, VT_SCOPES, i);
        if (s->level == level && s->device == device && s->class_ == VT_CLASS_DEVICE)
            sum += s->live_bytes;
    }
    return sum;
}

static struct vt_failure describe(const struct vt_failing *f, uint32_t kind, struct vt_taken_stack *t)
{
    uint64_t now = vt_now();
    struct vt_failure r = {.kind = kind,
                           .api = vt_intern(vt_entry_name(f->api)),
                           .code = f->code,
                           .device = f->device,
                           .memory_kind = f->kind,
                           .driver_visible = 1,
                           .count = 1,
                           .requested_bytes = f->bytes,
                           .free_bytes = f->free_bytes,
                           .total_bytes = f->total_bytes,
                           .allocated_bytes = live_bytes(VT_LEVEL_TENSOR, f->device),
                           .reserved_bytes = live_bytes(VT_LEVEL_DRIVER, f->device),
                           .pointer = f->pointer,
                           .stack = vt_stack_id(t),
                           .python_stack = vt_python_id(t),
                           .first_ns = now,
                           .last_ns = now,
                           .moment = VT_NONE,
                           .thread = vt_thread_index()};
    return r;
}

/* Equal but for one frame at most, as two calls in one function are. */
static bool nearly_same(const struct vt_stack *a, const struct vt_stack *b)
{
    unsigned different = 0;
    if (a->count != b->count || !a->count)
        return a->count == b->count;
    for (unsigned i = 0; i < a->count; i++)
        different += a->ip[i] != b->ip[i];
    return different <= 1;
}

static struct pending *pending_of_thread(void)
{
    struct pending *p = vt_tls.pending ? &pending[vt_tls.pending - 1] : NULL;
    return p && p->used && p->thread == vt_thread_index() ? p
                                                          : NULL; /* it may have been settled, and its place taken */
}

/* Settles a pending failure as `kind`. Returns the record's index. */
static uint32_t settle(struct pending *p, uint32_t kind)
{
    p->used = false;
    pending_count--;
    return vt_failure_record_conclude(p->failure, kind);
}

static void make_pending(const struct vt_failing *f, struct vt_taken_stack *t)
{
    struct vt_failure r = describe(f, VT_FAILURE_PENDING, t);
    unsigned i = 0;
    while (i < PENDING_MAX && pending[i].used)
        i++;
    if (i == PENDING_MAX) { /* so many threads wait for a verdict: this one gets it at once */
        r.kind = VT_FAILURE_OOM;
        vt_failure_record_count(&r);
        return;
    }
    uint32_t index = vt_failure_record_add(&r);
    if (index == VT_NONE)
        return;
    vt_failure_record(index)->moment = vt_moment_take(VT_MOMENT_OOM, index);
    vt_moment_name_oom(vt_failure_record(index)->moment,
                       vt_header()->oom_count + 1); /* as it will be called if we are killed now */
    pending[i] = (struct pending){.failure = index,
                                  .used = true,
                                  .told = f->told,
                                  .direct = f->direct,
                                  .bytes = f->bytes,
                                  .frees = vt_tls.frees,
                                  .thread = vt_thread_index(),
                                  .since_ns = r.first_ns};
    pending_count++;
    pending[i].stack.count = t->stack.count;
    memcpy(pending[i].stack.ip, t->stack.ip, t->stack.count * sizeof t->stack.ip[0]);
    vt_tls.pending = i + 1;
}

/* The next rung of a ladder: the figures of the last refusal count, and so does what was held then. */
static void climb(struct pending *p, const struct vt_failing *f, struct vt_taken_stack *t)
{
    struct vt_failure *r = vt_failure_record(p->failure), last = describe(f, VT_FAILURE_PENDING, t);
    last.first_ns = r->first_ns;
    vt_moment_withdraw(r->moment);
    *r = last;
    r->moment = vt_moment_take(VT_MOMENT_OOM, p->failure);
    vt_moment_name_oom(r->moment, vt_header()->oom_count + 1);
    p->frees = vt_tls.frees;
    p->since_ns = last.last_ns;
    memcpy(p->stack.ip, t->stack.ip, t->stack.count * sizeof t->stack.ip[0]);
}

/* The report of an out-of-memory is to be written later. */
static void put_off(uint32_t failure)
{
    __atomic_store_n(&due, failure + 1, __ATOMIC_RELAXED);
    due_ns = vt_now();
}

static bool identical(const struct vt_stack *a, const struct vt_stack *b)
{
    return a->count == b->count && !memcmp(a->ip, b->ip, a->count * sizeof a->ip[0]);
}

/* Does an allocator try again what was refused to it? */
static bool is_next_attempt(const struct pending *p, uint64_t bytes, const struct vt_stack *stack)
{
    return bytes == p->bytes && nearly_same(&p->stack, stack) && (!stack->count || !identical(&p->stack, stack));
}

/* An allocator without a cache was refused for good. */
static void give_up(struct pending *p)
{
    vt_torch_gave_up(vt_failure_record(p->failure)->device);
    put_off(settle(p, VT_FAILURE_FRAMEWORK_OOM));
}

static bool is_same_request(const struct pending *p, const struct vt_failing *f, const struct vt_stack *stack)
{
    if (p->direct)
        return f->direct && is_next_attempt(p, f->bytes, stack);
    if (p->told && f->told)
        return true;
    return f->bytes == p->bytes && nearly_same(&p->stack, stack) &&
           (p->frees != vt_tls.frees || !identical(&p->stack, stack));
}

uint32_t vt_failure_alloc(const struct vt_failing *f, struct vt_taken_stack *t)
{
    if (f->code != CUDA_ERROR_OUT_OF_MEMORY) {
        struct vt_failure r = describe(f, VT_FAILURE_FAILED_ALLOC, t);
        vt_failure_record_count(&r);
        return VT_NONE;
    }
    struct pending *p = pending_of_thread();
    uint32_t report = VT_NONE;
    vt_tls.pending = 0;
    if (p) {
        if (is_same_request(p, f, &t->stack)) {
            climb(p, f, t);
            vt_tls.pending = (uint32_t)(p - pending) + 1;
            return VT_NONE;
        }
        bool same_place = nearly_same(&p->stack, &t->stack);
        if (p->direct)
            give_up(p);
        else
            report = settle(p, same_place && f->bytes < p->bytes ? VT_FAILURE_RETRY : VT_FAILURE_OOM);
        if (report != VT_NONE && vt_failure_record(report)->kind != VT_FAILURE_OOM)
            report = VT_NONE;
    }
    make_pending(f, t);
    return report;
}

uint32_t vt_failure_resolve_by_success(uint64_t bytes, const struct vt_stack *stack)
{
    struct pending *p = pending_of_thread();
    if (p && (p->told || (p->direct && vt_tls.torch != VT_TORCH_CALLS)))
        return VT_NONE;
    vt_tls.pending = 0;
    if (p && p->direct && !is_next_attempt(p, bytes, stack)) {
        give_up(p);
        return VT_NONE;
    }
    if (!p)
        return VT_NONE;
    bool recovered = bytes >= p->bytes || nearly_same(&p->stack, stack);
    uint32_t index = settle(p, recovered ? VT_FAILURE_RETRY : VT_FAILURE_OOM);
    return recovered ? VT_NONE : index;
}

void vt_failure_served(void)
{
    struct pending *p = pending_of_thread();
    if (!p || !p->told)
        return;
    vt_tls.pending = 0;
    settle(p, VT_FAILURE_RETRY);
}

void vt_failure_framework(const struct vt_failing *f, struct vt_taken_stack *t)
{
    struct vt_failure r = describe(f, VT_FAILURE_FRAMEWORK_OOM, t);
    struct pending *p = pending_of_thread();
    bool joins = p && !p->direct && (p->told || !p->stack.count); /* without a stack it can't be told whose it was */
    r.driver_visible = joins;
    if (f->allocated_bytes || f->reserved_bytes) {
        r.allocated_bytes = f->allocated_bytes;
        r.reserved_bytes = f->reserved_bytes;
    }
    uint32_t index;
    if (joins) { /* the driver's refusal becomes a part of this one */
        const struct vt_failure *driver = vt_failure_record(p->failure);
        index = p->failure;
        r.code = driver->code;
        r.free_bytes = driver->free_bytes;
        r.total_bytes = driver->total_bytes;
        r.first_ns = driver->first_ns;
        vt_moment_withdraw(driver->moment);
        p->used = false;
        pending_count--;
        vt_tls.pending = 0;
        *vt_failure_record(index) = r;
    } else if ((index = vt_failure_record_add(&r)) == VT_NONE)
        return;
    vt_failure_record(index)->moment = vt_moment_take(VT_MOMENT_OOM, index);
    put_off(vt_failure_record_conclude(index, VT_FAILURE_FRAMEWORK_OOM));
}

static uint32_t take_due(void)
{
    uint32_t index = due - 1;
    __atomic_store_n(&due, 0, __ATOMIC_RELAXED);
    return index;
}

uint32_t vt_failure_due(void)
{
    return due ? take_due() : VT_NONE;
}

bool vt_failure_is_due(void)
{
    return __atomic_load_n(&due, __ATOMIC_RELAXED);
}

/* Nothing has told what became of it. Returns the index of the failure that it is. */
static uint32_t expire(struct pending *p)
{
    if (!p->direct)
        return settle(p, VT_FAILURE_OOM);
    give_up(p);
    return take_due();
}

uint32_t vt_failure_expire(uint64_t now)
{
    if (due && now - due_ns > PATIENCE_NS)
        return take_due();
    for (unsigned i = 0; pending_count && i < PENDING_MAX; i++)
        if (pending[i].used && !pending[i].told && now - pending[i].since_ns > PATIENCE_NS)
            return expire(&pending[i]);
    return VT_NONE;
}

uint32_t vt_failure_resolve_all(void)
{
    uint32_t newest = VT_NONE;
    for (unsigned i = 0; i < PENDING_MAX; i++)
        if (pending[i].used)
            newest = expire(&pending[i]);
    uint32_t waiting = vt_failure_due();
    return newest != VT_NONE ? newest : waiting;
}

/* Names a failed free by what is known of the pointer. */
static void classify(struct vt_failure *r, const struct vt_failing *f, const struct vt_slot *slot)
{
    const struct vt_grave *g = vt_grave_find(f->space, f->pointer);
    struct vt_node *n = NULL;
    if (slot)
        r->kind = VT_FAILURE_FAILED_FREE; /* a live allocation, and the driver would not take it */
    else if ((n = vt_live_find(f->space,
                               f->pointer))) /* only cuMemUnmap takes mappings: refused, as for a part of one */
        r->kind = f->space == VT_SPACE_MAPPED ? VT_FAILURE_FAILED_FREE : VT_FAILURE_WRONG_API;
    else if (g) {
        r->kind = g->retired ? VT_FAILURE_FAILED_FREE : VT_FAILURE_DOUBLE_FREE;
        r->freed_at = g->free_stack;
        r->freed_python = g->free_python;
    } else if (f->space == VT_SPACE_POINTER && (n = vt_live_containing(f->pointer))) {
        r->kind = VT_FAILURE_INTERIOR_POINTER;
        r->pointer_offset = f->pointer - n->address;
    }
    uint32_t site = slot ? slot->site : n ? vt_live_slot(n)->site : g ? g->site : VT_NONE;
    if (site == VT_NONE)
        return;
    const struct vt_site *s = vt_writer_at(&vt_state.writer, VT_SITES, site);
    r->allocated_at = s->stack;
    r->allocated_python = s->python_stack;
    r->memory_kind = s->kind;
    r->device = s->device;
    struct vt_total *t = vt_writer_at(&vt_state.writer, VT_TOTALS, s->total);
    t->failed_frees++;
}

void vt_failure_free(const struct vt_failing *f, const struct vt_slot *slot, struct vt_taken_stack *t)
{
    struct vt_failure r = describe(f, VT_FAILURE_UNKNOWN_POINTER, t);
    r.device = -1;
    r.allocated_bytes = r.reserved_bytes = 0;
    classify(&r, f, slot);
    vt_failure_record_count(&r);
}

void vt_failure_forget(void)
{
    memset(pending, 0, sizeof pending);
    pending_count = 0;
    due = 0;
    vt_failure_record_forget();
    vt_moment_forget();
}
