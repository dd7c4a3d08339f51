/*
 * Which ranks differ from the others, by how much, and at which places; the limits are in job.h.
 *
 * All is set against the median rank, a real one (of an even number the lower of the two), so that the differences of its
 * places and the rest add up to the difference of the two.
 */
#include "analysis/job.h"

#include <stdlib.h>
#include <string.h>

#define SKEWS_MAX 64       /* the largest; the findings say how many there are */
#define DIFFERENCES_MAX 32 /* places of each */
#define SCORE 0.6745 /* the normal distribution's third quartile: makes the median deviation a standard deviation */

/* The ranks that are compared, one process of each, and what is compared. */
struct field {
    uint32_t *index; /* by bytes, smallest first */
    uint32_t count, median;
    uint32_t base, most; /* how many of them are the measure, and the last of those */
    uint64_t deviation;  /* median distance to the median */
    enum vt_job_measure measure;
};

static uint64_t measured(const struct vt_job_rank *r, enum vt_job_measure measure)
{
    return measure == VT_JOB_PEAK ? r->peak : r->counted;
}

struct sorted {
    uint64_t bytes;
    int32_t rank;
    uint32_t index;
};

static int by_bytes(const void *left, const void *right)
{
    const struct sorted *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int by_rank(const void *left, const void *right)
{
    const struct sorted *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : 0;
}

/* What a process held last can be set against others' if they ended in the same way: whoever was killed had not freed
 * anything. */
static bool takes_part(const struct vt_job_rank *r, enum vt_job_measure measure)
{
    if (!vt_job_compares(r))
        return false;
    return measure == VT_JOB_PEAK || (r->end == VT_PROCESS_EXIT && !r->oom && !r->failed);
}

static bool is_dead(const struct vt_job_rank *r)
{
    return r->oom || r->failed;
}

/*
 * Moves those that are the measure to the front and returns how many there are: those that ended in the same way. The dead
 * are no measure of the living: a median of them is what was held half-way. With too few of the living nobody is.
 */
static uint32_t choose_base(const struct vt_job *job, struct sorted *list, uint32_t count)
{
    uint32_t alive = 0, i;

    for (i = 0; i < count; i++)
        if (!is_dead(&job->ranks[list[i].index])) {
            struct sorted one = list[i];

            list[i] = list[alive];
            list[alive++] = one;
        }
    if (!alive || alive == count)
        return count;
    return alive >= VT_SKEW_RANKS ? alive : 0;
}

/* Of several processes of a rank the largest one counts. */
static uint32_t keep_one_of_each(struct sorted *list, uint32_t count)
{
    uint32_t i, kept = 0;

    if (count)
        qsort(list, count, sizeof *list, by_rank);
    for (i = 0; i < count; i++)
        if (!kept || list[kept - 1].rank != list[i].rank)
            list[kept++] = list[i];
    return kept;
}

static int ascending(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Fills the field. False: memory ran out (noted), or there is nobody to compare. */
static bool line_up(struct vt_job *job, struct field *f, enum vt_job_measure measure)
{
    struct sorted *list = calloc(job->rank_count + 1, sizeof *list);
    uint64_t *away = calloc(job->rank_count + 1, sizeof *away);
    uint32_t i;

    *f = (struct field){.measure = measure, .index = calloc(job->rank_count + 1, sizeof *f->index)};
    for (i = 0; list && i < job->rank_count; i++)
        if (takes_part(&job->ranks[i], measure))
            list[f->count++] = (struct sorted){measured(&job->ranks[i], measure), job->ranks[i].rank, i};
    if (list)
        f->count = keep_one_of_each(list, f->count);
    if (list && f->count)
        f->base = choose_base(job, list, f->count);
    if (list && away && f->index && f->base) {
        qsort(list, f->base, sizeof *list, by_bytes);
        f->median = list[(f->base - 1) / 2].index;
        f->most = list[f->base - 1].index;
        for (i = 0; i < f->base; i++)
            away[i] = distance(list[i].bytes, list[(f->base - 1) / 2].bytes);
        qsort(away, f->base, sizeof *away, ascending);
        f->deviation = away[(f->base - 1) / 2];
        job->median[measure] = f->median;
        qsort(list, f->count, sizeof *list, by_bytes);
        for (i = 0; i < f->count; i++)
            f->index[i] = list[i].index;
    }
    job->no_memory |= !list || !away || !f->index;
    free(list);
    free(away);
    return f->index && f->base > 1 && !job->no_memory;
}

/* More than the granularity of allocators, and than batches make ranks differ? */
static bool is_large(uint64_t difference, uint64_t median)
{
    return difference >= VT_SKEW_BYTES && difference >= median / VT_SKEW_SHARE;
}

static bool is_outlier(const struct vt_job *job, const struct field *f, uint32_t index)
{
    const struct vt_job_rank *r = &job->ranks[index];
    uint64_t median = measured(&job->ranks[f->median], f->measure), own = measured(r, f->measure);
    uint64_t difference = distance(own, median);

    if (!is_large(difference, median) || (double)difference * SCORE <= VT_SKEW_SCORE * (double)f->deviation)
        return false;
    /* Less is no news of a rank that did not get to its end, nor of what is left at the end. */
    return own > median || (f->measure == VT_JOB_PEAK && !r->oom && !r->failed && r->end == VT_PROCESS_EXIT);
}

/* --- the places that make the difference --- */

static void take_amount(uint64_t *bytes, uint64_t *count, const struct vt_job_amount *a, enum vt_job_measure measure)
{
    *bytes = !a ? 0 : measure == VT_JOB_PEAK ? a->at_peak : a->live;
    *count = !a ? 0 : measure == VT_JOB_PEAK ? a->at_peak_count : a->live_count;
}

static int most_different_first(const void *left, const void *right)
{
    const struct vt_job_difference *a = left, *b = right;
    uint64_t x = distance(a->bytes[0], a->bytes[1]), y = distance(b->bytes[0], b->bytes[1]);

    if (x != y)
        return x < y ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static int64_t change(const uint64_t bytes[2])
{
    uint64_t by = distance(bytes[0], bytes[1]);

    if (by > INT64_MAX / 2)
        by = INT64_MAX / 2;
    return bytes[1] >= bytes[0] ? (int64_t)by : -(int64_t)by;
}

/* All places that differ, into a list with room for those of both ranks. Returns how many. What one of them has no figure
 * of, because it kept the larger places only, is no difference. */
static uint32_t subtract(struct vt_job_difference *list, const struct vt_job_rank *median, const struct vt_job_rank *r,
                         enum vt_job_measure measure)
{
    uint32_t i = 0, j = 0, count = 0;

    while (i < median->amount_count || j < r->amount_count) {
        uint32_t place_a = i < median->amount_count ? median->amounts[i].place : VT_NONE;
        uint32_t place_b = j < r->amount_count ? r->amounts[j].place : VT_NONE;
        const struct vt_job_amount *a = place_a <= place_b ? &median->amounts[i] : NULL;
        const struct vt_job_amount *b = place_b <= place_a ? &r->amounts[j] : NULL;
        struct vt_job_difference *d = &list[count];

        d->place = a ? place_a : place_b;
        take_amount(&d->bytes[0], &d->count[0], a, measure);
        take_amount(&d->bytes[1], &d->count[1], b, measure);
        count += d->bytes[0] != d->bytes[1] && (a || d->bytes[1] > median->floor) && (b || d->bytes[0] > r->floor);
        i += a != NULL;
        j += b != NULL;
    }
    return count;
}

static void explain(struct vt_job *job, struct vt_job_skew *skew)
{
    const struct vt_job_rank *median = &job->ranks[skew->against], *r = &job->ranks[skew->rank];
    struct vt_job_difference *list = calloc(median->amount_count + r->amount_count + 1u, sizeof *list);
    uint32_t count = list ? subtract(list, median, r, skew->measure) : 0, i;

    job->no_memory |= !list;
    if (count)
        qsort(list, count, sizeof *list, most_different_first);
    skew->rest = change(skew->bytes);
    skew->differences = list;
    skew->difference_count = count < DIFFERENCES_MAX ? count : DIFFERENCES_MAX;
    for (i = 0; i < skew->difference_count; i++)
        skew->rest -= change(list[i].bytes);
}

static void add_skew(struct vt_job *job, const struct field *f, uint32_t rank, uint32_t against,
                     enum vt_confidence confidence)
{
    struct vt_job_skew *grown = vt_job_grow(job, job->skews, job->skew_count, sizeof *grown);

    if (!grown)
        return;
    job->skews = grown;
    grown[job->skew_count] = (struct vt_job_skew){
        .rank = rank,
        .against = against,
        .measure = f->measure,
        .confidence = confidence,
        .bytes = {measured(&job->ranks[against], f->measure), measured(&job->ranks[rank], f->measure)}};
    explain(job, &grown[job->skew_count++]);
}

static bool is_named_already(const struct vt_job *job, uint32_t rank)
{
    uint32_t i;

    for (i = 0; i < job->skew_count; i++)
        if (job->skews[i].rank == rank)
            return true;
    return false;
}

/* Outliers, the largest difference first: the ends of the sorted field, which has VT_SKEW_RANKS at least. */
static uint32_t add_outliers(struct vt_job *job, const struct field *f)
{
    uint64_t median = measured(&job->ranks[f->median], f->measure);
    uint32_t count = 0, low = 0, high = f->count, few, added = 0, i;

    for (i = 0; i < f->count; i++)
        count += is_outlier(job, f, f->index[i]);
    few = f->count / VT_SKEW_FEW > 1 ? f->count / VT_SKEW_FEW : 1;
    while (low < high && added < SKEWS_MAX) {
        uint64_t below = distance(measured(&job->ranks[f->index[low]], f->measure), median);
        uint64_t above = distance(measured(&job->ranks[f->index[high - 1]], f->measure), median);
        uint32_t next = above >= below ? f->index[--high] : f->index[low++];

        if (!is_outlier(job, f, next) || is_named_already(job, next))
            continue;
        add_skew(job, f, next, f->median, count <= few ? VT_LIKELY : VT_POSSIBLE);
        added++;
    }
    return count;
}

/* Ranks that all differ: the largest one stands for them. */
static void add_spread(struct vt_job *job, const struct field *f)
{
    uint32_t most = f->most;
    uint64_t median = measured(&job->ranks[f->median], f->measure), highest = measured(&job->ranks[most], f->measure);

    if (is_large(highest - median, median))
        add_skew(job, f, most, f->median, VT_POSSIBLE);
}

/* --- what all ranks hold --- */

struct held {
    uint32_t place, rank;
    uint64_t bytes;
    bool whole; /* its recording */
};

static int by_place(const void *left, const void *right)
{
    const struct held *a = left, *b = right;

    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int largest_sum_first(const void *left, const void *right)
{
    const struct vt_job_place *a = left, *b = right;

    if (a->sum != b->sum)
        return a->sum < b->sum ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* The median of `ranks` whole recordings: those that are not in the run hold nothing there. */
static uint64_t median_of(const struct held *run, uint32_t count, uint32_t ranks)
{
    uint32_t whole = 0, skip, i;

    for (i = 0; i < count; i++)
        whole += run[i].whole;
    if (!ranks || (ranks - 1) / 2 < ranks - whole)
        return 0;
    skip = (ranks - 1) / 2 - (ranks - whole);
    for (i = 0; i < count; i++)
        if (run[i].whole && !skip--)
            return run[i].bytes;
    return 0;
}

/* One place from its run in the sorted list. */
static struct vt_job_place summed(const struct held *run, uint32_t count, uint32_t ranks)
{
    struct vt_job_place p = {.place = run[0].place, .ranks = count};
    uint32_t i;

    for (i = 0; i < count; i++)
        p.sum = p.sum + run[i].bytes < p.sum ? UINT64_MAX : p.sum + run[i].bytes;
    p.median = median_of(run, count, ranks);
    p.most = run[count - 1].bytes;
    p.most_rank = run[count - 1].rank;
    return p;
}

static uint32_t list_held(const struct vt_job *job, struct held *list)
{
    uint32_t i, j, count = 0;

    for (i = 0; i < job->process_count; i++)
        for (j = 0; j < job->ranks[i].amount_count; j++)
            if (job->ranks[i].amounts[j].at_peak)
                list[count++] = (struct held){job->ranks[i].amounts[j].place, i, job->ranks[i].amounts[j].at_peak,
                                              !job->ranks[i].missing[0]};
    return count;
}

static size_t amounts_of(const struct vt_job *job)
{
    size_t count = 0;
    uint32_t i;

    for (i = 0; i < job->process_count; i++)
        count += job->ranks[i].amount_count;
    return count;
}

static void add_held(struct vt_job *job)
{
    struct held *list = calloc(amounts_of(job) + 1, sizeof *list);
    uint32_t count = list ? list_held(job, list) : 0, i, end;

    job->held = calloc(vt_spots_count(job->places) + 1u, sizeof *job->held);
    job->no_memory |= !list || !job->held;
    if (list && count)
        qsort(list, count, sizeof *list, by_place);
    for (i = 0; job->held && i < count; i = end) {
        for (end = i + 1; end < count && list[end].place == list[i].place; end++)
            ;
        job->held[job->held_count++] = summed(list + i, end - i, job->process_count - job->incomplete);
    }
    if (job->held && job->held_count)
        qsort(job->held, job->held_count, sizeof *job->held, largest_sum_first);
    free(list);
}

void vt_job_find_skew(struct vt_job *job)
{
    struct field f;
    uint32_t outliers = 0;

    if (line_up(job, &f, VT_JOB_PEAK)) {
        job->compared = f.base;
        if (f.base >= VT_SKEW_RANKS)
            outliers = add_outliers(job, &f);
        if (!outliers)
            add_spread(job, &f);
    }
    free(f.index);
    if (line_up(job, &f, VT_JOB_LIVE) && f.base >= VT_SKEW_RANKS)
        add_outliers(job, &f);
    free(f.index);
    add_held(job);
}
