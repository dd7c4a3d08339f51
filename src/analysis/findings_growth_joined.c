/*
 * Growth at a place that the recording has as several: one line of Python calls other kernels for other sizes, an inlined
 * template is in the program many times, a helper opens ranges by other names. Each of its sites then has few births, or had
 * its turn and is silent since, and none of them grows by itself.
 *
 * Sites with the same chain (places.h), phase and device are joined, and their births tested as those of one place; but only
 * if none of them has ever let go of anything in a later step than it was made in (without steps: of anything). Else what is
 * left of each shows a choice: of a ring whose blocks come from many sites, those that have freed nothing yet are young, and
 * together with a cache that fills up they look like growth. For the same reason a site with few births is not believed that
 * it grows, if the chain as a whole does not.
 */
#include <stdlib.h>

#include "analysis/category.h"
#include "analysis/growth_rules.h"
#include "analysis/trend.h"

/* Births from which a row is a case of its own, and fewest of rows that are judged together: of the blocks of a ring or cache
 * that come from many sites, six or seven at one of them are evenly spread once in some hundred times. */
#define ALONE 12
#define TOGETHER 8

/* The rows of one chain. */
struct chain {
    uint32_t kept[VT_GROWTH_ROWS], kept_count; /* those that have kept what they made, */
    uint64_t live;                             /* their live allocations, */
    uint32_t all[VT_GROWTH_ROWS], all_count;   /* and all rows */
};

/* Has a row kept all that it made, as far as the clock's ticks show? */
static bool kept_all(const struct vt_births *births, const struct vt_site_row *row)
{
    if (births->clock == VT_CLOCK_STEPS && row->record->level == VT_LEVEL_TENSOR)
        return !row->record->ended[VT_FATE_LATER].count && !row->record->retired;
    return vt_model_never_freed(row);
}

static bool may_join(const struct vt_finding_builder *b, const struct vt_births *births, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];

    return (!row->live_count || vt_births_known(births, i)) && kept_all(births, row) &&
           (births->clock != VT_CLOCK_PASSES || row->record->phase == VT_PHASE_NONE) &&
           !vt_growth_is_meant(b, row, births->clock == VT_CLOCK_STEPS || births->clock == VT_CLOCK_PASSES);
}

static bool same_chain(const struct vt_births *births, const struct vt_row_places *places, uint32_t i, uint32_t j)
{
    const struct vt_site *a = births->model->sites[i].record, *b = births->model->sites[j].record;

    return vt_row_place(places, i)->chain == vt_row_place(places, j)->chain && a->phase == b->phase &&
           a->device == b->device;
}

/* The ticks of all births of some rows, in their order; NULL: no memory. */
static uint64_t *ticks_of(const struct vt_births *births, const uint32_t *rows, uint32_t rows_count, uint64_t *count)
{
    uint64_t *ticks, k, at = 0;
    uint32_t i;

    for (*count = 0, i = 0; i < rows_count; i++)
        *count += vt_births_count(births, rows[i]);
    if (!(ticks = calloc(*count ? *count : 1, sizeof *ticks)))
        return NULL;
    for (i = 0; i < rows_count; i++)
        for (k = 0; k < vt_births_count(births, rows[i]); k++)
            ticks[at++] = vt_births_tick(births, vt_births_of(births, rows[i])[k].time_ns);
    qsort(ticks, at, sizeof *ticks, vt_growth_compare);
    return ticks;
}

/* Without a clock and for less than minutes: again and again until the end, which may be meant. */
static bool is_possible(const struct vt_births *births, const struct chain *chain)
{
    const struct vt_model *m = births->model;
    uint32_t i;
    bool active = false;

    if (births->clock != VT_CLOCK_TIME || !vt_is_final(m) || m->end == VT_PROCESS_RUNNING)
        return false;
    for (i = 0; i < chain->kept_count; i++) {
        const struct vt_site_row *row = &m->sites[chain->kept[i]];

        if (row->record->level != VT_LEVEL_TENSOR)
            return false;
        active |= vt_growth_is_active(m, row);
    }
    return active;
}

static void judge(struct vt_finding_builder *b, const struct vt_births *births, const struct chain *chain,
                  struct vt_opinion *opinions)
{
    uint64_t count, now = vt_births_now(births), from, span;
    uint64_t *ticks = ticks_of(births, chain->kept, chain->kept_count, &count);
    bool timed = births->clock == VT_CLOCK_TIME, steady, possible;
    uint32_t i;

