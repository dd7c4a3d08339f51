/*
 * Leaks of the program: what driver calls of its own made and nobody had freed when the run ended. What frameworks hand on
 * as tensors is never one of them: the tensors in it may be (findings_growth.c).
 */
#include <stdlib.h>

#include "analysis/births.h"
#include "analysis/finding_rules.h"
#include "analysis/format.h"

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

/* Made once at the start of a long run and kept: that looks intended, freed or not. */
static bool looks_intended(const struct vt_model *m, const struct vt_site_row *site)
{
    return m->duration_ns >= LONG_RUN_NS && !site->record->free_calls && site->record->last_ns < m->duration_ns / 2;
}

/*
 * How sure a leak is. Twice from the same place and never given back is a pattern; once may be a buffer for the whole
 * run. A killed process had no chance to free anything. What the interpreter's shutdown gave back had an owner.
 */
static enum vt_confidence leak_confidence(const struct vt_model *m, const struct vt_site_row *site)
{
    if (at_finalize(m) && site->record->live_count < site->live_count)
        return VT_POSSIBLE;
    if (m->end == VT_PROCESS_KILLED || gave_up(m) || site->owner != VT_OWNER_APPLICATION || site->live_count < 2 ||
        looks_intended(m, site))
        return VT_POSSIBLE;
    return VT_LIKELY;
}

static bool may_leak(const struct vt_site_row *site)
{
    return vt_holds_memory(site) && !site->pool &&
           (site->owner == VT_OWNER_APPLICATION || site->owner == VT_OWNER_UNKNOWN);
}

/* Is what is live of a row no more than the newest of what it made, everything before it having been freed? */
static bool is_replaced(const struct vt_model *m, const uint64_t *made, uint32_t row)
{
    uint64_t live = m->sites[row].live_count, all = m->sites[row].record->alloc_calls;

    return all >= REPLACED_MIN && live <= all / REPLACED_SHARE && made[row] <= REPLACED_SPAN * live;
}

/* A place is judged as a whole: what its rows make one by one is a pattern together, unless each of them replaces its own.
 * made: by row, as of vt_births_made_since_oldest(); NULL: none does. */
static enum vt_confidence confidence_of(const struct vt_model *m, const struct vt_row_places *places,
                                        const uint64_t *made, uint32_t row)
{
    const struct vt_place *place = vt_row_place(places, row);
    struct vt_site together = *m->sites[row].record;
    struct vt_site_row whole = m->sites[row];
    bool replaced = made && is_replaced(m, made, row);
    uint32_t i;

    for (i = 0; place && i < m->site_count; i++) {
        const struct vt_site *other = m->sites[i].record;

        if (i == row || !vt_row_place(places, i) || vt_row_place(places, i)->chain != place->chain)
            continue;
        whole.live_count += m->sites[i].live_count;
        together.live_count += other->live_count;
        together.free_calls += other->free_calls;
        together.last_ns = other->last_ns > together.last_ns ? other->last_ns : together.last_ns;
        replaced = replaced && (!m->sites[i].live_count || is_replaced(m, made, i));
    }
    whole.record = &together;
    return replaced ? VT_POSSIBLE : leak_confidence(m, &whole);
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

/* Takes back the rows that only replace what they make. */
static void spare_replaced(struct vt_finding_builder *b, const struct vt_row_places *places, bool *likely)
{
    struct vt_model *m = b->model;
    uint64_t *made = calloc(m->site_count ? m->site_count : 1, sizeof *made);
    struct vt_births births;
    uint32_t i;

    if (vt_births_take(&births, m, m->site_count, 1) || !made || vt_births_made_since_oldest(&births, made))
        b->no_memory = true;
    else
        for (i = 0; i < m->site_count; i++)
            likely[i] = likely[i] && confidence_of(m, places, made, i) == VT_LIKELY;
    vt_births_free(&births);
    free(made);
}

/* Judges and reports the rows that may leak, which are those in `may`. likely, possible: as long as the rows, and false. */
static void judge(struct vt_finding_builder *b, const bool *may, bool *likely, bool *possible)
{
    struct vt_model *m = b->model;
    struct vt_row_places places;
    uint32_t i, rows = 0, count, suspects = 0;

    for (count = 0; count < m->site_count && rows < PLACES_MAX; count++)
        rows += may[count];
    if (vt_row_places_build(b, &places, may, count)) {
        for (i = 0; i < m->site_count; i++)
            if (may[i])
                suspects += likely[i] = confidence_of(m, &places, NULL, i) == VT_LIKELY;
        if (suspects)
            spare_replaced(b, &places, likely);
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
