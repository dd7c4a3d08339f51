/*
 * Telling the recordings of a job from others; see job_select.h.
 */
#include "cli/job_select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/job.h"
#include "recording/reader.h"

/* A rank that died at once may have ended before the slowest one first used its GPU: a minute covers loading a program and a
 * rendezvous. */
#define SLACK_NS 60000000000ull
#define ID_BYTES 128
#define ERROR_BYTES 512

struct candidate {
    int32_t rank, world_size;
    uint64_t start_ns, end_ns;             /* end: UINT64_MAX while it runs */
    char host[65], run[24], job[ID_BYTES]; /* run: of which `vramtrack run`; job: the scheduler's id; empty: none */
    uint64_t peak;                         /* of the cards' memory */
    bool member, replaced, killed; /* replaced: it went on as another program; killed: end_ns is its last event */
};

/* The value of NAME=... among the recorded settings; empty: it is not there, or does not fit. */
static void read_setting(const struct vt_reading *reading, const char *name, char *value, size_t size)
{
    struct vt_text settings = vt_reading_string(reading, vt_reading_header(reading)->environment);
    size_t at = 0, length = strlen(name);

    *value = 0;
    while (at < settings.length) {
        const char *entry = settings.text + at;
        size_t bytes = strnlen(entry, settings.length - at);

        if (bytes > length && !memcmp(entry, name, length) && entry[length] == '=' && bytes - length - 1 < size) {
            memcpy(value, entry + length + 1, bytes - length - 1);
            value[bytes - length - 1] = 0;
            return;
        }
        at += bytes + 1;
    }
}

/* torchrun's id is "none" unless somebody gave it one. A step is what one srun starts. */
static void read_job(const struct vt_reading *reading, char *job, size_t size)
{
    char part[ID_BYTES / 2];
    size_t used;

    read_setting(reading, "SLURM_JOB_ID", job, size - sizeof(part) - 1);
    if (*job) {
        used = strlen(job);
        read_setting(reading, "SLURM_STEP_ID", part, sizeof(part));
        job[used] = '.';
        memcpy(job + used + 1, part, strlen(part) + 1);
        return;
    }
    read_setting(reading, "TORCHELASTIC_RUN_ID", job, size);
    if (!*job || !strcmp(job, "none"))
        read_setting(reading, "PMIX_NAMESPACE", job, size);
}

static uint64_t peak_of(const struct vt_reading *reading)
{
    uint64_t peak = 0;

    for (uint64_t i = 0; i < vt_reading_count(reading, VT_SCOPES); i++) {
        const struct vt_scope *scope = vt_reading_scope(reading, i);

        if (scope && scope->level == VT_LEVEL_DRIVER && scope->device >= 0 && scope->peak_bytes > peak)
            peak = scope->peak_bytes;
    }
    return peak;
}

/* NULL, or why it can't be read: text in the buffer. */
static const char *describe(struct candidate *c, const struct vt_found *found, char error[ERROR_BYTES])
{
    struct vt_reading *reading = vt_reading_open(found->path, error, ERROR_BYTES);
    const struct vt_header *h;
    enum vt_process_end end;

    *c = (struct candidate){.rank = -1, .world_size = -1, .start_ns = found->start_unix_ns};
    c->end_ns = c->start_ns;
    if (!reading)
        return error;
    h = vt_reading_header(reading);
    c->rank = h->rank;
    c->world_size = h->world_size;
    end = vt_model_process_end(h);
    c->killed = end == VT_PROCESS_KILLED;
    c->end_ns = end == VT_PROCESS_RUNNING ? UINT64_MAX : c->start_ns + (h->end_ns ? h->end_ns : h->last_ns);
    c->peak = peak_of(reading);
    c->replaced = h->end == VT_END_EXEC;
    memcpy(c->host, h->host, sizeof(h->host));
    read_setting(reading, "VRAMTRACK_RUN", c->run, sizeof(c->run));
    read_job(reading, c->job, sizeof(c->job));
    vt_reading_close(reading);
    return NULL;
}

/* Did they run at the same time, or nearly? */
static bool overlap(const struct candidate *a, const struct candidate *b)
{
    uint64_t start = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
    uint64_t end = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;

    return start <= end || start - end <= SLACK_NS;
}

static bool belong_together(const struct candidate *a, const struct candidate *b)
{
    if (*a->job && *b->job)
        return !strcmp(a->job, b->job);
    if (*a->run && !strcmp(a->run, b->run) && !strcmp(a->host, b->host))
        return true;
    return a->rank >= 0 && b->rank >= 0 && a->world_size == b->world_size && a->world_size != 1 && overlap(a, b);
}

/* Does it hold next to nothing beside the other one? (As in analysis/job.c, by headers alone.) */
static bool is_tiny(const struct candidate *c, const struct candidate *beside)
{
    return c->peak < VT_JOB_TINY && c->peak <= beside->peak / VT_JOB_TINY_SHARE;
}

