/*
 * From sums by place to changes: places that only one side has are paired by their functions, figures divided by steps, and
 * everything put in order; see diff.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diff.h"

#define NEAR_SHARE 20 /* a twentieth more or less is the same place, as alignment and batches make it */

int64_t vt_diff_change(const uint64_t bytes[2])
{
    uint64_t by = bytes[1] > bytes[0] ? bytes[1] - bytes[0] : bytes[0] - bytes[1];

    if (by > INT64_MAX)
        by = INT64_MAX;
    return bytes[1] >= bytes[0] ? (int64_t)by : -(int64_t)by;
}

const char *vt_diff_word(const uint64_t bytes[2])
{
    if (bytes[0] == bytes[1])
        return "unchanged";
    if (!bytes[0])
        return "appeared";
    if (!bytes[1])
        return "vanished";
    return bytes[1] > bytes[0] ? "grew" : "shrank";
}

uint64_t vt_diff_growth(const struct vt_diff *d, uint64_t *before)
{
    const uint64_t device[2] = {d->side[0].device_bytes, d->side[1].device_bytes};
    const uint64_t tensor[2] = {d->side[0].tensor_bytes, d->side[1].tensor_bytes};
    uint64_t of_device = device[1] > device[0] ? device[1] - device[0] : 0;
    uint64_t of_tensors = tensor[1] > tensor[0] ? tensor[1] - tensor[0] : 0;

    *before = of_tensors > of_device ? tensor[0] : device[0];
    return of_tensors > of_device ? of_tensors : of_device;
}

struct lonely {
    const struct vt_spot *place;
    struct vt_diff_site *value;
};

static int by_chain(const void *left, const void *right)
{
    const struct lonely *a = left, *b = right;
    int order = vt_spot_compare_chain(a->place, b->place);

    return order ? order : vt_spot_compare_lines(a->place, b->place);
}

static struct lonely *find_lonely(struct vt_diff *d, unsigned s, uint32_t *count)
{
    struct lonely *list = calloc(d->value_count ? d->value_count : 1, sizeof *list);
    uint32_t i;

    *count = 0;
    for (i = 0; list && i < d->value_count; i++) {
        struct vt_diff_site *value = &d->values[i];

        if (value->place[s] != VT_NONE && value->place[!s] == VT_NONE &&
            vt_spot_is_named(vt_spots_at(d->places, value->place[s])))
            list[(*count)++] = (struct lonely){vt_spots_at(d->places, value->place[s]), value};
    }
    if (list)
        qsort(list, *count, sizeof *list, by_chain);
    return list;
}

/* The later one's figures go to the earlier one's row. */
static void join(struct vt_diff_site *before, struct vt_diff_site *after)
{
    before->place[1] = after->place[1];
    before->bytes[1] = after->bytes[1];
    before->count[1] = after->count[1];
    after->place[1] = VT_NONE;
}

static int match_moved(struct vt_diff *d)
{
    uint32_t counts[2], i = 0, j = 0;
    struct lonely *before = find_lonely(d, 0, &counts[0]), *after = find_lonely(d, 1, &counts[1]);

    while (before && after && i < counts[0] && j < counts[1]) {
        int order = vt_spot_compare_chain(before[i].place, after[j].place);

        if (!order) {
            join(before[i].value, after[j].value);
            before[i].value->moved = true;
        }
        i += order <= 0;
        j += order >= 0;
    }
    i = before && after;
    free(before);
    free(after);
    return i ? 0 : -ENOMEM;
}

static uint64_t bytes_of(const struct lonely *l)
{
    return l->value->bytes[l->value->place[1] != VT_NONE];
}

/* Places of one line stand together, by bytes. */
static int by_inner(const void *left, const void *right)
{
    const struct lonely *a = left, *b = right;
    int order = vt_spot_compare_inner(a->place, b->place);

    if (order)
        return order;
    return bytes_of(a) < bytes_of(b) ? -1 : bytes_of(a) > bytes_of(b);
}

static bool is_near(uint64_t a, uint64_t b)
{
    return (a > b ? a - b : b - a) <= (a > b ? a : b) / NEAR_SHARE;
}

