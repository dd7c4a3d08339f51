/*
 * Reads the recordings of a job one by one, and writes what they say together; see job_report.h.
 */
#include "cli/job_report.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/job.h"
#include "cli/job_select.h"
#include "cli/output.h"
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
                   : vt_fail_on_check(report->fail_on, reading, NULL, symbols, &style);
    vt_symbols_forget(symbols, reading);
    vt_reading_close(reading);
    return status;
}

struct page {
    const struct vt_job_report *report;
    const struct vt_job *job;
    struct vt_job_view view;
};

static int write_page(int fd, void *context)
{
    struct page *page = context;
    int error;

    page->view.fd = fd;
    error = vt_job_html_write(page->job, &page->view);
    return error ? vt_fail(page->report->verb, "cannot write the report: %s", strerror(-error)) : VT_EXIT_OK;
}

/* The recording that has this path, if one has: it is not to be written over. */
static const char *input_at(const char *path, const struct vt_job *job)
{
    struct stat there, input;

    for (uint32_t i = 0; path && !stat(path, &there) && i < job->rank_count; i++)
        if (!stat(job->ranks[i].path, &input) && input.st_dev == there.st_dev && input.st_ino == there.st_ino)
            return job->ranks[i].path;
    return NULL;
}

/* Returns the exit status; -1: there is no job. */
static int write_job(const struct vt_job_report *report, struct vt_job *job, size_t others)
{
    struct vt_job_view view = {.fd = STDOUT_FILENO,
                               .colour = report->colour,
                               .all_frames = report->view->all_frames,
                               .directory = report->directory,
                               .others = others,
                               .top = report->top};
    int error = vt_job_finish(job);

    if (!error && job->process_count < 2)
        return -1;
    if (!error && report->html) {
        struct vt_output output = *report->html;

        output.input = input_at(output.path, job);
        return vt_output_write(&output, write_page, &(struct page){report, job, view});
    }
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

/* One recording of a job of many is told as one; that it is a part is said too. */
static void say_missing(const struct vt_job_choice *choice)
{
    if (choice->rank_count && choice->world_size > 0 && choice->rank_count < (uint32_t)choice->world_size)
        vt_say("missing ranks: %u of %d has a recording here; the others used no GPU, were not recorded, or recorded "
               "elsewhere",
               choice->rank_count, choice->world_size);
}

uint32_t vt_job_ranks_in(const char *directory)
{
    struct vt_job_choice choice;
    uint32_t ranks = vt_job_choose(directory, &choice) ? 0 : choice.rank_count;

    vt_job_choice_free(&choice);
    return ranks;
}

int vt_job_report(const struct vt_job_report *report)
{
    struct vt_symbols *symbols;
    struct vt_job_choice choice;
    struct vt_job job;
    int status = -1;

    if (vt_job_choose(report->directory, &choice) || choice.ranks.count < 2) {
        say_missing(&choice);
        vt_job_choice_free(&choice);
        return -1; /* whoever takes the newest one says what is wrong */
    }
    symbols = vt_symbols_open();
    if (symbols && !vt_job_open(&job, report->view->all_frames || report->json || report->html)) {
        job.at_moment = report->view->moment != NULL;
        job.unreadable = choice.ranks.unreadable < UINT32_MAX ? (uint32_t)choice.ranks.unreadable : UINT32_MAX;
        status = read_all(report, &choice, &job, symbols);
        if (status < 0)
            say_missing(&choice);
        else
            vt_found_say(&choice.ranks);
        if (status >= 0 && job.unreadable && (report->fail_on->failures || report->fail_on->families))
            status = vt_fail(report->verb, "not all of %s can be read, so --fail-on has no answer", report->directory);
        vt_job_free(&job);
    } else {
        status = vt_fail(report->verb, "out of memory");
    }
    vt_symbols_close(symbols);
    vt_job_choice_free(&choice);
    return status;
}
