/*
 * Two kinds of requests: table nodes (small, millions, all of a few sizes) and hash bucket arrays (large, few). Small
 * ones are cut from 1 MiB chunks and recycled per size; large ones are mappings of their own.
 */
#include "preload/arena.h"

#include <errno.h>
#include <sys/mman.h>

#include "preload/hot.h"

#define CHUNK (1u << 20)
#define SMALL_MAX 4096u
#define SIZES (SMALL_MAX / 16 + 1)

struct mapping { /* at the head of every mapping, so that all can be found again */
    struct mapping *next, *previous;
    size_t bytes;
    size_t unused;
};

static struct mapping all = {&all, &all, 0, 0};
static void *free_list[SIZES];
static char *cut, *cut_end;

VT_HOT_DATA int vt_arena_failed;

static void *map(size_t bytes)
{
    int saved = errno;
    struct mapping *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    if (m == MAP_FAILED)
        return NULL;
    m->bytes = bytes;
    m->next = all.next;
    m->previous = &all;
    all.next->previous = m;
    all.next = m;
    return m + 1;
}

static void *take_small(size_t bytes)
{
    void **recycled = free_list[bytes / 16];
    if (recycled) {
        free_list[bytes / 16] = *recycled;
        memset(recycled, 0, bytes);
        return recycled;
    }
    if (cut_end - cut < (ptrdiff_t)bytes) {
        char *chunk = map(CHUNK);
        if (!chunk)
            return NULL;
        cut = chunk;
        cut_end = chunk + CHUNK - sizeof(struct mapping);
    }
    void *p = cut;
    cut += bytes;
    return p;
}

void *vt_arena_take(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    return bytes <= SMALL_MAX ? take_small(bytes) : map(bytes + sizeof(struct mapping));
}

void vt_arena_give(void *p, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes <= SMALL_MAX) {
        *(void **)p = free_list[bytes / 16];
        free_list[bytes / 16] = p;
        return;
    }
    struct mapping *m = (struct mapping *)p - 1;
    m->previous->next = m->next;
    m->next->previous = m->previous;
    int saved = errno;
    munmap(m, m->bytes);
    errno = saved;
}

void vt_arena_drop(void)
{
    int saved = errno;
    for (struct mapping *m = all.next, *next; m != &all; m = next) {
        next = m->next;
        munmap(m, m->bytes);
    }
    errno = saved;
    all.next = all.previous = &all;
    memset(free_list, 0, sizeof free_list);
    cut = cut_end = NULL;
    vt_arena_failed = 0;
}
