/*
 * The live table: which allocation lies where, mirrored slot by slot in the recording, and the graveyard: where recently
 * freed allocations lay, so that a second free can be named. With the state lock held.
 */
#ifndef VT_PRELOAD_LIVE_H
#define VT_PRELOAD_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "preload/state.h"

/* Keys of different spaces never meet: a reservation, its first mapping and an array handle may share a number. */
enum vt_space {
    VT_SPACE_POINTER,    /* device, managed, async, graph, pinned and imported pointers: one address space */
    VT_SPACE_REGISTERED, /* host pointers that the application owns */
    VT_SPACE_ARRAY,
    VT_SPACE_MIPMAP,
    VT_SPACE_OBJECT,   /* physical VMM memory, by serial number */
    VT_SPACE_RESERVED, /* reserved address space */
    VT_SPACE_MAPPED,   /* mappings in it */
    VT_SPACE_EXTERNAL, /* external memory objects */
    VT_SPACE_TENSOR    /* what framework allocators hand out */
};

/*
 * One entry of the table. 16 bytes, in an open table that is at most three quarters full: with the slot's 40 bytes a live
 * allocation costs 61 to 83. A pointer to an entry is good until the next addition or removal.
 */
struct vt_node {
    uint64_t address;
    uint64_t place : 40; /* of its slot in the recording, in words from the beginning; 0: the entry is empty */
    uint64_t
        owner : 16; /* index + 1 of what it belongs to: the pool for VT_KIND_ASYNC, the site for a block of PyTorch's (or 0),
                            else the context; 0: none; from VT_OWNER_FRAMEWORK on it is JAX's or TensorFlow's own number */
    uint64_t space : 8;
};
#define VT_OWNER_FRAMEWORK 0xfe00u

/* The table: open, with linear probing. */
struct vt_live_table {
    struct vt_node *nodes; /* never NULL: of one empty entry at first */
    uint64_t mask;         /* entries - 1; their number is a power of two */
    uint64_t used, room;   /* no more than `room` entries are used before it grows */
    uint64_t free_slots;   /* place of the newest free slot; a free slot's address field holds the next */
};
extern struct vt_live_table vt_live;

static inline uint64_t vt_live_hash(enum vt_space space, uint64_t address)
{
    uint64_t h = (address ^ (uint64_t)space << 56) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 32;
}

static inline uint64_t vt_live_home(enum vt_space space, uint64_t address)
{
    return vt_live_hash(space, address) & vt_live.mask;
}

/* The entry of this key, or the empty one where it would go. */
static inline struct vt_node *vt_live_place(enum vt_space space, uint64_t address)
{
    uint64_t i = vt_live_home(space, address);
    while (vt_live.nodes[i].place && (vt_live.nodes[i].address != address || vt_live.nodes[i].space != space))
        i = (i + 1) & vt_live.mask;
    return &vt_live.nodes[i];
}

static inline struct vt_node *vt_live_find(enum vt_space space, uint64_t address)
{
    struct vt_node *n = vt_live_place(space, address);
    return n->place ? n : NULL;
}

/* Adds an allocation under a key that is not taken; `slot` is copied into the recording. NULL: no memory, and recording
 * has stopped. slot->address may differ from the key's where that is a serial number. */
struct vt_node *vt_live_add(enum vt_space space, uint64_t address, const struct vt_slot *slot, uint16_t owner);

void vt_live_remove(struct vt_node *node);

static inline struct vt_slot *vt_live_at(uint64_t place)
{
    return (struct vt_slot *)(void *)(vt_state.writer.base + place * sizeof(uint64_t));
}

static inline struct vt_slot *vt_live_slot(const struct vt_node *node)
{
    return vt_live_at(node->place);
}

/* Takes the newest free slot, which there is. */
static inline struct vt_slot *vt_live_pop(uint64_t *place)
{
    *place = vt_live.free_slots;
    struct vt_slot *s = vt_live_at(*place);
    vt_live.free_slots = s->address;
    __builtin_prefetch(vt_live_at(vt_live.free_slots), 1); /* until it is taken, it can come */
    return s;
}

/* vt_live_add in two halves and in line: a free slot, to be filled, with its kind last. NULL if there is none at hand: then
 * vt_live_add is to be asked. */
static inline struct vt_slot *vt_live_take_slot(uint64_t *place)
{
    return vt_live.free_slots && vt_live.used < vt_live.room ? vt_live_pop(place) : NULL;
}

/* ... and the entry for it, in the empty one that was found for its key. */
static inline void vt_live_enter(struct vt_node *node, enum vt_space space, uint64_t address, uint16_t owner,
                                 uint64_t place)
{
    uint64_t word = place | (uint64_t)owner << 40 | (uint64_t)space << 56; /* GCC puts bit-fields in one by one */
    node->address = address;
    memcpy((char *)node + sizeof node->address, &word, sizeof word);
    vt_live.used++;
}

/* Behind vt_live_leave. */
void vt_live_close_gap(struct vt_node *node);

/* vt_live_remove in line. */
static inline void vt_live_leave(struct vt_node *node, struct vt_slot *slot)
{
    __atomic_store_n(&slot->kind, VT_KIND_NONE, __ATOMIC_RELEASE);
    slot->address = vt_live.free_slots;
    vt_live.free_slots = node->place;
    vt_live.used--;
    if (vt_live.nodes[((uint64_t)(node - vt_live.nodes) + 1) & vt_live.mask].place)
        vt_live_close_gap(node);
    else
        node->place = 0;
}

/* The live allocation of VT_SPACE_POINTER that contains an address; NULL. Walks the table: for failures only. */
struct vt_node *vt_live_containing(uint64_t address);

/* Asks `leaves` about every node (about some twice); those for which it returns true are removed. */
void vt_live_sweep(bool (*leaves)(struct vt_node *, void *), void *argument);

uint64_t vt_live_count(void);

struct vt_grave {
    uint64_t address;
    uint32_t site, free_stack, free_python;
    uint8_t space, retired, used, unused;
};

void vt_grave_dig(const struct vt_grave *grave);
const struct vt_grave *vt_grave_find(enum vt_space space, uint64_t address);

void vt_live_forget(void);

#endif
