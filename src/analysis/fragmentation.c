/*
 * Joins the driver's allocations with the tensors in them: which are segments of a framework, and how live blocks and gaps
 * tile them; see fragmentation.h. Figures that follow from that are in fragmentation_figures.c.
 *
 * Everything is sorted by address once; reservations, allocations and tensors are then walked side by side.
 */
#include "analysis/fragmentation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"

enum part { PART_ROOM, PART_DRIVER, PART_TENSOR };

/* What the join needs of a live slot. */
struct piece {
    uint64_t address, end;
    uint32_t site;
    uint16_t capture;
    int16_t device;
    uint8_t part, kind;
};

/* A segment in the making: pieces that touch each other. */
struct range {
    uint64_t address, end;
    uint32_t first_piece, pieces, first_tensor, tensors;
};

struct join {
    struct vt_fragmentation *f;
    const struct vt_reading *reading;
    struct piece *pieces;
    uint32_t count, first_driver, first_tensor; /* pieces are sorted: reservations, allocations, tensors */
    struct range *ranges;
    uint32_t range_count;
    uint8_t *modules; /* per module: 1 an allocator's library, 2 its mapped ranges hold tensors */
    uint64_t module_count;
};
#define ALLOCATOR 1u
#define MAPS 2u

static enum part part_of(const struct vt_slot *slot, const struct vt_site *site)
{
    if (site->level == VT_LEVEL_TENSOR)
        return PART_TENSOR;
    return slot->kind == VT_KIND_VMM_RESERVED_VA ? PART_ROOM : PART_DRIVER;
}

/* Does the slot take part? Physical memory shows through its mappings; handles and host memory hold no tensors. */
static bool takes_part(const struct vt_slot *slot, const struct vt_site *site)
{
    if (!slot->bytes || slot->bytes > UINT64_MAX - slot->address || slot->kind >= VT_KIND_COUNT)
        return false;
    if (site->level == VT_LEVEL_TENSOR)
        return vt_class_of((enum vt_kind)slot->kind) == VT_CLASS_DEVICE && site->device >= 0;
    switch (slot->kind) {
    case VT_KIND_DEVICE:
    case VT_KIND_MANAGED:
    case VT_KIND_ASYNC:
    case VT_KIND_GRAPH:
    case VT_KIND_VMM_MAPPED:
        return site->device >= 0;
    default:
        return slot->kind == VT_KIND_VMM_RESERVED_VA;
    }
}

