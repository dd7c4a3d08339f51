/*
 * The live table: which allocation lies where, mirrored slot by slot in the recording, and the graveyard: where recently
 * freed allocations lay, so that a second free can be named. With the state lock held.
 */
#ifndef VT_PRELOAD_LIVE_H
#define VT_PRELOAD_LIVE_H

#include <stdbool.h>
#include <stdint.h>

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
    uint16_t space;
    uint16_t owner; /* index + 1 of what it belongs to: the pool for VT_KIND_ASYNC, else the context; 0: none */
    uint32_t slot;  /* index + 1 in VT_LIVE; 0: the entry is empty */
};

VT_HOT struct vt_node *vt_live_find(enum vt_space space, uint64_t address);

/* Adds an allocation under a key that is not taken; `slot` is copied into the recording. NULL: no memory, and recording
 * has stopped. slot->address may differ from the key's where that is a serial number. */
VT_HOT struct vt_node *vt_live_add(enum vt_space space, uint64_t address, const struct vt_slot *slot, uint16_t owner);

VT_HOT void vt_live_remove(struct vt_node *node);

static inline struct vt_slot *vt_live_slot(const struct vt_node *node)
{
    return vt_writer_at(&vt_state.writer, VT_LIVE, node->slot - 1);
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
