/*
 * Chrome's trace event format, which ui.perfetto.dev and chrome://tracing read. The whole run, whatever the moment:
 *   counters    live bytes per device and level. As far as the newest events reach back, every change; before that the highest
 *               value of each interval of the timeline.
 *   instants    out-of-memory failures, moments, marks, steps and phases
 *   slices      (asynchronous, because lifetimes overlap) the largest allocations that are live at the end
 * Times are microseconds since the process first used CUDA.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "views/export.h"

#define SLICES 2000u

struct trace {
    struct vt_export x;
    uint64_t first, count; /* event numbers */
    uint64_t *live;        /* per scope: live bytes before the event that comes next */
    uint32_t scopes;
    bool any;
};

static void begin(struct trace *t, const char *phase, const char *name, uint64_t ns)
{
    vt_out_format(&t->x.out, "%s{\"ph\":\"%s\",\"pid\":%d,\"ts\":%llu.%03u,\"name\":", t->any ? ",\n" : "\n", phase,
                  vt_reading_header(t->x.a.model.reading)->pid, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    vt_export_json(&t->x, name);
    t->any = true;
}

static void put_process(struct trace *t)
{
    const struct vt_reading *reading = t->x.a.model.reading;
    const struct vt_header *h = vt_reading_header(reading);
    char name[sizeof h->program + 32];

    snprintf(name, sizeof name, h->rank >= 0 ? "rank %2$d: %1$s" : "%1$s", h->program, h->rank);
    begin(t, "M", "process_name", 0);
    vt_out_text(&t->x.out, ",\"args\":{\"name\":");
    vt_export_json(&t->x, name);
    vt_out_text(&t->x.out, "}}");
}

/* Has the scope a counter? Address space is no memory, and what is imported is somebody else's. */
static const struct vt_scope *counted(const struct trace *t, uint32_t index)
{
    const struct vt_scope *scope = vt_reading_scope(t->x.a.model.reading, index);

    return scope && scope->class_ != VT_CLASS_ADDRESS && scope->class_ != VT_CLASS_IMPORTED ? scope : NULL;
}

static void put_counter(struct trace *t, const struct vt_scope *scope, uint64_t ns, uint64_t bytes)
{
    const char *what = scope->level == VT_LEVEL_TENSOR     ? "tensors"
                       : scope->class_ == VT_CLASS_HOST    ? "page-locked"
                       : scope->class_ == VT_CLASS_MANAGED ? "managed"
                                                           : "driver";
    char device[VT_EXPORT_ROOT], name[2 * VT_EXPORT_ROOT];

    snprintf(name, sizeof name, "%s %s", vt_export_device(device, scope->device), what);
    begin(t, "C", name, ns);
    vt_out_format(&t->x.out, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)bytes);
}

/* By how much an event changes its scope: *scope is VT_NONE if by nothing. */
static int64_t change(const struct trace *t, const struct vt_event *e, uint32_t *scope)
{
    const struct vt_site *site;

    *scope = VT_NONE;
    if (!e || (e->type != VT_EVENT_ALLOC && e->type != VT_EVENT_FREE && e->type != VT_EVENT_RETIRE) ||
        !(site = vt_reading_site(t->x.a.model.reading, e->site)) || site->scope >= t->scopes)
        return 0;
    *scope = site->scope;
    return e->type == VT_EVENT_ALLOC ? (int64_t)e->bytes : -(int64_t)e->bytes;
}

/* What each scope held before the first event: what it holds at the end, less all changes. */
static void go_back(struct trace *t)
{
    uint64_t s;
    uint32_t i, scope;

    for (i = 0; i < t->scopes; i++) {
        const struct vt_scope *record = vt_reading_scope(t->x.a.model.reading, i);

        t->live[i] = record ? record->live_bytes : 0;
    }
    for (s = t->first; s < t->count; s++) {
        int64_t bytes = change(t, vt_reading_event(t->x.a.model.reading, s), &scope);

        if (scope != VT_NONE)
            t->live[scope] -= (uint64_t)bytes;
    }
    for (i = 0; i < t->scopes; i++) /* a process that was killed in between its books */
        if (t->live[i] > INT64_MAX)
            t->live[i] = 0;
}

