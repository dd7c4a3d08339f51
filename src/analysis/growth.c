/*
 * Growth of a site, from the live bytes at the ends of up to VT_HISTORY equal intervals of the run, and from the times at
 * which training steps ended.
 *
 * Intervals count from the start of the recording, so interval i ends at (i + 1) << history_shift. Nothing is written
 * while nothing happens: after the last interval the live bytes are those of the site.
 */
#include "analysis/model.h"

#define STEPS_MIN 3 /* fewer show no trend */

/* Intervals of the history that had ended by `now`. */
static uint32_t intervals(const struct vt_site *site, uint64_t now)
{
    uint64_t ended = site->history_shift < 64 ? now >> site->history_shift : 0,
             count = site->history_count < VT_HISTORY ? site->history_count : VT_HISTORY;

    return (uint32_t)(count < ended ? count : ended);
}

/* Live bytes at the end of the last interval that ends at or before `time`. */
static uint64_t live_before(const struct vt_site *site, uint64_t time, uint64_t now, uint64_t now_bytes)
{
    uint64_t ended = site->history_shift < 64 ? time >> site->history_shift : 0;

    if (!ended)
        return 0;
    return ended > intervals(site, now) ? now_bytes : site->history[ended - 1];
}

uint64_t vt_model_live_at(const struct vt_site *site, uint64_t time, uint64_t now, uint64_t live_bytes, uint64_t *end)
{
    uint32_t count = intervals(site, now), i;

    for (i = 0; i < count; i++) {
        *end = (uint64_t)(i + 1) << site->history_shift;
        if (*end >= time)
            return site->history[i];
    }
    *end = now;
    return live_bytes;
}

static bool never_fell(const struct vt_site *site, uint64_t now, uint64_t now_bytes)
{
    uint32_t count = intervals(site, now), i;
    uint64_t before = 0;

    for (i = 0; i < count; i++) {
        if (site->history[i] < before)
            return false;
        before = site->history[i];
    }
    return now_bytes >= before;
}

/* Rounds; a figure of a damaged file may exceed what an integer holds. */
static int64_t rounded(double value)
{
    if (value > 9e18 || value < -9e18)
        return 0;
    return (int64_t)(value + (value < 0 ? -0.5 : 0.5));
}

static int64_t allocs_of(int64_t bytes, uint64_t live_bytes, uint64_t live_count)
{
    double mean = live_count ? (double)live_bytes / (double)live_count : 0;

    return mean > 0 ? rounded((double)bytes / mean) : 0;
}

/* The record's counts are of the end of the run, and what was live at an earlier moment may have been freed since. */
static bool nothing_was_freed(const struct vt_site *site, uint64_t live_count)
{
    return site->alloc_calls == live_count || (!site->free_calls && !site->retired);
}

bool vt_model_never_freed(const struct vt_site_row *row)
{
    return nothing_was_freed(row->record, row->live_count);
}

uint64_t vt_model_last_ns(const struct vt_model *m, const struct vt_site_row *row)
{
    if (row->newest_ns && vt_model_never_freed(row))
        return row->newest_ns;
    return row->record->last_ns < m->moment_ns ? row->record->last_ns : m->moment_ns;
}

struct vt_growth vt_model_growth(const struct vt_site *site, uint64_t live_bytes, uint64_t live_count, uint64_t now_ns)
{
    struct vt_growth growth = {0};
    uint64_t since = site->first_ns;

    if (nothing_was_freed(site, live_count)) {
        growth.monotonic = true;
        growth.bytes = (int64_t)live_bytes;
        growth.allocs = (int64_t)live_count;
    } else {
        since = now_ns > site->first_ns ? site->first_ns + (now_ns - site->first_ns) / 2 : site->first_ns;
        growth.monotonic = intervals(site, now_ns) && never_fell(site, now_ns, live_bytes);
        growth.bytes = (int64_t)(live_bytes - live_before(site, since, now_ns, live_bytes));
        growth.allocs = allocs_of(growth.bytes, live_bytes, live_count);
    }
    if (now_ns > since)
        growth.bytes_per_s = (double)growth.bytes * 1e9 / (double)(now_ns - since);
    return growth;
}

uint64_t vt_model_steps_until(const struct vt_reading *r, uint64_t time)
{
    const struct vt_header *h = vt_reading_header(r);
    uint64_t low = 0, high = vt_reading_count(r, VT_STEPS), steps;
    uint32_t shift = h->step_shift < 48 ? h->step_shift : 48;

    if (h->steps && h->step_ns && time >= h->step_ns)
        return h->steps;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct vt_step *step = vt_reading_step(r, middle);

        if (step && step->end_ns <= time)
            low = middle + 1;
        else
            high = middle;
    }
    steps = low ? ((low - 1) << shift) + 1 : 0;
    return steps < h->steps ? steps : h->steps;
}

uint64_t vt_model_step_end(const struct vt_reading *r, uint64_t step)
{
    const struct vt_header *h = vt_reading_header(r);
    uint32_t shift = h->step_shift < 48 ? h->step_shift : 48;
    uint64_t index = step >> shift, part = step & ((1ull << shift) - 1), next_ns;
    const struct vt_step *at = vt_reading_step(r, index), *next = vt_reading_step(r, index + 1);

    if (!at)
        return h->step_ns;
    next_ns = next ? next->end_ns : h->step_ns;
    if (!part || next_ns <= at->end_ns)
        return at->end_ns;
    return at->end_ns + (uint64_t)((double)(next_ns - at->end_ns) * (double)part / (double)(1ull << shift));
}

static void per_step(struct vt_growth *growth, uint64_t steps)
{
    growth->steps = steps;
    growth->bytes_per_step = steps ? (double)growth->bytes / (double)steps : 0;
}

struct vt_growth vt_model_growth_of(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;
    struct vt_growth growth = vt_model_growth(site, row->live_bytes, row->live_count, m->moment_ns);
    uint64_t steps, half_ns, since, before;

    if (site->level != VT_LEVEL_TENSOR || (steps = vt_model_steps_until(m->reading, m->moment_ns)) < STEPS_MIN)
        return growth;
    half_ns = vt_model_step_end(m->reading, steps / 2 - 1);
    if (vt_model_last_ns(m, row) <= half_ns) { /* made once, and kept: parameters, the optimizer's state */
        growth.bytes = growth.allocs = 0;
        growth.bytes_per_s = 0;
        per_step(&growth, steps - steps / 2);
        return growth;
    }
    if (vt_model_never_freed(row)) { /* from the first allocation's step to the last one's, both included */
        per_step(&growth, 1 + vt_model_steps_until(m->reading, vt_model_last_ns(m, row)) -
                              vt_model_steps_until(m->reading, site->first_ns));
        return growth;
    }
    before = vt_model_live_at(site, half_ns, m->moment_ns, row->live_bytes, &since);
    growth.bytes = (int64_t)(row->live_bytes - before);
    growth.allocs = allocs_of(growth.bytes, row->live_bytes, row->live_count);
    growth.bytes_per_s = m->moment_ns > since ? (double)growth.bytes * 1e9 / (double)(m->moment_ns - since) : 0;
    per_step(&growth, steps - vt_model_steps_until(m->reading, since));
    return growth;
}
