/*
 * Failures and what became of them; see failure.h. A pending failure is a record of the recording already: if the
 * process is killed now, the reader finds it and takes it for what it most likely was.
 */
#include "preload/failure.h"

#include <string.h>

#include "preload/arena.h"
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

struct failure_entry {
    UT_hash_handle hh;
    struct {
        uint64_t requested;
        uint32_t kind, api, stack, python_stack, allocated_at, freed_at;
        int32_t code;
    } key;
    uint32_t index;
};
static struct failure_entry *failures;
static uint32_t withdrawn; /* index + 1 of a record to use again */

static struct vt_failure *at(uint32_t i)
{
    return vt_writer_at(&vt_state.writer, VT_FAILURES, i);
}

static struct failure_entry *known(const struct vt_failure *f, bool add, uint32_t index)
{
    struct failure_entry probe, *e = NULL;
    memset(&probe, 0, sizeof probe);
    probe.key.requested = f->requested_bytes;
    probe.key.kind = f->kind;
    probe.key.api = f->api;
    probe.key.stack = f->stack;
    probe.key.python_stack = f->python_stack;
    probe.key.allocated_at = f->allocated_at;
    probe.key.freed_at = f->freed_at;
    probe.key.code = f->code;
    HASH_FIND(hh, failures, &probe.key, sizeof probe.key, e);
    if (e || !add || !(e = vt_arena_take(sizeof *e)))
        return e;
    e->key = probe.key;
    e->index = index;
    HASH_ADD(hh, failures, key, sizeof e->key, e);
    return e;
}

static uint32_t new_record(const struct vt_failure *content)
{
    uint64_t index = withdrawn ? withdrawn - 1 : 0;
    bool fresh = !withdrawn;
    struct vt_failure *f = fresh ? vt_writer_append(&vt_state.writer, VT_FAILURES, &index) : at((uint32_t)index);
    if (!f)
        return VT_NONE;
    withdrawn = 0;
    *f = *content;
    if (fresh)
        vt_writer_publish(&vt_state.writer, VT_FAILURES);
    return (uint32_t)index;
}

/* Adds to the record with the same key, or makes one. */
static uint32_t count_failure(const struct vt_failure *f)
{
    struct failure_entry *e = known(f, false, 0);
    if (!e) {
        uint32_t index = new_record(f);
        if (index != VT_NONE)
            known(f, true, index);
        return index;
    }
    struct vt_failure *to = at(e->index);
    to->count++;
    to->last_ns = f->last_ns;
    to->free_bytes = f->free_bytes;
    return e->index;
}

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

static bool is_oom(uint32_t kind)
{
    return kind == VT_FAILURE_OOM || kind == VT_FAILURE_FRAMEWORK_OOM;
}

/* Gives a record its kind; it is merged with earlier ones of the same key. Returns the index of what it is in then. */
static uint32_t conclude(uint32_t index, uint32_t kind)
{
    struct vt_failure *f = at(index);
    uint32_t moment = f->moment;
    f->kind = kind;
    struct failure_entry *e = known(f, false, 0);
    if (kind == VT_FAILURE_RETRY)
        vt_moment_withdraw(moment);
    if (e && e->index != index) {
        struct vt_failure *to = at(e->index);
        to->count++;
        to->last_ns = f->last_ns;
        to->free_bytes = f->free_bytes;
        to->allocated_bytes = f->allocated_bytes;
        to->reserved_bytes = f->reserved_bytes;
        if (kind != VT_FAILURE_RETRY)
            to->moment = moment;
        f->count = 0; /* withdrawn: readers pass over it */
        f->moment = VT_NONE;
        withdrawn = index + 1;
        index = e->index;
    } else if (!e)
        known(f, true, index);
    if (is_oom(kind)) {
        vt_header()->oom_count++;
        vt_moment_name_oom(moment, vt_header()->oom_count);
    } else
        at(index)->moment = VT_NONE;
    return index;
}

/* Settles a pending failure as `kind`. Returns the record's index. */
static uint32_t settle(struct pending *p, uint32_t kind)
{
    p->used = false;
    pending_count--;
    return conclude(p->failure, kind);
}

static void make_pending(const struct vt_failing *f, struct vt_taken_stack *t)
{
    struct vt_failure r = describe(f, VT_FAILURE_PENDING, t);
    unsigned i = 0;
    while (i < PENDING_MAX && pending[i].used)
        i++;
    if (i == PENDING_MAX) { /* so many threads wait for a verdict: this one gets it at once */
        r.kind = VT_FAILURE_OOM;
        count_failure(&r);
        return;
    }
    uint32_t index = new_record(&r);
    if (index == VT_NONE)
        return;
    at(index)->moment = vt_moment_take(VT_MOMENT_OOM, index);
    vt_moment_name_oom(at(index)->moment, vt_header()->oom_count + 1); /* as it will be called if we are killed now */
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
    struct vt_failure *r = at(p->failure), last = describe(f, VT_FAILURE_PENDING, t);
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
    vt_torch_gave_up(at(p->failure)->device);
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
        count_failure(&r);
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
        if (report != VT_NONE && at(report)->kind != VT_FAILURE_OOM)
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
        const struct vt_failure *driver = at(p->failure);
        index = p->failure;
        r.code = driver->code;
        r.free_bytes = driver->free_bytes;
        r.total_bytes = driver->total_bytes;
        r.first_ns = driver->first_ns;
        vt_moment_withdraw(driver->moment);
        p->used = false;
        pending_count--;
        vt_tls.pending = 0;
        *at(index) = r;
    } else if ((index = new_record(&r)) == VT_NONE)
        return;
    at(index)->moment = vt_moment_take(VT_MOMENT_OOM, index);
    put_off(conclude(index, VT_FAILURE_FRAMEWORK_OOM));
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
    count_failure(&r);
}

void vt_failure_forget(void)
{
    memset(pending, 0, sizeof pending);
    pending_count = 0;
    failures = NULL;
    withdrawn = 0;
    due = 0;
    vt_moment_forget();
}
