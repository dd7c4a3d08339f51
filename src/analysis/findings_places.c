/*
 * The rows of a model as places (places.h), for findings: which of them are judged together, and what is told of them in one
 * line. Ten lines of evidence that read alike say less than one with their sum.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define SITES_MAX 512 /* of a finding: sites that are compared */

bool vt_row_places_build(struct vt_finding_builder *b, struct vt_row_places *rp, const bool *wanted, uint32_t rows)
{
    const struct vt_site **sites = calloc(rows ? rows : 1, sizeof *sites);
    uint32_t i, count = 0;
    bool done = false;

    *rp = (struct vt_row_places){.model = b->model, .of = calloc(rows ? rows : 1, sizeof *rp->of), .rows = rows};
    for (i = 0; sites && rp->of && i < rows; i++) {
        rp->of[i] = wanted[i] ? count : VT_NONE;
        if (wanted[i])
            sites[count++] = b->model->sites[i].record;
    }
    if (sites && rp->of)
        done = !vt_places_build(&rp->places, b->model->reading, b->symbols, b->style, sites, count);
    free(sites);
    b->no_memory |= !done;
    return done;
}

void vt_row_places_free(struct vt_row_places *rp)
{
    vt_places_free(&rp->places);
    free(rp->of);
    memset(rp, 0, sizeof *rp);
}

const struct vt_place *vt_row_place(const struct vt_row_places *rp, uint32_t row)
{
    return row < rp->rows && rp->of[row] != VT_NONE ? &rp->places.list[rp->of[row]] : NULL;
}

static int larger_first(const void *left, const void *right)
{
    const struct vt_place_sum *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return (a->place > b->place) - (a->place < b->place);
}

/* What had been freed at the model's moment, at most: at recorded moments the site's figures are of later, and what was live
 * then had not been freed. */
static uint64_t freed_by_then(const struct vt_model *m, const struct vt_site_row *row)
{
    uint64_t freed = row->record->free_calls + row->record->retired, made = row->record->alloc_calls;

    if (m->recorded && made >= row->live_count && made - row->live_count < freed)
        return made - row->live_count;
    return freed;
}

struct vt_place_sum *vt_row_places_sum(struct vt_finding_builder *b, const struct vt_row_places *rp, const bool *taken,
                                       uint32_t *count)
{
    struct vt_place_sum *sums = calloc(rp->places.count ? rp->places.count : 1, sizeof *sums);
    uint32_t i, at = 0;

    *count = 0;
    if (!sums) {
        b->no_memory = true;
        return NULL;
    }
    for (i = 0; i < rp->rows; i++) {
        const struct vt_site_row *row = &rp->model->sites[i];
        const struct vt_place *place = vt_row_place(rp, i);
        struct vt_place_sum *sum;

        if (!place || !taken[i])
            continue;
        sum = &sums[place->name];
        sum->place = &rp->places.list[place->name];
        sum->bytes += row->live_bytes;
        sum->count += row->live_count;
        sum->made += row->record->alloc_calls;
        sum->freed += freed_by_then(rp->model, row);
        sum->requested += row->requested_bytes;
        sum->retired += row->record->retired;
    }
    for (i = 0; i < rp->places.count; i++)
        if (sums[i].place)
            sums[at++] = sums[i];
    *count = at;
    if (at)
        qsort(sums, at, sizeof *sums, larger_first);
    return sums;
}

void vt_show_place(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_place_sum *sum)
{
    char name[VT_PLACE_NAME], bytes[VT_FORMAT_BYTES];

    vt_add_evidence(b, finding, "%s in %llu (%s) by %s: %llu allocated, %llu freed.",
                    vt_format_bytes(bytes, sum->bytes), (unsigned long long)sum->count,
                    vt_kind_name(sum->place->site->kind), vt_place_name(name, sum->place),
                    (unsigned long long)sum->made, (unsigned long long)sum->freed);
}

struct vt_place_sum *vt_sum_sites(struct vt_finding_builder *b, const struct vt_finding *finding,
                                  struct vt_row_places *places, uint32_t *count)
{
    const struct vt_model *m = b->model;
    bool *taken = calloc(m->site_count ? m->site_count : 1, sizeof *taken);
    struct vt_place_sum *list = NULL;
    uint32_t i;

    memset(places, 0, sizeof *places);
    *count = 0;
    if (!taken) {
        b->no_memory = true;
        return NULL;
    }
    for (i = 0; i < finding->site_count && i < SITES_MAX; i++) {
        const struct vt_site_row *row = vt_model_site(m, finding->sites[i]);

        if (row)
            taken[row - m->sites] = true;
    }
    if (vt_row_places_build(b, places, taken, m->site_count))
        list = vt_row_places_sum(b, places, taken, count);
    free(taken);
    return list;
}

void vt_show_sites(struct vt_finding_builder *b, struct vt_finding *finding, uint32_t most)
{
    struct vt_row_places places;
    uint32_t count, i;
    struct vt_place_sum *list = vt_sum_sites(b, finding, &places, &count);

    for (i = 0; i < count && i < most; i++)
        vt_show_place(b, finding, &list[i]);
    free(list);
    vt_row_places_free(&places);
}
