/*
 * Which recordings of a directory are the processes of one job: of `vramtrack run`, torchrun, Slurm or MPI, on any number of
 * hosts that write to one shared directory.
 *
 * A scheduler's job id decides where both recordings have one. Else they belong together if one `vramtrack run` started both,
 * or if they are ranks of a world of the same size that ran at the same time. If a rank was started again after it had ended,
 * the later ones are another attempt.
 */
#ifndef VT_JOB_SELECT_H
#define VT_JOB_SELECT_H

#include "cli/recordings.h"

struct vt_job_choice {
    struct vt_found_list ranks; /* of the newest attempt of the newest job, oldest first */
    size_t others;              /* recordings in the directory that are not among them */
    uint32_t rank_count;        /* how many different ranks are among them */
    int32_t world_size;         /* the largest that one of them names; -1: none does */
};

/* Chooses the newest job. Returns 0 or an errno; vt_job_choice_free() in both cases. No recordings at all: an empty list.
 * Files that can't be opened are among those that `ranks` counts as unreadable. */
int vt_job_choose(const char *directory, struct vt_job_choice *choice);
void vt_job_choice_free(struct vt_job_choice *choice);

/* The recording that stands for the newest one in a list that is not empty: itself; or, if that is a helper's, which holds next
 * to nothing, the one of the process that it belongs to. */
const struct vt_found *vt_job_newest(const struct vt_found_list *list);

#endif
