/*
 * The figures of each device's segments: what is reserved, allocated and free, what keeps segments from being given back,
 * and whether a refused request would have fit; see fragmentation.h and docs/fragmentation.md.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/fragmentation.h"

/* A segment counts as pinned from this much free memory beside its live blocks, and from this share of it: less is
 * what every segment has that serves its purpose. */
#define PINNED_FREE (2ull << 20)
#define PINNED_SHARE 4

static struct vt_pools *pools_of(const struct vt_fragmentation *f, int device)
{
    uint32_t i;

    for (i = 0; i < f->pool_count; i++)
        if (f->pools[i].device == device)
            return &f->pools[i];
    return NULL;
}

const struct vt_pools *vt_fragmentation_of(const struct vt_fragmentation *f, int device)
{
    return pools_of(f, device);
}

static int by_device(const void *left, const void *right)
{
    return ((const struct vt_pools *)left)->device - ((const struct vt_pools *)right)->device;
}

/* Devices on which tensors were ever recorded. */
static int take_devices(struct vt_fragmentation *f, const struct vt_reading *r)
{
    uint64_t i, count = vt_reading_count(r, VT_TOTALS);

    if (count >= UINT32_MAX || !(f->pools = calloc(count + 1, sizeof *f->pools)))
        return -ENOMEM;
    for (i = 0; i < count; i++) {
        const struct vt_total *total = vt_reading_total(r, i);

        if (total && total->level == VT_LEVEL_TENSOR && total->device >= 0 && total->alloc_calls &&
            vt_class_of((enum vt_kind)total->kind) == VT_CLASS_DEVICE && !pools_of(f, total->device))
            f->pools[f->pool_count++] = (struct vt_pools){.device = total->device,
                                                          .private_known = vt_reading_header(r)->minor >= 3};
    }
    qsort(f->pools, f->pool_count, sizeof *f->pools, by_device);
    return 0;
}

static void add_segment(struct vt_pools *p, struct vt_segment *s, const struct vt_block *blocks)
{
    uint64_t gaps = s->bytes - s->live_bytes;
    uint64_t *free_bytes = s->small ? &p->free_small : &p->free_large,
             *largest = s->small ? &p->largest_small : &p->largest_large;
    uint32_t i;

    p->segments++;
    p->reserved += s->bytes;
    p->allocated += s->live_bytes;
    p->releasable += s->releasable;
    p->small_pool |= s->small;
    p->expandable |= s->kind == VT_KIND_VMM_MAPPED;
    p->largest_free = s->largest_gap > p->largest_free ? s->largest_gap : p->largest_free;
    if (s->live_bytes && s->kind != VT_KIND_VMM_MAPPED)
        p->split_free += gaps;
    if (s->live_bytes && s->largest_gap > p->largest_between)
        p->largest_between = s->largest_gap;
    if (s->capture) {
        p->private_segments++;
        p->private_bytes += s->bytes;
        p->private_free += gaps;
    } else {
        *free_bytes += gaps;
        *largest = s->largest_gap > *largest ? s->largest_gap : *largest;
    }
    s->pinned = s->live_bytes && gaps >= PINNED_FREE && gaps >= s->bytes / PINNED_SHARE;
    if (s->pinned) {
        p->pinned_segments++;
        p->pinned_bytes += gaps - s->releasable;
    }
    for (i = 0; i < s->blocks; i++)
        if (blocks[s->first_block + i].site == VT_NONE)
            p->gap_squares += (double)blocks[s->first_block + i].bytes * (double)blocks[s->first_block + i].bytes;
}

/*
 * Captures whose segments hold each other's tensors share a pool; each of the rest has one of its own. A tensor's capture
 * is that of its slot; what was made outside of captures says nothing.
 */
struct captures {
    uint16_t parent[UINT16_MAX + 1u];
};

static uint16_t root(struct captures *c, uint16_t number)
{
    while (c->parent[number] != number)
        number = c->parent[number] = c->parent[c->parent[number]];
    return number;
}

