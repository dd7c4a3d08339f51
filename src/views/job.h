/*
 * The merged report of a job's processes, as text, as JSON and as a page. For the command only.
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

/* All return 0 or a negative errno: -ENOMEM, or what write(2) reported. */
int vt_job_text_write(const struct vt_job *job, const struct vt_job_view *view);

/* Schema vramtrack-job/1. */
int vt_job_json_write(const struct vt_job *job, const struct vt_job_view *view);

/* The page of a job, for a browser (html_job.c): bounded as that of a recording (html.h). */
int vt_job_html_write(const struct vt_job *job, const struct vt_job_view *view);

/* How many ranks the job has in all, recorded or not; -1: not known. */
int32_t vt_job_world_size(const struct vt_job *job);

/* On how many GPUs a process had memory; its peak is the sum of theirs. */
unsigned vt_job_gpus(const struct vt_job_rank *rank);

/* How many programs its processes (but for helpers) are of. */
uint32_t vt_job_programs(const struct vt_job *job);

/* At which of their moments the parts of its processes are, in words. Returns buffer (VT_JOB_WHEN long). */
#define VT_JOB_WHEN 128
const char *vt_job_parts_when(char *buffer, const struct vt_job *job);

/* The findings, a line each and `evidence` lines of evidence below; for the short report as well. `prefix` begins each
 * finding's line, `indent` those of evidence. Findings of nothing are left out if `loud`. Returns the lines written. */
unsigned vt_view_job_findings(struct vt_out *out, const struct vt_job *job, const char *prefix, const char *indent,
                              unsigned evidence, unsigned most, bool loud);

/* --- what the parts of the text share; internal to src/views/job*.c --- */

void vt_view_job_heading(struct vt_out *out, const char *text);
bool vt_job_several_hosts(const struct vt_job *job);
/* Has one of its processes a rank? */
bool vt_job_has_ranks(const struct vt_job *job);
/* job_table.c: a line per process, and what was folded away. */
void vt_job_table_write(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view);

#endif
