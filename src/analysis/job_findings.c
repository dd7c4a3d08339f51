/*
 * What is wrong with a job, in the order in which it matters: who ran out of memory first, who died, which ranks are
 * uneven, who sits on another rank's GPU (job_gpus.c), whose recording is missing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/job.h"

#define PLACES 5        /* of them places */
#define PLACES_WORTH 20 /* a twentieth of the difference */

struct vt_job_finding *vt_job_new_finding(struct vt_job *job, enum vt_job_family family, enum vt_confidence confidence)
{
    struct vt_job_finding *grown = vt_job_grow(job, job->findings, job->finding_count, sizeof *grown);

    if (!grown)
        return NULL;
    job->findings = grown;
    grown[job->finding_count] = (struct vt_job_finding){.family = family, .confidence = confidence};
    return &grown[job->finding_count++];
}

static void set_text(struct vt_job *job, char **text, const char *format, va_list arguments)
{
    if (vasprintf(text, format, arguments) < 0) {
        *text = NULL;
        job->no_memory = true;
    }
}

void vt_job_set_text(struct vt_job *job, char **text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_text(job, text, format, arguments);
    va_end(arguments);
}

void vt_job_add_evidence(struct vt_job *job, struct vt_job_finding *f, const char *format, ...)
{
    char **grown = vt_job_grow(job, f->evidence, f->evidence_count, sizeof *grown);
    va_list arguments;

    if (!grown)
        return;
    f->evidence = grown;
    va_start(arguments, format);
    set_text(job, &grown[f->evidence_count++], format, arguments);
    va_end(arguments);
}

void vt_job_add_rank(struct vt_job *job, struct vt_job_finding *f, uint32_t index)
{
    uint32_t *grown = vt_job_grow(job, f->ranks, f->rank_count, sizeof *grown);

    if (!grown)
        return;
    f->ranks = grown;
    grown[f->rank_count++] = index;
}

/* --- who died --- */

/* Seconds from the first CUDA call of the job, which is that of the process that made one first, to an instant. */
static double since_start(const struct vt_job *job, uint64_t unix_ns)
{
    uint64_t first = unix_ns;
    uint32_t i;

    for (i = 0; i < job->rank_count; i++)
        first = job->ranks[i].start_unix_ns < first ? job->ranks[i].start_unix_ns : first;
    return (double)(unix_ns - first) / 1e9;
}

/* Processes are sorted: whoever ran out of memory or died comes first, in the order of time. */
static void find_ooms(struct vt_job *job)
{
    char name[VT_JOB_NAME], bytes[VT_FORMAT_BYTES];
    struct vt_job_finding *f = NULL;
    uint32_t i, first = 0;

    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        if (!r->oom)
            continue;
        if (!f) {
            first = i;
            if (!(f = vt_job_new_finding(job, VT_JOB_OOM, VT_CERTAIN)))
                return;
        }
        vt_job_add_rank(job, f, i);
        if (f->rank_count <= VT_JOB_EVIDENCE)
            vt_job_add_evidence(
                job, f, "%s on %s, %.3f s after the job's first CUDA call%s%s%s%s%s", vt_job_rank_name(name, r),
                r->host, since_start(job, r->oom_unix_ns), r->oom_live_known ? ", held " : "",
                r->oom_live_known ? vt_format_bytes(bytes, r->oom_live) : "", r->oom_live_known ? " then" : "",
                i == first && r->finding ? ": " : "", i == first && r->finding ? r->finding : "");
    }
    if (f)
        vt_job_set_text(job, &f->title,
                        f->rank_count == 1 ? "%s ran out of GPU memory."
                                           : "%s ran out of GPU memory first; %u did in all.",
                        vt_job_rank_name(name, &job->ranks[first]), f->rank_count);
}

