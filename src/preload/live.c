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
#include "preload/state.h"

#define GRAVES 65536u
#define FIRST_CAPACITY 1024u

static struct vt_node *nodes;
static uint64_t capacity, used; /* capacity is a power of two */
static uint32_t free_slots;     /* index + 1 of the newest free slot; a free slot's address field holds the next */
static struct vt_grave *graves;

static uint64_t home(enum vt_space space, uint64_t address)
{
    uint64_t h = (address ^ (uint64_t)space << 56) * 0x9e3779b97f4a7c15ull;
    return (h ^ h >> 32) & (capacity - 1);
}

static VT_HOT struct vt_node *find(enum vt_space space, uint64_t address)
{
    uint64_t i = home(space, address);
    while (nodes[i].slot && (nodes[i].address != address || nodes[i].space != space))
        i = (i + 1) & (capacity - 1);
    return &nodes[i]; /* where it is, or where it would go */
}

struct vt_node *vt_live_find(enum vt_space space, uint64_t address)
{
    struct vt_node *n = used ? find(space, address) : NULL;
    return n && n->slot ? n : NULL;
}

/* Makes room for one more. Moving a million nodes takes some ten milliseconds, once on the way to two million. */
static bool make_room(void)
{
    if ((used + 1) * 4 <= capacity * 3)
        return true;
    struct vt_node *old = nodes;
    uint64_t old_capacity = capacity, bigger = capacity ? capacity * 2 : FIRST_CAPACITY;
    struct vt_node *fresh = vt_arena_take(bigger * sizeof *fresh);
    if (!fresh)
        return used + 1 < capacity; /* slower, but not yet full */
    nodes = fresh;
    capacity = bigger;
    for (uint64_t i = 0; i < old_capacity; i++)
        if (old[i].slot)
            *find((enum vt_space)old[i].space, old[i].address) = old[i];
    if (old)
        vt_arena_give(old, old_capacity * sizeof *old);
    return true;
}

static struct vt_slot *take_slot(uint32_t *index, bool *fresh)
{
    *fresh = !free_slots;
    if (!*fresh) {
        *index = free_slots - 1;
        struct vt_slot *s = vt_writer_at(&vt_state.writer, VT_LIVE, *index);
        free_slots = (uint32_t)s->address;
        return s;
    }
    uint64_t i;
    struct vt_slot *s = vt_writer_append(&vt_state.writer, VT_LIVE, &i);
    *index = (uint32_t)i;
    return s;
}

struct vt_node *vt_live_add(enum vt_space space, uint64_t address, const struct vt_slot *content, uint16_t owner)
{
    bool fresh;
    uint32_t index;
    struct vt_slot *s = make_room() ? take_slot(&index, &fresh) : NULL;
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
    struct vt_node *n = find(space, address);
    *n = (struct vt_node){address, (uint16_t)space, owner, index + 1};
    used++;
    return n;
}

/* Empties an entry and moves back the ones behind it that it kept from their homes. */
static void close_gap(uint64_t hole)
{
    for (uint64_t i = (hole + 1) & (capacity - 1); nodes[i].slot; i = (i + 1) & (capacity - 1)) {
        uint64_t h = home((enum vt_space)nodes[i].space, nodes[i].address);
        if (((i - h) & (capacity - 1)) < ((i - hole) & (capacity - 1)))
            continue; /* its home lies behind the hole */
        nodes[hole] = nodes[i];
        hole = i;
    }
    nodes[hole].slot = 0;
}

void vt_live_remove(struct vt_node *n)
{
    struct vt_slot *s = vt_live_slot(n);
    __atomic_store_n(&s->kind, VT_KIND_NONE, __ATOMIC_RELEASE);
    s->address = free_slots;
    free_slots = n->slot;
    used--;
    close_gap((uint64_t)(n - nodes));
}

struct vt_node *vt_live_containing(uint64_t address)
{
    for (uint64_t i = 0; i < capacity; i++) {
        struct vt_node *n = &nodes[i];
        if (n->slot && n->space == VT_SPACE_POINTER && address > n->address &&
            address - n->address < vt_live_slot(n)->bytes)
            return n;
    }
    return NULL;
}

void vt_live_sweep(bool (*leaves)(struct vt_node *, void *), void *argument)
{
    /* A removal moves only nodes from behind into the place, never from behind to before it: none is passed over. */
    for (uint64_t i = 0; i < capacity; i++)
        while (nodes[i].slot && leaves(&nodes[i], argument))
            vt_live_remove(&nodes[i]);
}

uint64_t vt_live_count(void)
{
    return used;
}

static struct vt_grave *place(enum vt_space space, uint64_t address)
{
    if (!graves)
        graves = vt_arena_take(GRAVES * sizeof *graves); /* untouched pages cost nothing */
    return graves ? &graves[(address ^ (uint64_t)space << 40) * 0x9e3779b97f4a7c15ull >> 48] : NULL;
}

void vt_grave_dig(const struct vt_grave *grave)
{
    struct vt_grave *g = place((enum vt_space)grave->space, grave->address);
    if (!g)
        return;
    *g = *grave;
    g->used = 1;
}

const struct vt_grave *vt_grave_find(enum vt_space space, uint64_t address)
{
    const struct vt_grave *g = place(space, address);
    return g && g->used && g->address == address && g->space == space ? g : NULL;
}

void vt_live_forget(void)
{
    nodes = NULL;
    capacity = used = 0;
    free_slots = 0;
    graves = NULL;
}
