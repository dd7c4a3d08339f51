/*
 * Births of live allocations, sorted by place; see births.h.
 */
#include "analysis/births.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/trend.h"

/* Events of several threads may stand in another order than their times, by less than this; the ring's seam is further. */
#define DISORDER_NS 1000000

/* The slots of the model's moment: a range of a section. */
struct slots {
    enum vt_section section;
    uint64_t first, count;
};

static struct slots slots_of(const struct vt_model *m)
{
    uint64_t copied = vt_reading_count(m->reading, VT_MOMENT_SLOTS), first;

    if (m->recorded) { /* a damaged file may say anything */
        first = m->recorded->first_slot < copied ? m->recorded->first_slot : copied;
        return (struct slots){VT_MOMENT_SLOTS, first,
                              m->recorded->slots < copied - first ? m->recorded->slots : copied - first};
    }
    if (!strcmp(m->moment, "peak"))
        return (struct slots){VT_LIVE, 0, 0};
    return (struct slots){VT_LIVE, 0, vt_reading_count(m->reading, VT_LIVE)};
}

static const struct vt_slot *slot_at(const struct vt_model *m, const struct slots *slots, uint64_t i)
{
    const struct vt_slot *slot = vt_reading_record(m->reading, slots->section, slots->first + i);

    return slot && slot->kind != VT_KIND_NONE ? slot : NULL;
}

/* A birth and whose it is. */
struct found {
    uint32_t row;
    struct vt_birth birth;
};

static int by_row_and_time(const void *left, const void *right)
{
    const struct found *a = left, *b = right;

    if (a->row != b->row)
        return a->row < b->row ? -1 : 1;
    return (a->birth.time_ns > b->birth.time_ns) - (a->birth.time_ns < b->birth.time_ns);
}

/* Copies what is live, in one pass: the slots of a process that runs change meanwhile, and a second look at them would find
 * others. row_of: row + 1 by index of site. Returns the number, or -ENOMEM. */
static int64_t collect(const struct vt_model *m, const uint32_t *row_of, uint64_t sites, struct found **found)
{
    struct slots slots = slots_of(m);
    struct found *all = NULL, *grown;
    uint64_t i, count = 0, room = 0;

    for (i = 0; i < slots.count; i++) {
        const struct vt_slot *slot = slot_at(m, &slots, i);
        uint32_t site = slot ? __atomic_load_n(&slot->site, __ATOMIC_RELAXED) : VT_NONE;

        if (site >= sites || !row_of[site])
            continue;
        if (count == room) {
            room = room ? room * 2 : 1024;
            if (!(grown = realloc(all, room * sizeof *all))) {
                free(all);
                return -ENOMEM;
            }
            all = grown;
        }
        all[count++] = (struct found){row_of[site] - 1, {slot->time_ns, slot->bytes}};
    }
    *found = all;
    return (int64_t)count;
}

/* Puts the births of each row side by side, in their order. */
static int sort_slots(struct vt_births *b, const uint32_t *row_of, uint64_t sites)
{
    struct found *found = NULL;
    int64_t count = collect(b->model, row_of, sites, &found), i;
    uint32_t row = 0;

    if (count < 0 || !(b->all = calloc(count ? (size_t)count : 1, sizeof *b->all))) {
        free(found);
        return -ENOMEM;
    }
    if (count)
        qsort(found, (size_t)count, sizeof *found, by_row_and_time);
    for (i = 0; i < count; i++) {
        for (; row <= found[i].row; row++)
            b->first[row] = (uint64_t)i;
        b->all[i] = found[i].birth;
    }
    for (; row <= b->rows; row++)
        b->first[row] = (uint64_t)count;
    free(found);
    return 0;
}

/* The ring's oldest event: the one whose predecessor is newer. */
static uint64_t oldest_event(const struct vt_reading *r, uint64_t count)
{
    const struct vt_event *event, *before = vt_reading_record(r, VT_EVENTS, 0);
    uint64_t i;

    for (i = 1; before && i < count && (event = vt_reading_record(r, VT_EVENTS, i)); i++) {
        if (event->time_ns < before->time_ns && before->time_ns - event->time_ns > DISORDER_NS)
            return i;
        before = event;
    }
    return 0;
}

static int add_pass(struct vt_births *b, uint64_t time)
{
    uint64_t *grown = b->passes;

    if (!(b->pass_count & (b->pass_count - 1)) &&
        !(grown = realloc(grown, (b->pass_count ? b->pass_count * 2 : 1) * sizeof *grown)))
        return -ENOMEM;
    b->passes = grown;
    b->passes[b->pass_count++] = time;
    return 0;
}

/* When backward passes began, as far back as events are kept. A new pass begins where backward follows something else. */
static int take_passes(struct vt_births *b)
{
    const struct vt_reading *r = b->model->reading;
    uint64_t count = vt_reading_count(r, VT_EVENTS), start = oldest_event(r, count), i, phase = VT_PHASE_NONE;

    for (i = 0; i < count; i++) {
        const struct vt_event *event = vt_reading_record(r, VT_EVENTS, (start + i) % count);

        if (!event || event->type != VT_EVENT_PHASE || event->time_ns > b->model->moment_ns)
            continue;
        if (event->address == VT_PHASE_BACKWARD && phase != VT_PHASE_BACKWARD && add_pass(b, event->time_ns))
            return -ENOMEM;
        phase = event->address;
    }
    return 0;
}

/* A round is over where something is freed after something was allocated. Memory that is freed at once counts, what a clean-up
 * frees in a row is one. */
