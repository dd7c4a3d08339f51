/*
 * Address space of the simulated card.
 *
 * Device pointers must be unique, plausible and never readable by the host, so they come from address space that is
 * reserved with PROT_NONE and costs nothing.  It is cut into chunks; every chunk holds slots of one size, which makes
 * "who owns this address" a binary search among a few chunks plus one array access, however many blocks live.  A freed
 * slot is the next one used for its size, because the real driver reuses addresses eagerly too and that's what catches
 * a tracker that handles free and alloc in the wrong order.
 */
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

#define CLASSES 256
#define CHUNK_BYTES ((size_t)8 << 30)
#define CHUNK_SLOTS ((size_t)4096)

struct chunk {
    uintptr_t base;
    size_t slot_bytes, slots, handed_out;
    uintptr_t *owner; /* per slot: what space.c put there, or 0 */
};

struct slot_class {
    struct chunk *fresh; /* the chunk that still has slots never used */
    uintptr_t *free;     /* stack of used and freed slots */
    size_t count, room;
};

static struct slot_class classes[CLASSES];
static struct chunk **chunks; /* sorted by address */
static size_t chunk_count, chunk_room;

static struct chunk *chunk_around(uintptr_t addr)
{
    size_t low = 0, high = chunk_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        struct chunk *c = chunks[middle];

        if (addr < c->base) {
            high = middle;
        } else if (addr >= c->base + c->slot_bytes * c->slots) {
            low = middle + 1;
        } else {
            return c;
        }
    }
    return NULL;
}

uintptr_t *sim_slot_owner(uintptr_t addr)
{
    struct chunk *c = chunk_around(addr);

    return c ? &c->owner[(addr - c->base) / c->slot_bytes] : NULL;
}

static struct chunk *chunk_new(size_t slot_bytes)
{
    size_t slots = CHUNK_BYTES / slot_bytes;
    struct chunk *c;
    char *base;
    size_t at;

    slots = slots < 1 ? 1 : slots > CHUNK_SLOTS ? CHUNK_SLOTS : slots;
    for (;; slots /= 2) {
        if (slots == 0) {
            return NULL;
        }
        base = mmap(NULL, slot_bytes * slots + SIM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED) {
            break;
        }
    }
    if (chunk_count == chunk_room) {
        chunk_room = chunk_room ? 2 * chunk_room : 64;
        chunks = realloc(chunks, chunk_room * sizeof(*chunks));
    }
    c = calloc(1, sizeof(*c));
    c->base = sim_round_up((uintptr_t)base, SIM_PAGE);
    c->slot_bytes = slot_bytes;
    c->slots = slots;
    c->owner = calloc(slots, sizeof(*c->owner));
    for (at = chunk_count; at > 0 && chunks[at - 1]->base > c->base; at--) {
        chunks[at] = chunks[at - 1];
    }
    chunks[at] = c;
    chunk_count++;
    return c;
}

/* Slot sizes: 1, 2, 3, 4 pages, then four steps per power of two.  Returns the rounded number of pages. */
static size_t class_for(size_t pages, unsigned int *index)
{
    size_t n = pages - 1;
    unsigned int top;

    if (n < 4) {
        *index = (unsigned int)n;
        return pages;
    }
    top = 63 - (unsigned int)__builtin_clzl(n);
    *index = 4 * (top - 1) + (unsigned int)(n >> (top - 2) & 3);
    return (n | (((size_t)1 << (top - 2)) - 1)) + 1;
}

uintptr_t sim_slot_take(size_t bytes, size_t *slot_bytes)
{
    unsigned int index;
    struct slot_class *class;

    if (bytes > (size_t)1 << 46) {
        return 0;
    }
    *slot_bytes = class_for(sim_round_up(bytes, SIM_PAGE) / SIM_PAGE, &index) * SIM_PAGE;
    class = &classes[index];
    if (class->count > 0) {
        return class->free[--class->count];
    }
    if (class->fresh == NULL || class->fresh->handed_out == class->fresh->slots) {
        class->fresh = chunk_new(*slot_bytes);
        if (class->fresh == NULL) {
            return 0;
        }
    }
    return class->fresh->base + *slot_bytes * class->fresh->handed_out++;
}

void sim_slot_give(uintptr_t addr, size_t slot_bytes)
{
    unsigned int index;
    struct slot_class *class;

    class_for(slot_bytes / SIM_PAGE, &index);
    class = &classes[index];
    if (class->count == class->room) {
        class->room = class->room ? 2 * class->room : 64;
        class->free = realloc(class->free, class->room * sizeof(*class->free));
    }
    class->free[class->count++] = addr;
}

bool sim_va_is_ours(uintptr_t addr)
{
    return chunk_around(addr) != NULL;
}
