/*
 * The page's map of segments: what lies where in the memory that frameworks hand on, one entry per GPU where it is known.
 *
 *   segments  the largest ones: address, bytes, live_bytes, largest_gap, releasable, site, kind, flags, and `blocks`, which tile
 *             it: pairs of a place's id (-1: free) and bytes. Where there are too many of them, neighbours that are
 *             smaller than `grain` bytes are drawn as one: -2, bytes, live bytes, blocks.
 *   others    segments that are not in the list: how many, and their bytes
 */
#include <stdlib.h>

#include "views/html.h"

#define SEGMENTS 3000u
#define BLOCKS 40000u /* drawn one by one as long as there are no more */

struct run {
    uint64_t bytes, live, blocks;
};

static void put_run(struct vt_page_buffer *b, struct run *run)
{
    if (run->blocks)
        vt_page_put(b, "-2,%llu,%llu,%llu,", (unsigned long long)run->bytes, (unsigned long long)run->live,
                    (unsigned long long)run->blocks);
    *run = (struct run){0};
}

static void put_blocks(struct vt_page_buffer *b, const struct vt_fragmentation *f, const struct vt_segment *s,
                       uint64_t grain)
{
    struct run run = {0};
    uint32_t i;

    for (i = 0; i < s->blocks; i++) {
        const struct vt_block *block = &f->blocks[s->first_block + i];

        if (block->bytes < grain) {
            run.bytes += block->bytes;
            run.live += block->site == VT_NONE ? 0 : block->bytes;
            run.blocks++;
            if (run.bytes >= grain)
                put_run(b, &run);
            continue;
        }
        put_run(b, &run);
        vt_page_put(b, "%lld,%llu,", block->site == VT_NONE ? -1LL : (long long)block->site,
                    (unsigned long long)block->bytes);
    }
    put_run(b, &run);
    if (b->used && b->text[b->used - 1] == ',')
        b->used--;
}

static void put_segment(struct vt_page_buffer *b, const struct vt_fragmentation *f, const struct vt_segment *s,
                        uint64_t grain, bool first)
{
    vt_page_put(b,
                "%s{\"address\":\"0x%llx\",\"bytes\":%llu,\"live_bytes\":%llu,\"largest_gap\":%llu,\"releasable\":%llu,"
                "\"site\":%u,\"kind\":\"%s\",\"private\":%d,\"pinned\":%d,\"expandable\":%d,\"blocks\":[",
                first ? "\n" : ",\n", (unsigned long long)s->address, (unsigned long long)s->bytes,
                (unsigned long long)s->live_bytes, (unsigned long long)s->largest_gap,
                (unsigned long long)s->releasable, s->site, vt_kind_name(s->kind), s->capture != 0, s->pinned,
                s->kind == VT_KIND_VMM_MAPPED);
    put_blocks(b, f, s, grain);
    vt_page_put(b, "]}");
}

static int by_bytes(const void *a, const void *b)
{
    const struct vt_segment *const *x = a, *const *y = b;

    if ((*x)->bytes != (*y)->bytes)
        return (*x)->bytes < (*y)->bytes ? 1 : -1;
    return (*x)->address < (*y)->address ? -1 : 1;
}

static void put_device(struct vt_page_buffer *b, const struct vt_fragmentation *f, const struct vt_pools *p,
                       const struct vt_segment **list, uint32_t count, size_t most)
{
    uint64_t grain = f->block_count > BLOCKS ? p->reserved / (BLOCKS / 4) : 0, other_bytes = 0;
    uint32_t i, others = 0;

    vt_page_put(b, "%s{\"device\":%d,\"grain\":%llu,\"segments\":[", b->used ? ",\n" : "\n", p->device,
                (unsigned long long)grain);
    for (i = 0; i < count; i++)
        if (i - others < SEGMENTS && b->used < most) {
            put_segment(b, f, list[i], grain, i == 0);
        } else {
            others++;
            other_bytes += list[i]->bytes;
        }
    vt_page_put(b, "],\"others\":%u,\"other_bytes\":%llu}", others, (unsigned long long)other_bytes);
}

void vt_page_write_map(struct vt_page *page)
{
    const struct vt_fragmentation *f = &page->x.a.model.fragmentation;
    const struct vt_segment **list = calloc((size_t)f->segment_count + 1, sizeof *list);
    struct vt_page_buffer b = {.failed = !list};
    uint32_t i, j, count;

    for (i = 0; list && i < f->pool_count; i++) {
        if (!f->pools[i].known)
            continue;
        for (j = count = 0; j < f->segment_count; j++)
            if (f->segments[j].device == f->pools[i].device)
                list[count++] = &f->segments[j];
        qsort(list, count, sizeof *list, by_bytes);
        put_device(&b, f, &f->pools[i], list, count, VT_PAGE_MAP * (i + 1) / f->pool_count);
    }
    vt_out_text(&page->x.out, ",\n\"map\":[");
    vt_page_flush(page, &b);
    vt_out_text(&page->x.out, "]");
    free(list);
}
