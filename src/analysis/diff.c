/*
 * Adds recordings up, in all and by place; see diff.h. What is made of the sums is in diff_finish.c.
 */
#include "analysis/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/category.h"

#define SITES_MAX 4096 /* of a recording, largest first: each costs a look-up of its stack's names */

const char *vt_diff_by_name(enum vt_diff_by by)
{
    static const char *const names[VT_DIFF_BY_COUNT] = {"live", "at-peak", "allocated"};

    return names[by];
}

const char *vt_diff_part_name(unsigned part)
{
    static const char *const names[VT_DIFF_PARTS] = {
        [VT_PART_PARAMETERS] = "parameters",   [VT_PART_GRADIENTS] = "gradients", [VT_PART_OPTIMIZER] = "optimizer",
        [VT_PART_ACTIVATIONS] = "activations", [VT_PART_INPUTS] = "inputs",       [VT_PART_OTHER] = "other",
        [VT_DIFF_CACHED] = "cached_unused",    [VT_DIFF_LIBRARIES] = "libraries", [VT_DIFF_APPLICATION] = "application",
    };

    return names[part];
}

int vt_diff_open(struct vt_diff *d, enum vt_diff_by by, bool per_step, bool all_frames)
{
    memset(d, 0, sizeof *d);
    d->by = by;
    d->per_step = per_step;
    return (d->places = vt_spots_open(all_frames)) ? 0 : -ENOMEM;
}

void vt_diff_free(struct vt_diff *d)
{
    vt_spots_close(d->places);
    free(d->values);
    free(d->totals);
    free(d->sites);
    free(d->ranks);
    memset(d, 0, sizeof *d);
}

const char *vt_diff_moment(const struct vt_diff *d, const char *moment)
{
    return d->by == VT_DIFF_AT_PEAK ? "peak" : moment;
}

/* A recording is not trusted: sums stop at the top. */
static void add(uint64_t *sum, uint64_t more)
{
    *sum = *sum + more < more ? UINT64_MAX : *sum + more;
}

static bool is_card_memory(unsigned kind)
{
    return vt_kind_is_memory(kind) && vt_class_of(kind) != VT_CLASS_HOST;
}

unsigned vt_diff_gpus(const struct vt_model *m, int *ordinal)
{
    unsigned count = 0;
    uint64_t i, j, scopes = vt_reading_count(m->reading, VT_SCOPES);

    for (i = 0; i < scopes; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i), *earlier = NULL;

        if (!scope || scope->device < 0 || !scope->peak_bytes)
            continue;
        for (j = 0; j < i; j++)
            if ((earlier = vt_reading_scope(m->reading, j)) && earlier->device == scope->device && earlier->peak_bytes)
                break;
        count += j == i;
        *ordinal = scope->device;
    }
    return count;
}

static int device_of(int16_t device, bool any_device)
{
    return device < 0 ? VT_SPOT_HOST : any_device ? VT_SPOT_ANY : device;
}

static struct vt_diff_total *total_of(struct vt_diff *d, unsigned level, unsigned kind, int device)
{
    struct vt_diff_total *grown;
    uint32_t i;

    for (i = 0; i < d->total_count; i++)
        if (d->totals[i].level == level && d->totals[i].kind == kind && d->totals[i].device == device)
            return &d->totals[i];
    if (!(grown = realloc(d->totals, (d->total_count + 1) * sizeof *grown)))
        return NULL;
    d->totals = grown;
    grown[d->total_count] = (struct vt_diff_total){.level = (uint8_t)level, .kind = (uint8_t)kind, .device = device};
    return &grown[d->total_count++];
}

/* Returns what the recording adds to the side's device_bytes. */
static int add_totals(struct vt_diff *d, unsigned s, const struct vt_model *m, bool any_device, uint64_t *device_bytes)
{
    uint32_t i;

    *device_bytes = 0;
    for (i = 0; i < m->total_count; i++) {
        const struct vt_total_row *row = &m->totals[i];
        uint64_t bytes = d->by == VT_DIFF_ALLOCATED ? row->record->total_bytes : row->live_bytes;
        uint64_t count = d->by == VT_DIFF_ALLOCATED ? row->record->alloc_calls : row->live_count;
        struct vt_diff_total *total = total_of(d, row->record->level, row->record->kind,
                                               device_of(row->record->device, any_device));

        if (!total)
            return -ENOMEM;
        add(&total->bytes[s], bytes);
        add(&total->count[s], count);
        if (!is_card_memory(row->record->kind))
            continue;
        if (row->record->level == VT_LEVEL_DRIVER)
            add(device_bytes, bytes);
        else
            add(&d->side[s].tensor_bytes, bytes);
    }
    add(&d->side[s].device_bytes, *device_bytes);
    return 0;
}

static void add_parts(struct vt_diff_side *side, const struct vt_model *m)
{
    uint32_t i, j;

    side->parts_known = true;
    for (i = 0; i < m->device_count; i++) {
        const struct vt_device_row *device = &m->devices[i];

        for (j = 0; j < VT_PART_COUNT; j++)
            add(&side->part[j], device->tensor_part[j]);
        add(&side->part[VT_DIFF_CACHED], device->cached_unused);
        add(&side->part[VT_DIFF_APPLICATION], device->application);
        for (j = 0; j < device->library_count; j++)
            add(&side->part[VT_DIFF_LIBRARIES], device->libraries[j].bytes);
    }
}

