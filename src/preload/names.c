/* Which frames are named, in what order, and how the names get into the recording; see names.h. */
#include "preload/names.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"
#include "analysis/objfile.h"
#include "preload/state.h"

#define BATCH 32        /* frames stored under one lock: about 50 us */
#define STRINGS_SHARE 2 /* names take at most this part of the room for strings: the rest of the run needs some, too */
#define SITES_SORTED 65536 /* places in the order of their bytes; what is behind them comes as it comes */

struct named {
    uint64_t where;
    uint32_t module;
    uint32_t count; /* 0: nothing is known, which is worth knowing */
    struct vt_symbol_frame frame[VT_OBJECT_FRAMES];
};

struct job {
    const struct vt_reading *reading;
    struct vt_symbols *symbols;
    uint64_t deadline;
    bool asked_only; /* only what the report has looked up */
    bool full;       /* no more room, or no recording any more */
    uint32_t *done;  /* ids of frames, one per (module, where); open addressing, a power of two */
    uint64_t room;
    uint8_t *walked; /* a bit per frame: it and all outwards of it were visited */
    struct named *batch;
    unsigned batched;
};

struct sized {
    uint64_t bytes;
    uint32_t stack;
};

/* --- storing, with the lock held ----------------------------------------------------------------------------------- */

static bool has_room(const struct named *n)
{
    struct vt_section_entry *strings = &vt_header()->section[VT_STRINGS];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        bytes += n->frame[i].function ? strlen(n->frame[i].function) + 16 : 0;
        bytes += n->frame[i].file ? strlen(n->frame[i].file) + 16 : 0;
    }
    return strings->count + 2 * bytes <= strings->limit / STRINGS_SHARE &&
           vt_writer_reserve(&vt_state.writer, VT_STRINGS, 2 * bytes) &&
           vt_writer_reserve(&vt_state.writer, VT_NAMES, n->count ? n->count : 1);
}

/* All records of a frame are counted at once: a reader sees all or none. */
static bool put_down(const struct named *n)
{
    uint32_t count = n->count ? n->count : 1;
    uint64_t first = has_room(n) ? vt_writer_append_many(&vt_state.writer, VT_NAMES, count) : UINT64_MAX;
    if (first == UINT64_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct vt_symbol_frame nothing = {0}, *f = n->count ? &n->frame[i] : &nothing;
        struct vt_frame_name *r = vt_writer_at(&vt_state.writer, VT_NAMES, first + i);
        *r = (struct vt_frame_name){
            .where = n->where,
            .module = n->module,
            .function = vt_intern(f->function),
            .file = vt_intern(f->file),
            .line = f->line,
            .inner = (uint16_t)i,
            .flags = (uint16_t)((f->nearest ? VT_NAME_NEAREST : 0) | (i + 1 == count ? VT_NAME_LAST : 0))};
    }
    vt_writer_publish_many(&vt_state.writer, VT_NAMES, count);
    return true;
}

static void store_batch(struct job *job)
{
    vt_tls.busy = 0;
    if (job->batched && !job->full && vt_state_lock(false)) {
        for (unsigned i = 0; i < job->batched && !job->full; i++)
            job->full = !put_down(&job->batch[i]);
        vt_state_unlock();
    } else
        job->full |= job->batched > 0;
    vt_tls.busy = 1;
    job->batched = 0;
}

/* --- looking up ------------------------------------------------------------------------------------------------------ */

static void name_frame(struct job *job, const struct vt_frame *frame)
{
    struct named *n = &job->batch[job->batched];
    bool known;
    struct vt_symbol symbol = vt_symbols_frame(job->symbols, job->reading, frame, &known);
    *n = (struct named){.where = frame->where, .module = frame->module};
    n->count = symbol.count < VT_OBJECT_FRAMES ? symbol.count : VT_OBJECT_FRAMES;
    if (n->count)
        memcpy(n->frame, symbol.frames, n->count * sizeof n->frame[0]);
    if (known && ++job->batched == BATCH)
        store_batch(job);
}

