/* The live table and the graveyard; see live.h. */
#include "preload/live.h"

#include "preload/state.h"

#define GRAVES 65536u

static struct vt_node *nodes;
static uint32_t free_slots; /* index + 1 of the newest free slot; a free slot's address field holds the next */
static struct vt_grave *graves;

struct vt_slot *vt_live_slot(const struct vt_node *node)
{
    return vt_writer_at(&vt_state.writer, VT_LIVE, node->slot);
}

struct vt_node *vt_live_find(enum vt_space space, uint64_t address)
{
    struct vt_node probe = {.key = {address, (uint16_t)space}}, *n = NULL;
    HASH_FIND(hh, nodes, &probe.key, sizeof probe.key, n);
    return n;
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
    struct vt_node *n = vt_arena_take(sizeof *n);
    struct vt_slot *s = n ? take_slot(&n->slot, &fresh) : NULL;
    if (!s) {
        vt_state_stop("no memory for the table of live allocations");
        return NULL;
    }
    n->key.address = address;
    n->key.space = (uint16_t)space;
    n->owner = owner;
    uint8_t kind = content->kind;
    *s = *content;
    s->kind = VT_KIND_NONE; /* whole first, then live: the process may be killed between any two stores */
    __atomic_store_n(&s->kind, kind, __ATOMIC_RELEASE);
    if (fresh)
        vt_writer_publish(&vt_state.writer, VT_LIVE);
    HASH_ADD(hh, nodes, key, sizeof n->key, n);
    return n;
}

void vt_live_remove(struct vt_node *n)
{
    struct vt_slot *s = vt_live_slot(n);
    __atomic_store_n(&s->kind, VT_KIND_NONE, __ATOMIC_RELEASE);
    s->address = free_slots;
    free_slots = n->slot + 1;
    HASH_DEL(nodes, n);
    vt_arena_give(n, sizeof *n);
}

struct vt_node *vt_live_containing(uint64_t address)
{
    for (struct vt_node *n = nodes; n; n = n->hh.next)
        if (n->key.space == VT_SPACE_POINTER && address > n->key.address && address - n->key.address < vt_live_slot(n)->bytes)
            return n;
    return NULL;
}

void vt_live_sweep(bool (*leaves)(struct vt_node *, void *), void *argument)
{
    struct vt_node *n, *next;
    HASH_ITER(hh, nodes, n, next)
    {
        if (leaves(n, argument))
            vt_live_remove(n);
    }
}

uint64_t vt_live_count(void)
{
    return HASH_COUNT(nodes);
}

static struct vt_grave *place(enum vt_space space, uint64_t address)
{
    if (!graves)
        graves = vt_arena_take(GRAVES * sizeof *graves); /* untouched pages cost nothing */
    return graves ? &graves[(address ^ (uint64_t)space << 40) * 0x9e3779b97f4a7c15ull >> 48] : NULL;
}

void vt_grave_dig(enum vt_space space, uint64_t address, uint32_t site, uint32_t free_stack, bool retired)
{
    struct vt_grave *g = place(space, address);
    if (g)
        *g = (struct vt_grave){.address = address, .site = site, .free_stack = free_stack, .space = (uint8_t)space, .retired = retired, .used = 1};
}

const struct vt_grave *vt_grave_find(enum vt_space space, uint64_t address)
{
    const struct vt_grave *g = place(space, address);
    return g && g->used && g->address == address && g->space == space ? g : NULL;
}

void vt_live_forget(void)
{
    nodes = NULL;
    free_slots = 0;
    graves = NULL;
}
