/*
 * The usual case of a tensor, in line: handed out by a thread that runs Python, from a place that has allocated before, at an
 * address where nothing lives; and taken back. What track.c does, for a third of its instructions and, what costs more in a
 * real program, from fewer lines of code that have to be fetched anew after the program ran.
 *
 * Anything else is not done here but said: then the caller goes the long way, which leads to the same records.
 */
#ifndef VT_PRELOAD_TENSOR_H
#define VT_PRELOAD_TENSOR_H

#include "preload/cuda/graph.h"
#include "preload/figures.h"
#include "preload/live.h"
#include "preload/options.h"
#include "preload/python/python.h"
#include "preload/recall.h"

/* Has the lines fetched that booking at this address is going to need: while the stack is walked, they come. Without the lock:
 * what is read here may be old, and nothing is followed. */
static inline __attribute__((no_sanitize("thread"))) void vt_tensor_expect(uint64_t address)
{
    struct vt_node *nodes = __atomic_load_n(&vt_live.nodes, __ATOMIC_RELAXED);
    uint64_t mask = __atomic_load_n(&vt_live.mask, __ATOMIC_RELAXED);
    uintptr_t header = (uintptr_t)vt_header();
    __builtin_prefetch(&nodes[vt_live_hash(VT_SPACE_TENSOR, address) & mask], 1);
    __builtin_prefetch((const void *)(header + offsetof(struct vt_header, last_ns)), 1);
    __builtin_prefetch((const void *)(header + offsetof(struct vt_header, section[VT_EVENTS])), 1);
    __builtin_prefetch((const void *)(header + offsetof(struct vt_header, request)));
}

/* What a tensor's stack is known by: as struct vt_taken_stack, without the frames. */
struct vt_tensor_stack {
    uint64_t hash;
    bool native; /* not Python's: to be recalled from `at` */
    struct vt_call_place at;
};

/* Without the lock, as vt_take_tensor does it. False: it has to be taken. */
static inline bool vt_tensor_stack(struct vt_tensor_stack *s)
{
    const struct vt_options *o = vt_options();
    s->hash = 0;
    s->native = false;
    if (__builtin_expect(o->both && o->native, 0))
        return false;
    enum vt_python_quick python = o->python ? vt_python_quick(o->depth, &s->hash) : VT_PYTHON_NO_FRAMES;
    s->native = python == VT_PYTHON_NO_FRAMES && o->native;
    return __builtin_expect(python != VT_PYTHON_TAKE, 1);
}

/* What changes: a tensor begins or ends. */
struct vt_tensor_change {
    struct vt_slot *slot;
    struct vt_site *site;
    uint64_t now;
};

/* A tensor of kind device from this stack: its slot is filled. True: the state lock is held, and vt_tensor_book is next.
 * False: nothing was done, and it is not. */
static inline bool vt_tensor_begin(const struct vt_site_key *key, struct vt_tensor_stack *from, uint64_t address,
                                   uint64_t bytes, struct vt_tensor_change *change)
{
    uint64_t place;
    struct vt_node *node;
    struct vt_slot *slot;
    if (__builtin_expect(!vt_state_enter(), 0))
        return false;
    bool recalled = !from->native || vt_recall(&from->at, &from->hash);
    const struct vt_recent_site *recent = vt_site_recent(
        vt_site_hash(key, from->native ? from->hash ^ vt_stack_salt() : from->hash));
    struct vt_site *site = vt_site_of(recent);
    __builtin_prefetch(site, 1);
    bool usual = recalled && recent->number && !vt_graph_may_capture() &&
                 !(node = vt_live_place(VT_SPACE_TENSOR, address))->place && (slot = vt_live_take_slot(&place)) != NULL;
    if (__builtin_expect(!usual, 0)) {
        vt_state_leave();
        return false;
    }
    uint64_t now = vt_now_held();
    slot->address = address;
    slot->bytes = slot->requested = bytes;
    slot->time_ns = now;
    slot->site = recent->number - 1;
    slot->stream = 0;
    slot->flags = 0;
    __atomic_store_n(&slot->kind, VT_KIND_DEVICE, __ATOMIC_RELEASE);
    uint16_t owner = recent->number < VT_OWNER_FRAMEWORK ? (uint16_t)recent->number : 0;
    vt_live_enter(node, VT_SPACE_TENSOR, address, owner, place);
    *change = (struct vt_tensor_change){slot, site, now};
    return true;
}

/* The entry of the tensor of kind device at an address: vt_tensor_book is next, and then vt_live_leave. NULL: there is none. With the
 * lock held. */
static inline struct vt_node *vt_tensor_find(uint64_t address, struct vt_tensor_change *change)
{
    struct vt_node *node = vt_live_place(VT_SPACE_TENSOR, address);
    if (__builtin_expect(!node->place, 0))
        return NULL;
    struct vt_slot *slot = vt_live_slot(node);
    __builtin_prefetch(slot, 1);
    uint32_t index = __builtin_expect(node->owner - 1u < VT_OWNER_FRAMEWORK - 1u, 1) ? node->owner - 1u : slot->site;
    struct vt_site *site = vt_writer_at(&vt_state.writer, VT_SITES, index);
    __builtin_prefetch(site, 1);
    __builtin_prefetch((const char *)site + 64, 1);
    if (__builtin_expect(slot->kind != VT_KIND_DEVICE, 0))
        return NULL;
    *change = (struct vt_tensor_change){slot, site, vt_now_held()};
    return node;
}

/* The figures and the event of a change. With the lock held. */
static inline void vt_tensor_book(const struct vt_tensor_change *change, bool begins)
{
    const struct vt_slot *slot = change->slot;
    struct vt_site *site = change->site;
    uint64_t now = change->now, bytes = slot->bytes, sign = begins ? 0 : -1ull; /* (x ^ sign) - sign: x or -x */
    uint32_t thread = vt_thread_index();
    struct vt_event *e = vt_event_begin(now);
    if (__builtin_expect(e != NULL, 1)) {
        *e = (struct vt_event){.time_ns = now,
                               .address = slot->address,
                               .bytes = bytes,
                               .site = slot->site,
                               .thread = thread < UINT16_MAX ? (uint16_t)thread : UINT16_MAX,
                               .stream = slot->flags & VT_SLOT_CAPTURE ? 0 : slot->stream,
                               .type = begins ? VT_EVENT_ALLOC : VT_EVENT_FREE,
                               .kind = VT_KIND_DEVICE};
        vt_event_end();
        __builtin_prefetch(e + 2, 1); /* the next but one's, in time */
    }
    const struct vt_book *book = vt_book_of(site);
    vt_figures_change(site, book, (bytes ^ sign) - sign, (slot->requested ^ sign) - sign, (1 ^ sign) - sign, now);
    if (begins)
        vt_figures_began(site, book, bytes, now);
    else
        vt_figures_ended(site, book, bytes, slot->time_ns, now);
}

#endif