/* Did nobody stop recognisably before the others? The ranks of the finding are in the order of time. */
static bool stopped_together(const struct vt_job *job, const struct vt_job_finding *f)
{
    const struct vt_job_rank *first = &job->ranks[f->ranks[0]], *second = &job->ranks[f->ranks[1]];

    if (first->end != VT_PROCESS_KILLED && second->end != VT_PROCESS_KILLED)
        return first->end_unix_ns == second->end_unix_ns; /* both ends are known exactly */
    return second->end_unix_ns - first->end_unix_ns < VT_JOB_TOGETHER;
}

/* "All 4 processes", "Both processes", "2 processes". Returns buffer. */
static const char *how_many(char *buffer, size_t size, const struct vt_job *job, uint32_t count)
{
    if (count == job->process_count && count == 2)
        snprintf(buffer, size, "Both processes");
    else
        snprintf(buffer, size, "%s%u processes", count == job->process_count ? "All " : "", count);
    return buffer;
}

static void title_of_dead(struct vt_job *job, struct vt_job_finding *f)
{
    const struct vt_job_rank *first = &job->ranks[f->ranks[0]], *last = &job->ranks[f->ranks[f->rank_count - 1]];
    char name[VT_JOB_NAME], all[48];

    vt_job_rank_name(name, first);
    how_many(all, sizeof all, job, f->rank_count);
    if (f->rank_count == 1)
        vt_job_set_text(job, &f->title, "%s died: %s.", name, first->words);
    else if (!stopped_together(job, f))
        vt_job_set_text(job, &f->title, "%s died; %s stopped first: %s.", all, name, first->words);
    else if (last->end_unix_ns - first->end_unix_ns < VT_JOB_TOGETHER)
        vt_job_set_text(job, &f->title, "%s died, and stopped together: last seen within %.3f s of each other.", all,
                        (double)(last->end_unix_ns - first->end_unix_ns) / 1e9);
    else
        vt_job_set_text(job, &f->title, "%s died; several stopped first, within a second of each other.", all);
}

/* Of processes that a launcher has ended together nothing here says which one failed by itself. */
static void explain_death(struct vt_job *job, struct vt_job_finding *f)
{
    const struct vt_job_rank *dead = &job->ranks[f->ranks[0]], *oom = &job->ranks[0];
    char name[VT_JOB_NAME];

    if (oom->oom && oom->oom_unix_ns <= dead->end_unix_ns)
        vt_job_add_evidence(job, f, "%s had run out of memory %.3f s before: a launcher ends the others when one fails",
                            vt_job_rank_name(name, oom), (double)(dead->end_unix_ns - oom->oom_unix_ns) / 1e9);
    else if (f->rank_count > 1 && dead->end == VT_PROCESS_KILLED && stopped_together(job, f))
        vt_job_set_text(job, &f->advice,
                        "Look at what the launcher printed: it ends the others when one dies, and says which one did.");
}

static void find_dead(struct vt_job *job)
{
    char name[VT_JOB_NAME];
    struct vt_job_finding *f = NULL;
    uint32_t i;

    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        if (!r->failed || r->oom)
            continue;
        if (!f && !(f = vt_job_new_finding(job, VT_JOB_DIED, VT_CERTAIN)))
            return;
        vt_job_add_rank(job, f, i);
        if (f->rank_count <= VT_JOB_EVIDENCE)
            vt_job_add_evidence(job, f, "%s on %s, %s %.3f s after the job's first CUDA call: %s",
                                vt_job_rank_name(name, r), r->host, r->end == VT_PROCESS_KILLED ? "last seen" : "ended",
                                since_start(job, r->end_unix_ns), r->words);
    }
    if (f && !job->no_memory) {
        title_of_dead(job, f);
        explain_death(job, f);
    }
}

/* In the order of time: whoever is first in the list of processes. */
static void find_stopped(struct vt_job *job)
{
    if (job->process_count && job->ranks[0].oom) {
        find_ooms(job);
        find_dead(job);
    } else {
        find_dead(job);
        find_ooms(job);
    }
}

/* --- uneven ranks --- */

static uint64_t distance(const uint64_t bytes[2])
{
    return bytes[1] > bytes[0] ? bytes[1] - bytes[0] : bytes[0] - bytes[1];
}

