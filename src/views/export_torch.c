/*
 * The snapshot of PyTorch's allocator, as torch.cuda.memory._dump_snapshot() writes it, for memory_viz and _memory_viz.py:
 * segments tiled by blocks at a moment, and the events that led to it. Fields and their meaning: PyTorch's
 * torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/memory.py; what the viewer makes of them: torch/utils/viz/MemoryViz.js.
 *
 * Beyond what PyTorch sees of itself, memory that others took from the driver is there: a segment with one block. Memory of
 * other processes that is mapped here is not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "views/export_pickle.h"
#include "views/export_torch.h"

#define DEVICES 64 /* in the list of traces, whatever a damaged recording says */

struct snapshot {
    struct vt_export x;
    struct vt_torch t;
    struct vt_pickle p;
    struct vt_torch_frames frames;
    const struct vt_site_row **rows; /* by site */
    const char **categories;         /* by site; NULL: not asked yet */
    uint32_t row_count;
};

static void put_site_frames(struct snapshot *s, uint32_t index)
{
    const struct vt_site *site = vt_reading_site(s->x.a.model.reading, index);

    vt_torch_put_frames(&s->frames, site ? site->stack : 0, site ? site->python_stack : 0);
}

static void put_category(struct snapshot *s, uint32_t site)
{
    vt_pickle_word(&s->p, "category");
    if (site >= s->row_count || !s->rows[site]) {
        vt_pickle_word(&s->p, "unknown");
        return;
    }
    if (!s->categories[site])
        s->categories[site] = vt_export_category(&s->x, s->rows[site]);
    vt_pickle_word(&s->p, s->categories[site]);
}

/* --- segments ---------------------------------------------------------------------------------------------------------- */

static void put_block(struct snapshot *s, const struct vt_range *block)
{
    vt_pickle_dict(&s->p);
    vt_pickle_entry(&s->p, "address", block->start);
    vt_pickle_entry(&s->p, "size", block->end - block->start);
    vt_pickle_entry(&s->p, "requested_size", block->requested);
    vt_pickle_word(&s->p, "state");
    vt_pickle_word(&s->p, "active_allocated");
    put_site_frames(s, block->site);
    vt_pickle_dict_end(&s->p);
}

static void put_gap(struct snapshot *s, struct vt_pickle_list *list, uint64_t from, uint64_t to)
{
    if (from == to)
        return;
    vt_pickle_element(&s->p, list);
    vt_pickle_dict(&s->p);
    vt_pickle_entry(&s->p, "address", from);
    vt_pickle_entry(&s->p, "size", to - from);
    vt_pickle_entry(&s->p, "requested_size", 0);
    vt_pickle_word(&s->p, "state");
    vt_pickle_word(&s->p, "inactive");
    vt_torch_put_frames(&s->frames, 0, 0);
    vt_pickle_dict_end(&s->p);
}

/* Writes a segment that ends at `end` with the blocks from *next on, and moves *next behind them. */
static void put_segment(struct snapshot *s, const struct vt_range *segment, uint64_t end, const struct vt_range **next)
{
    const struct vt_range *stop = s->t.blocks.list + s->t.blocks.count, *block = segment->whole ? segment : *next, *at;
    const struct vt_range *behind = segment->whole ? segment + 1 : block;
    uint64_t live = 0, requested = 0, done = segment->start;
    struct vt_pickle_list list;

    if (!segment->whole)
        while (behind < stop && behind->start < end)
            behind++;
    for (at = block; at < behind; at++) {
        live += at->end - at->start;
        requested += at->requested;
    }
    vt_pickle_dict(&s->p);
    vt_pickle_entry(&s->p, "device", (uint64_t)segment->device);
    vt_pickle_entry(&s->p, "address", segment->start);
    vt_pickle_entry(&s->p, "total_size", end - segment->start);
    vt_pickle_entry(&s->p, "allocated_size", live);
    vt_pickle_entry(&s->p, "active_size", live);
    vt_pickle_entry(&s->p, "requested_size", requested);
    vt_pickle_entry(&s->p, "stream", segment->kind == VT_KIND_VMM_MAPPED ? 0 : segment->stream);
    vt_pickle_word(&s->p, "segment_type");
    vt_pickle_word(&s->p, !segment->whole && end - segment->start <= VT_SMALL_SEGMENT ? "small" : "large");
    vt_pickle_word(&s->p, "segment_pool_id");
    vt_pickle_pair(&s->p, 0, segment->capture);
    vt_pickle_word(&s->p, "is_expandable");
    vt_pickle_bool(&s->p, segment->kind == VT_KIND_VMM_MAPPED);
    put_site_frames(s, segment->site);
    vt_pickle_word(&s->p, "blocks");
    vt_pickle_list(&s->p, &list);
    for (at = block; at < behind; at++) {
        put_gap(s, &list, done, at->start);
        vt_pickle_element(&s->p, &list);
        put_block(s, at);
        done = at->end;
    }
    put_gap(s, &list, done, end);
    vt_pickle_list_end(&s->p);
    vt_pickle_dict_end(&s->p);
    if (!segment->whole)
        *next = behind;
}

