/*
 * The live table and the graveyard; see live.h.
 *
 * The table is open, with linear probing, and deletes by moving what follows back, so that it needs no tombstones and
 * stays as fast after a million frees as before. (A general hash table with a handle per node took 72 bytes where this
 * takes 16 to 32, which the memory budget does not have.)
 */
#include "preload/live.h"

#include <string.h>

#include "preload/arena.h"
#include "preload/hot.h"
#include "preload/state.h"

#define GRAVES 65536u
#define FIRST_CAPACITY 1024u

static struct vt_node none; /* the table while it has no entries */
VT_HOT_DATA struct vt_live_table vt_live = {.nodes = &none};
static struct vt_grave *graves;

static uint64_t capacity(void)
{
    return vt_live.nodes == &none ? 0 : vt_live.mask + 1;
}

/* Makes room for one more. Moving a million nodes takes some ten milliseconds, once on the way to two million. */
static bool make_room(void)
{
    if (vt_live.used < vt_live.room)
        return true;
    struct vt_node *old = vt_live.nodes;
    uint64_t old_capacity = capacity(), bigger = old_capacity ? old_capacity * 2 : FIRST_CAPACITY;
    struct vt_node *fresh = vt_arena_take(bigger * sizeof *fresh);
    if (!fresh)
        return vt_live.used + 1 < old_capacity; /* slower, but not yet full */
    vt_live.nodes = fresh;
    vt_live.mask = bigger - 1;
    vt_live.room = bigger / 4 * 3;
    for (uint64_t i = 0; i < old_capacity; i++)
        if (old[i].place)
            *vt_live_place((enum vt_space)old[i].space, old[i].address) = old[i];
    if (old_capacity)
        vt_arena_give(old, old_capacity * sizeof *old);
    return true;
}

static struct vt_slot *take_slot(uint64_t *place, bool *fresh)
{
    *fresh = !vt_live.free_slots;
    if (!*fresh)
        return vt_live_pop(place);
    uint64_t i;
    struct vt_slot *s = vt_writer_append(&vt_state.writer, VT_LIVE, &i);
    *place = s ? (uint64_t)((unsigned char *)s - vt_state.writer.base) / sizeof(uint64_t) : 0;
    return *place >> 40 ? NULL : s;
}

struct vt_node *vt_live_add(enum vt_space space, uint64_t address, const struct vt_slot *content, uint16_t owner)
{
    bool fresh;
    uint64_t place;
    struct vt_slot *s = make_room() ? take_slot(&place, &fresh) : NULL;
    if (!s) {
        vt_state_stop("no memory for the table of live allocations");
        return NULL;
    }
    /* Field by field: what was just written in parts can't be read as a whole without waiting. And the kind last: the
     * process may be killed between any two stores. */
    s->address = content->address;
    s->bytes = content->bytes;
    s->requested = content->requested;
    s->time_ns = content->time_ns;
    s->site = content->site;
    s->stream = content->stream;
    s->flags = content->flags;
    __atomic_store_n(&s->kind, content->kind, __ATOMIC_RELEASE);
    if (fresh)
        vt_writer_publish(&vt_state.writer, VT_LIVE);
    struct vt_node *n = vt_live_place(space, address);
    vt_live_enter(n, space, address, owner, place);
    return n;
}

/* Empties an entry and moves back the ones behind it that it kept from their homes. */
void vt_live_close_gap(struct vt_node *node)
{
    struct vt_node *nodes = vt_live.nodes;
    uint64_t mask = vt_live.mask, hole = (uint64_t)(node - nodes);
    for (uint64_t i = (hole + 1) & mask; nodes[i].place; i = (i + 1) & mask) {
        uint64_t h = vt_live_home((enum vt_space)nodes[i].space, nodes[i].address);
        if (((i - h) & mask) < ((i - hole) & mask))
            continue; /* its home lies behind the hole */
        nodes[hole] = nodes[i];
        hole = i;
    }
    nodes[hole].place = 0;
}

void vt_live_remove(struct vt_node *n)
{
    vt_live_leave(n, vt_live_slot(n));
}

struct vt_node *vt_live_containing(uint64_t address)
{
    for (uint64_t i = 0; i < capacity(); i++) {
        struct vt_node *n = &vt_live.nodes[i];
        if (n->place && n->space == VT_SPACE_POINTER && address > n->address &&
            address - n->address < vt_live_slot(n)->bytes)
            return n;
    }
    return NULL;
}

void vt_live_sweep(bool (*leaves)(struct vt_node *, void *), void *argument)
{
    /* A removal moves only nodes from behind into the place, never from behind to before it: none is passed over. */
    for (uint64_t i = 0; i < capacity(); i++)
        while (vt_live.nodes[i].place && leaves(&vt_live.nodes[i], argument))
            vt_live_remove(&vt_live.nodes[i]);
}

uint64_t vt_live_count(void)
{
    return vt_live.used;
}

static struct vt_grave *grave_of(enum vt_space space, uint64_t address)
{
    if (!graves)
        graves = vt_arena_take(GRAVES * sizeof *graves); /* untouched pages cost nothing */
    return graves ? &graves[(address ^ (uint64_t)space << 40) * 0x9e3779b97f4a7c15ull >> 48] : NULL;
}

void vt_grave_dig(const struct vt_grave *grave)
{
    struct vt_grave *g = grave_of((enum vt_space)grave->space, grave->address);
    if (!g)
        return;
    *g = *grave;
    g->used = 1;
}

const struct vt_grave *vt_grave_find(enum vt_space space, uint64_t address)
{
    const struct vt_grave *g = grave_of(space, address);
    return g && g->used && g->address == address && g->space == space ? g : NULL;
}

void vt_live_forget(void)
{
    vt_live = (struct vt_live_table){.nodes = &none};
    graves = NULL;
}