static const char *change_text(char *buffer, size_t size, const uint64_t bytes[2])
{
    char text[VT_FORMAT_BYTES];

    snprintf(buffer, size, "%s %s", vt_format_bytes(text, distance(bytes)), bytes[1] >= bytes[0] ? "more" : "less");
    return buffer;
}

static void show_difference(struct vt_job *job, struct vt_job_finding *f, const struct vt_job_skew *skew,
                            const struct vt_job_difference *d)
{
    char place[VT_SPOT_NAME], change[48], own[VT_FORMAT_BYTES], median[VT_FORMAT_BYTES];

    vt_job_add_evidence(
        job, f, "%s by %s: %s in %llu, %s in %llu on rank %d", change_text(change, sizeof change, d->bytes),
        vt_spot_name(place, job->places, d->place), vt_format_bytes(own, d->bytes[1]), (unsigned long long)d->count[1],
        vt_format_bytes(median, d->bytes[0]), (unsigned long long)d->count[0], job->ranks[skew->against].rank);
}

/* Does the place explain enough of it to be named? */
static bool is_worth(const struct vt_job_skew *skew, uint32_t index)
{
    return distance(skew->differences[index].bytes) >= distance(skew->bytes) / PLACES_WORTH;
}

/* What is in no place: a cache of the framework's, or the sum of what is too small. */
static void show_rest(struct vt_job *job, struct vt_job_finding *f, const struct vt_job_skew *skew)
{
    const uint64_t bytes[2] = {skew->rest < 0 ? (uint64_t)-skew->rest : 0, skew->rest > 0 ? (uint64_t)skew->rest : 0};
    char change[48];

    if (bytes[0] + bytes[1] >= VT_SKEW_BYTES / 4)
        vt_job_add_evidence(job, f, "%s that no place holds: cached by a framework, or held at another instant",
                            change_text(change, sizeof change, bytes));
}

static const char *by_nature(const struct vt_job *job, const struct vt_job_skew *skew)
{
    uint32_t i, ranks = 0;

    for (i = 0; i < job->process_count; i++)
        ranks += vt_job_compares(&job->ranks[i]);
    if (skew->confidence != VT_POSSIBLE)
        return "";
    return ranks < VT_SKEW_RANKS ? " Of two ranks either may be the odd one."
                                 : " Stages of a pipeline and experts differ by nature.";
}

static void find_uneven(struct vt_job *job, enum vt_job_measure measure)
{
    const char *when = measure == VT_JOB_PEAK ? "at its peak" : "at its end";
    char change[48], own[VT_FORMAT_BYTES], median[VT_FORMAT_BYTES], name[VT_JOB_NAME];
    struct vt_job_finding *f = NULL;
    const struct vt_job_skew *first = NULL;
    uint32_t i, j, count = 0;

    for (i = 0; i < job->skew_count; i++)
        if (job->skews[i].measure == measure && !count++)
            first = &job->skews[i];
    if (!count || !(f = vt_job_new_finding(job, VT_JOB_SKEW, first->confidence)))
        return;
    change_text(change, sizeof change, first->bytes);
    vt_job_rank_name(name, &job->ranks[first->rank]);
    vt_format_bytes(own, first->bytes[1]);
    vt_format_bytes(median, first->bytes[0]);
    if (count == 1)
        vt_job_set_text(job, &f->title, "%s held %s %s than the median rank: %s against %s of rank %d.%s", name, change,
                        when, own, median, job->ranks[first->against].rank, by_nature(job, first));
    else
        vt_job_set_text(job, &f->title,
                        "%u ranks differ from the median rank %s, %s most: %s, %s against %s of rank %d.%s", count,
                        when, name, change, own, median, job->ranks[first->against].rank, by_nature(job, first));
    for (i = 0; i < job->skew_count; i++) {
        const struct vt_job_skew *skew = &job->skews[i];

        if (skew->measure != measure)
            continue;
        vt_job_add_rank(job, f, skew->rank);
        for (j = 0; skew == first && j < skew->difference_count && j < PLACES && is_worth(skew, j); j++)
            show_difference(job, f, skew, &skew->differences[j]);
        if (skew == first)
            show_rest(job, f, skew);
        else if (f->evidence_count < VT_JOB_EVIDENCE)
            vt_job_add_evidence(job, f, "%s: %s", vt_job_rank_name(name, &job->ranks[skew->rank]),
                                change_text(change, sizeof change, skew->bytes));
    }
}

