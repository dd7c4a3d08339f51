/*
 * Joins stacks, sites, the live table and the books into the record of one call; see track.h.
 *
 * Order of work: unwind without a lock; lock; if the site is known (nearly always), book and unlock. A new stack needs
 * the loader to say which objects its frames lie in: that is done with the lock dropped, and the search repeated.
 */
#include "preload/track.h"

#include <errno.h>

#include "preload/codes.h"
#include "preload/context.h"
#include "preload/cuda/graph.h"
#include "preload/failure.h"
#include "preload/ledger.h"
#include "preload/moment.h"
#include "preload/process_hooks.h"
#include "preload/report.h"
#include "preload/torch/allocator.h"
#include "preload/usage.h"

_Static_assert(sizeof(struct vt_node) == 16, "the budget for a live allocation is 100 bytes");

void vt_locate(struct vt_taken_stack *t)
{
    if (!t->located)
        vt_stack_locate(&t->stack, &t->objects);
    t->located = true;
}

static uint64_t salted(const struct vt_taken_stack *t)
{
    return t->stack.hash ^ vt_stack_salt();
}

uint32_t vt_stack_id(struct vt_taken_stack *t)
{
    if (!t->stack.count)
        return 0;
    uint32_t known = vt_stack_find(salted(t));
    return known ? known : t->located ? vt_stack_intern(&t->stack, &t->objects, salted(t)) : 0;
}

uint32_t vt_python_id(struct vt_taken_stack *t)
{
    return t->python.count ? vt_codes_intern(&t->python) : t->adopted;
}

static uint32_t site_of(const struct vt_site_key *key, struct vt_taken_stack *t)
{
    uint64_t python = t->python.count ? t->python.hash : t->adopted * 0xc2b2ae3d27d4eb4full;
    uint64_t hash = vt_site_hash(key, (t->stack.count ? salted(t) : t->stack.hash) ^ python);
    uint32_t site = vt_site_find(hash);
    if (site != VT_NONE || !t->located)
        return site;
    vt_codes_note_sources();
    return vt_site_add(key, hash, vt_stack_id(t), vt_python_id(t));
}

/* A stack that was never seen: the only time that the loader is asked. */
static void locate_new(struct vt_taken_stack *t)
{
    vt_stack_check_objects();
    vt_process_watch_exit();
    vt_locate(t);
    vt_codes_prepare();
}

bool vt_lock_with_site(const struct vt_site_key *key, struct vt_taken_stack *t, uint32_t *site)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!vt_state_lock(true))
            return false;
        *site = site_of(key, t);
        if (*site != VT_NONE)
            return true;
        vt_state_unlock();
        locate_new(t);
    }
    return false;
}

/* Takes the lock with the stack in the tree. False: not recording (no lock). */
static bool lock_with_stack(struct vt_taken_stack *t, uint32_t *stack)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!vt_state_lock(false))
            return false;
        *stack = vt_stack_id(t);
        if (*stack || t->located || !t->stack.count)
            return true;
        vt_state_unlock();
        locate_new(t);
    }
    return false;
}

static VT_HOT void event(uint8_t type, const struct vt_slot *s, uint32_t free_stack, uint64_t now)
{
    uint32_t thread = vt_thread_index();
    struct vt_event *e = vt_event_begin(now);
    if (!e)
        return;
    e->time_ns = now;
    e->address = s->address;
    e->bytes = s->bytes;
    e->site = s->site;
    e->free_stack = free_stack;
    e->thread = thread < UINT16_MAX ? (uint16_t)thread : UINT16_MAX;
    e->stream = s->flags & VT_SLOT_CAPTURE ? 0 : s->stream;
    e->type = type;
    e->kind = s->kind;
    e->unused = 0;
    vt_event_end();
}

/* Stream-ordered memory counts in its pool as well. */
static void pool_change(const struct vt_slot *slot, uint16_t owner, int64_t bytes)
{
    if (slot->kind != VT_KIND_ASYNC || !owner)
        return;
    struct vt_pool *p = vt_writer_at(&vt_state.writer, VT_POOLS, owner - 1u);
    p->live_bytes += (uint64_t)bytes;
    if (p->live_bytes > p->peak_bytes)
        p->peak_bytes = p->live_bytes;
    if (p->live_bytes > p->after_trim_peak)
        p->after_trim_peak = p->live_bytes;
}

