/*
 * Reads the recordings of a job one by one, and writes what they say together; see job_report.h.
 */
#include "cli/job_report.h"

#include <string.h>
#include <unistd.h>

#include "analysis/job.h"
#include "cli/job_select.h"
#include "cli/progress.h"
#include "recording/reader.h"
#include "views/job.h"

/* The moment of a recording: the one asked for if it has that, its first out-of-memory, or the default. */
static const char *moment_of(const struct vt_job_report *report, struct vt_reading *reading, char *name, bool *found)
{
    const char *asked = report->view->moment;

    if (asked && vt_model_has_moment(reading, asked)) {
        *found = true;
        return asked;
    }
    return vt_job_moment(reading, name);
}

/* Returns the exit status. */
static int add(const struct vt_job_report *report, struct vt_job *job, struct vt_symbols *symbols, const char *path,
               bool *found)
{
    struct vt_reading *reading = vt_input_open(report->verb, path, NULL);
    struct vt_stack_style style;
    struct vt_analysis analysis;
    char name[33];
    int error, status;

    if (!reading)
        return VT_EXIT_ERROR;
    style = vt_stack_style_for(reading, report->view->stacks, report->view->user_paths);
    error = vt_analysis_open(&analysis, reading, moment_of(report, reading, name, found), true, symbols, &style);
    if (!error) {
        error = vt_job_add(job, &analysis, path, false, 0);
        vt_analysis_close(&analysis);
    }
    status = error ? vt_fail(report->verb, "%s: %s", path, strerror(-error))
                   : vt_fail_on_check(report->fail_on, reading, NULL);
    vt_symbols_forget(symbols, reading);
    vt_reading_close(reading);
    return status;
}

static int write_job(const struct vt_job_report *report, struct vt_job *job, size_t others)
{
    const struct vt_job_view view = {.fd = STDOUT_FILENO,
                                     .colour = report->colour,
                                     .all_frames = report->view->all_frames,
                                     .directory = report->directory,
                                     .others = others,
                                     .top = report->top};
    int error = vt_job_finish(job);

    if (!error && job->process_count < 2)
        return -1;
    if (!error)
        error = report->json ? vt_job_json_write(job, &view) : vt_job_text_write(job, &view);
    return error ? vt_fail(report->verb, "cannot write the report: %s", strerror(-error)) : VT_EXIT_OK;
}

/* A recording that can't be read is named, and the others are shown. */
static int read_all(const struct vt_job_report *report, const struct vt_job_choice *choice, struct vt_job *job,
                    struct vt_symbols *symbols)
{
    int status = VT_EXIT_OK, written;
    bool found = !report->view->moment;

    vt_progress_begin();
    vt_progress_watch(symbols);
    for (size_t i = 0; i < choice->ranks.count; i++) {
        int one = add(report, job, symbols, choice->ranks.item[i].path, &found);

        if (one > status)
            status = one;
    }
    vt_progress_watch(NULL);
    vt_progress_end();
    if (!found)
        return vt_fail(report->verb, "no process of the job has a moment '%s'", report->view->moment);
    written = write_job(report, job, choice->others);
    return written ? written : status;
}

int vt_job_report(const struct vt_job_report *report)
{
    struct vt_symbols *symbols;
    struct vt_job_choice choice;
    struct vt_job job;
    int status = -1;

    if (vt_job_choose(report->directory, &choice) || choice.ranks.count < 2) {
        vt_job_choice_free(&choice);
        return -1; /* whoever takes the newest one says what is wrong */
    }
    symbols = vt_symbols_open();
    if (symbols && !vt_job_open(&job, report->view->all_frames || report->json)) {
        status = read_all(report, &choice, &job, symbols);
        vt_job_free(&job);
    } else {
        status = vt_fail(report->verb, "out of memory");
    }
    vt_symbols_close(symbols);
    vt_job_choice_free(&choice);
    return status;
}