static void put_segments(struct snapshot *s)
{
    const struct vt_range *at = s->t.segments.list, *stop = at + s->t.segments.count, *last, *next = s->t.blocks.list;
    struct vt_pickle_list list;

    vt_pickle_word(&s->p, "segments");
    vt_pickle_list(&s->p, &list);
    for (; at < stop && !s->x.out.error; at = last + 1) {
        for (last = at; last + 1 < stop && vt_torch_continues(last, last + 1);)
            last++;
        vt_pickle_element(&s->p, &list);
        put_segment(s, at, last->end, &next);
    }
    vt_pickle_list_end(&s->p);
}

/* --- events ------------------------------------------------------------------------------------------------------------ */

static uint64_t microseconds(const struct snapshot *s, uint64_t ns)
{
    return (vt_reading_header(s->x.a.model.reading)->start_unix_ns + ns) / 1000;
}

static void put_entry(struct snapshot *s, struct vt_pickle_list *list, const char *action, const struct vt_event *e,
                      const struct vt_range *range, bool freed)
{
    vt_pickle_element(&s->p, list);
    vt_pickle_dict(&s->p);
    vt_pickle_word(&s->p, "action");
    vt_pickle_word(&s->p, action);
    vt_pickle_entry(&s->p, "addr", range->start);
    vt_pickle_entry(&s->p, "size", range->end - range->start);
    vt_pickle_entry(&s->p, "stream", range->kind == VT_KIND_VMM_MAPPED ? 0 : e->stream);
    vt_pickle_entry(&s->p, "time_us", microseconds(s, e->time_ns));
    put_category(s, range->site);
    if (freed)
        vt_torch_put_frames(&s->frames, e->free_stack, 0);
    else
        put_site_frames(s, range->site);
    vt_pickle_dict_end(&s->p);
}

static void put_event(struct snapshot *s, struct vt_pickle_list *list, const struct vt_event *e,
                      const struct vt_range *range, unsigned level)
{
    bool mapped = range->kind == VT_KIND_VMM_MAPPED && !range->whole, alloc = e->type == VT_EVENT_ALLOC;

    if (alloc && level == VT_LEVEL_DRIVER)
        put_entry(s, list, mapped ? "segment_map" : "segment_alloc", e, range, false);
    if (level == VT_LEVEL_TENSOR || range->whole) {
        if (alloc) {
            put_entry(s, list, "alloc", e, range, false);
        } else {
            put_entry(s, list, "free_requested", e, range, true);
            put_entry(s, list, "free_completed", e, range, true);
        }
    }
    if (!alloc && level == VT_LEVEL_DRIVER)
        put_entry(s, list, mapped ? "segment_unmap" : "segment_free", e, range, true);
}