/* Is it a process beside the other one, which ran before and still did, of the same rank or, without ranks, of one job? */
static bool helps(const struct candidate *c, const struct candidate *other)
{
    bool related = c->rank >= 0 ? c->rank == other->rank && c->world_size == other->world_size
                                : belong_together(c, other);

    return related && !strcmp(c->host, other->host) && is_tiny(c, other) &&
           (other->killed ? overlap(c, other) : other->end_ns >= c->start_ns);
}

const struct vt_found *vt_job_newest(const struct vt_found_list *list)
{
    size_t last = list->count - 1;
    struct candidate newest, other;
    char error[ERROR_BYTES];

    describe(&newest, &list->item[last], error); /* whoever reports on it says what is wrong with it */
    for (size_t i = last; i-- > 0;) {
        describe(&other, &list->item[i], error);
        if (helps(&newest, &other))
            return &list->item[i];
    }
    return &list->item[last];
}

/* Marks what belongs to the newest one, and what belongs to that. `list` has room for all indices. */
static void mark(struct candidate *all, size_t count, size_t *list)
{
    size_t marked = 0;

    all[count - 1].member = true;
    list[marked++] = count - 1;
    for (size_t next = 0; next < marked; next++)
        for (size_t i = 0; i < count; i++)
            if (!all[i].member && belong_together(&all[list[next]], &all[i])) {
                all[i].member = true;
                list[marked++] = i;
            }
}

/* Had every member from `first` on that began before this one ended when it began? */
static bool all_ended(const struct candidate *all, size_t first, size_t index)
{
    for (size_t i = first; i < index; i++)
        if (all[i].member && all[i].end_ns >= all[index].start_ns)
            return false;
    return true;
}

/*
 * Has an earlier process of the rank ended before this one began, and gone on as nothing else? When one was killed is not
 * known: its last event may be long before that, and what began in between is a helper of it. So is what holds next to
 * nothing.
 */
static bool is_restart(const struct candidate *all, size_t first, size_t index)
{
    bool ended = false, killed = false;

    for (size_t i = first; i < index; i++) {
        if (!all[i].member || all[i].rank != all[index].rank || all[i].replaced)
            continue;
        if (all[i].end_ns >= all[index].start_ns || is_tiny(&all[index], &all[i]))
            return false;
        ended = true;
        killed |= all[i].killed;
    }
    return ended && (!killed || all_ended(all, first, index));
}

/* Where the newest attempt begins: members before that are of earlier ones. */
static size_t newest_attempt(const struct candidate *all, size_t count)
{
    size_t first = 0;

    for (size_t i = 0; i < count; i++)
        if (all[i].member && all[i].rank >= 0 && is_restart(all, first, i))
            first = i;
    return first;
}

/* Keeps the members from `first` on in the list. */
static void keep(struct vt_found_list *list, const struct candidate *all, size_t first)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        if (i >= first && all[i].member)
            list->item[kept++] = list->item[i];
        else
            free(list->item[i].path);
    }
    list->count = kept;
}

/* Describes what can be read, and leaves the rest out of the list. Returns 0 or ENOMEM. */
static int describe_all(struct candidate *all, struct vt_found_list *list)
{
    char text[ERROR_BYTES];
    size_t kept = 0;
    int failure = 0;

    for (size_t i = 0; i < list->count; i++) {
        const char *error = describe(&all[kept], &list->item[i], text);

        if (!error) {
            list->item[kept++] = list->item[i];
            continue;
        }
        failure |= vt_found_unreadable(list, error);
        free(list->item[i].path);
    }
    list->count = kept;
    return failure ? ENOMEM : 0;
}

static int ascending(const void *left, const void *right)
{
    const int32_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* ranks: room for all. */
static void count_ranks(struct vt_job_choice *choice, const struct candidate *all, size_t count, size_t first,
                        int32_t *ranks)
{
    size_t got = 0;

    for (size_t i = first; i < count; i++) {
        if (!all[i].member)
            continue;
        if (all[i].world_size > choice->world_size)
            choice->world_size = all[i].world_size;
        if (all[i].rank >= 0)
            ranks[got++] = all[i].rank;
    }
    if (got)
        qsort(ranks, got, sizeof(*ranks), ascending);
    for (size_t i = 0; i < got; i++)
        choice->rank_count += !i || ranks[i] != ranks[i - 1];
}

int vt_job_choose(const char *directory, struct vt_job_choice *choice)
{
    int error = vt_found_in(directory, &choice->ranks);
    struct candidate *all;
    size_t *list, count = choice->ranks.count, first;
    int32_t *ranks;

    choice->others = choice->rank_count = 0;
    choice->world_size = -1;
    if (error || !count)
        return error;
    all = calloc(count, sizeof(*all));
    list = calloc(count, sizeof(*list));
    ranks = calloc(count, sizeof(*ranks));
    error = all && list && ranks ? describe_all(all, &choice->ranks) : ENOMEM;
    count = choice->ranks.count;
    if (!error && count) {
        mark(all, count, list);
        first = newest_attempt(all, count);
        count_ranks(choice, all, count, first, ranks);
        keep(&choice->ranks, all, first);
        choice->others = count - choice->ranks.count;
    }
    free(ranks);
    free(all);
    free(list);
    return error;
}

void vt_job_choice_free(struct vt_job_choice *choice)
{
    vt_found_free(&choice->ranks);
}