static void unite(struct captures *c, const struct vt_fragmentation *f, const struct vt_slot *slot)
{
    uint32_t low = 0, high = f->segment_count;

    while (low < high) { /* the last segment that begins at or before the tensor */
        uint32_t middle = low + (high - low) / 2;

        if (f->segments[middle].address <= slot->address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low && f->segments[low - 1].capture &&
        slot->address - f->segments[low - 1].address < f->segments[low - 1].bytes)
        c->parent[root(c, slot->stream)] = root(c, f->segments[low - 1].capture);
}

static int count_private_pools(struct vt_fragmentation *f, const struct vt_reading *r, const struct vt_moment *moment)
{
    enum vt_section section = moment ? VT_MOMENT_SLOTS : VT_LIVE;
    uint64_t first = moment ? moment->first_slot : 0, most = moment ? moment->slots : vt_reading_count(r, section), i;
    struct captures *c = malloc(sizeof *c);
    uint8_t *seen = calloc(f->pool_count + 1, UINT16_MAX + 1u);
    uint32_t s;

    if (!c || !seen) {
        free(c);
        free(seen);
        return -ENOMEM;
    }
    for (i = 0; i <= UINT16_MAX; i++)
        c->parent[i] = (uint16_t)i;
    for (i = 0; i < most; i++) {
        const struct vt_slot *slot = vt_reading_record(r, section, first + i);
        const struct vt_site *site = slot && slot->kind ? vt_reading_site(r, slot->site) : NULL;

        if (!slot)
            break;
        if (site && site->level == VT_LEVEL_TENSOR && slot->flags & VT_SLOT_CAPTURE && slot->stream)
            unite(c, f, slot);
    }
    for (s = 0; s < f->segment_count; s++) {
        struct vt_pools *p = pools_of(f, f->segments[s].device);
        uint8_t *known = p ? &seen[(size_t)(p - f->pools) * (UINT16_MAX + 1u) + root(c, f->segments[s].capture)] : NULL;

        if (!p || !f->segments[s].capture || *known)
            continue;
        *known = 1;
        p->private_pools++;
    }
    free(c);
    free(seen);
    return 0;
}

/* Bytes that live tensors of a device hold, and those beyond what was asked for. */
static void add_tensors(struct vt_fragmentation *f, const struct vt_reading *r, const struct vt_moment *moment)
{
    uint64_t i, count = moment ? moment->totals : vt_reading_count(r, VT_TOTALS);

    for (i = 0; i < count; i++) {
        const struct vt_moment_total *then = moment ? vt_reading_moment_total(r, moment->first_total + i) : NULL;
        const struct vt_total *total = moment ? then ? vt_reading_total(r, then->total) : NULL : vt_reading_total(r, i);
        struct vt_pools *p;
        uint64_t live, asked;

        if (moment && !then)
            break; /* the count is the file's word only */
        if (!total || total->level != VT_LEVEL_TENSOR || vt_class_of((enum vt_kind)total->kind) != VT_CLASS_DEVICE ||
            !(p = pools_of(f, total->device)))
            continue;
        live = then ? then->live_bytes : total->live_bytes;
        asked = then ? then->requested_bytes : total->requested_bytes;
        p->outside += live;
        if (asked && asked < live) {
            p->rounded = true;
            p->rounding += live - asked;
        }
    }
}

/* Live bytes of the places that take segments from the driver, where single allocations are not known. */
static uint64_t reserved_by_sites(const struct vt_fragmentation *f, const struct vt_reading *r,
                                  const struct vt_moment *moment, int device)
{
    uint64_t i, count = moment ? moment->sites : f->site_count, sum = 0;

    for (i = 0; i < count; i++) {
        const struct vt_moment_site *then = moment ? vt_reading_moment_site(r, moment->first_site + i) : NULL;
        uint64_t index = then ? then->site : i;
        const struct vt_site *site = vt_reading_site(r, index);

        if (moment && !then)
            break;
        if (site && index < f->site_count && f->pool_sites[index] && site->device == device &&
            site->kind != VT_KIND_VMM_MAPPED)
            sum += then ? then->live_bytes : site->live_bytes;
    }
    return sum;
}

/* Are the live allocations of this moment in the recording one by one? */
static bool slots_are_known(const struct vt_reading *r, const struct vt_moment *moment)
{
    if (!moment) /* a report of the process itself may have to do without them */
        return !vt_reading_incomplete(r, VT_LIVE) && (vt_reading_count(r, VT_LIVE) || !vt_reading_count(r, VT_SITES));
    return moment->slots ? vt_reading_record(r, VT_MOMENT_SLOTS, moment->first_slot + moment->slots - 1) != NULL
                         : !moment->sites;
}

static void settle(struct vt_fragmentation *f, const struct vt_reading *r, const struct vt_moment *moment,
                   struct vt_pools *p, bool slots)
{
    uint64_t tensors = p->outside; /* all of them until now */

    p->free = p->reserved - p->allocated;
    p->outside = tensors > p->allocated ? tensors - p->allocated : 0;
    if (p->reserved)
        p->gap_squares /= (double)p->reserved * (double)p->reserved;
    p->known = slots && (p->allocated || !tensors);
    if (p->known)
        return;
    *p = (struct vt_pools){.device = p->device,
                           .allocated = tensors,
                           .reserved = reserved_by_sites(f, r, moment, p->device),
                           .rounded = p->rounded,
                           .rounding = p->rounding};
    p->free = p->reserved > p->allocated ? p->reserved - p->allocated : 0;
}

static int by_pinned_bytes(const void *left, const void *right)
{
    const struct vt_pinning *a = left, *b = right;

    if (a->pinned_bytes != b->pinned_bytes)
        return a->pinned_bytes < b->pinned_bytes ? 1 : -1;
    if (a->live_bytes != b->live_bytes)
        return a->live_bytes < b->live_bytes ? 1 : -1;
    return a->site < b->site ? -1 : a->site > b->site;
}

/* Who pins what: each place whose tensors lie in a pinned segment pins what is free there. */
static int take_pinnings(struct vt_fragmentation *f)
{
    struct {
        uint32_t pinning, segment; /* index + 1; 0: none yet */
    } *of_site = calloc(f->site_count + 1, sizeof *of_site);
    uint32_t most = 0, s, i;

    for (s = 0; s < f->segment_count; s++)
        most += f->segments[s].pinned ? f->segments[s].blocks : 0;
    if (most > f->site_count)
        most = (uint32_t)f->site_count;
    if (!of_site || !(f->pinnings = calloc(most + 1, sizeof *f->pinnings))) {
        free(of_site);
        return -ENOMEM;
    }
    for (s = 0; s < f->segment_count; s++)
        for (i = 0; f->segments[s].pinned && i < f->segments[s].blocks; i++) {
            const struct vt_segment *segment = &f->segments[s];
            const struct vt_block *block = &f->blocks[segment->first_block + i];
            struct vt_pinning *pinning;

            if (block->site == VT_NONE)
                continue;
            if (!of_site[block->site].pinning) {
                f->pinnings[f->pinning_count++] = (struct vt_pinning){.site = block->site, .device = segment->device};
                of_site[block->site].pinning = f->pinning_count;
            }
            pinning = &f->pinnings[of_site[block->site].pinning - 1];
            pinning->live_bytes += block->bytes;
            pinning->blocks++;
            if (of_site[block->site].segment != s + 1)
                pinning->pinned_bytes += segment->bytes - segment->live_bytes - segment->releasable;
            of_site[block->site].segment = s + 1;
        }
    free(of_site);
    qsort(f->pinnings, f->pinning_count, sizeof *f->pinnings, by_pinned_bytes);
    return 0;
}

int vt_fragmentation_add_up(struct vt_fragmentation *f, const struct vt_reading *r, const struct vt_moment *moment)
{
    bool slots = slots_are_known(r, moment), captured = false;
    struct vt_pools *p;
    uint32_t i;

    if (take_devices(f, r))
        return -ENOMEM;
    for (i = 0; i < f->segment_count; i++) {
        captured |= f->segments[i].capture != 0;
        if ((p = pools_of(f, f->segments[i].device)))
            add_segment(p, &f->segments[i], f->blocks);
    }
    add_tensors(f, r, moment);
    for (i = 0; i < f->pool_count; i++)
        settle(f, r, moment, &f->pools[i], slots);
    if (captured && count_private_pools(f, r, moment))
        return -ENOMEM;
    return take_pinnings(f);
}

uint64_t vt_fragmentation_usable(const struct vt_pools *p, uint64_t request, uint64_t *largest)
{
    bool small = p->small_pool && request <= VT_SMALL_REQUEST;

    *largest = small ? p->largest_small : p->largest_large;
    return small ? p->free_small : p->free_large;
}

enum vt_fit vt_fragmentation_fit(const struct vt_pools *p, const struct vt_failure *failure)
{
    uint64_t largest, usable, request = failure->requested_bytes;

    if (!p || !p->known || !request)
        return VT_FIT_UNKNOWN;
    usable = vt_fragmentation_usable(p, request, &largest);
    if (usable >= request)
        return VT_FIT_YES;
    if (!vt_refused_by_framework(failure)) {
        if (!failure->total_bytes || failure->free_bytes >= request)
            return VT_FIT_UNKNOWN; /* not for want of memory on the card, as far as is known */
        return failure->free_bytes >= request - usable ? VT_FIT_YES : VT_FIT_NO;
    }
    if (!usable)
        return VT_FIT_NO;
    if (failure->total_bytes && failure->free_bytes < request - usable)
        return VT_FIT_NO; /* the card had not the rest, whatever the limit */
    return usable >= request / 4 ? VT_FIT_YES : VT_FIT_UNKNOWN;
}