static void put_oom(struct snapshot *s, struct vt_pickle_list *list, const struct vt_failure *f)
{
    vt_pickle_element(&s->p, list);
    vt_pickle_dict(&s->p);
    vt_pickle_word(&s->p, "action");
    vt_pickle_word(&s->p, "oom");
    vt_pickle_entry(&s->p, "device_free", f->total_bytes ? f->free_bytes : 0);
    vt_pickle_entry(&s->p, "size", f->requested_bytes);
    vt_pickle_entry(&s->p, "stream", 0);
    vt_pickle_entry(&s->p, "time_us", microseconds(s, f->last_ns));
    vt_torch_put_frames(&s->frames, f->stack, f->python_stack);
    vt_pickle_dict_end(&s->p);
}

/* The out-of-memory failures of a device in [from, to). */
static void put_ooms(struct snapshot *s, struct vt_pickle_list *list, int device, uint64_t from, uint64_t to)
{
    const struct vt_model *m = &s->x.a.model;
    uint32_t i;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *f = m->failures[i].record;

        if (vt_failure_is_oom(f->kind) && f->device == device && f->last_ns >= from && f->last_ns < to)
            put_oom(s, list, f);
    }
}

/* When the first out-of-memory of a device from `from` on was; UINT64_MAX: there is none. */
static uint64_t next_oom(const struct snapshot *s, int device, uint64_t from)
{
    const struct vt_model *m = &s->x.a.model;
    uint64_t next = UINT64_MAX;
    uint32_t i;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *f = m->failures[i].record;

        if (vt_failure_is_oom(f->kind) && f->device == device && f->last_ns >= from && f->last_ns < next)
            next = f->last_ns;
    }
    return next;
}

static void put_trace(struct snapshot *s, int device)
{
    const struct vt_reading *reading = s->x.a.model.reading;
    struct vt_pickle_list list;
    struct vt_range range;
    uint64_t i, from = 0, next = next_oom(s, device, 0);
    unsigned level;

    vt_pickle_list(&s->p, &list);
    for (i = s->t.first; i < s->t.until && !s->x.out.error; i++) {
        const struct vt_event *e = s->t.keep[i - s->t.first] ? vt_reading_event(reading, i) : NULL;

        if (!e || !vt_torch_range(&s->t, &range, &level, e->site, e->address, e->bytes) || range.device != device)
            continue;
        if (next < e->time_ns) {
            put_ooms(s, &list, device, from, e->time_ns);
            from = e->time_ns;
            next = next_oom(s, device, from);
        }
        put_event(s, &list, e, &range, level);
    }
    put_ooms(s, &list, device, from, s->x.a.model.recorded ? s->x.a.model.moment_ns + 1 : UINT64_MAX);
    vt_pickle_list_end(&s->p);
}

static void put_traces(struct snapshot *s)
{
    uint64_t i, count = vt_reading_count(s->x.a.model.reading, VT_SITES);
    struct vt_pickle_list list;
    int device, devices = 0;

    for (i = 0; i < count; i++) {
        const struct vt_site *site = vt_reading_site(s->x.a.model.reading, i);

        if (site && site->device >= devices && site->device < DEVICES)
            devices = site->device + 1;
    }
    vt_pickle_word(&s->p, "device_traces");
    vt_pickle_list(&s->p, &list);
    for (device = 0; device < devices; device++) {
        vt_pickle_element(&s->p, &list);
        put_trace(s, device);
    }
    vt_pickle_list_end(&s->p);
}

static void put_annotation(struct snapshot *s, struct vt_pickle_list *list, const char *name, bool begins, uint64_t ns)
{
    vt_pickle_element(&s->p, list);
    vt_pickle_dict(&s->p);
    vt_pickle_word(&s->p, "name");
    vt_pickle_text(&s->p, name);
    vt_pickle_word(&s->p, "stage");
    vt_pickle_word(&s->p, begins ? "START" : "END");
    vt_pickle_entry(&s->p, "device", 0);
    vt_pickle_entry(&s->p, "time_us", microseconds(s, ns));
    vt_pickle_dict_end(&s->p);
}

