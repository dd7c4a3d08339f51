/*
 * The page's curves. Times are microseconds since the process first used CUDA.
 *
 *   scopes   per level, class and device: the points of its curve as [time, lowest, highest, ...]; a value holds until the
 *            next point. Up to exact_from the recording's timeline (the highest and lowest of each of its intervals), from
 *            there on every event that was kept, or intervals so short that a screen shows no more.
 *   layers   what it consists of: html_layers.c
 *   steps, marks, phases
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "views/html.h"
#include "views/json.h"

#define POINTS 8000u      /* of all curves together, made from events, */
#define CURVE_POINTS 300u /* but so many of each at least */
#define DEVICES 16
#define MARKS 400u

static unsigned long long micro(uint64_t ns)
{
    return (unsigned long long)(ns / 1000);
}

static unsigned long long positive(int64_t bytes)
{
    return bytes < 0 ? 0 : (unsigned long long)bytes;
}

/* --- curves ------------------------------------------------------------------------------------------------------------ */

static void put_old_points(struct vt_page_buffer *b, const struct vt_timeline *line, uint64_t until_ns)
{
    uint32_t i;

    for (i = 0; line && line->shift < 54 && i < line->used && i < VT_BUCKETS && (uint64_t)i << line->shift < until_ns;
         i++)
        if (line->bucket[i].min <= line->bucket[i].max)
            vt_page_put(b, "%llu,%llu,%llu,", micro((uint64_t)i << line->shift),
                        (unsigned long long)line->bucket[i].min, (unsigned long long)line->bucket[i].max);
}

struct span {
    int64_t low, high, live;
    uint32_t interval; /* of low and high; VT_NONE: nothing to be written */
};

static void put_span(struct vt_page_buffer *b, struct span *span, const struct vt_page_replay *r,
                     const struct vt_reading *reading)
{
    if (span->interval != VT_NONE)
        vt_page_put(b, "%llu,%llu,%llu,", micro(vt_page_replay_time(r, reading, span->interval)), positive(span->low),
                    positive(span->high));
    if (span->interval != VT_NONE && !r->exact && span->low != span->high) /* what it was left with */
        vt_page_put(b, "%llu,%llu,%llu,", micro(vt_page_replay_time(r, reading, span->interval + 1)),
                    positive(span->live), positive(span->live));
    span->interval = VT_NONE;
}

static void put_new_points(struct vt_page_buffer *b, uint32_t scope, struct vt_page_replay *r,
                           const struct vt_reading *reading)
{
    struct span span = {.live = r->scope_live[scope], .interval = VT_NONE};
    const struct vt_site *s;
    uint64_t number;
    uint32_t site;

    vt_page_put(b, "%llu,%llu,%llu,", micro(r->from_ns), positive(span.live), positive(span.live));
    vt_page_replay_rewind(r);
    for (number = r->first; number < r->count; number++) {
        int64_t bytes = vt_page_replay_step(r, reading, number, &site);

        if (site == VT_NONE || !(s = vt_reading_site(reading, site)) || s->scope != scope)
            continue;
        if (span.interval != r->now) {
            put_span(b, &span, r, reading);
            span.interval = r->now;
            span.low = span.high = span.live;
        }
        if (__builtin_add_overflow(span.live, bytes, &span.live))
            span.live = 0;
        if (r->exact)
            span.low = span.high = span.live;
        span.low = span.live < span.low ? span.live : span.low;
        span.high = span.live > span.high ? span.live : span.high;
    }
    put_span(b, &span, r, reading);
}

static const char *class_name(unsigned class)
{
    return class == VT_CLASS_HOST ? "host" : class == VT_CLASS_MANAGED ? "managed" : "device";
}