/* --- whose recording is not there --- */

/* The first process of its rank in the list? */
static bool is_first(const struct vt_job *job, uint32_t index)
{
    uint32_t i;

    for (i = 0; i < index; i++)
        if (vt_job_is_rank(&job->ranks[i]) && job->ranks[i].rank == job->ranks[index].rank)
            return false;
    return true;
}

static void find_missing(struct vt_job *job)
{
    struct vt_job_finding *f;
    uint32_t i, ranks = 0;
    int32_t world = 0;

    for (i = 0; i < job->process_count; i++) {
        if (!vt_job_is_rank(&job->ranks[i]))
            continue;
        world = job->ranks[i].world_size > world ? job->ranks[i].world_size : world;
        ranks += is_first(job, i);
    }
    if (!ranks || world <= 0 || ranks >= (uint32_t)world || !(f = vt_job_new_finding(job, VT_JOB_MISSING, VT_POSSIBLE)))
        return;
    if (job->unreadable)
        vt_job_set_text(
            job, &f->title,
            "%u of %d ranks have a recording here that can be read; %u file%s here can not. The others used no GPU, "
            "were not recorded, or recorded elsewhere.",
            ranks, world, job->unreadable, job->unreadable == 1 ? "" : "s");
    else
        vt_job_set_text(job, &f->title,
                        "%u of %d ranks have a recording here: the others used no GPU, were not recorded, or recorded "
                        "elsewhere.",
                        ranks, world);
}

/* Two ranks that have reached the same peak, to the byte: there is no odd one to be told, however few they are. NULL: they have
 * not, or there are not two. */
static const struct vt_job_rank *one_of_two_equal(const struct vt_job *job)
{
    const struct vt_job_rank *first = NULL;
    uint32_t i, ranks = 0;

    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        if (!vt_job_compares(r))
            continue;
        if (first && (r->rank == first->rank || r->peak != first->peak))
            return NULL;
        first = first ? first : r;
        ranks++;
    }
    return ranks == 2 && job->compared == 2 ? first : NULL;
}

/* What was looked at is even, and what was not is not said to be. */
static void find_nothing(struct vt_job *job)
{
    bool even = job->compared >= VT_SKEW_RANKS;
    const struct vt_job_rank *equal = one_of_two_equal(job);
    struct vt_job_finding *f = job->no_memory ? NULL : vt_job_new_finding(job, VT_JOB_NONE, VT_CERTAIN);
    char peak[VT_FORMAT_BYTES];

    if (!f)
        return;
    if (job->incomplete)
        f->confidence = VT_POSSIBLE; /* what their recordings lack may say otherwise */
    if (even)
        vt_job_set_text(job, &f->title, "The ranks%s are even, and none died.",
                        job->incomplete ? " whose recordings are whole" : "");
    else if (equal)
        vt_job_set_text(job, &f->title, "The two ranks%s are equal: both held %s at their peak; none died.",
                        job->incomplete ? " whose recordings are whole" : "", vt_format_bytes(peak, equal->peak));
    else if (job->compared)
        vt_job_set_text(job, &f->title, "No process died; there are too few ranks to tell whether they are even.");
    else
        vt_job_set_text(job, &f->title, "No process died; there are no ranks to compare.");
}

void vt_job_find_all(struct vt_job *job)
{
    find_stopped(job);
    find_uneven(job, VT_JOB_PEAK);
    find_uneven(job, VT_JOB_LIVE);
    vt_job_find_gpus(job);
    find_missing(job);
    if (!job->finding_count)
        find_nothing(job);
}