static void put_timelines(struct trace *t, uint64_t until_ns)
{
    uint32_t i, b;

    for (i = 0; i < t->scopes; i++) {
        const struct vt_scope *scope = counted(t, i);
        const struct vt_timeline *line = vt_reading_timeline(t->x.a.model.reading, i);

        for (b = 0; scope && line && line->shift < 55 && b < line->used && b < VT_BUCKETS; b++)
            if (line->bucket[b].min <= line->bucket[b].max && (uint64_t)(b + 1) << line->shift <= until_ns)
                put_counter(t, scope, (uint64_t)b << line->shift, line->bucket[b].max);
        if (scope && (t->first || t->live[i]))
            put_counter(t, scope, until_ns, t->live[i]);
    }
}

static void instant(struct trace *t, const char *name, const char *argument, uint64_t ns, const char *reach)
{
    begin(t, "i", name, ns);
    vt_out_format(&t->x.out, ",\"tid\":0,\"s\":\"%s\",\"args\":{\"what\":", reach);
    vt_export_json(&t->x, argument);
    vt_out_text(&t->x.out, "}}");
}

static void put_mark(struct trace *t, const struct vt_event *e)
{
    char number[32];

    if (e->type == VT_EVENT_MARK) {
        instant(t, "mark", vt_reading_chars(t->x.a.model.reading, (uint32_t)e->address), e->time_ns, "p");
    } else if (e->type == VT_EVENT_PHASE) {
        instant(t, "phase", vt_phase_name((unsigned)e->address), e->time_ns, "p");
    } else if (e->type == VT_EVENT_STEP) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)e->address);
        instant(t, "step", number, e->time_ns, "p");
    }
}

static void put_events(struct trace *t)
{
    uint32_t scope;
    uint64_t s;

    for (s = t->first; s < t->count && !t->x.out.error; s++) {
        const struct vt_event *e = vt_reading_event(t->x.a.model.reading, s);
        int64_t bytes = change(t, e, &scope);

        if (scope != VT_NONE) {
            t->live[scope] += (uint64_t)bytes;
            if (t->live[scope] > INT64_MAX)
                t->live[scope] = 0;
            if (counted(t, scope))
                put_counter(t, counted(t, scope), e->time_ns, t->live[scope]);
        } else if (e) {
            put_mark(t, e);
        }
    }
}

static void put_failures(struct trace *t)
{
    const struct vt_model *m = &t->x.a.model;
    uint32_t i;

    for (i = 0; i < m->moment_count; i++)
        instant(t, "moment", m->moments[i].name, m->moments[i].time_ns, "p");
    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *f = m->failures[i].record;

        begin(t, "i", vt_failure_is_oom(f->kind) ? "CUDA OOM" : vt_failure_name(f->kind), f->last_ns);
        vt_out_format(&t->x.out,
                      ",\"tid\":0,\"s\":\"%s\",\"args\":{\"device\":%d,\"count\":%llu,\"requested_bytes\":%llu,"
                      "\"free_bytes\":%llu,\"reserved_bytes\":%llu,\"allocated_bytes\":%llu,\"api\":",
                      vt_failure_is_oom(f->kind) ? "g" : "p", f->device, (unsigned long long)f->count,
                      (unsigned long long)f->requested_bytes, (unsigned long long)f->free_bytes,
                      (unsigned long long)f->reserved_bytes, (unsigned long long)f->allocated_bytes);
        vt_export_json(&t->x, vt_reading_chars(m->reading, f->api));
        vt_out_text(&t->x.out, "}}");
    }
}

