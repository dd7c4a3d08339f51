/*
 * Readings of what a card holds; see usage.h. NVML is asked without a lock, between two looks at what is live, so that
 * the two belong together. A context comes before the first allocation, and so before there is a recording: what was read
 * around it waits until the recording has the device.
 */
#include "preload/usage.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/context.h"
#include "preload/handler.h"
#include "preload/nvml.h"
#include "preload/options.h"
#include "preload/process_hooks.h"
#include "preload/state.h"

#define DEVICES 16 /* of one process; later ones are not looked at */
#define OOMS_KEPT 32u
#define OOMS_AT_ONCE 8u          /* after these, one a second at most: a program may run out of memory for hours */
#define OOM_INTERVAL 1000000000u /* ns */

/* One answer of NVML with what it is to be set against. */
struct answer {
    uint64_t clock_ns; /* CLOCK_MONOTONIC */
    uint64_t live_bytes, pool_bytes;
    struct vt_nvml_usage nvml;
};

enum { NO_CONTEXT, MAKING_ONE, HAS_CONTEXT };

static struct device {
    int state;          /* NO_CONTEXT ... */
    void *handle;       /* NVML's; NULL: not known */
    bool before, after; /* is there such a reading of the first context, and the recording has it not yet? */
    uint32_t told;      /* index + 1 of the record of what the program was told */
} devices[DEVICES];
static struct answer context_answers[DEVICES][2]; /* before, after */

/* The out-of-memory readings: their number, the time and the record of the newest, and how many processes fit in that. */
static struct {
    uint32_t count, newest, room;
    uint64_t time_ns;
} ooms;
static int ended;      /* the end was read */
static int registered; /* for exit, after NVML */

/* Whose pids NVML speaks of. Told by the first context: this process comes into the list with it, or does not. */
enum { NOT_KNOWN, OURS, ANOTHER_NAMESPACE };
static int pids;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What this process holds on a device, and what its pools may keep beyond that. With the lock held. */
static void count_own(int device, uint64_t *live, uint64_t *pools)
{
    const struct vt_section_entry *sections = vt_header()->section;
    *live = *pools = 0;
    for (uint64_t i = 0; i < sections[VT_SCOPES].count; i++) {
        const struct vt_scope *s = vt_writer_at(&vt_state.writer, VT_SCOPES, i);
        if (s->level == VT_LEVEL_DRIVER && s->class_ == VT_CLASS_DEVICE && s->device == device)
            *live += s->live_bytes;
    }
    for (uint64_t i = 0; i < sections[VT_POOLS].count; i++) {
        const struct vt_pool *p = vt_writer_at(&vt_state.writer, VT_POOLS, i);
        if (p->device == device && p->release_threshold && !(p->flags & (VT_POOL_DESTROYED | VT_POOL_IMPORTED)) &&
            p->after_trim_peak > p->live_bytes)
            *pools += p->after_trim_peak - p->live_bytes;
    }
}

static void own_now(int device, uint64_t *live, uint64_t *pools)
{
    *live = *pools = 0;
    if (!vt_state_recording() || !vt_state_lock(false))
        return;
    count_own(device, live, pools);
    vt_state_unlock();
}

static bool ask(int device, void *handle, struct answer *a)
{
    uint64_t live, pools;
    own_now(device, &a->live_bytes, &a->pool_bytes);
    for (int attempt = 0; attempt < 3; attempt++) {
        a->clock_ns = clock_ns();
        if (!vt_nvml_read(handle, &a->nvml))
            return false;
        own_now(device, &live, &pools);
        bool steady = live == a->live_bytes;
        a->live_bytes = live;
        a->pool_bytes = pools;
        if (steady)
            break;
    }
    return true;
}

/* Opens NVML and finds the device in it, once. */
static void *handle_of(int device)
{
    struct device *d = &devices[device];
    uint8_t uuid[16];
    void *handle = __atomic_load_n(&d->handle, __ATOMIC_ACQUIRE);
    if (handle || !vt_options()->nvml || !vt_nvml_open())
        return handle;
    bool mig;
    if (vt_device_uuid(device, uuid, &mig))
        handle = vt_nvml_device(uuid, mig);
    __atomic_store_n(&d->handle, handle, __ATOMIC_RELEASE);
    return handle;
}

/* What stands under this process's pid; 0: it isn't there. */
static uint64_t listed_bytes(const struct vt_nvml_usage *n)
{
    for (uint32_t i = 0; n->self && i < n->count; i++)
        if (n->process[i].pid == (uint32_t)getpid())
            return n->process[i].bytes;
    return 0;
}

