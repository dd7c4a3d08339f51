/*
 * Tensors that become more and more, and other memory of the program's own while it runs.
 *
 * Live at the end is no leak: parameters, an optimizer's state and caches are. What tells growth from these is when the
 * memory that a place still holds was made (births.h), on the clock of the program's work: training steps, or backward
 * passes where there is no optimizer. Births at a steady rate from the beginning to the present (trend.h) are growth, and
 * likely. That leaves out what looks like it:
 *   one-time state, warm-up, lazily made buffers    born in one tick, or in the first few
 *   rings, sawtooths, deferred frees                born lately only: what is older was freed
 *   caches that fill up to a bound                  no births any more, or fewer and fewer
 *   temporaries, rounding, stranded segments        not live, or not at this level
 * Where the recording does not say when they were born, the curve of live bytes stands in, with less to go by.
 *
 * Without steps and passes, growth is likely if it went on for minutes, or if it is what a kept autograd graph looks like:
 * round by round a tensor outside of modules and several inside of a module's forward, none of them freed. Otherwise it is
 * possible only: a place allocated again and again until the end, and nothing of it was ever freed. A list of results looks
 * like this too, and is meant to grow.
 *
 * This file judges places one by one; findings_growth_joined.c those that read alike together, and findings_growth_report.c
 * tells what was found.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/category.h"
#include "analysis/growth_rules.h"

#define ROUNDS_MIN 8   /* of a loop that keeps graphs */
#define INSIDE_MIN 2   /* tensors of a module's forward kept in each round; a result alone is one */
#define EACH_STEP 0.75 /* allocations more per step; without births, fewer are no clear case */

static bool is_workspace(const struct vt_model *m, const struct vt_site *site)
{
    return !strcmp(vt_reading_chars(m->reading, site->api), "torch.cublas_workspace");
}

/* What by its nature is made once and stays, judged by what it is. Against ticks, the time of its making says more, but for
 * optimizers that keep the last so many directions (L-BFGS). */
bool vt_growth_is_meant(const struct vt_finding_builder *b, const struct vt_site_row *row, bool ticks)
{
    enum vt_category category = vt_category_of(b->model, row, b->symbols).main;

    return category == VT_CATEGORY_OPTIMIZER || is_workspace(b->model, row->record) ||
           (!ticks && (category == VT_CATEGORY_PARAMETERS || category == VT_CATEGORY_GRADIENTS));
}

/* Tensors; and what the program itself allocates, while the run is not over (at its end, it is a leak: findings_live.c). */
bool vt_growth_is_candidate(const struct vt_model *m, const struct vt_site_row *row)
{
    if (!vt_kind_is_memory(row->record->kind))
        return false;
    if (row->record->level == VT_LEVEL_TENSOR)
        return true;
    return row->owner == VT_OWNER_APPLICATION && !row->pool && !(vt_is_final(m) && m->end == VT_PROCESS_EXIT);
}

/* The part of [from, to] that lies in [first, last], as a share. */
static double share(uint64_t from, uint64_t to, uint64_t first, uint64_t last)
{
    uint64_t low = from > first ? from : first, high = to < last ? to : last;

    if (low > high)
        return 0;
    return to > from ? (double)(high - low) / (double)(to - from) : 1;
}

/*
 * Was the place still at it when the moment came, by what the program allocated elsewhere meanwhile and since? In time that
 * could not be told: loading a kernel takes as long as a hundred steps.
 */
bool vt_growth_is_active(const struct vt_model *m, const struct vt_site_row *row)
{
    uint64_t first = row->record->first_ns, last = vt_model_last_ns(m, row);
    double during = 0, since = 0;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site *other = m->sites[i].record;
        uint64_t other_last = vt_model_last_ns(m, &m->sites[i]);

        if (other->level != VT_LEVEL_TENSOR || other->first_ns > m->moment_ns)
            continue;
        during += (double)other->alloc_calls * share(other->first_ns, other_last, first, last);
        since += (double)other->alloc_calls * share(other->first_ns, other_last, last + 1, m->moment_ns);
    }
    return since <= during / 2;
}

/*
 * From which tick on a place has had a chance to keep something. If nothing was freed later than it was made, from the
 * oldest that it holds: it may have become a leak late. Else from its first allocation: what it made then is gone, or not.
 */
