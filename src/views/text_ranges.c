/*
 * What the program said of itself, in the text report: memory by the phases of training, by the ranges that it named, and the
 * marks that it set. A range or phase is that of the allocating thread at the allocation.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "views/text.h"

#define RANGES 10 /* named ranges that are shown */
#define MARKS 12  /* the newest of them */
#define DIFFERENT 256

/* Sums of one phase or range: `name` is the range's string, or 0 and the phase. */
struct part {
    uint32_t name;
    unsigned phase;
    uint64_t live, at_peak, made;
};

struct parts {
    struct part list[DIFFERENT];
    uint32_t count, left; /* left: no room */
};

static void add(struct parts *parts, const struct vt_site_row *row, uint32_t name, unsigned phase)
{
    struct part *part;
    uint32_t i;

    for (i = 0; i < parts->count && !(parts->list[i].name == name && parts->list[i].phase == phase);)
        i++;
    if (i == DIFFERENT) {
        parts->left++;
        return;
    }
    part = &parts->list[i];
    if (i == parts->count)
        parts->list[parts->count++] = (struct part){.name = name, .phase = phase};
    part->live += row->live_bytes;
    part->at_peak += row->at_peak_bytes;
    part->made += row->record->total_bytes;
}

static int larger_first(const void *left, const void *right)
{
    const struct part *a = left, *b = right;

    if (a->live != b->live)
        return a->live < b->live ? 1 : -1;
    if (a->at_peak != b->at_peak)
        return a->at_peak < b->at_peak ? 1 : -1;
    return (a->made < b->made) - (a->made > b->made);
}

static void write_part(struct vt_out *out, const struct vt_model *m, const struct part *part)
{
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], made[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s %12s %12s  ", vt_format_bytes(live, part->live), vt_format_bytes(peak, part->at_peak),
                  vt_format_bytes(made, part->made));
    if (part->name)
        vt_view_name(out, vt_reading_chars(m->reading, part->name), 64);
    else
        vt_out_text(out, part->phase == VT_PHASE_NONE ? "(no phase: forward, loading, validation)"
                                                      : vt_phase_name(part->phase));
    vt_out_text(out, "\n");
}

static void write_parts(struct vt_out *out, const struct vt_model *m, struct parts *parts, const char *what)
{
    uint32_t i;

    if (!parts->count)
        return;
    qsort(parts->list, parts->count, sizeof parts->list[0], larger_first);
    vt_text_heading(out, what);
    vt_out_format(out, "  %12s %12s %12s\n", "live", "at the peak", "allocated");
    for (i = 0; i < parts->count && i < RANGES; i++)
        write_part(out, m, &parts->list[i]);
    if (parts->count > RANGES || parts->left)
        vt_out_format(out, "  and %u more\n",
                      parts->count - (parts->count > RANGES ? RANGES : parts->count) + parts->left);
}

/* Where tensors are known they are counted, and not the segments that they lie in. */
static bool counts(const struct vt_model *m, const struct vt_site_row *row)
{
    return vt_kind_is_memory(row->record->kind) &&
           !(row->pool && vt_fragmentation_of(&m->fragmentation, row->record->device));
}

static void collect(const struct vt_model *m, struct parts *phases, struct parts *ranges)
{
    bool any = false;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (!counts(m, row))
            continue;
        any |= row->record->phase != VT_PHASE_NONE;
        add(phases, row, 0, row->record->phase);
        if (row->record->range)
            add(ranges, row, row->record->range, 0);
    }
    if (!any) /* all in one: nothing is told apart */
        phases->count = phases->left = 0;
}

static const struct vt_event *mark_at(const struct vt_reading *r, uint64_t i, uint64_t until)
{
    const struct vt_event *event = vt_reading_record(r, VT_EVENTS, i);

    return event && event->type == VT_EVENT_MARK && event->time_ns <= until ? event : NULL;
}

static int by_time(const void *left, const void *right)
{
    const struct vt_event *a = *(const struct vt_event *const *)left, *b = *(const struct vt_event *const *)right;

    return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

/* The newest marks until the moment, in their order. Events are a ring, and theirs may be gone. */
static void write_marks(struct vt_out *out, const struct vt_model *m)
{
    uint64_t count = vt_reading_count(m->reading, VT_EVENTS), i, found = 0, at;
    const struct vt_event **marks, *mark;
    char time[VT_FORMAT_BYTES];

    for (i = 0; i < count; i++)
        found += mark_at(m->reading, i, m->moment_ns) != NULL;
    if (!found || !(marks = calloc(found, sizeof *marks)))
        return;
    for (at = 0, i = 0; i < count && at < found; i++) /* the file of a live process changes meanwhile */
        if ((mark = mark_at(m->reading, i, m->moment_ns)))
            marks[at++] = mark;
    qsort(marks, at, sizeof *marks, by_time);
    vt_text_heading(out, "Marks");
    if (at > MARKS)
        vt_out_format(out, "  the newest %u of %llu\n", MARKS, (unsigned long long)at);
    for (i = at > MARKS ? at - MARKS : 0; i < at; i++) {
        vt_out_format(out, "  %12s  ", vt_format_seconds(time, marks[i]->time_ns));
        vt_view_name(out, vt_reading_chars(m->reading, (uint32_t)marks[i]->address), 64);
        vt_out_text(out, "\n");
    }
    free(marks);
}

void vt_text_ranges(struct vt_out *out, const struct vt_model *m)
{
    struct parts *parts = calloc(2, sizeof *parts);

    if (!parts)
        return;
    collect(m, &parts[0], &parts[1]);
    write_parts(out, m, &parts[0], "Memory by phase");
    write_parts(out, m, &parts[1], "Memory by named range");
    free(parts);
    write_marks(out, m);
}
