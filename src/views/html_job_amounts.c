/*
 * What each rank holds at each place, small enough for a thousand ranks: ranks of one program are nearly equal, so a rank is
 * written as what it holds otherwise than one of them, the base.
 *
 *   base          index of that rank
 *   base_amounts  what it holds, and
 *   amounts       of each rank: [same, at_peak, live, place, at_peak, live, place, at_peak, live, ...]; same 1: what the base
 *                 holds at all places that are not named; 0: nothing there. The first pair is what it holds at places that
 *                 are not in the page, or found no room here, added up.
 *
 * Each rank has the same share of the budget. One that differs in more places than it has room for is written without the
 * base, its largest places first.
 */
#include "views/html_job.h"

#include <errno.h>
#include <stdlib.h>

#define ENTRY 48u  /* bytes of the longest one */
#define LEAST 600u /* bytes of a rank's share, if there are very many */

struct entry {
    uint32_t number; /* in the page's list, from 1 */
    uint64_t at_peak, live;
};

struct entries {
    struct entry *list;
    uint32_t count;
    uint64_t at_peak, live; /* of places that are not in the page */
};

static uint64_t most_of(const struct entry *e)
{
    return e->at_peak > e->live ? e->at_peak : e->live;
}

static int largest_first(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (most_of(a) != most_of(b))
        return most_of(a) < most_of(b) ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* All that a rank holds. */
static void take(struct entries *e, const struct vt_page_job *p, const struct vt_job_rank *r)
{
    uint32_t i;

    *e = (struct entries){.list = e->list};
    for (i = 0; i < r->amount_count; i++) {
        const struct vt_job_amount *a = &r->amounts[i];

        if (p->number_of[a->place]) {
            e->list[e->count++] = (struct entry){p->number_of[a->place], a->at_peak, a->live};
        } else {
            e->at_peak += a->at_peak;
            e->live += a->live;
        }
    }
}

/* The places at which a rank differs from the base, with what it holds there. */
static void take_changes(struct entries *e, const struct vt_page_job *p, const struct vt_job_rank *r,
                         const struct vt_job_rank *base)
{
    uint32_t i, kept = 0;

    take(e, p, r);
    for (i = 0; i < r->amount_count; i++) {
        const struct vt_job_amount *a = &r->amounts[i], *b = vt_job_amount_at(base, a->place);

        if (p->number_of[a->place] && (!b || b->at_peak != a->at_peak || b->live != a->live))
            e->list[kept++] = (struct entry){p->number_of[a->place], a->at_peak, a->live};
    }
    e->count = kept;
    for (i = 0; i < base->amount_count; i++)
        if (p->number_of[base->amounts[i].place] && !vt_job_amount_at(r, base->amounts[i].place))
            e->list[e->count++] = (struct entry){p->number_of[base->amounts[i].place], 0, 0};
}

/* Writes entries as long as there is room for `share` bytes. Returns how many found none: these are added up. */
static uint32_t put(struct vt_page_buffer *b, struct entries *e, bool same, size_t share)
{
    size_t begin = b->used;
    struct vt_page_buffer list = {0};
    uint32_t i = 0, left;

    if (e->count)
        qsort(e->list, e->count, sizeof *e->list, largest_first);
    for (; i < e->count && list.used + ENTRY < share; i++)
        vt_page_put(&list, ",%u,%llu,%llu", e->list[i].number - 1, (unsigned long long)e->list[i].at_peak,
                    (unsigned long long)e->list[i].live);
    for (left = e->count - i; i < e->count; i++) {
        e->at_peak += e->list[i].at_peak;
        e->live += e->list[i].live;
    }
    vt_page_put(b, "[%d,%llu,%llu", same, (unsigned long long)e->at_peak, (unsigned long long)e->live);
    vt_page_append(b, &list);
    vt_page_put(b, "]");
    if (same && left) /* to be written in another way */
        b->used = begin;
    return left;
}

static uint32_t base_of(const struct vt_job *job)
{
    return job->median[VT_JOB_PEAK] == VT_NONE ? 0 : job->median[VT_JOB_PEAK];
}

/* Returns how many of a rank's places found no room. */
static uint32_t put_rank(struct vt_page_job *p, struct vt_page_buffer *b, struct entries *e, uint32_t rank,
                         size_t share)
{
    const struct vt_job_rank *r = &p->job->ranks[rank], *base = &p->job->ranks[base_of(p->job)];

    take_changes(e, p, r, base);
    if (!put(b, e, true, share))
        return 0;
    take(e, p, r);
    return put(b, e, false, share);
}

void vt_page_job_amounts(struct vt_page_job *p)
{
    const struct vt_job *job = p->job;
    struct entries e = {.list = calloc(2 * VT_JOB_SITES + 1, sizeof *e.list)};
    size_t share = VT_PAGE_AMOUNTS / (job->process_count + 1u);
    struct vt_page_buffer b = {0};
    uint32_t i, left = 0;

    if (!e.list) {
        vt_export_fail(&p->page.x, -ENOMEM);
        return;
    }
    share = share < LEAST ? LEAST : share;
    vt_page_put_key(&p->page, "base", json_integer(base_of(job)));
    take(&e, p, &job->ranks[base_of(job)]);
    put(&b, &e, false, VT_JOB_SITES * ENTRY);
    vt_page_flush_list(&p->page, "base_amounts", &b);
    for (i = 0; i < job->process_count && b.used + share < VT_PAGE_AMOUNTS; i++) {
        vt_page_put(&b, i ? ",\n" : "\n");
        left += put_rank(p, &b, &e, i, share);
    }
    vt_page_lacks(&p->page, "amounts", left);
    vt_page_lacks(&p->page, "amounts_of_ranks", job->process_count - i);
    vt_page_flush_list(&p->page, "amounts", &b);
    free(e.list);
}
