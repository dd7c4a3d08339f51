/*
 * What a reader must know of a job before its figures: recordings that lack something, and ranks that are there more than
 * once. They are no findings: nothing is wrong with the program.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/job.h"

#define NOTED 8 /* recordings named one by one */

static __attribute__((format(printf, 2, 3))) void note(struct vt_job *job, const char *format, ...)
{
    char **grown = vt_job_grow(job, job->notes, job->note_count, sizeof *grown);
    va_list arguments;

    if (!grown)
        return;
    job->notes = grown;
    va_start(arguments, format);
    if (vasprintf(&grown[job->note_count], format, arguments) < 0)
        job->no_memory = true;
    else
        job->note_count++;
    va_end(arguments);
}

static void note_incomplete(struct vt_job *job)
{
    char name[VT_JOB_NAME];
    uint32_t i;

    for (i = 0; i < job->process_count; i++) {
        const struct vt_job_rank *r = &job->ranks[i];

        if (r->missing[0] && job->incomplete++ < NOTED)
            note(job, "%s of %s is incomplete (%s): it is not compared with the others.", r->path,
                 vt_job_rank_name(name, r), r->missing);
    }
    if (job->incomplete > NOTED)
        note(job, "%u more recordings are incomplete.", job->incomplete - NOTED);
}

static int by_number(const void *left, const void *right)
{
    const int32_t *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* How many numbers of a sorted list occur more than once. */
static uint32_t count_repeated(const int32_t *list, uint32_t count)
{
    uint32_t i, repeated = 0;

    for (i = 1; i < count; i++)
        repeated += list[i] == list[i - 1] && (i == 1 || list[i - 2] != list[i]);
    return repeated;
}

/* Two jobs at the same time look like one whose ranks are there twice: figures of both stand side by side. */
static void note_repeated(struct vt_job *job)
{
    int32_t *list = calloc(job->process_count + 1u, sizeof *list);
    uint32_t i, count = 0, repeated;

    job->no_memory |= !list;
    for (i = 0; list && i < job->process_count; i++)
        if (vt_job_is_rank(&job->ranks[i]))
            list[count++] = job->ranks[i].rank;
    if (count)
        qsort(list, count, sizeof *list, by_number);
    if ((repeated = list ? count_repeated(list, count) : 0))
        note(job,
             "%u rank%s here more than once: several processes of a rank, or two jobs at the same time in "
             "this directory.",
             repeated, repeated == 1 ? " is" : "s are");
    free(list);
}

void vt_job_add_notes(struct vt_job *job)
{
    note_incomplete(job);
    note_repeated(job);
}
