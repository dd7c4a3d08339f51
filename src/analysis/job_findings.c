/*
 * What is wrong with a job, in the order in which it matters: who ran out of memory first, who died, which ranks are
 * uneven, who sits on another rank's GPU, whose recording is missing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/job.h"

#define EVIDENCE 8      /* lines of a finding */
#define PLACES 5        /* of them places */
#define PLACES_WORTH 20 /* a twentieth of the difference */
#define CONTEXTS 3      /* ranks named one by one in a finding about many */

static struct vt_job_finding *new_finding(struct vt_job *job, enum vt_job_family family, enum vt_confidence confidence)
{
    struct vt_job_finding *grown = vt_job_grow(job, job->findings, job->finding_count, sizeof *grown);

    if (!grown)
        return NULL;
    job->findings = grown;
    grown[job->finding_count] = (struct vt_job_finding){.family = family, .confidence = confidence};
    return &grown[job->finding_count++];
}

__attribute__((format(printf, 3, 4))) static void set_text(struct vt_job *job, char **text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(text, format, arguments) < 0) {
        *text = NULL;
        job->no_memory = true;
    }
    va_end(arguments);
}

/* A new line of evidence, to be set; a place to throw it away if there is no room. */
static char **new_evidence(struct vt_job *job, struct vt_job_finding *f)
{
    char **grown = vt_job_grow(job, f->evidence, f->evidence_count, sizeof *grown);

    if (!grown)
        return NULL;
    f->evidence = grown;
    grown[f->evidence_count] = NULL;
    return &grown[f->evidence_count++];
}

#define EVIDENCE_LINE(job, f, ...)               \
    do {                                         \
        char **line_ = new_evidence((job), (f)); \
                                                 \
        if (line_)                               \
            set_text((job), line_, __VA_ARGS__); \
    } while (0)

static void add_rank(struct vt_job *job, struct vt_job_finding *f, uint32_t index)
{
    uint32_t *grown = vt_job_grow(job, f->ranks, f->rank_count, sizeof *grown);

    if (!grown)
        return;
    f->ranks = grown;
    grown[f->rank_count++] = index;
}

/* --- who died --- */

/* Seconds from the start of the first process to an instant. */
static double since_start(const struct vt_job *job, uint64_t unix_ns)
{
    uint64_t first = unix_ns;
    uint32_t i;

    for (i = 0; i < job->rank_count; i++)
        first = job->ranks[i].start_unix_ns < first ? job->ranks[i].start_unix_ns : first;
    return (double)(unix_ns - first) / 1e9;
}

/* Processes are sorted: out of memory first, the earliest first. */
static void find_ooms(struct vt_job *job)
{
    char name[VT_JOB_NAME], bytes[VT_FORMAT_BYTES];
    struct vt_job_finding *f;
    uint32_t i, count = 0;

    while (count < job->process_count && job->ranks[count].oom)
        count++;
    if (!count || !(f = new_finding(job, VT_JOB_OOM, VT_CERTAIN)))
        return;
    set_text(job, &f->title,
             count == 1 ? "%s ran out of GPU memory." : "%s ran out of GPU memory first; %u did in all.",
             vt_job_rank_name(name, &job->ranks[0]), count);
    for (i = 0; i < count; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        add_rank(job, f, i);
        if (i < EVIDENCE)
            EVIDENCE_LINE(job, f, "%s on %s, after %.3f s, held %s then%s%s", vt_job_rank_name(name, r), r->host,
                          since_start(job, r->oom_unix_ns), vt_format_bytes(bytes, r->live),
                          !i && r->finding ? ": " : "", !i && r->finding ? r->finding : "");
    }
}