static int add_rank(struct vt_diff *d, unsigned s, int32_t rank, uint64_t bytes)
{
    struct vt_diff_rank *grown;
    uint32_t i;

    for (i = 0; i < d->rank_count && d->ranks[i].rank != rank; i++)
        ;
    if (i == d->rank_count) {
        if (!(grown = realloc(d->ranks, (d->rank_count + 1) * sizeof *grown)))
            return -ENOMEM;
        d->ranks = grown;
        d->ranks[d->rank_count++] = (struct vt_diff_rank){.rank = rank};
    }
    d->ranks[i].present[s] = true;
    add(&d->ranks[i].bytes[s], bytes);
    return 0;
}

/* The steps that the figures come from: those of the run, or until the moment. */
static uint64_t steps_of(const struct vt_diff *d, const struct vt_model *m)
{
    bool whole = d->by == VT_DIFF_ALLOCATED || (!m->recorded && strcmp(m->moment, "peak"));

    return whole ? vt_reading_header(m->reading)->steps : vt_model_steps_until(m->reading, m->moment_ns);
}

static void describe(struct vt_diff *d, unsigned s, const struct vt_model *m)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    struct vt_diff_side *side = &d->side[s];
    uint64_t steps = steps_of(d, m);

    memcpy(side->moment, m->moment, sizeof side->moment);
    memcpy(side->program, h->program, sizeof side->program);
    memcpy(side->host, h->host, sizeof side->host);
    side->pid = h->pid;
    side->rank = h->rank;
    side->recordings++;
    if (m->missing[0] && !side->incomplete++)
        memcpy(side->missing, m->missing, sizeof side->missing);
    side->steps = steps > side->steps ? steps : side->steps;
}

/* A row with its measure, for sorting. */
struct measured {
    const struct vt_site_row *row;
    uint64_t bytes, count;
};

static int larger_first(const void *left, const void *right)
{
    const struct measured *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->row->index < b->row->index ? -1 : a->row->index > b->row->index;
}

static struct measured *measure(const struct vt_diff *d, const struct vt_model *m, uint32_t *count)
{
    struct measured *list = calloc(m->site_count ? m->site_count : 1, sizeof *list);
    uint32_t i;

    *count = 0;
    for (i = 0; list && i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (!vt_site_counts(m, row))
            continue;
        list[(*count)++] = d->by == VT_DIFF_ALLOCATED
                               ? (struct measured){row, row->record->total_bytes, row->record->alloc_calls}
                               : (struct measured){row, row->live_bytes, row->live_count};
    }
    if (list)
        qsort(list, *count, sizeof *list, larger_first);
    return list;
}

static struct vt_diff_site *value_of(struct vt_diff *d, uint32_t place)
{
    uint32_t room = d->value_count ? d->value_count : 256, i;
    struct vt_diff_site *grown;

    while (room <= place)
        room *= 2;
    if (room != d->value_count) {
        if (!(grown = realloc(d->values, room * sizeof *grown)))
            return NULL;
        for (i = d->value_count; i < room; i++)
            grown[i] = (struct vt_diff_site){.place = {VT_NONE, VT_NONE}};
        d->values = grown;
        d->value_count = room;
    }
    return &d->values[place];
}

static int add_sites(struct vt_diff *d, unsigned s, const struct vt_analysis *a, bool any_device)
{
    uint32_t count, i, place;
    struct measured *list = measure(d, &a->model, &count);
    struct vt_diff_site *value;
    int error = list ? 0 : -ENOMEM;

    for (i = 0; i < count && !error; i++) {
        const struct vt_site *site = list[i].row->record;

        if (i >= SITES_MAX) {
            add(&d->side[s].rest, list[i].bytes);
            continue;
        }
        place = vt_spots_add(d->places, a->model.reading, a->symbols, &a->style, site,
                             device_of(site->device, any_device));
        if (place == VT_NONE && vt_spots_no_memory(d->places)) {
            error = -ENOMEM;
        } else if (place == VT_NONE) {
            add(&d->side[s].rest, list[i].bytes);
        } else if (!(value = value_of(d, place))) {
            error = -ENOMEM;
        } else {
            value->place[s] = place;
            add(&value->bytes[s], list[i].bytes);
            add(&value->count[s], list[i].count);
        }
    }
    free(list);
    return error;
}

int vt_diff_add(struct vt_diff *d, unsigned s, const struct vt_analysis *a, bool any_device, bool is_rank)
{
    uint64_t bytes;
    int error;

    describe(d, s, &a->model);
    if ((error = add_totals(d, s, &a->model, any_device, &bytes)))
        return error;
    if (is_rank && (error = add_rank(d, s, vt_reading_header(a->model.reading)->rank, bytes)))
        return error;
    if (d->by != VT_DIFF_ALLOCATED)
        add_parts(&d->side[s], &a->model);
    return add_sites(d, s, a, any_device);
}
