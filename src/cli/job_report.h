/*
 * The merged report of the processes of a job: what `vramtrack report DIR` shows if DIR has several recordings of one.
 */
#ifndef VT_JOB_REPORT_H
#define VT_JOB_REPORT_H

#include <stdbool.h>

#include "cli/fail_on.h"
#include "cli/input.h"

struct vt_job_report {
    const char *verb, *directory;
    const struct vt_view_options *view;
    const struct vt_fail_on *fail_on; /* checked for every recording */
    unsigned top;
    bool json, colour;
};

/*
 * Writes it to standard output if the directory has several recordings of its newest job, with more than one process that is no
 * helper. Returns the exit status; -1: it has not, and nothing is written.
 */
int vt_job_report(const struct vt_job_report *report);

#endif