/* Where an equal frame stands in the table of those that are done, or the free place for this one. */
static uint32_t *place_of(struct job *job, const struct vt_frame *frame)
{
    uint64_t hash = (frame->where ^ (uint64_t)frame->module << 40) * 0x9e3779b97f4a7c15ull;
    uint64_t at = (hash ^ hash >> 31) & (job->room - 1);
    for (; job->done[at]; at = (at + 1) & (job->room - 1)) {
        const struct vt_frame *other = vt_reading_frame(job->reading, job->done[at]);
        if (other && other->where == frame->where && other->module == frame->module)
            break;
    }
    return &job->done[at];
}

static void visit_frame(struct job *job, uint32_t id, const struct vt_frame *frame)
{
    if (frame->module == VT_PYTHON || vt_symbols_recorded(job->symbols, job->reading, frame))
        return;
    if (job->asked_only && !vt_symbols_asked(job->symbols, job->reading, frame))
        return;
    uint32_t *place = place_of(job, frame);
    if (*place)
        return;
    *place = id;
    if (vt_module_class_at(job->reading, frame->module) != VT_MODULE_OURS)
        name_frame(job, frame);
}

static bool is_over(const struct job *job)
{
    return job->full || (!job->asked_only && vt_now() > job->deadline);
}

static void visit_stack(struct job *job, uint32_t stack)
{
    const struct vt_frame *frame;
    for (uint32_t id = stack; !is_over(job) && (frame = vt_reading_frame(job->reading, id)); id = frame->parent) {
        uint8_t *byte = &job->walked[(id - 1) / 8], bit = (uint8_t)(1u << (id - 1) % 8);
        if (*byte & bit)
            break;
        *byte |= bit;
        visit_frame(job, id, frame);
        if (frame->parent >= id)
            break;
    }
}

static int larger_first(const void *left, const void *right)
{
    const struct sized *a = left, *b = right;
    return a->bytes > b->bytes ? -1 : a->bytes < b->bytes;
}

static void visit_sites(struct job *job)
{
    uint64_t count = vt_reading_count(job->reading, VT_SITES);
    if (count > SITES_SORTED)
        count = SITES_SORTED;
    struct sized *sites = calloc(count ? count : 1, sizeof *sites);
    for (uint64_t i = 0; sites && i < count; i++) {
        const struct vt_site *s = vt_reading_site(job->reading, i);
        if (s)
            sites[i] = (struct sized){s->live_bytes > s->at_peak_bytes ? s->live_bytes : s->at_peak_bytes, s->stack};
    }
    if (sites)
        qsort(sites, count, sizeof *sites, larger_first);
    for (uint64_t i = 0; sites && i < count && !is_over(job); i++)
        visit_stack(job, sites[i].stack);
    free(sites);
}

static void visit_failures(struct job *job)
{
    uint64_t count = vt_reading_count(job->reading, VT_FAILURES);
    for (uint64_t i = 0; i < count && !is_over(job); i++) {
        const struct vt_failure *f = vt_reading_failure(job->reading, i);
        if (!f || !f->count)
            continue;
        visit_stack(job, f->stack);
        visit_stack(job, f->allocated_at);
        visit_stack(job, f->freed_at);
    }
}

static void visit_all(struct job *job, bool asked_only)
{
    uint64_t frames = vt_reading_count(job->reading, VT_FRAMES);
    job->asked_only = asked_only;
    memset(job->walked, 0, frames / 8 + 1);
    visit_failures(job);
    visit_sites(job);
    for (uint64_t id = 1; id <= frames && !is_over(job); id++) /* what only events and freed places name */
        visit_stack(job, (uint32_t)id);
    store_batch(job);
}

void vt_names_store(const struct vt_reading *reading, struct vt_symbols *symbols)
{
    uint64_t frames = vt_reading_count(reading, VT_FRAMES);
    struct job job = {.reading = reading, .symbols = symbols, .deadline = vt_now() + VT_NAMES_NS, .room = 64};
    if (!frames || frames >= UINT32_MAX || !symbols || vt_state.writer.state != VT_WRITER_FILE)
        return;
    while (job.room < frames * 2)
        job.room *= 2;
    job.done = calloc(job.room, sizeof *job.done);
    job.walked = calloc(frames / 8 + 1, 1);
    job.batch = calloc(BATCH, sizeof *job.batch);
    if (job.done && job.walked && job.batch) {
        visit_all(&job, true);
        visit_all(&job, false);
    }
    free(job.done);
    free(job.walked);
    free(job.batch);
}
