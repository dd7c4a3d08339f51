/*
 * The newest events once more, for curves that are finer than the recording's timelines: what was live before the first of
 * them is what is live now less all their changes. Time is cut into equal intervals, or into one per event where there are
 * few. Readers of a live process see it change meanwhile: every number is checked, and no sum falls below zero for long.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "views/html.h"

/* What an event changes; its site, or VT_NONE. */
static int64_t change(const struct vt_page_replay *r, const struct vt_event *e, uint32_t *site)
{
    *site = VT_NONE;
    if (!e || (e->type != VT_EVENT_ALLOC && e->type != VT_EVENT_FREE && e->type != VT_EVENT_RETIRE) ||
        e->site >= r->sites || e->bytes > INT64_MAX / 4)
        return 0;
    *site = e->site;
    return e->type == VT_EVENT_ALLOC ? (int64_t)e->bytes : -(int64_t)e->bytes;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? 0 : sum;
}

static void go_back(struct vt_page_replay *r, const struct vt_reading *reading)
{
    const struct vt_site *site;
    const struct vt_scope *scope;
    uint32_t i;
    uint64_t s;

    for (i = 0; i < r->sites; i++)
        if ((site = vt_reading_site(reading, i)) && site->live_bytes < INT64_MAX)
            r->site_live[i] = (int64_t)site->live_bytes;
    for (i = 0; i < r->scopes; i++)
        if ((scope = vt_reading_scope(reading, i)) && scope->live_bytes < INT64_MAX)
            r->scope_live[i] = (int64_t)scope->live_bytes;
    for (s = r->first; s < r->count; s++) {
        int64_t bytes = change(r, vt_reading_event(reading, s), &i);

        if (i == VT_NONE)
            continue;
        r->site_live[i] = plus(r->site_live[i], -bytes);
        if ((site = vt_reading_site(reading, i)) && site->scope < r->scopes)
            r->scope_live[site->scope] = plus(r->scope_live[site->scope], -bytes);
    }
    for (i = 0; i < r->sites; i++) /* a process that was killed in between its books */
        r->site_live[i] = r->site_live[i] < 0 ? 0 : r->site_live[i];
    for (i = 0; i < r->scopes; i++)
        r->scope_live[i] = r->scope_live[i] < 0 ? 0 : r->scope_live[i];
}

int vt_page_replay_open(struct vt_page_replay *r, const struct vt_reading *reading, uint32_t most)
{
    uint64_t held = vt_reading_count(reading, VT_EVENTS);
    const struct vt_event *first, *last;

    memset(r, 0, sizeof *r);
    r->count = vt_reading_events(reading);
    held = held < r->count ? held : r->count;
    r->first = r->count - held;
    r->sites = (uint32_t)vt_reading_count(reading, VT_SITES);
    r->scopes = (uint32_t)vt_reading_count(reading, VT_SCOPES);
    r->site_live = calloc((size_t)r->sites + 1, sizeof *r->site_live);
    r->scope_live = calloc((size_t)r->scopes + 1, sizeof *r->scope_live);
    if (!r->site_live || !r->scope_live) {
        vt_page_replay_free(r);
        return -ENOMEM;
    }
    first = held ? vt_reading_event(reading, r->first) : NULL;
    last = held ? vt_reading_event(reading, r->count - 1) : NULL;
    r->from_ns = first && r->first ? first->time_ns : 0;
    r->until_ns = last && last->time_ns > r->from_ns ? last->time_ns : r->from_ns;
    r->exact = held <= most;
    r->intervals = r->exact ? (uint32_t)held : most;
    go_back(r, reading);
    return 0;
}

void vt_page_replay_free(struct vt_page_replay *r)
{
    free(r->site_live);
    free(r->scope_live);
    r->site_live = r->scope_live = NULL;
}

void vt_page_replay_rewind(struct vt_page_replay *r)
{
    r->now_ns = r->from_ns;
    r->now = 0;
}

int64_t vt_page_replay_step(struct vt_page_replay *r, const struct vt_reading *reading, uint64_t number, uint32_t *site)
{
    const struct vt_event *e = vt_reading_event(reading, number);
    uint64_t span = r->until_ns - r->from_ns;
    uint32_t at;

    if (r->exact) {
        r->now = (uint32_t)(number - r->first);
    } else if (e && e->time_ns > r->now_ns && span) {
        r->now_ns = e->time_ns < r->until_ns ? e->time_ns : r->until_ns;
        at = (uint32_t)((double)(r->now_ns - r->from_ns) / (double)span * r->intervals);
        at = at < r->intervals ? at : r->intervals - 1;
        r->now = at > r->now ? at : r->now;
    }
    return change(r, e, site);
}

uint64_t vt_page_replay_time(const struct vt_page_replay *r, const struct vt_reading *reading, uint32_t interval)
{
    const struct vt_event *e;

    if (!r->exact)
        return r->from_ns + (uint64_t)((double)(r->until_ns - r->from_ns) / r->intervals * interval);
    e = vt_reading_event(reading, r->first + interval);
    return e && e->time_ns < r->until_ns ? e->time_ns : r->until_ns;
}
