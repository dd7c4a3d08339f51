/*
 * Summaries of the processes of a job, and which of them are helpers; see job.h.
 */
#include "analysis/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vt_job_open(struct vt_job *job, bool all_frames)
{
    memset(job, 0, sizeof *job);
    job->median[VT_JOB_PEAK] = job->median[VT_JOB_LIVE] = VT_NONE;
    return (job->places = vt_spots_open(all_frames)) ? 0 : -ENOMEM;
}

static void free_rank(struct vt_job_rank *r)
{
    free(r->path);
    free(r->finding);
    free(r->devices);
    free(r->amounts);
}

static void free_finding(struct vt_job_finding *f)
{
    uint32_t i;

    for (i = 0; i < f->evidence_count; i++)
        free(f->evidence[i]);
    free(f->evidence);
    free(f->title);
    free(f->advice);
    free(f->ranks);
}

void vt_job_free(struct vt_job *job)
{
    uint32_t i;

    for (i = 0; i < job->rank_count; i++)
        free_rank(&job->ranks[i]);
    for (i = 0; i < job->skew_count; i++)
        free(job->skews[i].differences);
    for (i = 0; i < job->finding_count; i++)
        free_finding(&job->findings[i]);
    free(job->ranks);
    free(job->skews);
    free(job->findings);
    free(job->held);
    for (i = 0; i < job->note_count; i++)
        free(job->notes[i]);
    free(job->notes);
    vt_spots_close(job->places);
    memset(job, 0, sizeof *job);
}

void *vt_job_grow(struct vt_job *job, void *array, uint32_t count, size_t bytes)
{
    void *grown = (count & (count - 1)) ? array : realloc(array, (count ? (size_t)count * 2 : 1) * bytes);

    if (!grown)
        job->no_memory = true;
    return grown;
}

const char *vt_job_family_name(enum vt_job_family family)
{
    static const char *const names[VT_JOB_FAMILY_COUNT] = {
        "out_of_memory", "died", "rank_skew", "stray_context", "shared_gpu", "missing_ranks", "none"};

    return names[family];
}

const char *vt_job_measure_name(enum vt_job_measure measure)
{
    return measure == VT_JOB_PEAK ? "peak" : "live";
}

const char *vt_job_rank_name(char *buffer, const struct vt_job_rank *r)
{
    if (r->rank >= 0)
        snprintf(buffer, VT_JOB_NAME, "rank %d", r->rank);
    else
        snprintf(buffer, VT_JOB_NAME, "pid %d", r->pid);
    return buffer;
}

const char *vt_job_moment(struct vt_reading *reading, char *name)
{
    uint64_t i;

    for (i = 0; i < vt_reading_count(reading, VT_MOMENTS); i++) {
        const struct vt_moment *moment = vt_reading_moment(reading, i);

        if (!moment || moment->kind != VT_MOMENT_OOM || !moment->name[0])
            continue;
        snprintf(name, 33, "%.32s", moment->name);
        return name;
    }
    return NULL;
}

/* A recording is not trusted: sums stop at the top. */
static void add(uint64_t *sum, uint64_t more)
{
    *sum = *sum + more < more ? UINT64_MAX : *sum + more;
}

static bool on_card(unsigned kind)
{
    enum vt_class class_ = vt_class_of((enum vt_kind)kind);

    return vt_kind_is_memory(kind) && (class_ == VT_CLASS_DEVICE || class_ == VT_CLASS_MANAGED);
}

/* --- one process --- */

static struct vt_job_device *device_at(struct vt_job_rank *r, int ordinal)
{
    uint32_t i;

    for (i = 0; i < r->device_count; i++)
        if (r->devices[i].ordinal == ordinal)
            return &r->devices[i];
    return NULL;
}

static void take_scopes(struct vt_job_rank *r, const struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SCOPES);

    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i);
        struct vt_job_device *device;

        if (!scope || scope->level != VT_LEVEL_DRIVER ||
            (scope->class_ != VT_CLASS_DEVICE && scope->class_ != VT_CLASS_MANAGED))
            continue;
        add(&r->peak, scope->peak_bytes);
        if ((device = device_at(r, scope->device)))
            add(&device->peak, scope->peak_bytes);
    }
}

uint64_t vt_job_live_of(const struct vt_model *m)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == VT_LEVEL_DRIVER && on_card(m->totals[i].record->kind))
            add(&bytes, m->totals[i].live_bytes);
    return bytes;
}