static uint64_t first_tick(const struct vt_births *births, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];
    const struct vt_fate_sum *later = &row->record->ended[VT_FATE_LATER];
    bool freed = births->clock == VT_CLOCK_STEPS ? later->count : row->record->free_calls;

    if ((!freed && !row->record->retired) || vt_model_never_freed(row))
        return vt_births_tick(births, vt_births_of(births, i)->time_ns);
    return vt_births_tick(births, row->record->first_ns);
}

double vt_growth_rate(const struct vt_births *births, uint32_t i, uint64_t from)
{
    const struct vt_birth *birth = vt_births_of(births, i);
    uint64_t count = vt_births_count(births, i), k, now = vt_births_now(births), tick;
    double bytes = 0;

    for (k = 0; k < count; k++) {
        tick = vt_births_tick(births, birth[k].time_ns);
        bytes += tick > from && tick < now ? (double)birth[k].bytes : 0; /* the present one is not over */
    }
    return now > from + 1 ? bytes / (double)(now - from - 1) : 0;
}

/* Against steps or backward passes. */
static void judge_by_ticks(const struct vt_births *births, uint32_t i, struct vt_opinion *opinion)
{
    const struct vt_site_row *row = &births->model->sites[i];
    uint64_t now = vt_births_now(births), from;

    if (births->clock == VT_CLOCK_PASSES && row->record->phase != VT_PHASE_NONE)
        return; /* one pass may look like many, where it calls forward in between */
    if (!vt_births_known(births, i)) {
        opinion->grows = births->clock == VT_CLOCK_STEPS && row->growth.bytes > 0 &&
                         row->growth.steps >= VT_GROWTH_COUNT &&
                         (double)row->growth.allocs >= (double)row->growth.steps * EACH_STEP &&
                         vt_births_curve_rises(births->model, row);
        opinion->per_tick = row->growth.bytes_per_step;
        opinion->ticks = row->growth.steps;
        return;
    }
    from = first_tick(births, i);
    opinion->ticks = now - from;
    opinion->grows = opinion->ticks >= VT_GROWTH_TICKS && opinion->ticks >= now / VT_GROWTH_PART &&
                     vt_births_are_steady(births, i, from);
    opinion->per_tick = vt_growth_rate(births, i, from);
}

/* Without either, but for minutes. */
static bool grows_with_time(const struct vt_births *births, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];
    uint64_t first = row->record->first_ns, now = births->model->moment_ns;

    if (now < first || now - first < VT_GROWTH_LONG_NS)
        return false;
    if (vt_births_known(births, i))
        return births->clock == VT_CLOCK_TIME && vt_births_are_steady(births, i, first);
    return vt_births_curve_rises(births->model, row);
}

/* A kept graph has tensors inside of the forward of modules. */
static bool is_inside(const struct vt_births *births, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];

    return row->record->level == VT_LEVEL_TENSOR && row->record->phase == VT_PHASE_NONE && row->live_count &&
           vt_births_known(births, i) && vt_model_never_freed(row) &&
           vt_retention_of(births->model, row) == VT_RETAINED_GRAPH;
}

int vt_growth_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* When tensors inside of modules were made, at all places together: sorted times. */
struct inside {
    bool at[VT_GROWTH_ROWS];
    uint64_t *times, count;
};

static bool take_inside(const struct vt_births *births, struct inside *inside)
{
    uint64_t room = 0, k;
    uint32_t i;

    memset(inside, 0, sizeof *inside);
    for (i = 0; i < births->rows; i++)
        if ((inside->at[i] = is_inside(births, i)))
            room += vt_births_count(births, i);
    if (!(inside->times = calloc(room ? room : 1, sizeof *inside->times)))
        return false;
    for (i = 0; i < births->rows; i++)
        for (k = 0; inside->at[i] && k < vt_births_count(births, i); k++)
            inside->times[inside->count++] = vt_births_of(births, i)[k].time_ns;
    qsort(inside->times, inside->count, sizeof *inside->times, vt_growth_compare);
    return true;
}

/* How many of them lie after `from`, from index *at on, up to and with `to`. */
static uint64_t inside_between(const struct inside *inside, uint64_t *at, uint64_t from, uint64_t to)
{
    uint64_t count = 0;

    for (; *at < inside->count && inside->times[*at] <= to; ++*at)
        count += inside->times[*at] > from;
    return count;
}

/*
 * Is a place outside of modules the pulse of a loop that keeps graphs? Each of its tensors is kept, and with each the same
 * number of tensors from inside of modules, several. The layers of one forward (a cache of keys and values) have no such
 * place; a loop that stores results keeps one tensor of its module in each round.
 */
