/*
 * Physical memory that a process took by handle (cuMemCreate), in a PyTorch snapshot. A handle is no address, and one may be
 * mapped at several, or at none; what is mapped may be another process's. So each handle is a segment of its own at a made-up
 * address, far above all that a GPU has: the snapshot then adds up to what the process owns.
 */
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "views/export_torch.h"

/* Above the GPU's 49 bits, and with room up to 2^53, from where on JavaScript's numbers are no longer exact. */
#define FIRST_ADDRESS (1ull << 52)
#define END_ADDRESS (1ull << 53)

/* A handle that is used again for another size is another one. */
struct vt_torch_handle {
    struct {
        uint64_t handle, bytes;
    } key;
    uint64_t address;
    UT_hash_handle hh;
};

static struct vt_torch_handle *make(struct vt_torch *t, uint64_t handle, uint64_t bytes)
{
    uint64_t address = t->next_address ? t->next_address : FIRST_ADDRESS;
    struct vt_torch_handle *made;

    if (bytes > END_ADDRESS - address || !(made = calloc(1, sizeof *made)))
        return NULL;
    made->key.handle = handle;
    made->key.bytes = bytes;
    made->address = address;
    HASH_ADD(hh, t->handles, key, sizeof made->key, made);
    if (!made->hh.tbl) {
        free(made);
        return NULL;
    }
    t->next_address = address + bytes;
    return made;
}

uint64_t vt_torch_handle_address(struct vt_torch *t, uint64_t handle, uint64_t bytes)
{
    struct vt_torch_handle wanted = {.key = {handle, bytes}}, *found;

    HASH_FIND(hh, t->handles, &wanted.key, sizeof wanted.key, found);
    if (!found)
        found = make(t, handle, bytes);
    return found ? found->address : 0;
}

void vt_torch_handles_free(struct vt_torch *t)
{
    struct vt_torch_handle *at = t->handles, *next;

    HASH_CLEAR(hh, t->handles); /* the table; its elements are still a list */
    for (; at; at = next) {
        next = at->hh.next;
        free(at);
    }
}