static void learn_namespace(const struct answer *before, const struct answer *after)
{
    if (!before->nvml.listed || !after->nvml.listed)
        return;
    bool came = after->nvml.self && (!before->nvml.self || listed_bytes(&after->nvml) > listed_bytes(&before->nvml));
    if (came || __atomic_load_n(&pids, __ATOMIC_RELAXED) != OURS)
        __atomic_store_n(&pids, came ? OURS : ANOTHER_NAMESPACE, __ATOMIC_RELAXED);
}

/* Where the context doesn't tell: what stands under its pid with far too little is another process's. */
static bool is_foreign(const struct vt_usage *u, const struct answer *a)
{
    int known = __atomic_load_n(&pids, __ATOMIC_RELAXED);
    if (!(u->flags & VT_USAGE_LISTED) || u->cause == VT_USAGE_BEFORE_CONTEXT || known != NOT_KNOWN)
        return (u->flags & VT_USAGE_LISTED) && known == ANOTHER_NAMESPACE;
    return !a->nvml.self || listed_bytes(&a->nvml) < u->live_bytes / 2;
}

static void find_own(struct vt_usage *u, const struct answer *a)
{
    u->own_bytes = VT_UNKNOWN_BYTES;
    u->flags = a->nvml.listed ? VT_USAGE_LISTED : 0;
    if (is_foreign(u, a))
        u->flags |= VT_USAGE_FOREIGN;
    else if (a->nvml.listed)
        u->own_bytes = listed_bytes(&a->nvml);
}

/* Writes the processes behind *u, as many as there is room for; the rest as a sum. */
static void put_processes(struct vt_usage *u, const struct vt_nvml_usage *n, uint32_t room)
{
    u->processes = n->count < room ? n->count : room;
    u->more_processes = n->more + (n->count - u->processes);
    u->more_bytes = n->more_bytes;
    for (uint32_t i = 0; i < n->count; i++) {
        const struct vt_nvml_process *from = &n->process[i];
        bool self = from->pid == (uint32_t)vt_header()->pid && !(u->flags & VT_USAGE_FOREIGN);
        if (i < u->processes)
            *(struct vt_process_bytes *)vt_writer_at(&vt_state.writer, VT_PROCESSES, u->first_process + i) =
                (struct vt_process_bytes){.pid = from->pid,
                                          .name = u->flags & VT_USAGE_FOREIGN ? 0 : vt_intern(from->name),
                                          .bytes = from->bytes,
                                          .flags = self ? VT_PROCESS_SELF : 0};
        else if (from->bytes != VT_UNKNOWN_BYTES)
            u->more_bytes += from->bytes;
    }
}

static struct vt_usage describe(int device, enum vt_usage_cause cause, uint32_t moment, const struct answer *a)
{
    uint64_t start = vt_state.start_mono_ns;
    struct vt_usage u = {.time_ns = a->clock_ns > start ? a->clock_ns - start : 0,
                         .device = device,
                         .moment = moment,
                         .cause = (uint8_t)cause,
                         .total_bytes = a->nvml.total,
                         .reserved_bytes = a->nvml.reserved,
                         .free_bytes = a->nvml.free,
                         .used_bytes = a->nvml.used,
                         .live_bytes = a->live_bytes,
                         .pool_bytes = a->pool_bytes};
    find_own(&u, a);
    return u;
}

static void note_words(void)
{
    if (!vt_header()->nvml)
        vt_header()->nvml = vt_intern(vt_nvml_words());
}

/* With the lock held: adds a reading; its index, or VT_NONE. */
static uint32_t add(int device, enum vt_usage_cause cause, uint32_t moment, const struct answer *a)
{
    uint64_t index;
    struct vt_usage *to = vt_writer_append(&vt_state.writer, VT_USAGES, &index), u;
    note_words();
    if (!to)
        return VT_NONE;
    u = describe(device, cause, moment, a);
    u.first_process = a->nvml.count ? vt_writer_append_many(&vt_state.writer, VT_PROCESSES, a->nvml.count) : 0;
    if (u.first_process == UINT64_MAX) {
        u.first_process = 0;
        put_processes(&u, &a->nvml, 0);
    } else {
        put_processes(&u, &a->nvml, a->nvml.count);
        vt_writer_publish_many(&vt_state.writer, VT_PROCESSES, u.processes);
    }
    *to = u;
    vt_writer_publish(&vt_state.writer, VT_USAGES);
    return (uint32_t)index;
}