static void take_totals(struct vt_job_rank *r, const struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->total_count; i++) {
        const struct vt_total *total = m->totals[i].record;
        struct vt_job_device *device;

        if (total->level != VT_LEVEL_DRIVER || !on_card(total->kind))
            continue;
        if ((device = device_at(r, total->device)))
            add(&device->live, m->totals[i].live_bytes);
    }
}

static int take_devices(struct vt_job_rank *r, const struct vt_model *m)
{
    uint32_t i, j;

    if (!(r->devices = calloc(m->device_count ? m->device_count : 1, sizeof *r->devices)))
        return -ENOMEM;
    for (i = 0; i < m->device_count; i++) {
        const struct vt_device_row *row = &m->devices[i];
        struct vt_job_device *device = &r->devices[r->device_count++];

        device->ordinal = row->record->ordinal;
        memcpy(device->uuid, row->record->uuid, sizeof device->uuid);
        device->context_known = row->context_known;
        device->context = row->context;
        for (j = 0; j < VT_PART_COUNT; j++)
            add(&r->part[j], row->tensor_part[j]);
        add(&r->cached, row->cached_unused);
        r->tensors_known |= row->tensors_known;
    }
    take_scopes(r, m);
    take_totals(r, m);
    r->live = vt_job_live_of(m);
    r->main = VT_NONE;
    for (i = 0; i < r->device_count; i++)
        if (r->devices[i].peak && (r->main == VT_NONE || r->devices[i].peak > r->devices[r->main].peak))
            r->main = i;
    return 0;
}

static void take_identity(struct vt_job_rank *r, const struct vt_model *m, bool status_known, int status)
{
    const struct vt_header *h = vt_reading_header(m->reading);

    snprintf(r->host, sizeof r->host, "%.64s", h->host);
    snprintf(r->program, sizeof r->program, "%.64s", h->program);
    memcpy(r->moment, m->moment, sizeof r->moment);
    memcpy(r->missing, m->missing, sizeof r->missing);
    vt_model_end_words(r->words, m, status_known, status);
    r->pid = h->pid;
    r->rank = h->rank;
    r->local_rank = h->local_rank;
    r->world_size = h->world_size;
    r->end = m->end;
    r->exit_code = h->exit_code;
    r->failed = m->end == VT_PROCESS_KILLED || (m->end == VT_PROCESS_EXIT && h->end == VT_END_EXIT && h->exit_code);
    r->start_unix_ns = h->start_unix_ns;
    r->end_unix_ns = h->start_unix_ns + m->duration_ns;
    r->steps = h->steps;
}

static uint64_t most_of(const struct vt_site_row *row)
{
    return row->at_peak_bytes > row->live_bytes ? row->at_peak_bytes : row->live_bytes;
}

static int larger_first(const void *left, const void *right)
{
    const struct vt_site_row *const *a = left, *const *b = right;
    uint64_t x = most_of(*a), y = most_of(*b);

    if (x != y)
        return x < y ? 1 : -1;
    return (*a)->index < (*b)->index ? -1 : (*a)->index > (*b)->index;
}

static int by_place(const void *left, const void *right)
{
    const struct vt_job_amount *a = left, *b = right;

    return a->place < b->place ? -1 : a->place > b->place;
}

const struct vt_job_amount *vt_job_amount_at(const struct vt_job_rank *r, uint32_t place)
{
    const struct vt_job_amount key = {.place = place};

    return r->amount_count ? bsearch(&key, r->amounts, r->amount_count, sizeof key, by_place) : NULL;
}

/* Sites that are one place to a person are added up. The array has room for them all. */
static void add_amount(struct vt_job_rank *r, uint32_t place, const struct vt_site_row *row)
{
    struct vt_job_amount *amount;
    uint32_t i;

    for (i = 0; i < r->amount_count && r->amounts[i].place != place; i++)
        ;
    amount = &r->amounts[i];
    if (i == r->amount_count)
        r->amounts[r->amount_count++] = (struct vt_job_amount){.place = place};
    add(&amount->at_peak, row->at_peak_bytes);
    add(&amount->at_peak_count, row->at_peak_count);
    add(&amount->live, row->live_bytes);
    add(&amount->live_count, row->live_count);
}