    if (!ticks) {
        b->no_memory = true;
        return;
    }
    from = count ? ticks[0] : now;
    span = now > from ? now - from : 0;
    steady = chain->kept_count == chain->all_count && count >= TOGETHER &&
             (timed ? span >= VT_GROWTH_LONG_NS : span >= VT_GROWTH_TICKS && span >= now / VT_GROWTH_PART) &&
             vt_trend_is_steady(ticks, count, from, now);
    possible = !steady && is_possible(births, chain);
    for (i = 0; (steady || possible) && i < chain->kept_count; i++) {
        if (!steady && opinions[chain->kept[i]].grows)
            continue;
        opinions[chain->kept[i]] = (struct vt_opinion){
            true, steady ? VT_LIKELY : VT_POSSIBLE,
            vt_retention_of(births->model, &births->model->sites[chain->kept[i]]),
            timed ? 0 : vt_growth_rate(births, chain->kept[i], from), timed ? 0 : span};
    }
    free(ticks);
}

/* Is the chain as a whole no place that grows? From its first allocation on, if it has ever let go of something. */
static bool is_healthy(struct vt_finding_builder *b, const struct vt_births *births, const struct chain *chain)
{
    uint64_t count, from = UINT64_MAX, first, now = vt_births_now(births);
    uint64_t *ticks = ticks_of(births, chain->all, chain->all_count, &count);
    bool steady;
    uint32_t i;

    if (!ticks) {
        b->no_memory = true;
        return false;
    }
    for (i = 0; i < chain->all_count; i++) {
        first = vt_births_tick(births, births->model->sites[chain->all[i]].record->first_ns);
        from = first < from ? first : from;
    }
    if (chain->kept_count == chain->all_count && count)
        from = ticks[0];
    steady = vt_trend_is_steady(ticks, count, from, now);
    free(ticks);
    return !steady;
}

/* A row with few births is no case of its own, if the chain that it is part of looks healthy. */
static void doubt(struct vt_finding_builder *b, const struct vt_births *births, const struct chain *chain,
                  struct vt_opinion *opinions)
{
    bool asked = false, healthy = false;
    uint32_t i;

    for (i = 0; i < chain->all_count; i++) {
        struct vt_opinion *opinion = &opinions[chain->all[i]];

        if (!opinion->grows || opinion->confidence != VT_LIKELY || !vt_births_known(births, chain->all[i]) ||
            vt_births_count(births, chain->all[i]) >= ALONE)
            continue;
        if (!asked)
            healthy = is_healthy(b, births, chain);
        asked = true;
        if (!healthy)
            continue;
        opinion->grows = vt_model_never_freed(&births->model->sites[chain->all[i]]);
        opinion->confidence = VT_POSSIBLE;
        opinion->per_tick = 0;
    }
}

/* The rows of a row's chain; they are done then. */
static void collect(const struct vt_finding_builder *b, const struct vt_births *births,
                    const struct vt_row_places *places, uint32_t i, bool *done, struct chain *chain)
{
    uint32_t j;

    chain->kept_count = chain->all_count = 0;
    chain->live = 0;
    for (j = i; j < births->rows && j < VT_GROWTH_ROWS; j++) {
        if (done[j] || !same_chain(births, places, i, j))
            continue;
        done[j] = true;
        chain->all[chain->all_count++] = j;
        if (!may_join(b, births, j))
            continue;
        chain->kept[chain->kept_count++] = j;
        chain->live += births->model->sites[j].live_count;
    }
}

void vt_growth_join(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                    struct vt_opinion *opinions)
{
    bool done[VT_GROWTH_ROWS] = {false};
    struct chain chain;
    uint32_t i;

    for (i = 0; i < births->rows && i < VT_GROWTH_ROWS; i++)
        done[i] = !vt_row_place(places, i);
    for (i = 0; i < births->rows && i < VT_GROWTH_ROWS; i++) {
        if (done[i])
            continue;
        collect(b, births, places, i, done, &chain);
        if (chain.all_count > 1 && births->clock != VT_CLOCK_TIME)
            doubt(b, births, &chain, opinions);
        if (chain.kept_count > 1 && chain.live >= VT_GROWTH_COUNT)
            judge(b, births, &chain, opinions);
    }
}