/* Keeps the largest in a heap whose root is the smallest. */
static void sift(const struct vt_slot **heap, uint32_t count, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        const struct vt_slot *moved = heap[at];

        if (child + 1 < count && heap[child + 1]->bytes < heap[child]->bytes)
            child++;
        if (child >= count || heap[child]->bytes >= moved->bytes)
            return;
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static uint32_t largest(const struct trace *t, const struct vt_site_row **rows, const struct vt_slot **heap)
{
    uint64_t i, count = vt_reading_count(t->x.a.model.reading, VT_LIVE);
    uint32_t kept = 0, j;

    for (i = 0; i < count; i++) {
        const struct vt_slot *slot = vt_reading_slot(t->x.a.model.reading, i);

        if (!slot || slot->kind == VT_KIND_NONE || slot->site >= t->x.a.model.site_count || !rows[slot->site] ||
            !vt_export_shows(&t->x, rows[slot->site]))
            continue;
        if (kept < SLICES) {
            heap[kept++] = slot;
            if (kept == SLICES)
                for (j = SLICES / 2; j-- > 0;)
                    sift(heap, SLICES, j);
        } else if (slot->bytes > heap[0]->bytes) {
            heap[0] = slot;
            sift(heap, SLICES, 0);
        }
    }
    return kept;
}

static void put_slice(struct trace *t, const struct vt_slot *slot, const struct vt_site_row *row)
{
    char label[VT_EXPORT_LABEL], device[VT_EXPORT_ROOT];
    struct vt_trace trace;
    uint64_t end = t->x.a.model.duration_ns > slot->time_ns ? t->x.a.model.duration_ns : slot->time_ns;

    vt_view_trace(&t->x.a, &trace, row->record->stack, row->record->python_stack);
    vt_export_label(label, vt_trace_user(&trace));
    vt_trace_free(&trace);
    begin(t, "b", label, slot->time_ns);
    vt_out_format(
        &t->x.out,
        ",\"cat\":\"live %s %s\",\"id\":\"0x%llx\",\"tid\":0,\"args\":{\"bytes\":%llu,\"site\":%u,\"category\":",
        vt_export_device(device, row->record->device), vt_export_kind(row), (unsigned long long)slot->address,
        (unsigned long long)slot->bytes, row->index);
    vt_export_json(&t->x, vt_export_category(&t->x, row));
    vt_out_text(&t->x.out, "}}");
    begin(t, "e", label, end);
    vt_out_format(&t->x.out, ",\"cat\":\"live %s %s\",\"id\":\"0x%llx\",\"tid\":0}", device, vt_export_kind(row),
                  (unsigned long long)slot->address);
}

static void put_slices(struct trace *t)
{
    const struct vt_model *m = &t->x.a.model;
    const struct vt_site_row **rows = calloc((size_t)m->site_count + 1, sizeof *rows);
    const struct vt_slot **heap = calloc(SLICES, sizeof *heap);
    uint32_t i, count;

    if (rows && heap) {
        for (i = 0; i < m->site_count; i++)
            if (m->sites[i].index < m->site_count)
                rows[m->sites[i].index] = &m->sites[i];
        count = largest(t, rows, heap);
        for (i = 0; i < count && !t->x.out.error; i++)
            if (heap[i]->site < m->site_count && rows[heap[i]->site]) /* the file of a live process changes */
                put_slice(t, heap[i], rows[heap[i]->site]);
    } else {
        vt_export_fail(&t->x, -ENOMEM);
    }
    free(rows);
    free(heap);
}

static void put_all(struct trace *t, uint64_t most)
{
    const struct vt_reading *reading = t->x.a.model.reading;
    uint64_t held = vt_reading_count(reading, VT_EVENTS);
    const struct vt_event *first;

    t->count = vt_reading_events(reading);
    held = held < t->count ? held : t->count;
    t->first = t->count - (held < most ? held : most);
    t->scopes = (uint32_t)vt_reading_count(reading, VT_SCOPES);
    if (!(t->live = calloc((size_t)t->scopes + 1, sizeof *t->live))) {
        vt_export_fail(&t->x, -ENOMEM);
        return;
    }
    go_back(t);
    first = vt_reading_event(reading, t->first);
    vt_out_text(&t->x.out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_process(t);
    put_timelines(t, first && t->first < t->count ? first->time_ns : t->x.a.model.duration_ns);
    put_events(t);
    put_failures(t);
    put_slices(t);
    vt_out_format(&t->x.out,
                  "\n],\"otherData\":{\"exporter\":\"vramtrack " VT_VERSION
                  "\",\"start_unix_ns\":\"%llu\",\"events_left_out\":\"%llu\"}}\n",
                  (unsigned long long)vt_reading_header(reading)->start_unix_ns, (unsigned long long)t->first);
    free(t->live);
}

int vt_perfetto_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct trace t = {.any = false};
    int error = vt_export_open(&t.x, reading, request);

    if (error)
        return error;
    put_all(&t, request->events);
    return vt_export_close(&t.x);
}
