/*
 * The page's curves. Times are microseconds since the process first used CUDA.
 *
 *   scopes   per level, class and device: the points of its curve as [time, lowest, highest, ...]; a value holds until the
 *            next point. Up to exact_from the recording's timeline (the highest and lowest of each of its intervals), from
 *            there on every event that was kept, or intervals so short that a screen shows no more.
 *   layers   per GPU and in two ways (by category, by place) what the memory that lists show consists of: the names, and
 *            points [time, bytes of the first, of the second, ...], each at the highest sum of its interval.
 *   steps, marks, phases
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/category.h"
#include "views/html.h"
#include "views/json.h"

#define POINTS 8000u      /* of all curves together, made from events, */
#define CURVE_POINTS 300u /* but so many of each at least */
#define LAYER_POINTS 600u /* of layers, on all devices together */
#define DEVICES 16
#define LAYERS 12u /* the last one is all others */
#define NAMED 400u /* places looked at for the layers' names */
#define MARKS 400u

struct layers {
    char *names[LAYERS];
    int sites[LAYERS];
    uint32_t count;
    int64_t live[LAYERS];
};

/* One GPU and one way of telling its memory apart. */
struct picture {
    struct layers layers;
    int device;
    bool places;
    uint8_t *layer_of; /* per site; UINT8_MAX: not on this device, or not shown */
};

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

/* --- layers ------------------------------------------------------------------------------------------------------------ */

static bool is_layered(const struct vt_page *page, const struct vt_site_row *row, int device)
{
    return row->record->device == device && vt_kind_is_memory(row->record->kind) &&
           row->record->kind != VT_KIND_PINNED && row->record->kind != VT_KIND_REGISTERED &&
           vt_view_is_shown(&page->x.a, row);
}

/* The layer with a name; a new one while there is room, else the last. */
static uint8_t layer_named(struct layers *layers, const char *name, uint32_t site)
{
    uint32_t i;

    for (i = 0; i < layers->count && i < LAYERS - 1; i++)
        if (!strcmp(layers->names[i], name))
            return (uint8_t)i;
    if (layers->count >= LAYERS - 1 || !(layers->names[layers->count] = strdup(name)))
        return LAYERS - 1;
    layers->sites[layers->count] = (int)site;
    return (uint8_t)layers->count++;
}

struct rank {
    uint64_t value;
    const struct vt_site_row *row;
};

static int by_value(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->row->index < y->row->index ? -1 : x->row->index > y->row->index;
}

static void name_place(struct vt_page *page, struct picture *p, const struct vt_site_row *row)
{
    char label[VT_EXPORT_LABEL];
    struct vt_trace trace;

    if (page->names[row->index]) {
        p->layer_of[row->index] = layer_named(&p->layers, page->names[row->index], row->index);
        return;
    }
    vt_view_trace(&page->x.a, &trace, row->record->stack, row->record->python_stack);
    vt_export_label(label, vt_trace_user(&trace));
    vt_trace_free(&trace);
    p->layer_of[row->index] = layer_named(&p->layers, label, row->index);
}

/* Gives each place its layer, beginning with those that held most at the peak. */
static bool name_layers(struct vt_page *page, struct picture *p)
{
    const struct vt_model *m = &page->x.a.model;
    struct rank *list = calloc((size_t)m->site_count + 1, sizeof *list);
    uint32_t i, count = 0;

    if (!list || !(p->layer_of = malloc((size_t)m->site_count + 1))) {
        free(list);
        return false;
    }
    memset(p->layer_of, UINT8_MAX, (size_t)m->site_count + 1);
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].index < m->site_count && is_layered(page, &m->sites[i], p->device))
            list[count++] = (struct rank){m->sites[i].at_peak_bytes + m->sites[i].record->peak_bytes / 2, &m->sites[i]};
    qsort(list, count, sizeof *list, by_value);
    for (i = 0; i < count; i++)
        if (p->places && i >= NAMED)
            p->layer_of[list[i].row->index] = LAYERS - 1;
        else if (p->places)
            name_place(page, p, list[i].row);
        else
            p->layer_of[list[i].row->index] = layer_named(&p->layers, vt_export_category(&page->x, list[i].row),
                                                          list[i].row->index);
    free(list);
    return count > 0;
}

static void put_layer_point(struct vt_page_buffer *b, const struct picture *p, uint64_t us)
{
    uint32_t i;

    vt_page_put(b, "%llu", (unsigned long long)us);
    for (i = 0; i < LAYERS; i++)
        if (i < p->layers.count || i == LAYERS - 1)
            vt_page_put(b, ",%llu", positive(p->layers.live[i]));
    vt_page_put(b, ",");
}

/* The events of the device once more: *sum is what its layers hold. False: the event changes none of them. */
static bool apply(struct picture *p, uint32_t sites, uint32_t site, int64_t bytes, int64_t *sum)
{
    uint8_t layer = site < sites ? p->layer_of[site] : UINT8_MAX;

    if (layer == UINT8_MAX)
        return false;
    if (__builtin_add_overflow(p->layers.live[layer], bytes, &p->layers.live[layer]) ||
        __builtin_add_overflow(*sum, bytes, sum))
        p->layers.live[layer] = *sum = 0;
    return true;
}

