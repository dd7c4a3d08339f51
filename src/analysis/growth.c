/*
 * Growth of a site, from the live bytes at the ends of up to VT_HISTORY equal intervals of the run.
 *
 * Intervals count from the start of the recording, so interval i ends at (i + 1) << history_shift. Nothing is written
 * while nothing happens: after the last interval the live bytes are those of the site.
 */
#include "analysis/model.h"

/* Live bytes at the end of the last interval that ends at or before `time`. */
static uint64_t live_at(const struct vt_site *site, uint32_t count, uint64_t time, uint64_t now_bytes)
{
    uint64_t ended = site->history_shift < 64 ? time >> site->history_shift : 0;

    if (!ended)
        return 0;
    return ended > count ? now_bytes : site->history[ended - 1];
}

static bool never_fell(const struct vt_site *site, uint32_t count, uint64_t now_bytes)
{
    uint64_t before = 0;
    uint32_t i;

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

struct vt_growth vt_model_growth(const struct vt_site *site, uint64_t live_bytes, uint64_t live_count, uint64_t now_ns)
{
    struct vt_growth growth = {0};
    uint32_t count = site->history_count < VT_HISTORY ? site->history_count : VT_HISTORY;
    uint64_t since = site->first_ns;
    double mean = live_count ? (double)live_bytes / (double)live_count : 0;

    if (!site->free_calls && !site->retired) {
        growth.monotonic = true;
        growth.bytes = (int64_t)live_bytes;
        growth.allocs = (int64_t)live_count;
    } else {
        since = now_ns > site->first_ns ? site->first_ns + (now_ns - site->first_ns) / 2 : site->first_ns;
        growth.monotonic = count && never_fell(site, count, live_bytes);
        growth.bytes = (int64_t)(live_bytes - live_at(site, count, since, live_bytes));
        growth.allocs = mean > 0 ? rounded((double)growth.bytes / mean) : 0;
    }
    if (now_ns > since)
        growth.bytes_per_s = (double)growth.bytes * 1e9 / (double)(now_ns - since);
    return growth;
}
