/*
 * Which GPUs ranks use: a rank that has a context on the GPU of another one, and ranks that all took the first GPU. Both come
 * from a device that is chosen too late, or not at all.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/job.h"

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

    vt_job_add_rank(job, f, rank);
    if (f->evidence_count == VT_JOB_EVIDENCE)
        return;
    if (device->context_known && device->context)
        vt_job_add_evidence(job, f, "rank %d, whose GPU is %d: a context of %s and at most %s on GPU %d of rank %d",
                            r->rank, r->devices[r->main].ordinal, vt_format_bytes(context, device->context),
                            vt_format_bytes(peak, device->peak), device->ordinal, job->ranks[owner].rank);
    else
        vt_job_add_evidence(job, f, "rank %d, whose GPU is %d: a context and at most %s on GPU %d of rank %d", r->rank,
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
            if (!f && !(f = vt_job_new_finding(job, VT_JOB_STRAY, VT_LIKELY)))
                return;
            bytes += device->peak + (device->context_known ? device->context : 0);
            show_stray(job, f, i, device, owner);
        }
    if (!f)
        return;
    vt_job_set_text(job, &f->title, "%u rank%s also use%s a GPU that is another rank's: %s there.", f->rank_count,
                    f->rank_count == 1 ? "" : "s", f->rank_count == 1 ? "s" : "", vt_format_bytes(text, bytes));
    vt_job_set_text(
        job, &f->advice,
        "Choose the device before the first CUDA call (torch.cuda.set_device(local_rank), or CUDA_VISIBLE_DEVICES per "
        "rank); load checkpoints with map_location.");
}

/* --- ranks that all took the first GPU --- */

/* The other ranks of its host, if all of them, and itself, have their memory on the card that is GPU 0 to all; else 0. The
 * index must be that of the host's first rank. */
static uint32_t on_first_gpu(const struct vt_job *job, uint32_t index)
{
    static const uint8_t unknown[16];
    const struct vt_job_rank *r = &job->ranks[index];
    const struct vt_job_device *device = r->main == VT_NONE ? NULL : &r->devices[r->main];
    uint32_t i, others = 0;

    /* Without an id, GPU 0 may be another card in each process. */
    if (!device || device->ordinal || !memcmp(device->uuid, unknown, sizeof unknown))
        return 0;
    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *other = &job->ranks[i];

        if (!vt_job_is_rank(other) || strcmp(other->host, r->host) != 0 || other->rank == r->rank)
            continue;
        if (i < index || other->main == VT_NONE || other->devices[other->main].ordinal ||
            !is_same_gpu(r, device, other, &other->devices[other->main]))
            return 0;
        others++;
    }
    return others;
}

/* How many GPUs a host has is not in recordings: what this means is left to the reader. */
static void find_shared(struct vt_job *job)
{
    struct vt_job_finding *f = NULL;
    uint32_t i, others, ranks = 0;

    for (i = 0; i < job->process_count; i++) {
        if (!vt_job_is_rank(&job->ranks[i]) || !(others = on_first_gpu(job, i)))
            continue;
        if (!f && !(f = vt_job_new_finding(job, VT_JOB_SHARED, VT_POSSIBLE)))
            return;
        ranks += others + 1;
        vt_job_add_rank(job, f, i);
        if (f->evidence_count < VT_JOB_EVIDENCE)
            vt_job_add_evidence(job, f, "%s: %u ranks, and GPU 0 is the only one that they hold memory on",
                                job->ranks[i].host, others + 1);
    }
    if (!f)
        return;
    vt_job_set_text(job, &f->title,
                    "All %u ranks of %s are on one GPU, number 0: if there are more, no rank has chosen its own.",
                    ranks, f->evidence_count == 1 ? "a host" : "each of several hosts");
    vt_job_set_text(
        job, &f->advice,
        "Choose the device before the first CUDA call: torch.cuda.set_device(local_rank), or CUDA_VISIBLE_DEVICES per "
        "rank.");
}

void vt_job_find_gpus(struct vt_job *job)
{
    find_strays(job);
    find_shared(job);
}
