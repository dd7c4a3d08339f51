/*
 * Builds the model: takes totals and sites of the recording, puts the figures of the chosen moment in them, sorts, and
 * collects failures, moments and notes. What a device's memory is used for is in account.c.
 */
#include "analysis/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/account.h"
#include "analysis/category.h"

/* Room for `count` elements that is never empty, zeroed. */
static void *table(uint64_t count, size_t bytes)
{
    return count < UINT32_MAX ? calloc(count ? count : 1, bytes) : NULL;
}

void vt_model_note(struct vt_model *m, const char *format, ...)
{
    char text[512], **grown, *copy;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!(grown = realloc(m->notes, (m->note_count + 1) * sizeof *grown)))
        return;
    m->notes = grown;
    if ((copy = strdup(text)))
        m->notes[m->note_count++] = copy;
}

bool vt_failure_is_oom(unsigned kind)
{
    return kind == VT_FAILURE_PENDING || kind == VT_FAILURE_OOM || kind == VT_FAILURE_FRAMEWORK_OOM;
}

bool vt_kind_is_memory(unsigned kind)
{
    return kind != VT_KIND_NONE && kind < VT_KIND_COUNT && kind != VT_KIND_VMM_MAPPED &&
           kind != VT_KIND_VMM_RESERVED_VA && kind != VT_KIND_IMPORTED;
}

/* The scope whose peak "peak" is named after: the highest one of device memory, preferably as the driver sees it. */
static const struct vt_scope *main_scope(const struct vt_reading *r)
{
    const struct vt_scope *best = NULL;
    uint64_t i, count = vt_reading_count(r, VT_SCOPES);

    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(r, i);

        if (scope && scope->level == VT_LEVEL_DRIVER && scope->class_ == VT_CLASS_DEVICE &&
            (!best || scope->peak_bytes > best->peak_bytes))
            best = scope;
    }
    return best ? best : vt_reading_scope(r, 0);
}

unsigned vt_model_peak_phase(const struct vt_model *m)
{
    const struct vt_scope *scope = main_scope(m->reading);

    return scope ? scope->peak_phase : VT_PHASE_NONE;
}

static uint64_t now_ns(const struct vt_header *h)
{
    struct timespec now;
    uint64_t ns;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return ns > h->start_mono_ns ? ns - h->start_mono_ns : h->last_ns;
}

/* The run's length as far as it is known: to its end, to now, or to its newest event. */
static uint64_t duration(const struct vt_header *h, enum vt_process_end end)
{
    if (h->end_ns)
        return h->end_ns;
    return end == VT_PROCESS_RUNNING ? now_ns(h) : h->last_ns;
}

static void choose_moment(struct vt_model *m, const char *name)
{
    const struct vt_scope *scope;

    if (!name)
        name = vt_model_find_moment(m->reading, "finalize") ? "finalize" : "end";
    snprintf(m->moment, sizeof m->moment, "%s", name);
    m->moment_ns = m->duration_ns;
    if ((m->recorded = vt_model_find_moment(m->reading, name))) {
        m->moment_ns = m->recorded->time_ns;
        snprintf(m->moment, sizeof m->moment, "%.*s", (int)sizeof m->recorded->name, m->recorded->name);
    } else if (!strcmp(name, "peak") && (scope = main_scope(m->reading)))
        m->moment_ns = scope->peak_ns;
}

static int take_totals(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_TOTALS);

    m->total_count = 0;
    if (!(m->totals = table(count, sizeof *m->totals)))
        return -ENOMEM;
    for (i = 0; i < count; i++) {
        struct vt_total_row *row = &m->totals[m->total_count];

        if (!(row->record = vt_reading_total(m->reading, i)))
            continue;
        row->index = (uint32_t)i;
        row->live_bytes = row->record->live_bytes;
        row->live_count = row->record->live_count;
        row->requested_bytes = row->record->requested_bytes;
        m->total_count++;
    }
    return 0;
}

/* What the site held at the last peak of its scope; see struct vt_site. */
static void at_peak(const struct vt_reading *r, struct vt_site_row *row)
{
    const struct vt_scope *scope = vt_reading_scope(r, row->record->scope);
    bool stamped = !scope || (uint32_t)scope->epoch == row->record->peak_epoch;

    row->at_peak_bytes = stamped ? row->record->at_peak_bytes : row->record->live_bytes;
    row->at_peak_count = stamped ? row->record->at_peak_count : row->record->live_count;
}

static int take_sites(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SITES);

    m->site_count = 0;
    if (!(m->sites = table(count, sizeof *m->sites)))
        return -ENOMEM;
    for (i = 0; i < count; i++) {
        struct vt_site_row *row = &m->sites[m->site_count];

        if (!(row->record = vt_reading_site(m->reading, i)))
            continue;
        row->index = (uint32_t)i;
        row->live_bytes = row->record->live_bytes;
        row->live_count = row->record->live_count;
        row->requested_bytes = row->record->requested_bytes;
        at_peak(m->reading, row);
        vt_model_set_owner(m->reading, row);
        m->site_count++;
    }
    return 0;
}