/* The device's entry if its context is in `state`, else NULL. */
static struct device *device_in(int device, int state)
{
    if (device < 0 || device >= DEVICES || __atomic_load_n(&devices[device].state, __ATOMIC_ACQUIRE) != state)
        return NULL;
    return &devices[device];
}

static bool turn(struct device *d, int from, int to)
{
    return __atomic_compare_exchange_n(&d->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void vt_usage_before_context(int device)
{
    struct device *d = device_in(device, NO_CONTEXT);
    struct answer a;
    if (!d || vt_state.ending || vt_tls.busy)
        return;
    int saved = errno;
    void *handle = handle_of(device);
    if (handle && !__atomic_exchange_n(&registered, 1, __ATOMIC_RELAXED))
        vt_process_exit_first(); /* NVML has handlers of its own from now on: the end is to be read before they run */
    bool known = handle && ask(device, handle, &a);
    if (turn(d, NO_CONTEXT, MAKING_ONE) && known) { /* threads that come together: the first one's counts */
        context_answers[device][0] = a;
        __atomic_store_n(&d->before, true, __ATOMIC_RELEASE);
    }
    errno = saved;
}

/* What the context took: by the list of processes, else by what is free. 0: not known. */
static uint64_t context_bytes(const struct vt_usage *before, const struct vt_usage *after)
{
    if (before->own_bytes != VT_UNKNOWN_BYTES && after->own_bytes != VT_UNKNOWN_BYTES)
        return after->own_bytes > before->own_bytes ? after->own_bytes - before->own_bytes : 0;
    if (before->free_bytes == VT_UNKNOWN_BYTES || after->free_bytes == VT_UNKNOWN_BYTES)
        return 0;
    return before->free_bytes > after->free_bytes ? before->free_bytes - after->free_bytes : 0;
}

void vt_usage_note_device(int device)
{
    struct device *d = device_in(device, HAS_CONTEXT);
    note_words();
    if (!d || !__atomic_exchange_n(&d->after, false, __ATOMIC_ACQ_REL) ||
        !__atomic_exchange_n(&d->before, false, __ATOMIC_ACQ_REL))
        return;
    const struct answer *answers = context_answers[device];
    learn_namespace(&answers[0], &answers[1]);
    add(device, VT_USAGE_BEFORE_CONTEXT, VT_NONE, &answers[0]);
    add(device, VT_USAGE_AFTER_CONTEXT, VT_NONE, &answers[1]);
    struct vt_usage before = describe(device, VT_USAGE_BEFORE_CONTEXT, VT_NONE, &answers[0]),
                    after = describe(device, VT_USAGE_AFTER_CONTEXT, VT_NONE, &answers[1]);
    struct vt_device *record = vt_writer_at(&vt_state.writer, VT_DEVICES, (uint64_t)device);
    record->context_bytes = context_bytes(&before, &after);
}

/* If the recording has the device already: it was used by another way before. */
static void note_late(int device)
{
    if (!vt_state_recording() || !vt_state_lock(false))
        return;
    if (vt_header()->section[VT_DEVICES].count > (uint64_t)device) {
        const struct vt_device *record = vt_writer_at(&vt_state.writer, VT_DEVICES, (uint64_t)device);
        if (record->ordinal >= 0)
            vt_usage_note_device(device);
    }
    vt_state_unlock();
}

void vt_usage_after_context(int device, bool made)
{
    struct device *d = device_in(device, MAKING_ONE);
    struct answer a;
    if (!d)
        return;
    if (!made) {
        __atomic_store_n(&d->before, false, __ATOMIC_RELAXED);
        turn(d, MAKING_ONE, NO_CONTEXT);
        return;
    }
    int saved = errno;
    void *handle = __atomic_load_n(&d->handle, __ATOMIC_ACQUIRE);
    bool known = handle && ask(device, handle, &a);
    if (turn(d, MAKING_ONE, HAS_CONTEXT) && known) {
        context_answers[device][1] = a;
        __atomic_store_n(&d->after, true, __ATOMIC_RELEASE);
        note_late(device);
    }
    errno = saved;
}

/* Is it time for another one? */
static bool oom_is_due(uint64_t now)
{
    uint64_t before = __atomic_load_n(&ooms.time_ns, __ATOMIC_RELAXED);
    if (__atomic_load_n(&ooms.count, __ATOMIC_RELAXED) >= OOMS_AT_ONCE && now - before < OOM_INTERVAL)
        return false;
    return __atomic_compare_exchange_n(&ooms.time_ns, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* With the lock held: adds an out-of-memory's reading, or puts it in the place of the last one. */
static void put_oom(int device, uint32_t moment, const struct answer *a)
{
    if (ooms.count < OOMS_KEPT) {
        uint32_t index = add(device, VT_USAGE_OOM, moment, a);
        if (index != VT_NONE) {
            ooms.newest = index;
            ooms.room = a->nvml.count;
            __atomic_store_n(&ooms.count, ooms.count + 1, __ATOMIC_RELAXED);
        }
        return;
    }
    struct vt_usage *to = vt_writer_at(&vt_state.writer, VT_USAGES, ooms.newest), u;
    u = describe(device, VT_USAGE_OOM, moment, a);
    u.first_process = to->first_process;
    put_processes(&u, &a->nvml, ooms.room);
    *to = u;
}

static bool find_failure(uint32_t failure, int *device, uint32_t *moment)
{
    if (!vt_state_recording() || !vt_state_lock(false))
        return false;
    bool there = failure < vt_header()->section[VT_FAILURES].count;
    if (there) {
        const struct vt_failure *f = vt_writer_at(&vt_state.writer, VT_FAILURES, failure);
        *device = f->device;
        *moment = f->moment;
        there = vt_class_of((enum vt_kind)f->memory_kind) != VT_CLASS_HOST;
    }
    vt_state_unlock();
    return there;
}

void vt_usage_oom(uint32_t failure)
{
    struct answer a;
    uint32_t moment;
    int device, saved = errno;
    if (vt_state.ending || !vt_options()->nvml || !find_failure(failure, &device, &moment) || device < 0 ||
        device >= DEVICES || !oom_is_due(clock_ns()))
        return;
    void *handle = handle_of(device);
    if (handle && ask(device, handle, &a) && vt_state_lock(false)) {
        put_oom(device, moment, &a);
        vt_state_unlock();
    }
    errno = saved;
}

/* NVML's handle of a device whose context was seen being made. */
static void *handle_in_use(int device)
{
    const struct device *d = device_in(device, HAS_CONTEXT);
    return d ? __atomic_load_n(&d->handle, __ATOMIC_ACQUIRE) : NULL;
}

/* The way out may be entered several times, by several threads. */
static bool is_first_end(void)
{
    return !__atomic_load_n(&ended, __ATOMIC_RELAXED) && !vt_in_signal_handler() &&
           !__atomic_exchange_n(&ended, 1, __ATOMIC_RELAXED);
}

void vt_usage_at(enum vt_usage_cause cause, uint32_t moment)
{
    struct answer a;
    int saved = errno, first = 0;
    while (first < DEVICES && !handle_in_use(first))
        first++;
    if (first == DEVICES || !vt_state_recording() || (cause == VT_USAGE_END && !is_first_end()))
        return;
    for (int i = first; i < DEVICES; i++) {
        void *handle = handle_in_use(i);
        if (handle && ask(i, handle, &a) && vt_state_lock(false)) {
            add(i, cause, moment, &a);
            vt_state_unlock();
        }
    }
    errno = saved;
}

void vt_usage_program(uint64_t free_bytes, uint64_t total_bytes)
{
    int saved = errno;
    if (vt_tls.busy)
        return;
    struct vt_where w = vt_state_recording() ? vt_where_now() : (struct vt_where){-1, 0};
    if (w.device < 0 || w.device >= DEVICES || !vt_state_lock(false)) {
        errno = saved;
        return;
    }
    struct device *d = &devices[w.device];
    uint64_t index = d->told - 1u;
    struct vt_usage *u = d->told ? vt_writer_at(&vt_state.writer, VT_USAGES, index)
                                 : vt_writer_append(&vt_state.writer, VT_USAGES, &index);
    if (u) {
        *u = (struct vt_usage){.time_ns = vt_now(),
                               .device = w.device,
                               .moment = VT_NONE,
                               .cause = VT_USAGE_PROGRAM,
                               .total_bytes = total_bytes,
                               .reserved_bytes = VT_UNKNOWN_BYTES,
                               .free_bytes = free_bytes,
                               .used_bytes = total_bytes - free_bytes,
                               .own_bytes = VT_UNKNOWN_BYTES};
        count_own(w.device, &u->live_bytes, &u->pool_bytes);
        if (!d->told)
            vt_writer_publish(&vt_state.writer, VT_USAGES);
        d->told = (uint32_t)index + 1;
    }
    vt_state_unlock();
    errno = saved;
}

void vt_usage_forget(void)
{
    memset(devices, 0, sizeof devices); /* what waited there is lost with the parent's memory */
    memset(&ooms, 0, sizeof ooms);
    ended = pids = 0;
    vt_nvml_forget();
}