/* A program that calls its training from another function does not free and make everything anew. Bytes that differ are no
 * proof of that: such places stay two. */
static int match_callers(struct vt_diff *d)
{
    uint32_t counts[2], i = 0, j = 0;
    struct lonely *before = find_lonely(d, 0, &counts[0]), *after = find_lonely(d, 1, &counts[1]);

    if (before && after) {
        qsort(before, counts[0], sizeof *before, by_inner);
        qsort(after, counts[1], sizeof *after, by_inner);
    }
    while (before && after && i < counts[0] && j < counts[1]) {
        int order = vt_spot_compare_inner(before[i].place, after[j].place);

        if (!order && is_near(bytes_of(&before[i]), bytes_of(&after[j]))) {
            join(before[i].value, after[j].value);
            before[i].value->other_callers = true;
        } else if (!order) {
            order = bytes_of(&before[i]) < bytes_of(&after[j]) ? -1 : 1;
        }
        i += order <= 0;
        j += order >= 0;
    }
    i = before && after;
    free(before);
    free(after);
    return i ? 0 : -ENOMEM;
}

static uint64_t magnitude(const uint64_t bytes[2])
{
    return bytes[1] > bytes[0] ? bytes[1] - bytes[0] : bytes[0] - bytes[1];
}

static uint64_t larger(const uint64_t bytes[2])
{
    return bytes[1] > bytes[0] ? bytes[1] : bytes[0];
}

static int most_changed_first(const void *left, const void *right)
{
    const struct vt_diff_site *a = left, *b = right;
    uint64_t x = magnitude(a->bytes), y = magnitude(b->bytes);

    if (x != y)
        return x < y ? 1 : -1;
    if (larger(a->bytes) != larger(b->bytes))
        return larger(a->bytes) < larger(b->bytes) ? 1 : -1;
    x = a->place[0] < a->place[1] ? a->place[0] : a->place[1];
    y = b->place[0] < b->place[1] ? b->place[0] : b->place[1];
    return x < y ? -1 : x > y;
}

static int by_rank(const void *left, const void *right)
{
    const struct vt_diff_rank *a = left, *b = right;

    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int by_kind(const void *left, const void *right)
{
    const struct vt_diff_total *a = left, *b = right;

    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}

static uint64_t divided(uint64_t bytes, uint64_t steps)
{
    return bytes / steps + (bytes % steps >= steps - steps / 2);
}

static void divide(struct vt_diff *d, unsigned s)
{
    struct vt_diff_side *side = &d->side[s];
    uint32_t i;

    if (!side->steps)
        return;
    side->device_bytes = divided(side->device_bytes, side->steps);
    side->tensor_bytes = divided(side->tensor_bytes, side->steps);
    side->rest = divided(side->rest, side->steps);
    for (i = 0; i < VT_DIFF_PARTS; i++)
        side->part[i] = divided(side->part[i], side->steps);
    for (i = 0; i < d->total_count; i++)
        d->totals[i].bytes[s] = divided(d->totals[i].bytes[s], side->steps);
    for (i = 0; i < d->rank_count; i++)
        d->ranks[i].bytes[s] = divided(d->ranks[i].bytes[s], side->steps);
    for (i = 0; i < d->site_count; i++)
        d->sites[i].bytes[s] = divided(d->sites[i].bytes[s], side->steps);
}

int vt_diff_finish(struct vt_diff *d)
{
    uint32_t i;

    if (match_moved(d) || match_callers(d))
        return -ENOMEM;
    for (i = 0; i < d->value_count; i++)
        if (d->values[i].place[0] != VT_NONE || d->values[i].place[1] != VT_NONE)
            d->values[d->site_count++] = d->values[i];
    d->sites = d->values;
    d->values = NULL;
    d->value_count = 0;
    if (d->per_step) {
        divide(d, 0);
        divide(d, 1);
    }
    if (d->site_count)
        qsort(d->sites, d->site_count, sizeof *d->sites, most_changed_first);
    if (d->rank_count)
        qsort(d->ranks, d->rank_count, sizeof *d->ranks, by_rank);
    if (d->total_count)
        qsort(d->totals, d->total_count, sizeof *d->totals, by_kind);
    return 0;
}
