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

static inline void vt_tensor_event(uint8_t type, uint64_t address, uint64_t bytes, uint32_t site, uint16_t stream,
                                   uint64_t now)
{
    uint32_t thread = vt_thread_index();
    struct vt_event *e = vt_event_begin(now);
    if (!e)
        return;
    *e = (struct vt_event){.time_ns = now,
                           .address = address,
                           .bytes = bytes,
                           .site = site,
                           .thread = thread < UINT16_MAX ? (uint16_t)thread : UINT16_MAX,
                           .stream = stream,
                           .type = type,
                           .kind = VT_KIND_DEVICE};
    vt_event_end();
}

/* Has the lines fetched that booking at this address is going to need: while the stack is walked, they come. Without the lock:
 * what is read here may be old, and nothing is followed. */
static inline __attribute__((no_sanitize("thread"))) void vt_tensor_expect(uint64_t address)
{
    struct vt_node *nodes = __atomic_load_n(&vt_live.nodes, __ATOMIC_RELAXED);
    uint64_t mask = __atomic_load_n(&vt_live.mask, __ATOMIC_RELAXED);
    __builtin_prefetch(&nodes[vt_live_hash(VT_SPACE_TENSOR, address) & mask]);
    __builtin_prefetch(__atomic_load_n(&vt_state.writer.event, __ATOMIC_RELAXED), 1);
    const struct vt_header *header = vt_header();
    if (!header)
        return;
    __builtin_prefetch(&header->last_ns, 1);
    __builtin_prefetch(&header->section[VT_SITES].extent);
    __builtin_prefetch(&header->section[VT_LIVE].extent);
    __builtin_prefetch(&header->section[VT_EVENTS], 1);
    __builtin_prefetch(&header->request);
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

/* Books a tensor of kind device from this stack. True: booked, and the state lock is held. False: nothing was done, and it
 * is not. */
static inline bool vt_tensor_begin(const struct vt_site_key *key, struct vt_tensor_stack *from, uint64_t address,
                                   uint64_t bytes)
{
    uint32_t index, site = VT_NONE;
    struct vt_slot *slot;
    struct vt_node *place;
    if (__builtin_expect(!vt_state_enter(), 0))
        return false;
    bool recalled = !from->native || vt_recall(&from->at, &from->hash);
    uint64_t hash = vt_site_hash(key, from->native ? from->hash ^ vt_stack_salt() : from->hash);
    bool usual = recalled && !(place = vt_live_place(VT_SPACE_TENSOR, address))->slot && !vt_graph_may_capture() &&
                 (site = vt_site_find(hash)) != VT_NONE && (slot = vt_live_take_slot(&index)) != NULL;
    if (__builtin_expect(!usual, 0)) {
        vt_state_leave();
        return false;
    }
    uint64_t now = vt_now_held();
    slot->address = address;
    slot->bytes = slot->requested = bytes;
    slot->time_ns = now;
    slot->site = site;
    slot->stream = 0;
    slot->flags = 0;
    __atomic_store_n(&slot->kind, VT_KIND_DEVICE, __ATOMIC_RELEASE);
    vt_live_enter(place, VT_SPACE_TENSOR, address, 0, index);
    struct vt_site *s = vt_writer_at(&vt_state.writer, VT_SITES, site);
    vt_figures_begin(s, bytes, bytes, now);
    s->threads |= 1ull << (vt_thread_index() % 64);
    vt_tensor_event(VT_EVENT_ALLOC, address, bytes, site, 0, now);
    return true;
}

/* Ends the tensor of kind device at an address; *bytes is what it had. True: ended; false: there is none. With the lock held. */
static inline bool vt_tensor_end(uint64_t address, uint64_t *bytes)
{
    struct vt_node *place = vt_live_place(VT_SPACE_TENSOR, address);
    if (__builtin_expect(!place->slot, 0))
        return false;
    struct vt_slot *slot = vt_live_slot(place);
    if (__builtin_expect(slot->kind != VT_KIND_DEVICE, 0))
        return false;
    uint64_t now = vt_now_held();
    *bytes = slot->bytes;
    vt_tensor_event(VT_EVENT_FREE, slot->address, slot->bytes, slot->site,
                    slot->flags & VT_SLOT_CAPTURE ? 0 : slot->stream, now);
    vt_figures_end(vt_writer_at(&vt_state.writer, VT_SITES, slot->site), slot->bytes, slot->requested, slot->time_ns,
                   now);
    vt_live_leave(place, slot);
    return true;
}

#endif