static void put_scopes(struct vt_page_buffer *b, const struct vt_reading *reading, struct vt_page_replay *r)
{
    uint32_t i, written = 0, left = 0;
    size_t before = b->used;

    vt_page_put(b, "\"scopes\":[");
    for (i = 0; i < r->scopes; i++) {
        const struct vt_scope *scope = vt_reading_scope(reading, i);

        if (!scope || scope->class_ == VT_CLASS_ADDRESS || scope->class_ == VT_CLASS_IMPORTED ||
            (!scope->peak_bytes && !scope->live_bytes))
            continue;
        if (b->used - before > VT_PAGE_TIMELINE / 2 || written >= 4 * DEVICES) {
            left++;
            continue;
        }
        vt_page_put(
            b, "%s{\"level\":\"%s\",\"class\":\"%s\",\"device\":%d,\"peak_bytes\":%llu,\"peak_us\":%llu,\"points\":[",
            written++ ? ",\n" : "\n", vt_level_name(scope->level), class_name(scope->class_), scope->device,
            (unsigned long long)scope->peak_bytes, micro(scope->peak_ns));
        if (r->first || r->count == 0)
            put_old_points(b, vt_reading_timeline(reading, i), r->count ? r->from_ns : UINT64_MAX);
        if (r->count)
            put_new_points(b, i, r, reading);
        if (b->used && b->text[b->used - 1] == ',')
            b->used--;
        vt_page_put(b, "]}");
    }
    vt_page_put(b, "],\n\"scopes_left_out\":%u", left);
}

/* --- steps, marks, phases ----------------------------------------------------------------------------------------------- */

static void put_steps(struct vt_page_buffer *b, const struct vt_reading *reading)
{
    uint64_t count = vt_reading_count(reading, VT_STEPS), stride = count / 1000 + 1, i;
    uint32_t shift = vt_reading_header(reading)->step_shift;

    vt_page_put(b, ",\n\"step_every\":%llu,\"steps\":[", shift < 32 ? (unsigned long long)(stride << shift) : 0);
    for (i = 0; i < count; i += stride) {
        const struct vt_step *step = vt_reading_step(reading, i);

        vt_page_put(b, "%s%llu", i ? "," : "", step ? micro(step->end_ns) : 0);
    }
    vt_page_put(b, "]");
}

/* Marks and changes of phase among the events, the newest ones. */
static void put_marks(struct vt_page_buffer *b, const struct vt_reading *reading, const struct vt_page_replay *r,
                      const char *key, unsigned type, unsigned most)
{
    const struct vt_event *e;
    uint64_t number, seen = 0, count = 0;

    for (number = r->first; number < r->count; number++)
        count += (e = vt_reading_event(reading, number)) && e->type == type;
    vt_page_put(b, ",\n\"%s\":[", key);
    for (number = r->first; number < r->count; number++) {
        if (!(e = vt_reading_event(reading, number)) || e->type != type || count > ++seen + most - 1 ||
            b->used > VT_PAGE_TIMELINE)
            continue;
        vt_page_put(b, "%s[%llu,", b->text && b->text[b->used - 1] == '[' ? "" : ",", micro(e->time_ns));
        vt_page_put_json(b, type == VT_EVENT_MARK ? vt_json_chars(vt_reading_chars(reading, (uint32_t)e->address))
                                                  : json_string(vt_phase_name((unsigned)e->address)));
        vt_page_put(b, "]");
    }
    vt_page_put(b, "]");
}

void vt_page_write_timeline(struct vt_page *page)
{
    const struct vt_reading *reading = page->x.a.model.reading;
    uint32_t scopes = (uint32_t)vt_reading_count(reading, VT_SCOPES), most = POINTS / (scopes + 1);
    struct vt_page_buffer b = {0};
    struct vt_page_replay r;

    if (vt_page_replay_open(&r, reading, most > CURVE_POINTS ? most : CURVE_POINTS)) {
        vt_export_fail(&page->x, -ENOMEM);
        return;
    }
    vt_page_put(&b, ",\n\"timeline\":{\"end_us\":%llu,\"exact_from_us\":%llu,\"events\":%llu,\"events_lost\":%llu,\n",
                micro(page->x.a.model.duration_ns), micro(r.count ? r.from_ns : page->x.a.model.duration_ns),
                (unsigned long long)r.count, (unsigned long long)r.first);
    put_scopes(&b, reading, &r);
    vt_page_put_layers(page, &b);
    put_steps(&b, reading);
    put_marks(&b, reading, &r, "marks", VT_EVENT_MARK, MARKS);
    put_marks(&b, reading, &r, "phases", VT_EVENT_PHASE, 2 * MARKS);
    vt_page_put(&b, "}");
    vt_page_flush(page, &b);
    vt_page_replay_free(&r);
}
