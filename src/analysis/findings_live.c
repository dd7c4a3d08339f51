/*
 * Leaks of the program: what driver calls of its own made and nobody had freed when the run ended. What frameworks hand on
 * as tensors is never one of them: the tensors in it may be (findings_growth.c).
 *
 * Programs that are right leave memory too: they free nothing at their end, as the driver does it. So a leak is likely only if it
 * does not look like
 *   state        made in the beginning and kept, while other memory came and went for the rest of the run
 *   the newest   of a place that lets go of what it makes
 *   an object's  Python frees what nobody refers to, so what is left has an owner, and many of these live until the end; that
 *                more and more is left, at a steady rate, tells a leak from them
 */
#include <stdlib.h>

#include "analysis/births.h"
#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/growth_rules.h"
#include "analysis/trend.h"

#define EVIDENCE_MAX 8
#define PLACES_MAX 512 /* rows whose stacks are compared; they come largest first, and each behind them is a place */
#define LONG_RUN_NS 10000000000ull /* runs from here on show whether a site was active in their second half */
/*
 * Of a place that lets go of what it makes, the newest are live at the end: the last turn's, and what a deferred free has not
 * come to. K of N allocations that stay by chance are all among the newest 2K with a probability below 2K/N to the power K,
 * so with N of 8 and more and three quarters freed it is no chance.
 */
#define REPLACED_MIN 8
#define REPLACED_SHARE 4 /* live: at most a fourth of what was allocated */
#define REPLACED_SPAN 2

/* Steps, passes or rounds (births.h) that show that the program went on working; and allocations of Python code that show a rate. */
#define TICKS_MIN 8
#define PYTHON_MIN 8

/* What is known of a leak beyond its row. */
struct judge {
    const struct vt_model *model;
    const struct vt_row_places *places;
    const struct vt_births *births; /* NULL: not looked at yet, which no row is taken back for */
    const uint64_t *made;           /* by row, as of vt_births_made_since_oldest() */
};

/* A place: the rows that read alike, as one site. */
struct whole {
    struct vt_site_row row;
    struct vt_site record;
    uint32_t first; /* the row that was asked for */
};

bool vt_holds_memory(const struct vt_site_row *site)
{
    return site->record->level == VT_LEVEL_DRIVER && site->live_count && vt_kind_is_memory(site->record->kind);
}

/* Does the model show the end of a Python program's own code, with the interpreter's shutdown still to come? */
static bool at_finalize(const struct vt_model *m)
{
    return m->recorded && m->recorded->kind == VT_MOMENT_FINALIZE;
}

/* Did the process give up because memory had run out? Then it had no more chance to free anything than a killed one. */
static bool gave_up(const struct vt_model *m)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    uint32_t i;

    for (i = 0; h->end == VT_END_EXIT && h->exit_code && i < m->failure_count; i++)
        if (vt_failure_is_oom(m->failures[i].record->kind))
            return true;
    return false;
}

/* Made in the beginning and kept while the program worked on: that looks intended. By its work, where that shows; by the time of a
 * long run. */
static bool looks_intended(const struct judge *j, const struct vt_site *site)
{
    uint64_t now, last;

    if (site->free_calls)
        return false;
    if (j->model->duration_ns >= LONG_RUN_NS && site->last_ns < j->model->duration_ns / 2)
        return true;
    if (!j->births || j->births->clock == VT_CLOCK_TIME)
        return false;
    now = vt_births_now(j->births);
    last = vt_births_tick(j->births, site->last_ns);
    return last <= now / 2 && now - last >= TICKS_MIN;
}

static bool is_part(const struct judge *j, uint32_t row, uint32_t other)
{
    const struct vt_place *a = vt_row_place(j->places, row), *b = vt_row_place(j->places, other);

    return row == other || (a && b && a->chain == b->chain);
}