/* Rows stand in the order of their indices until they are sorted, with gaps only in a damaged file. */
static struct vt_site_row *site_in_order(struct vt_model *m, uint32_t index)
{
    uint32_t low = 0, high = m->site_count;

    if (index < m->site_count && m->sites[index].index == index)
        return &m->sites[index];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (m->sites[middle].index == index)
            return &m->sites[middle];
        if (m->sites[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct vt_total_row *total_row(struct vt_model *m, uint32_t index)
{
    uint32_t i;

    if (index < m->total_count && m->totals[index].index == index)
        return &m->totals[index];
    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].index == index)
            return &m->totals[i];
    return NULL;
}

static void clear_live(struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        m->totals[i].live_bytes = m->totals[i].live_count = m->totals[i].requested_bytes = 0;
    for (i = 0; i < m->site_count; i++)
        m->sites[i].live_bytes = m->sites[i].live_count = m->sites[i].requested_bytes = 0;
}

static void at_recorded(struct vt_model *m)
{
    const struct vt_moment *moment = m->recorded;
    const struct vt_moment_total *total;
    const struct vt_moment_site *site;
    struct vt_total_row *total_at;
    struct vt_site_row *site_at;
    uint64_t i;

    clear_live(m);
    for (i = 0; i < moment->totals; i++) {
        if (!(total = vt_reading_moment_total(m->reading, moment->first_total + i)))
            break;
        if (!(total_at = total_row(m, total->total)))
            continue;
        total_at->live_bytes = total->live_bytes;
        total_at->live_count = total->live_count;
        total_at->requested_bytes = total->requested_bytes;
    }
    if (i < moment->totals)
        vt_model_note(m, "The totals of moment \"%.32s\" are incomplete.", moment->name);
    for (i = 0; i < moment->sites; i++) {
        if (!(site = vt_reading_moment_site(m->reading, moment->first_site + i)))
            break;
        if (!(site_at = site_in_order(m, site->site)))
            continue;
        site_at->live_bytes = site->live_bytes;
        site_at->live_count = site->live_count;
    }
    if (i < moment->sites)
        vt_model_note(m, "The sites of moment \"%.32s\" are incomplete.", moment->name);
}

static void at_highest(struct vt_model *m)
{
    uint32_t i;

    clear_live(m);
    for (i = 0; i < m->site_count; i++) {
        struct vt_site_row *site = &m->sites[i];
        struct vt_total_row *total = total_row(m, site->record->total);

        site->live_bytes = site->at_peak_bytes;
        site->live_count = site->at_peak_count;
        if (total) {
            total->live_bytes += site->live_bytes;
            total->live_count += site->live_count;
        }
    }
}

/* The process was killed: what its slots say replaces the sums that it may not have got round to update. */
static void at_death(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_LIVE);

    if (vt_reading_incomplete(m->reading, VT_LIVE) || vt_reading_incomplete(m->reading, VT_SITES))
        return; /* then the sums know more */
    clear_live(m);
    for (i = 0; i < count; i++) {
        const struct vt_slot *slot = vt_reading_slot(m->reading, i);
        struct vt_site_row *site;
        struct vt_total_row *total;

        if (!slot || slot->kind == VT_KIND_NONE || !(site = site_in_order(m, slot->site)))
            continue;
        site->live_bytes += slot->bytes;
        site->live_count++;
        site->requested_bytes += slot->requested;
        if ((total = total_row(m, site->record->total))) {
            total->live_bytes += slot->bytes;
            total->live_count++;
            total->requested_bytes += slot->requested;
        }
    }
}

/* When the newest live allocation of each site was made: in its slots, as far as these are in the file. */
static void take_ages(struct vt_model *m)
{
    enum vt_section section = m->recorded ? VT_MOMENT_SLOTS : VT_LIVE;
    uint64_t first = m->recorded ? m->recorded->first_slot : 0,
             count = m->recorded ? m->recorded->slots : vt_reading_count(m->reading, section), i;
    const struct vt_slot *slot;

    for (i = 0; i < count && (slot = vt_reading_record(m->reading, section, first + i)); i++) {
        struct vt_site_row *site = slot->kind == VT_KIND_NONE ? NULL : site_in_order(m, slot->site);

        if (site && slot->time_ns > site->newest_ns)
            site->newest_ns = slot->time_ns;
    }
}

