/*
 * The books: totals, peaks, timelines, sites and events of the recording. Everything here runs with the state lock
 * held, is O(1) per event and makes no system call unless the recording grows.
 */
#ifndef VT_PRELOAD_LEDGER_H
#define VT_PRELOAD_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/phase.h"
#include "preload/state.h"

/* What makes a site, apart from the stack, and from the phase and the range that the calling thread is in (phase.h). */
struct vt_site_key {
    uint8_t level, kind;
    int16_t device;
    uint16_t api; /* enum vt_entry_id */
};

/* What a site is found by: its key, the calling thread's phase and range, and the hash of the stack. */
static inline uint64_t vt_site_hash(const struct vt_site_key *k, uint64_t stack_hash)
{
    uint64_t what = (uint64_t)k->level << 56 | (uint64_t)k->kind << 48 | (uint64_t)(uint16_t)k->device << 32 | k->api;
    uint64_t around = (uint64_t)vt_phase_now() << 16 | vt_phase_tls.range;
    return stack_hash ^ (what + 1) * 0x9e3779b97f4a7c15ull ^ around * 0xd1342543de82ef95ull;
}

/*
 * Sites found lately, by the upper bits of their keys: a walk through the table costs three cache lines more. The key is the
 * hash and the thread: what is found here is known to be among the site's threads already, whose word lies on another line
 * of the cache than all that an allocation changes.
 */
#define VT_RECENT_BITS 12
struct vt_recent_site {
    uint64_t key;
    uint32_t number; /* index + 1; 0: nothing here */
    uint32_t line;   /* where in the recording, in 64 bytes */
};
extern struct vt_recent_site vt_recent_sites[1u << VT_RECENT_BITS];
extern const struct vt_recent_site vt_no_site; /* number 0 */

/* Behind vt_site_recent. */
const struct vt_recent_site *vt_site_look_up(uint64_t hash, uint64_t key);

static inline const struct vt_recent_site *vt_site_recent(uint64_t hash)
{
    uint64_t key = hash ^ (vt_thread_index() + 1ull) * 0xaef17502108ef2d9ull;
    const struct vt_recent_site *r = &vt_recent_sites[key >> (64 - VT_RECENT_BITS)];
    return __builtin_expect(r->key == key && r->number, 1) ? r : vt_site_look_up(hash, key);
}

static inline struct vt_site *vt_site_of(const struct vt_recent_site *r)
{
    return (struct vt_site *)(void *)(vt_state.writer.base + r->line * 64ull);
}

/* The index of the site with this vt_site_hash, or VT_NONE if it is not there yet (then vt_site_add with interned stacks). The
 * calling thread is one of its threads from now on. */
static inline uint32_t vt_site_find(uint64_t hash)
{
    return vt_site_recent(hash)->number - 1;
}

uint32_t vt_site_add(const struct vt_site_key *key, uint64_t hash, uint32_t stack, uint32_t python_stack);

/* The index of the totals of a (level, kind, device), made at its first use. VT_NONE: no room. */
uint32_t vt_total_index(uint8_t level, uint8_t kind, int16_t device);

/* One allocation comes to life at a site. */
void vt_book_alloc(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t now);

enum vt_leaving { VT_LEFT_BY_FREE, VT_LEFT_BY_TEARDOWN };

/* One allocation of a site ends; `born` is its slot's time. */
void vt_book_free(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t born, uint64_t now, enum vt_leaving how);

/* Takes a vt_book_free at the time `freed` back: the driver refused the free. */
void vt_book_undo_free(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t born, uint64_t freed, uint64_t now);

/* Appends to the event ring. */
void vt_book_event(const struct vt_event *event);

/* The same in two steps: all fields of what vt_event_begin returns are to be written in between. NULL: no ring. */
static inline struct vt_event *vt_event_begin(uint64_t now)
{
    vt_header()->last_ns = now;
    return vt_writer_next_event(&vt_state.writer);
}

static inline void vt_event_end(void)
{
    vt_writer_publish(&vt_state.writer, VT_EVENTS);
}

/* Appends an event that is not about one allocation: a moment, a trim, the end of a context. */
void vt_book_mark(enum vt_event_type type, uint64_t address, uint64_t bytes);

void vt_ledger_forget(void);

#endif