void vt_retire_node(struct vt_node *n, uint64_t now)
{
    struct vt_slot s = *vt_live_slot(n);
    vt_book_free(s.site, s.bytes, s.requested, s.time_ns, now, VT_LEFT_BY_TEARDOWN);
    pool_change(&s, n->owner, -(int64_t)s.bytes);
    struct vt_grave grave = {.address = n->address, .space = (uint8_t)n->space, .site = s.site, .retired = true};
    vt_grave_dig(&grave);
    event(VT_EVENT_RETIRE, &s, 0, now);
}

static void mark_origin(uint32_t site, const struct vt_alloc *a)
{
    struct vt_site *s = vt_writer_at(&vt_state.writer, VT_SITES, site);
    s->threads |= 1ull << (vt_thread_index() % 64);
    if (a->stream)
        s->streams |= 1ull << ((a->stream - 1u) % 64);
}

uint64_t vt_book(const struct vt_alloc *a, uint32_t site)
{
    uint64_t now = vt_now_held(), before = 0;
    struct vt_node *old = vt_live_find(a->space, a->key);
    if (old) { /* the address was given out again: its end was not seen */
        before = vt_live_slot(old)->bytes;
        vt_retire_node(old, now);
        vt_live_remove(old);
    }
    struct vt_slot slot = {.address = a->address,
                           .bytes = a->bytes,
                           .requested = a->requested,
                           .time_ns = now,
                           .site = site,
                           .stream = a->stream,
                           .kind = (uint8_t)a->kind,
                           .flags = a->flags};
    if (!slot.stream && (slot.stream = vt_graph_capture()))
        slot.flags |= VT_SLOT_CAPTURE;
    if (!vt_live_add(a->space, a->key, &slot, a->owner))
        return before;
    vt_book_alloc(site, a->bytes, a->requested, now);
    pool_change(&slot, a->owner, (int64_t)a->bytes);
    mark_origin(site, a);
    event(VT_EVENT_ALLOC, &slot, 0, now);
    return before;
}

void vt_record_alloc_at(const struct vt_call *call, const struct vt_alloc *a, struct vt_taken_stack *t)
{
    int saved = errno;
    uint32_t site, report = VT_NONE;
    struct vt_site_key key = {a->level, (uint8_t)a->kind, a->device, call->label};
    if (vt_lock_with_site(&key, t, &site)) {
        vt_book(a, site);
        if (vt_tls.pending)
            report = vt_failure_resolve_by_success(a->bytes, &t->stack);
        if (report == VT_NONE)
            report = vt_failure_expire(vt_header()->last_ns);
        vt_state_unlock();
    }
    vt_tls.driver_events++;
    if (vt_tls.framework)
        vt_tls.framework_device = (uint8_t)(a->device + 1);
    if (vt_tls.torch)
        vt_torch_direct(a, t);
    if (report != VT_NONE)
        vt_report_oom(report);
    errno = saved;
}

void vt_record_failed_alloc(const struct vt_call *call, const struct vt_alloc *a, int code)
{
    if (!call->record || vt_tls.busy || vt_tls.torch == VT_TORCH_PROBES)
        return;
    int saved = errno;
    struct vt_taken_stack t;
    struct vt_failing f = {.code = code,
                           .api = call->label,
                           .kind = (uint8_t)a->kind,
                           .level = a->level,
                           .device = a->device,
                           .bytes = a->bytes};
    vt_take(&t);
    vt_tensorflow_adopt_cuda(&t);
    vt_locate(&t);
    f.told = vt_tls.framework;
    vt_torch_claims(&f, &t);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        vt_memory_info(&f.free_bytes, &f.total_bytes);
    uint32_t report = VT_NONE;
    if (vt_state_lock(true)) {
        uint32_t total = vt_total_index(a->level, (uint8_t)a->kind, a->device);
        if (total != VT_NONE)
            ((struct vt_total *)vt_writer_at(&vt_state.writer, VT_TOTALS, total))->failed_allocs++;
        struct vt_slot shown = {.bytes = a->bytes, .site = VT_NONE, .kind = (uint8_t)a->kind};
        event(VT_EVENT_FAILED_ALLOC, &shown, 0, vt_now_held());
        report = vt_failure_alloc(&f, &t);
        vt_state_unlock();
    }
    vt_tls.driver_events++;
    if (report != VT_NONE)
        vt_report_oom(report);
    errno = saved;
}