static int64_t start(struct picture *p, const struct vt_page_replay *r, uint32_t sites)
{
    int64_t sum = 0;
    uint32_t i;

    memset(p->layers.live, 0, sizeof p->layers.live);
    for (i = 0; i < sites && i < r->sites; i++)
        apply(p, sites, i, r->site_live[i], &sum);
    return sum;
}

/* Which event of each interval had the highest sum. */
static bool find_highest(struct picture *p, struct vt_page_replay *r, const struct vt_reading *reading, uint32_t sites,
                         uint64_t *highest)
{
    int64_t *most = malloc(((size_t)r->intervals + 1) * sizeof *most), sum = start(p, r, sites);
    uint64_t number;
    uint32_t site, i;

    for (i = 0; most && i < r->intervals; i++) {
        most[i] = -1;
        highest[i] = UINT64_MAX;
    }
    vt_page_replay_rewind(r);
    for (number = r->first; most && number < r->count; number++) {
        int64_t bytes = vt_page_replay_step(r, reading, number, &site);

        if (apply(p, sites, site, bytes, &sum) && sum > most[r->now]) {
            most[r->now] = sum;
            highest[r->now] = number;
        }
    }
    free(most);
    return most != NULL;
}

static void put_layer_points(struct vt_page_buffer *b, struct picture *p, struct vt_page_replay *r,
                             const struct vt_reading *reading, uint32_t sites)
{
    uint64_t *highest = calloc((size_t)r->intervals + 1, sizeof *highest), number, time = 0;
    int64_t sum;
    uint32_t site;

    if (!highest || !find_highest(p, r, reading, sites, highest)) {
        b->failed = true;
        free(highest);
        return;
    }
    sum = start(p, r, sites);
    put_layer_point(b, p, micro(r->from_ns));
    vt_page_replay_rewind(r);
    for (number = r->first; number < r->count; number++) {
        int64_t bytes = vt_page_replay_step(r, reading, number, &site);

        apply(p, sites, site, bytes, &sum);
        if (highest[r->now] == number) {
            time = vt_page_replay_time(r, reading, r->now);
            put_layer_point(b, p, micro(time));
        }
    }
    put_layer_point(b, p, micro(r->until_ns > time ? r->until_ns : time));
    free(highest);
}

static void put_picture(struct vt_page *page, struct vt_page_buffer *b, struct vt_page_replay *r, int device,
                        bool places, bool *any)
{
    struct picture p = {.device = device, .places = places};
    uint32_t i;

    if (name_layers(page, &p)) {
        vt_page_put(b, "%s{\"device\":%d,\"by\":\"%s\",\"names\":[", *any ? ",\n" : "\n", device,
                    places ? "place" : "category");
        *any = true;
        for (i = 0; i < p.layers.count; i++) {
            vt_page_put_json(b, vt_json_chars(p.layers.names[i]));
            vt_page_put(b, ",");
        }
        vt_page_put(b, "null],\"sites\":[");
        for (i = 0; i < p.layers.count; i++)
            vt_page_put(b, "%d,", p.layers.sites[i]);
        vt_page_put(b, "null],\"points\":[");
        put_layer_points(b, &p, r, page->x.a.model.reading, page->x.a.model.site_count);
        if (b->used && b->text[b->used - 1] == ',')
            b->used--;
        vt_page_put(b, "]}");
    }
    for (i = 0; i < p.layers.count; i++)
        free(p.layers.names[i]);
    free(p.layer_of);
}

static void put_layers(struct vt_page *page, struct vt_page_buffer *b)
{
    const struct vt_model *m = &page->x.a.model;
    uint32_t devices = m->device_count < DEVICES ? m->device_count : DEVICES, i;
    struct vt_page_replay r;
    bool any = false;

    vt_page_put(b, ",\n\"layers\":[");
    if (!devices || vt_page_replay_open(&r, m->reading, LAYER_POINTS / devices + 100)) {
        vt_page_put(b, "]");
        return;
    }
    for (i = 0; i < devices && r.count && b->used < VT_PAGE_TIMELINE; i++) {
        put_picture(page, b, &r, m->devices[i].record->ordinal, false, &any);
        put_picture(page, b, &r, m->devices[i].record->ordinal, true, &any);
    }
    vt_page_put(b, "]");
    vt_page_replay_free(&r);
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
    put_layers(page, &b);
    put_steps(&b, reading);
    put_marks(&b, reading, &r, "marks", VT_EVENT_MARK, MARKS);
    put_marks(&b, reading, &r, "phases", VT_EVENT_PHASE, 2 * MARKS);
    vt_page_put(&b, "}");
    vt_page_flush(page, &b);
    vt_page_replay_free(&r);
}
