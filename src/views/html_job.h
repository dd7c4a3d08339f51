/*
 * What the parts of a job's page share. Internal to src/views/html_job*.c.
 */
#ifndef VRAMTRACK_HTML_JOB_H
#define VRAMTRACK_HTML_JOB_H

#include "views/html.h"
#include "views/job.h"

/* What all processes hold at a place. */
struct vt_page_sum {
    uint32_t place;
    uint64_t at_peak, at_peak_count, live, live_count;
    const struct vt_job_place *held; /* NULL: nothing at any peak */
};

struct vt_page_job {
    struct vt_page page; /* no analysis */
    const struct vt_job *job;
    struct vt_page_sum *sums; /* by place, until they are sorted */
    uint32_t *number_of;      /* per place: its position in the page's list + 1; 0: not in the page */
};

/* html_job_amounts.c: writes the keys base and amounts. */
void vt_page_job_amounts(struct vt_page_job *p);

#endif
