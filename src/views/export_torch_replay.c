/*
 * Ranges and replay of a PyTorch snapshot; see export_torch.h. Ranges that do not overlap are totally ordered, so a balanced
 * tree (tsearch) whose order calls overlapping ranges equal finds the range around an address, and every overlap.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "views/export_torch.h"

/*
 * Is it memory of its own on a card? What a framework hands on is where it is mapped, and the physical memory behind that is
 * the same once more; of others' the physical memory counts, as a mapping may be of another process's memory.
 */
static bool is_segment(const struct vt_site *site, bool pool)
{
    if (site->kind == VT_KIND_VMM_MAPPED)
        return pool;
    if (site->kind == VT_KIND_VMM_PHYSICAL)
        return !pool;
    return site->kind == VT_KIND_DEVICE || site->kind == VT_KIND_ASYNC || site->kind == VT_KIND_MANAGED ||
           site->kind == VT_KIND_GRAPH; /* host memory lies on no device */
}

bool vt_torch_range(struct vt_torch *t, struct vt_range *range, unsigned *level, uint32_t index, uint64_t address,
                    uint64_t bytes)
{
    const struct vt_site *site = vt_reading_site(t->x->a.model.reading, index);
    bool pool = vt_fragmentation_is_pool(&t->x->a.model.fragmentation, index);

    if (!site || site->device < 0 || !bytes || (site->level != VT_LEVEL_TENSOR && !is_segment(site, pool)))
        return false;
    if (site->level != VT_LEVEL_TENSOR && site->kind == VT_KIND_VMM_PHYSICAL)
        address = vt_torch_handle_address(t, address, bytes);
    if (!address || address + bytes <= address)
        return false;
    memset(range, 0, sizeof *range);
    *level = site->level;
    range->start = address;
    range->end = address + bytes;
    range->requested = bytes;
    range->site = index;
    range->device = site->device;
    range->kind = site->kind;
    range->whole = site->level == VT_LEVEL_DRIVER && !pool;
    return true;
}

bool vt_torch_continues(const struct vt_range *segment, const struct vt_range *next)
{
    return segment->kind == VT_KIND_VMM_MAPPED && next->kind == VT_KIND_VMM_MAPPED && segment->end == next->start &&
           segment->device == next->device && !segment->whole && !next->whole;
}

static bool add(struct vt_ranges *ranges, const struct vt_range *range)
{
    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? ranges->room * 2 : 1024;
        struct vt_range *grown = realloc(ranges->list, room * sizeof *grown);

        if (!grown)
            return false;
        ranges->list = grown;
        ranges->room = room;
    }
    ranges->list[ranges->count++] = *range;
    return true;
}