static int take_sites(struct vt_job *job, struct vt_job_rank *r, const struct vt_analysis *a)
{
    const struct vt_model *m = &a->model;
    const struct vt_site_row **rows = calloc(m->site_count ? m->site_count : 1, sizeof *rows);
    uint32_t count = 0, i, place;

    if (!rows)
        return -ENOMEM;
    for (i = 0; i < m->site_count; i++)
        if (vt_site_counts(m, &m->sites[i]) && on_card(m->sites[i].record->kind) &&
            (m->sites[i].at_peak_bytes || m->sites[i].live_bytes)) {
            add(&r->counted, m->sites[i].live_bytes);
            rows[count++] = &m->sites[i];
        }
    if (count)
        qsort(rows, count, sizeof *rows, larger_first);
    if (count > VT_JOB_SITES)
        r->floor = most_of(rows[VT_JOB_SITES]);
    r->amounts = calloc(count < VT_JOB_SITES ? count + 1 : VT_JOB_SITES, sizeof *r->amounts);
    for (i = 0; r->amounts && i < count && i < VT_JOB_SITES; i++) {
        place = vt_spots_add(job->places, m->reading, a->symbols, &a->style, rows[i]->record, VT_SPOT_ANY);
        if (place != VT_NONE)
            add_amount(r, place, rows[i]);
    }
    free(rows);
    if (r->amounts && r->amount_count)
        qsort(r->amounts, r->amount_count, sizeof *r->amounts, by_place);
    return r->amounts && !vt_spots_no_memory(job->places) ? 0 : -ENOMEM;
}

int vt_job_add(struct vt_job *job, const struct vt_analysis *a, const char *path, bool status_known, int status)
{
    struct vt_job_rank *grown = vt_job_grow(job, job->ranks, job->rank_count, sizeof *grown), *r;

    if (!grown)
        return -ENOMEM;
    job->ranks = grown;
    r = &grown[job->rank_count];
    memset(r, 0, sizeof *r);
    take_identity(r, &a->model, status_known, status);
    if (!(r->path = strdup(path)) || take_devices(r, &a->model) || vt_job_take_own(r, a) ||
        vt_job_take_parts(job, r, a) || take_sites(job, r, a)) {
        free_rank(r);
        return -ENOMEM;
    }
    job->rank_count++;
    return 0;
}

/* --- helpers --- */

static int by_rank_and_peak(const void *left, const void *right)
{
    const struct vt_job_rank *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->peak != b->peak)
        return a->peak < b->peak ? 1 : -1;
    return a->start_unix_ns < b->start_unix_ns ? -1 : a->start_unix_ns > b->start_unix_ns;
}

/* Next to nothing beside a process with `peak`? Whoever ran out of memory is nobody's helper; nor is one whose peak may be
 * what is missing from its recording. */
static bool is_tiny(const struct vt_job_rank *r, uint64_t peak)
{
    return !r->oom && !r->missing[0] && r->peak < VT_JOB_TINY && r->peak <= peak / VT_JOB_TINY_SHARE;
}

/* The ranks stand together by now, each with its largest process first; those without a rank come before all. */
static void fold_helpers(struct vt_job *job)
{
    uint64_t most = 0;
    uint32_t i;

    for (i = 0; i < job->rank_count; i++)
        most = job->ranks[i].peak > most ? job->ranks[i].peak : most;
    for (i = 0; i < job->rank_count; i++) {
        struct vt_job_rank *r = &job->ranks[i], *leader = i ? r - 1 : NULL;

        while (leader && leader > job->ranks && leader->helper)
            leader--;
        if (r->rank < 0)
            r->helper = is_tiny(r, most) && !r->finding; /* whose it is, is not known: what it did may matter */
        else
            r->helper = leader && leader->rank == r->rank && is_tiny(r, leader->peak);
        job->helper_count += r->helper;
    }
    job->process_count = job->rank_count - job->helper_count;
}

/* When it ran out of memory or died; the end of time: it did neither. */
static uint64_t trouble_of(const struct vt_job_rank *r)
{
    return r->oom ? r->oom_unix_ns : r->failed ? r->end_unix_ns : UINT64_MAX;
}

/* Who ran out of memory or died, in the order of time; then by rank; helpers last. */
static int as_shown(const void *left, const void *right)
{
    const struct vt_job_rank *a = left, *b = right;

    if (a->helper != b->helper)
        return a->helper ? 1 : -1;
    if (trouble_of(a) != trouble_of(b))
        return trouble_of(a) < trouble_of(b) ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->peak != b->peak)
        return a->peak < b->peak ? 1 : -1;
    return strcmp(a->path, b->path);
}

int vt_job_finish(struct vt_job *job)
{
    if (job->rank_count)
        qsort(job->ranks, job->rank_count, sizeof *job->ranks, by_rank_and_peak);
    fold_helpers(job);
    if (job->rank_count)
        qsort(job->ranks, job->rank_count, sizeof *job->ranks, as_shown);
    vt_job_add_notes(job);
    vt_job_find_skew(job);
    vt_job_find_all(job);
    return job->no_memory ? -ENOMEM : 0;
}