/* Steps as stretches, as far as the events reach; marks begin and end at once. */
static void put_annotations(struct snapshot *s)
{
    const struct vt_reading *reading = s->x.a.model.reading;
    struct vt_pickle_list list;
    uint64_t i;

    vt_pickle_word(&s->p, "external_annotations");
    vt_pickle_list(&s->p, &list);
    for (i = s->t.first; i < s->t.until; i++) {
        const struct vt_event *e = vt_reading_event(reading, i);
        char name[40];

        if (e && e->type == VT_EVENT_MARK) {
            put_annotation(s, &list, vt_reading_chars(reading, (uint32_t)e->address), true, e->time_ns);
            put_annotation(s, &list, vt_reading_chars(reading, (uint32_t)e->address), false, e->time_ns);
        } else if (e && e->type == VT_EVENT_STEP) {
            snprintf(name, sizeof name, "step %llu", (unsigned long long)e->address);
            put_annotation(s, &list, name, false, e->time_ns);
            snprintf(name, sizeof name, "step %llu", (unsigned long long)e->address + 1);
            put_annotation(s, &list, name, true, e->time_ns);
        }
    }
    vt_pickle_list_end(&s->p);
}

static void put_settings(struct snapshot *s)
{
    const struct vt_header *h = vt_reading_header(s->x.a.model.reading);
    struct vt_text environment = vt_reading_string(s->x.a.model.reading, h->environment);
    const char *value = "", *at = environment.text, *end = at + environment.length;
    bool mapped = false;
    size_t i;

    for (; at < end; at += strnlen(at, (size_t)(end - at)) + 1)
        if (!strncmp(at, "PYTORCH_CUDA_ALLOC_CONF=", 24) || !strncmp(at, "PYTORCH_ALLOC_CONF=", 19))
            value = strchr(at, '=') + 1;
    for (i = 0; i < s->t.segments.count; i++)
        mapped |= s->t.segments.list[i].kind == VT_KIND_VMM_MAPPED && !s->t.segments.list[i].whole;
    vt_pickle_word(&s->p, "allocator_settings");
    vt_pickle_dict(&s->p);
    vt_pickle_word(&s->p, "PYTORCH_CUDA_ALLOC_CONF");
    vt_pickle_text(&s->p, value);
    vt_pickle_word(&s->p, "expandable_segments");
    vt_pickle_bool(&s->p, mapped);
    vt_pickle_word(&s->p, "trace_alloc_overflowed");
    vt_pickle_bool(&s->p, s->t.overflowed);
    vt_pickle_entry(&s->p, "trace_alloc_max_entries", s->x.request->events);
    vt_pickle_dict_end(&s->p);
}

static int prepare(struct snapshot *s)
{
    const struct vt_model *m = &s->x.a.model;
    uint32_t i;
    int error;

    s->t.x = &s->x;
    s->row_count = m->site_count;
    s->rows = calloc((size_t)m->site_count + 1, sizeof *s->rows);
    s->categories = calloc((size_t)m->site_count + 1, sizeof *s->categories);
    if (!s->rows || !s->categories)
        return -ENOMEM;
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].index < m->site_count)
            s->rows[m->sites[i].index] = &m->sites[i];
    if ((error = vt_torch_ranges(&s->t)))
        return error;
    return vt_torch_replay(&s->t);
}

int vt_torch_snapshot_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct snapshot s;
    int error;

    memset(&s, 0, sizeof s);
    if ((error = vt_export_open(&s.x, reading, request)))
        return error;
    if ((error = prepare(&s))) {
        vt_export_fail(&s.x, error);
    } else {
        s.frames.p = &s.p;
        vt_pickle_begin(&s.p, &s.x);
        vt_pickle_dict(&s.p);
        put_segments(&s);
        put_traces(&s);
        put_settings(&s);
        put_annotations(&s);
        vt_pickle_dict_end(&s.p);
        vt_pickle_end(&s.p);
    }
    vt_torch_free(&s.t);
    vt_torch_frames_free(&s.frames);
    free(s.rows);
    free(s.categories);
    return vt_export_close(&s.x);
}