static int take_rounds(struct vt_births *b)
{
    const struct vt_reading *r = b->model->reading;
    uint64_t count = vt_reading_count(r, VT_EVENTS), start = oldest_event(r, count), i;
    bool allocated = false;

    for (i = 0; i < count; i++) {
        const struct vt_event *event = vt_reading_record(r, VT_EVENTS, (start + i) % count);

        if (!event || event->time_ns > b->model->moment_ns)
            continue;
        if (event->type == VT_EVENT_FREE && allocated && add_pass(b, event->time_ns))
            return -ENOMEM;
        if (event->type == VT_EVENT_ALLOC || event->type == VT_EVENT_FREE)
            allocated = event->type == VT_EVENT_ALLOC;
    }
    return 0;
}

int vt_births_by_rounds(struct vt_births *b, uint64_t ticks_min)
{
    if (b->clock != VT_CLOCK_TIME)
        return 0;
    b->pass_count = 0;
    free(b->passes);
    b->passes = NULL;
    if (take_rounds(b))
        return -ENOMEM;
    if (b->pass_count >= ticks_min)
        b->clock = VT_CLOCK_ROUNDS;
    return 0;
}

static int choose_clock(struct vt_births *b, uint64_t ticks_min)
{
    if (vt_model_steps_until(b->model->reading, b->model->moment_ns) >= ticks_min)
        return 0; /* steps */
    if (take_passes(b))
        return -ENOMEM;
    b->clock = b->pass_count >= ticks_min ? VT_CLOCK_PASSES : VT_CLOCK_TIME;
    return 0;
}

int vt_births_take(struct vt_births *b, const struct vt_model *m, uint32_t rows, uint64_t ticks_min)
{
    uint64_t sites = vt_reading_count(m->reading, VT_SITES);
    uint32_t *row_of = calloc(sites ? sites : 1, sizeof *row_of), row;
    int error = -ENOMEM;

    memset(b, 0, sizeof *b);
    b->model = m;
    b->rows = rows;
    b->first = calloc((uint64_t)rows + 2, sizeof *b->first);
    if (row_of && b->first) {
        for (row = 0; row < rows; row++)
            if (m->sites[row].index < sites)
                row_of[m->sites[row].index] = row + 1;
        error = sort_slots(b, row_of, sites);
    }
    free(row_of);
    return error ? error : choose_clock(b, ticks_min);
}

void vt_births_free(struct vt_births *b)
{
    free(b->all);
    free(b->first);
    free(b->passes);
    memset(b, 0, sizeof *b);
}

uint64_t vt_births_count(const struct vt_births *b, uint32_t row)
{
    return row < b->rows ? b->first[row + 1] - b->first[row] : 0;
}

const struct vt_birth *vt_births_of(const struct vt_births *b, uint32_t row)
{
    return &b->all[b->first[row]];
}

bool vt_births_known(const struct vt_births *b, uint32_t row)
{
    return vt_births_count(b, row) && vt_births_count(b, row) == b->model->sites[row].live_count;
}

int vt_births_made_since_oldest(const struct vt_births *b, uint64_t *made)
{
    const struct vt_reading *r = b->model->reading;
    uint64_t count = vt_reading_count(r, VT_EVENTS), sites = vt_reading_count(r, VT_SITES), i;
    const struct vt_event *event = count ? vt_reading_record(r, VT_EVENTS, oldest_event(r, count)) : NULL;
    uint64_t reach = event ? event->time_ns : UINT64_MAX;
    uint32_t *row_of = calloc(sites ? sites : 1, sizeof *row_of), row;

    if (!row_of)
        return -ENOMEM;
    for (row = 0; row < b->rows; row++) {
        made[row] = vt_births_known(b, row) && vt_births_of(b, row)->time_ns >= reach ? 0 : UINT64_MAX;
        if (!made[row] && b->model->sites[row].index < sites)
            row_of[b->model->sites[row].index] = row + 1;
    }
    for (i = 0; i < count; i++) {
        event = vt_reading_record(r, VT_EVENTS, i);
        row = event && event->type == VT_EVENT_ALLOC && event->site < sites ? row_of[event->site] : 0;
        if (row && event->time_ns <= b->model->moment_ns)
            made[row - 1] += event->time_ns >= vt_births_of(b, row - 1)->time_ns;
    }
    free(row_of);
    return 0;
}

static uint64_t passes_until(const struct vt_births *b, uint64_t time)
{
    uint64_t low = 0, high = b->pass_count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (b->passes[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t vt_births_tick(const struct vt_births *b, uint64_t time)
{
    if (b->clock == VT_CLOCK_STEPS)
        return vt_model_steps_until(b->model->reading, time);
    return b->clock == VT_CLOCK_TIME ? time : passes_until(b, time);
}

uint64_t vt_births_now(const struct vt_births *b)
{
    return vt_births_tick(b, b->model->moment_ns);
}

bool vt_births_are_steady(const struct vt_births *b, uint32_t row, uint64_t from)
{
    uint64_t count = vt_births_count(b, row), i, *ticks;
    bool steady;

    if (!vt_births_known(b, row) || !(ticks = calloc(count, sizeof *ticks)))
        return false;
    for (i = 0; i < count; i++)
        ticks[i] = vt_births_tick(b, vt_births_of(b, row)[i].time_ns);
    steady = vt_trend_is_steady(ticks, count, from, vt_births_now(b));
    free(ticks);
    return steady;
}

bool vt_births_curve_rises(const struct vt_model *m, const struct vt_site_row *row)
{
    double curve[VT_TREND_POINTS];
    uint64_t at = row->record->first_ns, end;
    uint32_t count = 0;

    while (at < m->moment_ns && count < VT_TREND_POINTS) {
        curve[count++] = (double)vt_model_live_at(row->record, at, m->moment_ns, row->live_bytes, &end);
        at = end + 1;
    }
    return vt_trend_is_rising(curve, count);
}
