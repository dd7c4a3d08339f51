/*
 * The merged report of a job as a page for a browser; see html.h. Its figures are those of vramtrack-job/1.
 *
 * The block (schema vramtrack-page/1, "page": "job", for the page alone) has the keys of vramtrack-job/1, lists cut where a
 * budget ends, and:
 *
 *   ranks    as in vramtrack-job/1; a process is meant by its index in this list, because a rank may have several
 *   median, median_live   indices of the median ranks by peak and by what is live, or null
 *   breakdown_at  at which of their moments the breakdowns of ranks are, in words
 *   skew     as in vramtrack-job/1, with indices of ranks and numbers of places instead of stacks; the largest differences
 *   sites    [stack, user, cut, level, kind, api, sums of at_peak and live with their counts, processes, median, most, index
 *            of the rank that has most]: numbers of strings for names; of all ranks together, whatever is left out below
 *   others   what the places hold that found no room, added up
 *   amounts  html_job_amounts.c
 */
#include "views/html_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "views/json.h"

#define SKEW_SITES 24u /* differences of a rank: the largest make it */

/* --- places ---------------------------------------------------------------------------------------------------------- */

static void add_up(uint64_t *sum, uint64_t more)
{
    *sum = *sum + more < more ? UINT64_MAX : *sum + more;
}

/* Sums over all processes by place; what is held has them at the peak alone. */
static void sum_amounts(struct vt_page_job *p)
{
    uint32_t i, j;

    for (i = 0; i < p->job->process_count; i++)
        for (j = 0; j < p->job->ranks[i].amount_count; j++) {
            const struct vt_job_amount *a = &p->job->ranks[i].amounts[j];
            struct vt_page_sum *sum = &p->sums[a->place];

            sum->place = a->place;
            add_up(&sum->at_peak, a->at_peak);
            add_up(&sum->at_peak_count, a->at_peak_count);
            add_up(&sum->live, a->live);
            add_up(&sum->live_count, a->live_count);
        }
    for (i = 0; i < p->job->held_count; i++)
        p->sums[p->job->held[i].place].held = &p->job->held[i];
}

static int largest_first(const void *left, const void *right)
{
    const struct vt_page_sum *a = left, *b = right;
    uint64_t x = a->at_peak > a->live ? a->at_peak : a->live, y = b->at_peak > b->live ? b->at_peak : b->live;

    if (x != y)
        return x < y ? 1 : -1;
    return a->place < b->place ? -1 : a->place > b->place;
}

static void put_number(struct vt_page_buffer *b, uint64_t value)
{
    vt_page_put(b, ",%llu", (unsigned long long)(value > INT64_MAX ? INT64_MAX : value));
}

/* False: no room. */
static bool put_place(struct vt_page_job *p, const struct vt_page_sum *sum)
{
    const struct vt_spot *spot = vt_spots_at(p->job->places, sum->place);
    struct vt_page_stack stack = vt_page_trace(&p->page, &spot->trace, VT_PAGE_PLACES - 2 * VT_PAGE_TEXT);
    struct vt_page_buffer *b = &p->page.sites;

    if (!stack.whole)
        return false;
    vt_page_put(b, "%s[%u,%d,%d", p->page.site_count ? ",\n" : "\n", stack.node, stack.user, stack.cut);
    vt_page_put(b, ",%u", vt_page_string(&p->page, vt_level_name(spot->level)));
    vt_page_put(b, ",%u", vt_page_string(&p->page, vt_kind_name(spot->kind)));
    vt_page_put(b, ",%u", vt_page_string(&p->page, spot->api));
    put_number(b, sum->at_peak);
    put_number(b, sum->at_peak_count);
    put_number(b, sum->live);
    put_number(b, sum->live_count);
    vt_page_put(b, ",%u", sum->held ? sum->held->ranks : 0);
    put_number(b, sum->held ? sum->held->median : 0);
    put_number(b, sum->held ? sum->held->most : 0);
    vt_page_put(b, ",%d]", sum->held ? (int)sum->held->most_rank : -1);
    p->number_of[sum->place] = ++p->page.site_count;
    return true;
}

static void put_places(struct vt_page_job *p)
{
    uint32_t count = vt_spots_count(p->job->places), i, left = 0;
    uint64_t at_peak = 0, live = 0;

    if (count)
        qsort(p->sums, count, sizeof *p->sums, largest_first);
    for (i = 0; i < count && vt_page_stack_bytes(&p->page) < VT_PAGE_PLACES - 4 * VT_PAGE_TEXT; i++)
        if ((p->sums[i].at_peak || p->sums[i].live) && !put_place(p, &p->sums[i]))
            break;
    for (; i < count; i++) {
        left += p->sums[i].at_peak || p->sums[i].live;
        add_up(&at_peak, p->sums[i].at_peak);
        add_up(&live, p->sums[i].live);
    }
    vt_page_lacks(&p->page, "sites", left);
    vt_page_put_key(
        &p->page, "others",
        json_pack("{s:i,s:o,s:o}", "sites", (int)left, "at_peak_bytes", number(at_peak), "live_bytes", number(live)));
}

/* --- the report's own lists ------------------------------------------------------------------------------------------- */

static json_t *rank(const void *of, uint32_t i)
{
    return vt_json_job_process(&((const struct vt_job *)of)->ranks[i]);
}

static json_t *helper(const void *of, uint32_t i)
{
    return rank(of, ((const struct vt_job *)of)->process_count + i);
}

