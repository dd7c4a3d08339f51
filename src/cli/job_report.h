/*
 * The merged report of the processes of a job: what `vramtrack report DIR` shows if DIR has several recordings of one.
 */
#ifndef VT_JOB_REPORT_H
#define VT_JOB_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/fail_on.h"
#include "cli/input.h"
#include "cli/output.h"

struct vt_job_report {
    const char *verb, *directory;
    const struct vt_view_options *view;
    const struct vt_fail_on *fail_on; /* checked for every recording */
    unsigned top;
    bool json, colour;
    const struct vt_output *html; /* where the page goes; NULL: no page is asked for */
};

/*
 * Writes it to standard output, or as a page into the file that `html` names, if the directory has several recordings of its newest job, with more than one process that is no
 * helper. Returns the exit status; -1: it has not, and nothing is written.
 */
int vt_job_report(const struct vt_job_report *report);

/* How many different ranks are in the job that a directory stands for; 0: none, or it is no directory. */
uint32_t vt_job_ranks_in(const char *directory);

#endif