static int by_address(const void *left, const void *right)
{
    const struct vt_range *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Sorts, and drops what overlaps the one before it: a damaged recording, or a live one. */
static void put_in_order(struct vt_ranges *ranges)
{
    size_t i, kept = 0;

    if (ranges->count)
        qsort(ranges->list, ranges->count, sizeof *ranges->list, by_address);
    for (i = 0; i < ranges->count; i++)
        if (!kept || ranges->list[i].start >= ranges->list[kept - 1].end)
            ranges->list[kept++] = ranges->list[i];
    ranges->count = kept;
}

/* Keeps the blocks that lie in segments which are handed on, in one or in several that continue each other. */
static void place_blocks(struct vt_torch *t)
{
    const struct vt_range *segment = t->segments.list, *end = segment + t->segments.count, *last;
    size_t i, kept = 0;

    for (i = 0; i < t->blocks.count; i++) {
        const struct vt_range *block = &t->blocks.list[i];

        while (segment < end && segment->end <= block->start)
            segment++;
        if (segment == end)
            break;
        for (last = segment; last + 1 < end && last->end < block->end && vt_torch_continues(last, last + 1);)
            last++;
        if (segment->start <= block->start && block->end <= last->end && !segment->whole &&
            segment->device == block->device)
            t->blocks.list[kept++] = *block;
    }
    t->blocks.count = kept;
}

int vt_torch_ranges(struct vt_torch *t)
{
    const struct vt_model *m = &t->x->a.model;
    enum vt_section section = m->recorded ? VT_MOMENT_SLOTS : VT_LIVE;
    uint64_t i, first = m->recorded ? m->recorded->first_slot : 0,
                count = m->recorded ? m->recorded->slots : vt_reading_count(m->reading, section);
    const struct vt_slot *slot;
    struct vt_range range;
    unsigned level;

    if ((!m->recorded && !strcmp(m->moment, "peak")) || (m->recorded && !m->recorded->slots && m->recorded->sites))
        return -ENODATA;
    for (i = 0; i < count && (slot = vt_reading_record(m->reading, section, first + i)); i++) {
        if (slot->kind == VT_KIND_NONE || !vt_torch_range(t, &range, &level, slot->site, slot->address, slot->bytes))
            continue;
        if (slot->requested && slot->requested < slot->bytes)
            range.requested = slot->requested;
        *(slot->flags & VT_SLOT_CAPTURE ? &range.capture : &range.stream) = slot->stream;
        if (!add(level == VT_LEVEL_TENSOR ? &t->blocks : &t->segments, &range))
            return -ENOMEM;
    }
    put_in_order(&t->segments);
    put_in_order(&t->blocks);
    place_blocks(t);
    return 0;
}

/* --- the replay ------------------------------------------------------------------------------------------------------ */

struct replay {
    void *segments, *blocks; /* trees of ranges */
    struct vt_range *spare;  /* removed ones; chained by `blocks` */
    struct chunk {
        struct chunk *next;
        struct vt_range ranges[1024];
    } * chunks;
    unsigned used; /* of the first chunk */
};

static int by_overlap(const void *left, const void *right)
{
    const struct vt_range *a = left, *b = right;

    return a->end <= b->start ? -1 : a->start >= b->end;
}

static struct vt_range *find(void **tree, uint64_t start, uint64_t end)
{
    const struct vt_range key = {.start = start, .end = end};
    void *found = tfind(&key, tree, by_overlap);

    return found ? *(struct vt_range **)found : NULL;
}

static bool insert(struct replay *r, void **tree, const struct vt_range *range)
{
    struct vt_range *copy = r->spare;
    struct chunk *chunk;

    if (copy) {
        r->spare = (struct vt_range *)(uintptr_t)copy->blocks;
    } else {
        if (!r->chunks || r->used == sizeof r->chunks->ranges / sizeof r->chunks->ranges[0]) {
            if (!(chunk = malloc(sizeof *chunk)))
                return false;
            chunk->next = r->chunks;
            r->chunks = chunk;
            r->used = 0;
        }
        copy = &r->chunks->ranges[r->used++];
    }
    *copy = *range;
    return tsearch(copy, tree, by_overlap) != NULL;
}

static void remove_range(struct replay *r, void **tree, struct vt_range *range)
{
    tdelete(range, tree, by_overlap);
    range->blocks = (uintptr_t)r->spare;
    r->spare = range;
}

/* Counts a block in the segments that it touches. With 0: says whether they hold it whole. */
static bool touch(struct replay *r, const struct vt_range *block, int by)
{
    uint64_t at = block->start;
    struct vt_range *segment;

    while (at < block->end) {
        if (!(segment = find(&r->segments, at, at + 1)) || segment->whole || segment->device != block->device ||
            (at != block->start && segment->kind != VT_KIND_VMM_MAPPED))
            return false;
        segment->blocks += (uint64_t)by;
        at = segment->end;
    }
    return true;
}

/* Undoes an event. Returns 1 if it fits, 0 if it does not, -ENOMEM. */
static int undo(struct replay *r, struct vt_torch *t, const struct vt_event *e)
{
    struct vt_range range, *found;
    unsigned level;
    void **tree;

    if ((e->type != VT_EVENT_ALLOC && e->type != VT_EVENT_FREE && e->type != VT_EVENT_RETIRE) ||
        !vt_torch_range(t, &range, &level, e->site, e->address, e->bytes))
        return 0;
    tree = level == VT_LEVEL_TENSOR ? &r->blocks : &r->segments;
    found = find(tree, range.start, range.end);
    if (e->type == VT_EVENT_ALLOC) {
        if (!found || found->start != range.start || found->end != range.end || found->device != range.device ||
            (level == VT_LEVEL_DRIVER && (found->blocks || found->whole != range.whole)))
            return 0;
        if (level == VT_LEVEL_TENSOR)
            touch(r, &range, -1);
        remove_range(r, tree, found);
        return 1;
    }
    if (found || (level == VT_LEVEL_TENSOR && !touch(r, &range, 0)))
        return 0;
    if (level == VT_LEVEL_TENSOR)
        touch(r, &range, 1);
    return insert(r, tree, &range) ? 1 : -ENOMEM;
}

static void nothing(void *range)
{
    (void)range;
}

static int begin(struct replay *r, const struct vt_torch *t)
{
    size_t i;

    for (i = 0; i < t->segments.count; i++)
        if (!insert(r, &r->segments, &t->segments.list[i]))
            return -ENOMEM;
    for (i = 0; i < t->blocks.count; i++) {
        if (!insert(r, &r->blocks, &t->blocks.list[i]))
            return -ENOMEM;
        touch(r, &t->blocks.list[i], 1);
    }
    return 0;
}

static void end(struct replay *r)
{
    struct chunk *chunk;

    tdestroy(r->segments, nothing);
    tdestroy(r->blocks, nothing);
    while ((chunk = r->chunks)) {
        r->chunks = chunk->next;
        free(chunk);
    }
}

/* The number behind the last event before the moment; the first kept one if that is older than all of them. */
static uint64_t find_moment(const struct vt_model *m, uint64_t first, uint64_t count)
{
    uint64_t s;

    for (s = count; s-- > first;) {
        const struct vt_event *e = vt_reading_event(m->reading, s);

        if (e && e->type == VT_EVENT_MOMENT && vt_reading_moment(m->reading, e->address) == m->recorded)
            return s;
    }
    return first;
}

int vt_torch_replay(struct vt_torch *t)
{
    const struct vt_model *m = &t->x->a.model;
    uint64_t count = vt_reading_events(m->reading), held = vt_reading_count(m->reading, VT_EVENTS), s;
    struct replay r = {.segments = NULL};
    int error;

    t->first = count - (held < count ? held : count);
    t->until = m->recorded ? find_moment(m, t->first, count) : count;
    if (t->until - t->first > t->x->request->events)
        t->first = t->until - t->x->request->events;
    t->overflowed = t->first > 0;
    if (!(t->keep = calloc((size_t)(t->until - t->first) + 1, 1)))
        return -ENOMEM;
    error = begin(&r, t);
    for (s = t->until; s-- > t->first && !error;) {
        const struct vt_event *e = vt_reading_event(m->reading, s);
        int fits = e ? undo(&r, t, e) : 0;

        t->keep[s - t->first] = fits == 1;
        t->left_out += !fits && e && e->type <= VT_EVENT_RETIRE;
        error = fits < 0 ? fits : 0;
    }
    end(&r);
    return error;
}

void vt_torch_free(struct vt_torch *t)
{
    free(t->segments.list);
    free(t->blocks.list);
    free(t->keep);
    vt_torch_handles_free(t);
}