static int by_part_and_address(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;

    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static int take_pieces(struct join *j, const struct vt_moment *moment)
{
    enum vt_section section = moment ? VT_MOMENT_SLOTS : VT_LIVE;
    uint64_t first = moment ? moment->first_slot : 0, all = vt_reading_count(j->reading, section), i;
    uint64_t most = !moment ? all : first < all ? all - first : 0;

    if (moment && moment->slots < most)
        most = moment->slots;
    if (most >= UINT32_MAX / 4 || !(j->pieces = malloc((most + 1) * sizeof *j->pieces)))
        return -ENOMEM;
    for (i = 0; i < most; i++) {
        const struct vt_slot *record = vt_reading_record(j->reading, section, first + i);
        const struct vt_slot slot = record ? *record : (struct vt_slot){0}; /* a live process may change it meanwhile */
        const struct vt_site *site = slot.kind ? vt_reading_site(j->reading, slot.site) : NULL;

        if (site && takes_part(&slot, site))
            j->pieces[j->count++] = (struct piece){
                .address = slot.address,
                .end = slot.address + slot.bytes,
                .site = slot.site,
                .capture = (uint16_t)(slot.flags & VT_SLOT_CAPTURE ? slot.stream : 0),
                .device = site->device,
                .part = (uint8_t)part_of(&slot, site),
                .kind = slot.kind};
    }
    qsort(j->pieces, j->count, sizeof *j->pieces, by_part_and_address);
    while (j->first_driver < j->count && j->pieces[j->first_driver].part == PART_ROOM)
        j->first_driver++;
    j->first_tensor = j->first_driver;
    while (j->first_tensor < j->count && j->pieces[j->first_tensor].part == PART_DRIVER)
        j->first_tensor++;
    return 0;
}

/* Index of the reservation that an address lies in; VT_NONE: none. *from: where to look, for addresses that only rise. */
static uint32_t room_of(const struct join *j, uint64_t address, uint32_t *from)
{
    while (*from < j->first_driver && j->pieces[*from].end <= address)
        ++*from;
    return *from < j->first_driver && j->pieces[*from].address <= address ? *from : VT_NONE;
}

static bool continues(const struct piece *before, uint32_t room_before, const struct piece *piece, uint32_t room)
{
    return before->kind == VT_KIND_VMM_MAPPED && piece->kind == VT_KIND_VMM_MAPPED && before->end == piece->address &&
           before->device == piece->device && room_before == room && !before->capture == !piece->capture;
}

/* Allocations, those that continue each other taken together. What overlaps another one comes from a damaged file. */
static int take_ranges(struct join *j)
{
    uint32_t i, from = 0, room, room_before = VT_NONE;
    struct range *last = NULL;

    if (!(j->ranges = calloc(j->first_tensor - j->first_driver + 1, sizeof *j->ranges)))
        return -ENOMEM;
    for (i = j->first_driver; i < j->first_tensor; i++) {
        const struct piece *piece = &j->pieces[i];

        room = piece->kind == VT_KIND_VMM_MAPPED ? room_of(j, piece->address, &from) : VT_NONE;
        if (last && piece->address < last->end)
            continue;
        if (last && last->first_piece + last->pieces == i && continues(piece - 1, room_before, piece, room)) {
            last->pieces++;
            last->end = piece->end;
        } else {
            last = &j->ranges[j->range_count++];
            *last = (struct range){.address = piece->address, .end = piece->end, .first_piece = i, .pieces = 1};
        }
        room_before = room;
    }
    return 0;
}

static void place_tensors(struct join *j)
{
    uint32_t t, r = 0;

    for (t = j->first_tensor; t < j->count; t++) {
        while (r < j->range_count && j->ranges[r].end <= j->pieces[t].address)
            r++;
        if (r == j->range_count)
            break;
        if (j->ranges[r].address > j->pieces[t].address)
            continue;
        if (!j->ranges[r].tensors++)
            j->ranges[r].first_tensor = t;
    }
}

/* The recording names the libraries whose allocators report; "libc10_cuda.so" stands for "libc10_cuda.so.2.6", too. */
static bool is_named(const struct vt_reading *r, const char *path)
{
    uint64_t i, count = vt_reading_count(r, VT_ALLOCATORS);

    for (i = 0; i < count; i++) {
        const struct vt_allocator *allocator = vt_reading_allocator(r, i);
        const char *name = allocator ? vt_basename(vt_reading_chars(r, allocator->name)) : "";

        if (*name && !strncmp(vt_basename(path), name, strlen(name)))
            return true;
    }
    return false;
}

/* Marks the places and libraries of what holds tensors, and the libraries that the recording names. */
static int mark_holders(struct join *j)
{
    uint64_t i;
    uint32_t r, p;

    j->module_count = vt_reading_count(j->reading, VT_MODULES);
    if (!(j->modules = calloc(j->module_count + 1, 1)))
        return -ENOMEM;
    for (i = 0; i < j->module_count; i++) {
        const struct vt_module *module = vt_reading_module(j->reading, i);

        if (module && is_named(j->reading, vt_reading_chars(j->reading, module->path)))
            j->modules[i] |= ALLOCATOR;
    }
    for (r = 0; r < j->range_count; r++)
        for (p = 0; j->ranges[r].tensors && p < j->ranges[r].pieces; p++) {
            const struct piece *piece = &j->pieces[j->ranges[r].first_piece + p];
            uint32_t module;

            if (j->f->pool_sites[piece->site])
                continue;
            j->f->pool_sites[piece->site] = 1;
            module = vt_owner_module(j->reading, vt_reading_site(j->reading, piece->site)->stack);
            if (module >= j->module_count)
                continue;
            if (vt_module_class_at(j->reading, module) == VT_MODULE_FRAMEWORK)
                j->modules[module] |= ALLOCATOR;
            if (piece->kind == VT_KIND_VMM_MAPPED)
                j->modules[module] |= MAPS;
        }
    return 0;
}

/* Everything else that those libraries took from the driver is pool, too; physical memory goes with its mappings. What
 * is stream-ordered is handed on by the driver's own pools, one allocation for one request. */
static void mark_pool_sites(struct join *j)
{
    uint64_t i;

    for (i = 0; i < j->f->site_count; i++) {
        const struct vt_site *site = vt_reading_site(j->reading, i);
        uint32_t module, wanted = ALLOCATOR;

        if (!site || site->level != VT_LEVEL_DRIVER || j->f->pool_sites[i])
            continue;
        if (site->kind == VT_KIND_VMM_PHYSICAL)
            wanted = ALLOCATOR | MAPS;
        else if (site->kind != VT_KIND_DEVICE && site->kind != VT_KIND_VMM_MAPPED)
            continue;
        module = vt_owner_module(j->reading, site->stack);
        if (module < j->module_count && j->modules[module] & wanted)
            j->f->pool_sites[i] = 1;
    }
}

static void add_block(struct vt_fragmentation *f, struct vt_segment *segment, uint64_t from, uint64_t to, uint32_t site)
{
    if (from >= to)
        return;
    f->blocks[f->block_count++] = (struct vt_block){from, to - from, site};
    segment->blocks++;
    if (site != VT_NONE)
        segment->live_bytes += to - from;
    else if (to - from > segment->largest_gap)
        segment->largest_gap = to - from;
}

static void tile(struct join *j, const struct range *range, struct vt_segment *segment)
{
    uint64_t at = range->address;
    uint32_t t, end = range->first_tensor + range->tensors;

    segment->first_block = j->f->block_count;
    for (t = range->first_tensor; t < end; t++) {
        const struct piece *tensor = &j->pieces[t];
        uint64_t from = tensor->address > at ? tensor->address : at,
                 to = tensor->end < range->end ? tensor->end : range->end;

        add_block(j->f, segment, at, from, VT_NONE);
        add_block(j->f, segment, from, to, tensor->site);
        at = to > at ? to : at;
    }
    add_block(j->f, segment, at, range->end, VT_NONE);
}

/* What can be given back: allocations that no live block touches. A private pool keeps its own. */
static uint64_t releasable(const struct join *j, const struct range *range)
{
    uint32_t p, t = range->first_tensor, end = range->first_tensor + range->tensors;
    uint64_t sum = 0, busy_until = 0;

    for (p = range->first_piece; p < range->first_piece + range->pieces; p++) {
        const struct piece *piece = &j->pieces[p];

        for (; t < end && j->pieces[t].address < piece->end; t++)
            if (j->pieces[t].end > busy_until)
                busy_until = j->pieces[t].end;
        if (busy_until <= piece->address)
            sum += piece->end - piece->address;
    }
    return sum;
}

/* PyTorch keeps segments of one size for small requests. */
static bool is_small(const struct join *j, const struct piece *piece)
{
    const struct vt_site *site = vt_reading_site(j->reading, piece->site);
    const struct vt_module *module = vt_reading_module(j->reading, vt_owner_module(j->reading, site->stack));

    return piece->end - piece->address == VT_SMALL_SEGMENT && module &&
           !strncmp(vt_basename(vt_reading_chars(j->reading, module->path)), "libc10", 6);
}

static int take_segments(struct join *j)
{
    struct vt_fragmentation *f = j->f;
    uint32_t r, blocks = 2 * (j->count - j->first_tensor) + j->range_count + 1;

    f->segments = calloc(j->range_count + 1, sizeof *f->segments);
    f->blocks = calloc(blocks, sizeof *f->blocks);
    if (!f->segments || !f->blocks)
        return -ENOMEM;
    for (r = 0; r < j->range_count; r++) {
        const struct range *range = &j->ranges[r];
        const struct piece *first = &j->pieces[range->first_piece];
        struct vt_segment *segment = &f->segments[f->segment_count];

        if (!range->tensors && !f->pool_sites[first->site])
            continue;
        *segment = (struct vt_segment){.address = range->address,
                                       .bytes = range->end - range->address,
                                       .site = first->site,
                                       .capture = first->capture,
                                       .device = first->device,
                                       .kind = first->kind,
                                       .small = is_small(j, first)};
        tile(j, range, segment);
        segment->releasable = segment->capture ? 0 : releasable(j, range);
        f->segment_count++;
    }
    return 0;
}

int vt_fragmentation_build(struct vt_fragmentation *f, const struct vt_reading *reading, const struct vt_moment *moment)
{
    struct join j = {.f = f, .reading = reading};
    int error = -ENOMEM;

    memset(f, 0, sizeof *f);
    f->site_count = vt_reading_count(reading, VT_SITES);
    if (!(f->pool_sites = calloc(f->site_count + 1, 1)) || (error = take_pieces(&j, moment)) ||
        (error = take_ranges(&j)))
        goto out;
    place_tensors(&j);
    if ((error = mark_holders(&j)))
        goto out;
    mark_pool_sites(&j);
    if (!(error = take_segments(&j)))
        error = vt_fragmentation_add_up(f, reading, moment);
out:
    free(j.pieces);
    free(j.ranges);
    free(j.modules);
    if (error)
        vt_fragmentation_free(f);
    return error;
}

void vt_fragmentation_free(struct vt_fragmentation *f)
{
    free(f->pools);
    free(f->segments);
    free(f->blocks);
    free(f->pinnings);
    free(f->pool_sites);
    memset(f, 0, sizeof *f);
}

bool vt_fragmentation_is_pool(const struct vt_fragmentation *f, uint32_t site)
{
    return site < f->site_count && f->pool_sites[site];
}