/* When what is live of a place was made; NULL: not known, or no memory. To be freed. */
static uint64_t *ticks_of(const struct judge *j, uint32_t row, uint64_t *count)
{
    uint64_t *ticks = NULL, at = 0, k;
    uint32_t i;

    for (*count = 0, i = 0; i < j->births->rows; i++) {
        if (!is_part(j, row, i))
            continue;
        if (j->model->sites[i].live_count && !vt_births_known(j->births, i))
            return NULL;
        *count += vt_births_count(j->births, i);
    }
    if (!*count || !(ticks = calloc(*count, sizeof *ticks)))
        return NULL;
    for (i = 0; i < j->births->rows; i++)
        for (k = 0; is_part(j, row, i) && k < vt_births_count(j->births, i); k++)
            ticks[at++] = vt_births_tick(j->births, vt_births_of(j->births, i)[k].time_ns);
    qsort(ticks, at, sizeof *ticks, vt_growth_compare);
    return ticks;
}

/* Did a place keep something at a steady rate, against the program's work or for minutes? */
static bool keeps_steadily(const struct judge *j, const struct whole *whole)
{
    uint64_t count, from, span, now = vt_births_now(j->births), *ticks;
    bool steady;

    if (whole->row.live_count < PYTHON_MIN)
        return false;
    if (!(ticks = ticks_of(j, whole->first, &count)))
        return vt_births_curve_rises(j->model, &j->model->sites[whole->first]);
    from = whole->record.free_calls ? vt_births_tick(j->births, whole->record.first_ns) : ticks[0];
    span = now > from ? now - from : 0;
    steady = (j->births->clock == VT_CLOCK_TIME ? span >= VT_GROWTH_LONG_NS
                                                : span >= TICKS_MIN && span >= now / VT_GROWTH_PART) &&
             vt_trend_is_steady(ticks, count, from, now);
    free(ticks);
    return steady;
}

/*
 * How sure a leak is. Twice from the same place and never given back is a pattern; once may be a buffer for the whole
 * run. A killed process had no chance to free anything. What the interpreter's shutdown gave back had an owner.
 */
static enum vt_confidence leak_confidence(const struct judge *j, const struct whole *whole)
{
    const struct vt_model *m = j->model;
    const struct vt_site_row *site = &whole->row;

    if (at_finalize(m) && site->record->live_count < site->live_count)
        return VT_POSSIBLE;
    if (m->end == VT_PROCESS_KILLED || gave_up(m) || site->owner != VT_OWNER_APPLICATION || site->live_count < 2 ||
        looks_intended(j, &whole->record))
        return VT_POSSIBLE;
    if (j->births && site->record->python_stack && !keeps_steadily(j, whole))
        return VT_POSSIBLE;
    return VT_LIKELY;
}

static bool may_leak(const struct vt_site_row *site)
{
    return vt_holds_memory(site) && !site->pool &&
           (site->owner == VT_OWNER_APPLICATION || site->owner == VT_OWNER_UNKNOWN);
}

/* Is what is live of a row no more than the newest of what it made, everything before it having been freed? */
static bool is_replaced(const struct judge *j, uint32_t row)
{
    uint64_t live = j->model->sites[row].live_count, all = j->model->sites[row].record->alloc_calls;

    return j->made && all >= REPLACED_MIN && live <= all / REPLACED_SHARE && j->made[row] <= REPLACED_SPAN * live;
}

/* A place is judged as a whole: what its rows make one by one is a pattern together, unless each of them replaces its own. */
static enum vt_confidence confidence_of(const struct judge *j, uint32_t row)
{
    const struct vt_model *m = j->model;
    struct whole whole = {m->sites[row], *m->sites[row].record, row};
    bool replaced = is_replaced(j, row);
    uint32_t i;

    for (i = 0; vt_row_place(j->places, row) && i < m->site_count; i++) {
        const struct vt_site *other = m->sites[i].record;

        if (i == row || !is_part(j, row, i))
            continue;
        whole.row.live_count += m->sites[i].live_count;
        whole.record.live_count += other->live_count;
        whole.record.free_calls += other->free_calls;
        whole.record.last_ns = other->last_ns > whole.record.last_ns ? other->last_ns : whole.record.last_ns;
        whole.record.first_ns = other->first_ns < whole.record.first_ns ? other->first_ns : whole.record.first_ns;
        replaced = replaced && (!m->sites[i].live_count || is_replaced(j, i));
    }
    whole.row.record = &whole.record;
    return replaced ? VT_POSSIBLE : leak_confidence(j, &whole);
}