/* A tensor that is the driver's allocation itself ends with it. With the lock held. */
static void end_direct(uint64_t key, struct vt_slot *tensor, enum vt_leaving how, uint64_t now)
{
    struct vt_node *n = vt_live_find(VT_SPACE_TENSOR, key);
    if (!n || !(vt_live_slot(n)->flags & VT_SLOT_DIRECT))
        return;
    *tensor = *vt_live_slot(n);
    vt_live_remove(n);
    vt_book_free(tensor->site, tensor->bytes, tensor->requested, tensor->time_ns, now, how);
    event(how == VT_LEFT_BY_FREE ? VT_EVENT_FREE : VT_EVENT_RETIRE, tensor, 0, now);
    vt_torch_direct_changed(tensor->site, -(int64_t)tensor->bytes);
}

void vt_free_direct(const struct vt_call *call, uint64_t key)
{
    struct vt_slot tensor;
    if (!call->record || !vt_torch_is_direct() || !vt_state_lock(false))
        return;
    end_direct(key, &tensor, VT_LEFT_BY_FREE, vt_now_held());
    vt_state_unlock();
}

bool vt_take_off(struct vt_freeing *f, unsigned kinds)
{
    struct vt_node *n = vt_live_find(f->space, f->key);
    struct vt_slot *s = n ? vt_live_slot(n) : NULL;
    if (!n || !(VT_KINDS(s->kind) & kinds))
        return false;
    uint64_t now = vt_now_held();
    f->slot = *s;
    f->freed_ns = now;
    f->owner = n->owner;
    vt_live_remove(n);
    vt_book_free(f->slot.site, f->slot.bytes, f->slot.requested, f->slot.time_ns, now, VT_LEFT_BY_FREE);
    pool_change(&f->slot, f->owner, -(int64_t)f->slot.bytes);
    event(VT_EVENT_FREE, &f->slot, f->free_stack, now);
    if (f->space == VT_SPACE_TENSOR) /* nobody frees a tensor twice and asks who did it first */
        return true;
    struct vt_grave grave = {.address = f->key,
                             .space = (uint8_t)f->space,
                             .site = f->slot.site,
                             .free_stack = f->free_stack,
                             .free_python = f->free_python};
    vt_grave_dig(&grave);
    if (f->space == VT_SPACE_POINTER && vt_torch_is_direct())
        end_direct(f->key, &f->tensor, VT_LEFT_BY_FREE, now);
    return true;
}

/* The interpreter is shutting down: module globals are dropped, and what they held is freed. What the user's code held
 * when it ended is kept as a moment of its own, once. */
void vt_finalizing(void)
{
    static uint32_t taken; /* generation + 1 of the process that took it */
    if (taken == vt_state.generation + 1 || !vt_state_lock(false))
        return;
    taken = vt_state.generation + 1;
    uint32_t moment = vt_moment_take(VT_MOMENT_FINALIZE, VT_NONE);
    if (moment != VT_NONE)
        vt_moment_name(moment, "finalize");
    vt_state_unlock();
    vt_usage_at(VT_USAGE_FINALIZE, moment);
}

