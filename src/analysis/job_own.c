/*
 * What a process's recording says by itself, at whatever moment its job is shown: the first out-of-memory with what was held
 * then, and the verdict of its own report.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "analysis/job.h"

static const struct vt_failure *first_oom(const struct vt_model *m)
{
    const struct vt_failure *first = NULL;
    uint32_t i;

    for (i = 0; i < m->failure_count; i++)
        if (vt_failure_is_oom(m->failures[i].record->kind) &&
            (!first || m->failures[i].record->first_ns < first->first_ns))
            first = m->failures[i].record;
    return first;
}

/* What was held is of the moment that was recorded there, and of no other; its time is the one that the rank's own report
 * has. Once `live` is there. */
static int take_oom(struct vt_job_rank *r, const struct vt_model *m)
{
    const struct vt_failure *failure = first_oom(m);
    const struct vt_moment *moment = failure ? vt_reading_moment(m->reading, failure->moment) : NULL;
    char name[sizeof moment->name + 1] = "";
    struct vt_model then;
    int error;

    r->oom = failure != NULL;
    if (!failure)
        return 0;
    r->oom_unix_ns = r->start_unix_ns + failure->first_ns;
    if (!moment || moment->kind != VT_MOMENT_OOM || !moment->name[0])
        return 0;
    r->oom_unix_ns = r->start_unix_ns + moment->time_ns;
    r->oom_live_known = true;
    r->oom_live = r->live;
    if (moment == m->recorded)
        return 0;
    memcpy(name, moment->name, sizeof moment->name);
    if ((error = vt_model_build(&then, m->reading, name))) {
        r->oom_live_known = false; /* of a file that is written to meanwhile it may be gone */
        return error == -ENOMEM ? error : 0;
    }
    r->oom_live = vt_job_live_of(&then);
    vt_model_free(&then);
    return 0;
}

static int take_first_finding(struct vt_job_rank *r, const struct vt_analysis *a)
{
    uint32_t i;

    for (i = 0; i < a->findings.count && !r->finding; i++) {
        const struct vt_finding *f = &a->findings.list[i];

        if ((vt_finding_is_loud(f) || a->model.missing[0]) &&
            asprintf(&r->finding, "%s (%s): %s", vt_family_name(f->family), vt_confidence_name(f->confidence),
                     f->title) < 0) {
            r->finding = NULL;
            return -ENOMEM;
        }
    }
    return 0;
}

/* What its own report says: that is of the moment which a report shows where none is asked for. */
static int take_finding(struct vt_job_rank *r, const struct vt_analysis *a)
{
    struct vt_analysis own;
    char name[33];
    const char *moment = vt_job_moment(a->model.reading, name);
    int error;

    if (!strcmp(a->model.moment, moment                                               ? moment
                                 : vt_model_find_moment(a->model.reading, "finalize") ? "finalize"
                                                                                      : "end"))
        return take_first_finding(r, a);
    if ((error = vt_analysis_open(&own, a->model.reading, moment, a->symbols != NULL, a->symbols, &a->style)))
        return error == -ENOMEM ? error : 0;
    error = take_first_finding(r, &own);
    vt_analysis_close(&own);
    return error;
}

int vt_job_take_own(struct vt_job_rank *r, const struct vt_analysis *a)
{
    int error = take_oom(r, &a->model);

    return error ? error : take_finding(r, a);
}