/* One finding for all leaking places of one confidence: rows that are `taken`. */
static void report(struct vt_finding_builder *b, const struct vt_row_places *places, const bool *taken,
                   enum vt_confidence confidence)
{
    struct vt_model *m = b->model;
    struct vt_finding *finding;
    uint64_t bytes = 0, count = 0;
    uint32_t i, sums, all;
    struct vt_place_sum *list = vt_row_places_sum(b, places, taken, &sums);
    char text[VT_FORMAT_BYTES];

    for (all = sums, i = 0; i < m->site_count; i++) {
        bytes += taken[i] ? m->sites[i].live_bytes : 0;
        count += taken[i] ? m->sites[i].live_count : 0;
        all += taken[i] && !vt_row_place(places, i);
    }
    if (all) {
        finding = vt_new_finding(b, VT_FAMILY_LEAK, confidence, "%s from %u place%s: %llu allocation%s %s.",
                                 vt_format_bytes(text, bytes), all, all == 1 ? "" : "s", (unsigned long long)count,
                                 count == 1 ? "" : "s",
                                 m->end == VT_PROCESS_KILLED ? "held when the process was killed"
                                 : gave_up(m)                ? "held when the process gave up for want of memory"
                                 : at_finalize(m)            ? "still held when the program's own code had ended"
                                                             : "never freed");
        for (i = 0; i < sums && i < EVIDENCE_MAX; i++)
            vt_show_place(b, finding, &list[i]);
        if (all > EVIDENCE_MAX)
            vt_add_evidence(b, finding, "and %u more places.", all - EVIDENCE_MAX);
        for (i = 0; i < m->site_count; i++)
            if (taken[i])
                vt_add_site(b, finding, m->sites[i].index);
        if (m->end != VT_PROCESS_KILLED && !gave_up(m)) /* everything is held then: that calls for no advice */
            vt_add_advice(b, finding, bytes, "Free what these places allocate, on error paths too.");
    }
    free(list);
}

/* Takes back the rows that look like a leak and are none, by when what is live was made. */
static void spare(struct vt_finding_builder *b, struct judge *j, bool *likely)
{
    struct vt_model *m = b->model;
    uint64_t *made = calloc(m->site_count ? m->site_count : 1, sizeof *made);
    struct vt_births births;
    uint32_t i;

    j->births = &births;
    j->made = made;
    if (vt_births_take(&births, m, m->site_count, TICKS_MIN) || vt_births_by_rounds(&births, TICKS_MIN) || !made ||
        vt_births_made_since_oldest(&births, made))
        b->no_memory = true;
    else
        for (i = 0; i < m->site_count; i++)
            likely[i] = likely[i] && confidence_of(j, i) == VT_LIKELY;
    j->births = NULL;
    j->made = NULL;
    vt_births_free(&births);
    free(made);
}

/* Judges and reports the rows that may leak, which are those in `may`. likely, possible: as long as the rows, and false. */
static void judge(struct vt_finding_builder *b, const bool *may, bool *likely, bool *possible)
{
    struct vt_model *m = b->model;
    struct vt_row_places places;
    struct judge j = {.model = m, .places = &places};
    uint32_t i, rows = 0, count, suspects = 0;

    for (count = 0; count < m->site_count && rows < PLACES_MAX; count++)
        rows += may[count];
    if (vt_row_places_build(b, &places, may, count)) {
        for (i = 0; i < m->site_count; i++)
            if (may[i])
                suspects += likely[i] = confidence_of(&j, i) == VT_LIKELY;
        if (suspects)
            spare(b, &j, likely);
        for (i = 0; i < m->site_count; i++)
            possible[i] = may[i] && !likely[i];
        report(b, &places, likely, VT_LIKELY);
        report(b, &places, possible, VT_POSSIBLE);
    }
    vt_row_places_free(&places);
}

void vt_find_leaks(struct vt_finding_builder *b)
{
    struct vt_model *m = b->model;
    bool *may;
    uint32_t i;

    if (!vt_is_final(m) || (m->end == VT_PROCESS_RUNNING && !m->recorded))
        return;
    if (!(may = calloc(m->site_count ? m->site_count : 1, 3 * sizeof *may))) {
        b->no_memory = true;
        return;
    }
    for (i = 0; i < m->site_count; i++)
        may[i] = may_leak(&m->sites[i]) && !vt_is_suppressed(b, &m->sites[i]);
    judge(b, may, may + m->site_count, may + 2 * (size_t)m->site_count);
    free(may);
}