void vt_free_begin(const struct vt_call *call, struct vt_freeing *f, enum vt_space space, uint64_t key, unsigned kinds,
                   bool stack)
{
    f->space = space; /* not a memset: it would cost more than the rest */
    f->key = key;
    f->removed = false;
    f->owner = 0;
    f->free_stack = f->free_python = 0;
    f->freed_ns = 0;
    f->tensor.kind = VT_KIND_NONE;
    f->recorded = call->record && key && !vt_tls.busy;
    if (!f->recorded || !vt_state_recording())
        return;
    uint32_t report = VT_NONE;
    int saved = errno;
    struct vt_taken_stack t;
    t.located = false;
    t.adopted = 0;
    t.stack.count = t.python.count = 0;
    if (stack)
        vt_take(&t);
    vt_watch_finalizing();
    if (lock_with_stack(&t, &f->free_stack)) {
        f->free_python = vt_python_id(&t);
        f->removed = vt_take_off(f, kinds);
        report = vt_failure_expire(vt_header()->last_ns);
        vt_state_unlock();
    }
    if (report != VT_NONE)
        vt_report_oom(report);
    errno = saved;
}

/* The driver kept it: back on the books, unless somebody else was given the address in the meantime. */
static void put_back(struct vt_freeing *f)
{
    if (vt_live_find(f->space, f->key) || !vt_live_add(f->space, f->key, &f->slot, f->owner))
        return;
    uint64_t now = vt_now_held();
    vt_book_undo_free(f->slot.site, f->slot.bytes, f->slot.requested, f->slot.time_ns, f->freed_ns, now);
    pool_change(&f->slot, f->owner, (int64_t)f->slot.bytes);
    event(VT_EVENT_FAILED_FREE, &f->slot, f->free_stack, now);
    const struct vt_slot *tensor = &f->tensor;
    if (tensor->kind == VT_KIND_NONE || vt_live_find(VT_SPACE_TENSOR, f->key) ||
        !vt_live_add(VT_SPACE_TENSOR, f->key, tensor, 0))
        return;
    vt_book_undo_free(tensor->site, tensor->bytes, tensor->requested, tensor->time_ns, f->freed_ns, now);
    event(VT_EVENT_FAILED_FREE, tensor, 0, now);
    vt_torch_direct_changed(tensor->site, (int64_t)tensor->bytes);
}

void vt_free_end(const struct vt_call *call, struct vt_freeing *f, int code)
{
    if (!f->recorded)
        return;
    vt_tls.driver_events++;
    vt_tls.frees += code == 0;
    if (code == 0 || (code == CUDA_ERROR_DEINITIALIZED && vt_state.ending))
        return;
    int saved = errno;
    struct vt_taken_stack t;
    struct vt_failing failing = {.code = code, .api = call->label, .pointer = f->key, .space = f->space};
    vt_take(&t);
    vt_locate(&t);
    if (vt_state_lock(true)) {
        if (f->removed)
            put_back(f);
        vt_failure_free(&failing, f->removed ? &f->slot : NULL, &t);
        vt_state_unlock();
    }
    errno = saved;
}

struct sweep {
    vt_leaves_fn *leaves;
    void *argument;
    uint64_t now;
};

static bool sweep_one(struct vt_node *n, void *argument)
{
    struct sweep *s = argument;
    if (!s->leaves(n, vt_live_slot(n), s->argument))
        return false;
    vt_retire_node(n, s->now);
    return true;
}

/* What a teardown took from under a framework. */
static bool sweep_direct(struct vt_node *n, void *argument)
{
    struct vt_slot s = *vt_live_slot(n);
    if (n->space != VT_SPACE_TENSOR || !(s.flags & VT_SLOT_DIRECT) || vt_live_find(VT_SPACE_POINTER, n->address))
        return false;
    vt_torch_direct_changed(s.site, -(int64_t)s.bytes);
    vt_retire_node(n, ((const struct sweep *)argument)->now);
    return true;
}

void vt_retire(vt_leaves_fn *leaves, void *argument)
{
    int saved = errno;
    if (vt_state_recording() && !vt_state.ending && vt_state_lock(false)) {
        struct sweep s = {leaves, argument, vt_now_held()};
        vt_live_sweep(sweep_one, &s);
        if (vt_torch_is_direct())
            vt_live_sweep(sweep_direct, &s);
        vt_state_unlock();
    }
    errno = saved;
}

void vt_track_forget(void)
{
    vt_live_forget();
    vt_ledger_forget();
}
