/*
 * The merged report of a job's processes, as text and as JSON. For the command only.
 */
#ifndef VRAMTRACK_VIEWS_JOB_H
#define VRAMTRACK_VIEWS_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/job.h"
#include "views/out.h"

struct vt_job_view {
    int fd; /* where to write; stays open */
    bool colour, all_frames;
    const char *directory; /* where the recordings are */
    size_t others;         /* recordings there that are not part of it */
    unsigned top;          /* places and ranks shown; 0: the defaults */
};

/* Both return 0 or a negative errno: -ENOMEM, or what write(2) reported. */
int vt_job_text_write(const struct vt_job *job, const struct vt_job_view *view);

/* Schema vramtrack-job/1. */
int vt_job_json_write(const struct vt_job *job, const struct vt_job_view *view);

/* The findings, a line each and `evidence` lines of evidence below; for the short report as well. `prefix` begins each
 * finding's line, `indent` those of evidence. Findings of nothing are left out if `loud`. Returns the lines written. */
unsigned vt_view_job_findings(struct vt_out *out, const struct vt_job *job, const char *prefix, const char *indent,
                              unsigned evidence, unsigned most, bool loud);

#endif