static int by_bytes(const void *left, const void *right)
{
    const struct vt_site_row *a = left, *b = right;

    if (a->live_bytes != b->live_bytes)
        return a->live_bytes < b->live_bytes ? 1 : -1;
    if (a->at_peak_bytes != b->at_peak_bytes)
        return a->at_peak_bytes < b->at_peak_bytes ? 1 : -1;
    if (a->record->total_bytes != b->record->total_bytes)
        return a->record->total_bytes < b->record->total_bytes ? 1 : -1;
    return a->index < b->index ? -1 : 1;
}

struct vt_site_row *vt_model_site(const struct vt_model *m, uint32_t index)
{
    uint32_t i;

    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].index == index)
            return &m->sites[i];
    return NULL;
}

static int take_moments(struct vt_model *m)
{
    const struct vt_scope *scope = main_scope(m->reading);
    uint64_t i, count = vt_reading_count(m->reading, VT_MOMENTS);
    struct vt_moment_row *row;

    if (!(m->moments = table(count + 2, sizeof *m->moments)))
        return -ENOMEM;
    row = m->moments;
    if (!vt_model_find_moment(m->reading, "end")) {
        strcpy(row->name, "end");
        row++->time_ns = m->duration_ns;
    }
    if (!vt_model_find_moment(m->reading, "peak")) {
        strcpy(row->name, "peak");
        row++->time_ns = scope ? scope->peak_ns : 0;
    }
    for (i = 0; i < count; i++) {
        const struct vt_moment *moment = vt_reading_moment(m->reading, i);

        if (!moment || !moment->name[0])
            continue;
        memcpy(row->name, moment->name, sizeof moment->name);
        row++->time_ns = moment->time_ns;
    }
    m->moment_count = (uint32_t)(row - m->moments);
    return 0;
}

static int take_failures(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_FAILURES);

    m->failure_count = 0;
    if (!(m->failures = table(count, sizeof *m->failures)))
        return -ENOMEM;
    for (i = 0; i < count; i++) {
        struct vt_failure_row *row = &m->failures[m->failure_count];

        row->index = (uint32_t)i;
        if ((row->record = vt_reading_failure(m->reading, i)) && row->record->count) /* 0: withdrawn */
            m->failure_count++;
    }
    return 0;
}

static void take_notes(struct vt_model *m)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    bool refused;
    const char *python = vt_model_python(m->reading, &refused);
    uint32_t i;

    for (i = 0; i < vt_reading_notes(m->reading); i++)
        vt_model_note(m, "%s", vt_reading_note(m->reading, i));
    if (m->end == VT_PROCESS_KILLED)
        vt_model_note(m, "The process did not end by itself: it was killed or crashed. What it held then is complete.");
    if (h->end == VT_END_EXEC)
        vt_model_note(m, "The process replaced itself by another program (exec).");
    if (refused)
        vt_model_note(m, "Python frames are missing: %.300s.", python);
}

int vt_model_build(struct vt_model *m, struct vt_reading *r, const char *moment)
{
    const struct vt_header *h = vt_reading_header(r);
    uint32_t i;
    int error;

    memset(m, 0, sizeof *m);
    if (!vt_model_has_moment(r, moment))
        return -ENOENT;
    m->reading = r;
    m->end = vt_model_process_end(h);
    m->duration_ns = duration(h, m->end);
    vt_model_find_gaps(m);
    choose_moment(m, moment);
    if ((error = take_totals(m)) || (error = take_sites(m)) || (error = take_moments(m)) ||
        (error = take_failures(m))) {
        vt_model_free(m);
        return error;
    }
    take_notes(m);
    if (m->recorded)
        at_recorded(m);
    else if (!strcmp(m->moment, "peak"))
        at_highest(m);
    else if (m->end == VT_PROCESS_KILLED)
        at_death(m);
    if (strcmp(m->moment, "peak"))
        take_ages(m);
    if ((error = vt_fragmentation_build(&m->fragmentation, r, m->recorded))) {
        vt_model_free(m);
        return error;
    }
    for (i = 0; i < m->site_count; i++) {
        m->sites[i].growth = vt_model_growth_of(m, &m->sites[i]);
        m->sites[i].pool = vt_fragmentation_is_pool(&m->fragmentation, m->sites[i].index);
    }
    vt_category_prepare(m);
    if ((error = vt_account_build(m))) {
        vt_model_free(m);
        return error;
    }
    qsort(m->sites, m->site_count, sizeof *m->sites, by_bytes);
    return 0;
}

void vt_model_free(struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->device_count; i++) {
        free(m->devices[i].libraries);
        free(m->devices[i].others);
    }
    for (i = 0; i < m->note_count; i++)
        free(m->notes[i]);
    vt_fragmentation_free(&m->fragmentation);
    free(m->devices);
    free(m->notes);
    free(m->totals);
    free(m->sites);
    free(m->moments);
    free(m->failures);
    memset(m, 0, sizeof *m);
}
