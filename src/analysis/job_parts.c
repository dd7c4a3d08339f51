/*
 * What a process's memory consists of, for the table of a job: at its own highest point if it ended by itself, because at its
 * end the training's tensors are gone and nothing is left to compare; where memory ran out, or at its end, otherwise.
 */
#include <string.h>

#include "analysis/account.h"
#include "analysis/job.h"

/* A recording is not trusted: sums stop at the top. */
static void add(uint64_t *sum, uint64_t more)
{
    *sum = *sum + more < more ? UINT64_MAX : *sum + more;
}

/* What frameworks hold of the driver and have not handed on. That of the driver's own pools is no part of what is live. */
static uint64_t cached_of(const struct vt_device_row *row)
{
    return row->pool > row->tensors ? row->pool - row->tensors : 0;
}

/* Bytes: all that the process held then. */
static void fill(struct vt_job_parts *p, const struct vt_model *m, uint64_t bytes)
{
    uint64_t explained = 0;
    uint32_t i, j;

    p->bytes = bytes;
    for (i = 0; i < m->device_count; i++) {
        const struct vt_device_row *row = &m->devices[i];

        p->known |= row->tensors_known;
        for (j = 0; j < VT_PART_COUNT; j++) {
            add(&p->part[j], row->tensor_part[j]);
            add(&explained, row->tensor_part[j]);
        }
        add(&p->cached, p->when == VT_JOB_AT_PEAK ? cached_of(row) : row->cached_unused);
        add(&explained, cached_of(row));
    }
    p->rest = bytes > explained ? bytes - explained : 0;
}

static enum vt_job_when when_of(const struct vt_job *job, const struct vt_model *m)
{
    if (job->at_moment)
        return VT_JOB_AT_MOMENT;
    if (m->recorded && m->recorded->kind == VT_MOMENT_OOM)
        return VT_JOB_AT_OOM;
    return m->end == VT_PROCESS_EXIT ? VT_JOB_AT_PEAK : VT_JOB_AT_END;
}

int vt_job_take_parts(const struct vt_job *job, struct vt_job_rank *r, const struct vt_analysis *a)
{
    struct vt_model peak;
    int error;

    r->parts = (struct vt_job_parts){.when = when_of(job, &a->model)};
    if (r->parts.when != VT_JOB_AT_PEAK || !r->tensors_known) {
        fill(&r->parts, &a->model, r->parts.when == VT_JOB_AT_PEAK ? r->peak : r->live);
        return 0;
    }
    if ((error = vt_model_build(&peak, a->model.reading, "peak")))
        return error;
    vt_account_add_parts(&peak, a->symbols);
    fill(&r->parts, &peak, r->peak);
    vt_model_free(&peak);
    return 0;
}