static void find_dead(struct vt_job *job)
{
    char name[VT_JOB_NAME];
    struct vt_job_finding *f;
    uint32_t i, first = 0, end;

    while (first < job->process_count && job->ranks[first].oom)
        first++;
    for (end = first; end < job->process_count && job->ranks[end].failed;)
        end++;
    if (first == end || !(f = new_finding(job, VT_JOB_DIED, VT_CERTAIN)))
        return;
    vt_job_rank_name(name, &job->ranks[first]);
    if (end - first == 1)
        set_text(job, &f->title, "%s died: %s.", name, job->ranks[first].words);
    else
        set_text(job, &f->title, "%s%u processes died; %s stopped first: %s.",
                 end - first == job->process_count ? "All " : "", end - first, name, job->ranks[first].words);
    for (i = first; i < end; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        add_rank(job, f, i);
        if (i - first < EVIDENCE)
            EVIDENCE_LINE(job, f, "%s on %s, %s after %.3f s: %s", vt_job_rank_name(name, r), r->host,
                          r->end == VT_PROCESS_KILLED ? "last seen" : "ended", since_start(job, r->end_unix_ns),
                          r->words);
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

    EVIDENCE_LINE(job, f, "%s by %s: %s in %llu, %s in %llu on rank %d", change_text(change, sizeof change, d->bytes),
                  vt_spot_name(place, job->places, d->place), vt_format_bytes(own, d->bytes[1]),
                  (unsigned long long)d->count[1], vt_format_bytes(median, d->bytes[0]),
                  (unsigned long long)d->count[0], job->ranks[skew->against].rank);
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
        EVIDENCE_LINE(job, f, "%s that no place holds: cached by a framework, or held at another instant",
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
    if (!count || !(f = new_finding(job, VT_JOB_SKEW, first->confidence)))
        return;
    change_text(change, sizeof change, first->bytes);
    vt_job_rank_name(name, &job->ranks[first->rank]);
    vt_format_bytes(own, first->bytes[1]);
    vt_format_bytes(median, first->bytes[0]);
    if (count == 1)
        set_text(job, &f->title, "%s held %s %s than the median rank: %s against %s of rank %d.%s", name, change, when,
                 own, median, job->ranks[first->against].rank, by_nature(job, first));
    else
        set_text(job, &f->title, "%u ranks differ from the median rank %s, %s most: %s, %s against %s of rank %d.%s",
                 count, when, name, change, own, median, job->ranks[first->against].rank, by_nature(job, first));
    for (i = 0; i < job->skew_count; i++) {
        const struct vt_job_skew *skew = &job->skews[i];

        if (skew->measure != measure)
            continue;
        add_rank(job, f, skew->rank);
        for (j = 0; skew == first && j < skew->difference_count && j < PLACES && is_worth(skew, j); j++)
            show_difference(job, f, skew, &skew->differences[j]);
        if (skew == first)
            show_rest(job, f, skew);
        else if (f->evidence_count < EVIDENCE)
            EVIDENCE_LINE(job, f, "%s: %s", vt_job_rank_name(name, &job->ranks[skew->rank]),
                          change_text(change, sizeof change, skew->bytes));
    }
}

/* --- contexts on other ranks' GPUs --- */

static bool is_same_gpu(const struct vt_job_rank *a, const struct vt_job_device *x, const struct vt_job_rank *b,
                        const struct vt_job_device *y)
{
    static const uint8_t unknown[16];

    if (memcmp(x->uuid, unknown, sizeof unknown) != 0 && memcmp(y->uuid, unknown, sizeof unknown) != 0)
        return !memcmp(x->uuid, y->uuid, sizeof x->uuid) && !strcmp(a->host, b->host);
    return x->ordinal == y->ordinal && !strcmp(a->host, b->host);
}

/* Whose main GPU it is; VT_NONE: nobody else's. */
static uint32_t owner_of(const struct vt_job *job, uint32_t rank, const struct vt_job_device *device)
{
    uint32_t i;

    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *other = &job->ranks[i];

        if (i != rank && other->rank >= 0 && other->rank != job->ranks[rank].rank && other->main != VT_NONE &&
            is_same_gpu(&job->ranks[rank], device, other, &other->devices[other->main]))
            return i;
    }
    return VT_NONE;
}

/* A device that the rank has a context on, and next to nothing else beside its main one. */
static bool is_stray(const struct vt_job_rank *r, uint32_t device)
{
    return r->main != VT_NONE && device != r->main &&
           r->devices[device].peak <= r->devices[r->main].peak / VT_JOB_TINY_SHARE;
}

static void show_stray(struct vt_job *job, struct vt_job_finding *f, uint32_t rank, const struct vt_job_device *device,
                       uint32_t owner)
{
    const struct vt_job_rank *r = &job->ranks[rank];
    char context[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES];

    add_rank(job, f, rank);
    if (f->evidence_count == EVIDENCE)
        return;
    if (device->context_known && device->context)
        EVIDENCE_LINE(job, f, "rank %d, whose GPU is %d: a context of %s and at most %s on GPU %d of rank %d", r->rank,
                      r->devices[r->main].ordinal, vt_format_bytes(context, device->context),
                      vt_format_bytes(peak, device->peak), device->ordinal, job->ranks[owner].rank);
    else
        EVIDENCE_LINE(job, f, "rank %d, whose GPU is %d: a context and at most %s on GPU %d of rank %d", r->rank,
                      r->devices[r->main].ordinal, vt_format_bytes(peak, device->peak), device->ordinal,
                      job->ranks[owner].rank);
}

static void find_strays(struct vt_job *job)
{
    struct vt_job_finding *f = NULL;
    uint64_t bytes = 0;
    uint32_t i, j, owner;
    char text[VT_FORMAT_BYTES];

    for (i = 0; i < job->process_count; i++)
        for (j = 0; vt_job_compares(&job->ranks[i]) && j < job->ranks[i].device_count; j++) {
            const struct vt_job_device *device = &job->ranks[i].devices[j];

            if (!is_stray(&job->ranks[i], j) || (owner = owner_of(job, i, device)) == VT_NONE)
                continue;
            if (!f && !(f = new_finding(job, VT_JOB_STRAY, VT_LIKELY)))
                return;
            bytes += device->peak + (device->context_known ? device->context : 0);
            show_stray(job, f, i, device, owner);
        }
    if (!f)
        return;
    set_text(job, &f->title, "%u rank%s also use%s a GPU that is another rank's: %s there.", f->rank_count,
             f->rank_count == 1 ? "" : "s", f->rank_count == 1 ? "s" : "", vt_format_bytes(text, bytes));
    set_text(
        job, &f->advice,
        "Choose the device before the first CUDA call (torch.cuda.set_device(local_rank), or CUDA_VISIBLE_DEVICES per "
        "rank); load checkpoints with map_location.");
}

/* --- whose recording is not there --- */

/* The first process of its rank in the list? */
static bool is_first(const struct vt_job *job, uint32_t index)
{
    uint32_t i;

    for (i = 0; i < index; i++)
        if (vt_job_compares(&job->ranks[i]) && job->ranks[i].rank == job->ranks[index].rank)
            return false;
    return true;
}

static void find_missing(struct vt_job *job)
{
    struct vt_job_finding *f;
    uint32_t i, ranks = 0;
    int32_t world = 0;

    for (i = 0; i < job->process_count; i++) {
        if (!vt_job_compares(&job->ranks[i]))
            continue;
        world = job->ranks[i].world_size > world ? job->ranks[i].world_size : world;
        ranks += is_first(job, i);
    }
    if (!ranks || world <= 0 || ranks >= (uint32_t)world || !(f = new_finding(job, VT_JOB_MISSING, VT_POSSIBLE)))
        return;
    set_text(job, &f->title,
             "%u of %d ranks have a recording here: the others used no GPU, were not recorded, or recorded elsewhere.",
             ranks, world);
}

void vt_job_find_all(struct vt_job *job)
{
    struct vt_job_finding *f;

    find_ooms(job);
    find_dead(job);
    find_uneven(job, VT_JOB_PEAK);
    find_uneven(job, VT_JOB_LIVE);
    find_strays(job);
    find_missing(job);
    if (!job->finding_count && !job->no_memory && (f = new_finding(job, VT_JOB_NONE, VT_CERTAIN)))
        set_text(job, &f->title, "The ranks are even, and none died.");
}