static bool keeps_graphs(const struct vt_births *births, const struct inside *inside, uint32_t i)
{
    const struct vt_site_row *row = &births->model->sites[i];
    const struct vt_birth *birth;
    uint64_t count = vt_births_count(births, i), k, at = 0, each;

    if (row->record->level != VT_LEVEL_TENSOR || row->record->phase != VT_PHASE_NONE || count < ROUNDS_MIN ||
        !vt_births_known(births, i) || !vt_model_never_freed(row) ||
        vt_retention_of(births->model, row) != VT_RETAINED_RESULT)
        return false;
    birth = vt_births_of(births, i);
    each = inside_between(inside, &at, birth[0].time_ns, birth[1].time_ns);
    for (k = 1; k + 1 < count; k++)
        if (inside_between(inside, &at, birth[k].time_ns, birth[k + 1].time_ns) != each)
            return false;
    return each >= INSIDE_MIN && inside_between(inside, &at, birth[count - 1].time_ns, UINT64_MAX) <= each;
}

/* Makes all places of a loop that keeps graphs likely. False: no memory. */
static bool judge_graphs(const struct vt_births *births, struct vt_opinion *opinions)
{
    struct inside inside;
    bool found = false;
    uint32_t i;

    if (!take_inside(births, &inside))
        return false;
    for (i = 0; i < births->rows; i++)
        if (opinions[i].grows && keeps_graphs(births, &inside, i)) {
            opinions[i].confidence = VT_LIKELY;
            opinions[i].retention = VT_RETAINED_GRAPH;
            found = true;
        }
    for (i = 0; found && i < births->rows; i++)
        if (opinions[i].grows && inside.at[i] && vt_births_count(births, i) >= ROUNDS_MIN)
            opinions[i].confidence = VT_LIKELY;
    free(inside.times);
    return true;
}

static void judge(const struct vt_finding_builder *b, const struct vt_births *births, uint32_t i,
                  struct vt_opinion *opinion)
{
    const struct vt_model *m = b->model;
    const struct vt_site_row *row = &m->sites[i];
    bool ticks = births->clock != VT_CLOCK_TIME;
    /* Whoever loads weights round by round is no leak: what they are counts, where the clock is any loop's. */
    bool working = ticks && births->clock != VT_CLOCK_ROUNDS;

    if (row->live_count < VT_GROWTH_COUNT || !vt_growth_is_candidate(m, row) || vt_growth_is_meant(b, row, working))
        return;
    opinion->retention = vt_retention_of(m, row);
    opinion->confidence = VT_LIKELY;
    if (ticks)
        judge_by_ticks(births, i, opinion);
    else
        opinion->grows = grows_with_time(births, i);
    if (opinion->grows)
        return;
    opinion->confidence = VT_POSSIBLE;
    opinion->per_tick = 0;
    opinion->grows = row->record->level == VT_LEVEL_TENSOR && vt_is_final(m) && m->end != VT_PROCESS_RUNNING &&
                     row->growth.bytes > 0 && vt_model_never_freed(row) && !vt_growth_is_meant(b, row, false) &&
                     vt_growth_is_active(m, row);
}

void vt_growth_judge(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                     struct vt_opinion *opinions)
{
    uint32_t i;

    for (i = 0; i < births->rows; i++)
        judge(b, births, i, &opinions[i]);
    b->no_memory |= !judge_graphs(births, opinions);
    vt_growth_join(b, births, places, opinions);
}

void vt_find_growth(struct vt_finding_builder *b)
{
    struct vt_opinion opinions[VT_GROWTH_ROWS] = {{0}};
    uint32_t count = b->model->site_count < VT_GROWTH_ROWS ? b->model->site_count : VT_GROWTH_ROWS, i;
    bool wanted[VT_GROWTH_ROWS];
    struct vt_row_places places;
    struct vt_births births;

    if (!b->model->recorded && !vt_is_final(b->model)) /* at the peak all is at its height */
        return;
    for (i = 0; i < count; i++)
        wanted[i] = vt_growth_is_candidate(b->model, &b->model->sites[i]);
    if (vt_births_take(&births, b->model, count, VT_GROWTH_TICKS)) {
        b->no_memory = true;
    } else {
        if (vt_row_places_build(b, &places, wanted, count)) {
            vt_growth_judge(b, &births, &places, opinions);
            for (i = 0; i < count; i++)
                opinions[i].grows = opinions[i].grows && !vt_is_suppressed(b, &b->model->sites[i]);
            vt_growth_report(b, &births, &places, opinions);
        }
        vt_row_places_free(&places);
    }
    vt_births_free(&births);
}