/* With the indices of its ranks, which are told apart where numbers are not. */
static json_t *finding(const void *of, uint32_t i)
{
    const struct vt_job *job = of;
    json_t *object = vt_json_job_finding(job, &job->findings[i]), *list = json_array();
    uint32_t j;

    for (j = 0; j < job->findings[i].rank_count; j++)
        json_array_append_new(list, json_integer(job->findings[i].ranks[j]));
    set(object, "indices", list);
    return object;
}

static json_t *note(const void *of, uint32_t i)
{
    return vt_json_chars(((const struct vt_job *)of)->notes[i]);
}

static json_t *difference(const struct vt_page_job *p, const struct vt_job_difference *d)
{
    char name[VT_SPOT_NAME];
    json_t *object = json_object();

    set(object, "site", json_integer((json_int_t)p->number_of[d->place] - 1));
    set(object, "name", vt_json_chars(vt_spot_name(name, p->job->places, d->place)));
    set(object, "bytes", number(d->bytes[1]));
    set(object, "median_bytes", number(d->bytes[0]));
    set(object, "difference", json_integer((json_int_t)(d->bytes[1] - d->bytes[0])));
    set(object, "count", number(d->count[1]));
    set(object, "median_count", number(d->count[0]));
    return object;
}

static json_t *skew(const void *of, uint32_t index)
{
    const struct vt_page_job *p = of;
    const struct vt_job_skew *s = &p->job->skews[index];
    json_t *object = json_object(), *list = json_array();
    uint64_t rest = (uint64_t)s->rest; /* of a hostile recording it may not fit */
    uint32_t i;

    for (i = 0; i < s->difference_count; i++)
        if (i < SKEW_SITES)
            json_array_append_new(list, difference(p, &s->differences[i]));
        else
            rest += s->differences[i].bytes[1] - s->differences[i].bytes[0];
    set(object, "index", json_integer(s->rank));
    set(object, "against", json_integer(s->against));
    set(object, "measure", json_string(vt_job_measure_name(s->measure)));
    set(object, "confidence", json_string(vt_confidence_name(s->confidence)));
    set(object, "bytes", number(s->bytes[1]));
    set(object, "median_bytes", number(s->bytes[0]));
    set(object, "difference", json_integer((json_int_t)(s->bytes[1] - s->bytes[0])));
    set(object, "sites", list);
    set(object, "site_count", json_integer(s->difference_count));
    set(object, "rest", json_integer((json_int_t)rest));
    return object;
}

static void put_job(struct vt_page_job *p, const struct vt_job_view *view)
{
    const struct vt_job *job = p->job;
    struct vt_page *page = &p->page;
    int32_t world = vt_job_world_size(job);
    uint32_t median = job->median[VT_JOB_PEAK], live = job->median[VT_JOB_LIVE];
    char when[VT_JOB_WHEN];

    vt_out_text(&page->x.out, "{\"schema\":\"vramtrack-page/1\",\"page\":\"job\",\"version\":\"" VT_VERSION "\"");
    vt_page_put_key(page, "directory", vt_json_chars(view->directory));
    vt_page_put_key(page, "other_recordings", number(view->others));
    vt_page_put_key(page, "world_size", number_if(world >= 0, (uint64_t)world));
    vt_page_put_key(page, "processes", json_integer(job->process_count));
    vt_page_put_key(page, "median", median == VT_NONE ? json_null() : json_integer(median));
    vt_page_put_key(page, "median_live", live == VT_NONE ? json_null() : json_integer(live));
    vt_page_put_key(page, "breakdown_at", json_string(vt_job_parts_when(when, job)));
    vt_page_put_key(page, "programs", json_integer(vt_job_programs(job)));
    vt_page_put_key(page, "unreadable_files", json_integer(job->unreadable));
    vt_page_put_key(page, "all_frames", json_boolean(view->all_frames));
    vt_page_put_key(page, "all_places", json_boolean(!vt_spots_full(job->places)));
    vt_page_put_list(page, "ranks", job->process_count, VT_PAGE_RANKS, rank, job);
    vt_page_put_list(page, "notes", job->note_count, VT_PAGE_LIST, note, job);
    vt_page_put_list(page, "helpers", job->helper_count, VT_PAGE_LIST, helper, job);
    vt_page_put_list(page, "findings", job->finding_count, VT_PAGE_LIST, finding, job);
    put_places(p);
    vt_page_put_list(page, "skew", job->skew_count, VT_PAGE_SKEW, skew, p);
    vt_page_job_amounts(p);
    vt_page_flush_list(page, "sites", &page->sites);
    vt_page_write_tables(page);
}

int vt_job_html_write(const struct vt_job *job, const struct vt_job_view *view)
{
    struct vt_page_job p;
    uint32_t count = vt_spots_count(job->places);

    memset(&p, 0, sizeof p);
    p.job = job;
    p.sums = calloc(count + 1u, sizeof *p.sums);
    p.number_of = calloc(count + 1u, sizeof *p.number_of);
    vt_page_begin(&p.page, VT_PAGE_OF_JOB, view->fd);
    if (p.sums && p.number_of) {
        sum_amounts(&p);
        put_job(&p, view);
    } else {
        vt_export_fail(&p.page.x, -ENOMEM);
    }
    vt_page_end(&p.page, VT_PAGE_OF_JOB);
    vt_page_stacks_free(&p.page);
    free(p.sums);
    free(p.number_of);
    return vt_out_close(&p.page.x.out);
}
