/*
 * Every process of the run has its own recording in one directory. Which ones belong to this run is told by what was in
 * the directory before, and by VRAMTRACK_RUN in a recording's environment where it has one: two runs may share a
 * directory.
 */
#include "cli/after.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/model.h"
#include "cli/cli.h"
#include "cli/merged.h"
#include "cli/progress.h"
#include "recording/reader.h"
#include "views/out.h"
#include "views/views.h"

#define VERB "run"

/* The recordings of this run, by name: a job has thousands, and they are opened one by one. */
struct batch {
    const char **path;
    size_t count;
};

static bool is_of_another_run(const struct vt_reading *reading, int run_pid)
{
    static const char mark[] = "VRAMTRACK_RUN=";
    struct vt_text settings = vt_reading_string(reading, vt_reading_header(reading)->environment);
    size_t at = 0;

    while (at < settings.length) {
        const char *entry = settings.text + at;
        size_t length = strnlen(entry, settings.length - at);

        if (length > strlen(mark) && !memcmp(entry, mark, strlen(mark)))
            return strtol(entry + strlen(mark), NULL, 10) != run_pid;
        at += length + 1;
    }
    return false;
}

/* Index of the failure that the report is about, or VT_NONE. */
static uint32_t first_oom(const struct vt_reading *reading)
{
    for (uint64_t i = 0; i < vt_reading_count(reading, VT_FAILURES); i++) {
        const struct vt_failure *failure = vt_reading_failure(reading, i);

        if (failure && failure->count && vt_failure_is_oom(failure->kind))
            return (uint32_t)i;
    }
    return VT_NONE;
}

static struct vt_report_request request_for(const struct vt_after *after, const struct vt_reading *reading, int fd)
{
    uint32_t oom = first_oom(reading);
    struct vt_report_request request = {
        .recording_path = vt_reading_name(reading),
        .fd = fd,
        .colour = fd == STDERR_FILENO && vt_wants_colour(fd),
        .cause = oom == VT_NONE ? VT_REPORT_EXIT : VT_REPORT_OOM,
        .failure = oom,
    };

    request.status_known = vt_child_status(after->child, vt_reading_header(reading)->pid, &request.status);
    return request;
}

/* The text report, unless the process has left one. Returns false if there was one. */
static bool write_text(const struct vt_after *after, struct vt_reading *reading, struct vt_symbols *symbols)
{
    char *path = vt_text_path(vt_reading_name(reading));
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    bool existed = fd < 0 && path && errno == EEXIST;

    if (fd >= 0) {
        struct vt_report_request request = request_for(after, reading, fd);
        int error;

        request.symbols = symbols;
        error = vt_text_write(reading, &request);
        if (close(fd) && !error)
            error = -errno;
        if (error) {
            unlink(path); /* ours, and not a report */
            vt_fail(VERB, "cannot write %s: %s", path, strerror(-error));
        }
    } else if (!existed) {
        vt_fail(VERB, "cannot write %s: %s", path ? path : "the report", strerror(errno));
    }
    free(path);
    return !existed;
}

/* The process itself has told its user about the out-of-memory, at once; that report is not repeated. */
static void write_pointer(const struct vt_reading *reading)
{
    const struct vt_header *header = vt_reading_header(reading);
    const char *path = vt_reading_name(reading);
    struct vt_out out;

    vt_out_open(&out, STDERR_FILENO, false);
    vt_out_text(&out, "vramtrack: ");
    vt_out_name(&out, header->program, strlen(header->program), 0);
    vt_out_format(&out, " (pid %d) ran out of GPU memory, as reported above; the whole report: vramtrack report ",
                  header->pid);
    vt_out_word(&out, path, strlen(path));
    vt_out_text(&out, "\n");
    vt_out_close(&out);
}

static void report_one(const struct vt_after *after, struct vt_reading *reading, struct vt_symbols *symbols,
                       bool reported)
{
    struct vt_report_request request = request_for(after, reading, STDERR_FILENO);
    int error;

    if (after->quiet)
        return;
    if (reported && request.cause == VT_REPORT_OOM) {
        write_pointer(reading);
        return;
    }
    request.symbols = symbols;
    error = vt_summary_write(reading, &request);
    if (error)
        vt_fail(VERB, "cannot report on %s: %s", vt_reading_name(reading), strerror(-error));
}

static bool belongs(const struct vt_after *after, const char *path)
{
    char error[512];
    struct vt_reading *reading = vt_reading_open(path, error, sizeof(error));
    bool own;

    if (!reading) {
        vt_fail(VERB, "%s", error);
        return false;
    }
    own = !is_of_another_run(reading, after->run_pid) && !(after->oom_only && first_oom(reading) == VT_NONE);
    vt_reading_close(reading);
    return own;
}

static void find_new(const struct vt_after *after, const struct vt_found_list *now, struct batch *batch)
{
    for (size_t i = 0; i < now->count; i++)
        if (!vt_found_has(&after->before, now->item[i].path) && belongs(after, now->item[i].path))
            batch->path[batch->count++] = now->item[i].path;
}

/* The text report of one process; and the short one, if it was the only one. */
static void report_process(const struct vt_after *after, const char *path, struct vt_merged *merged, bool alone)
{
    struct vt_symbols *symbols = vt_merged_symbols(merged);
    char error[512];
    struct vt_reading *reading = vt_reading_open(path, error, sizeof(error));
    bool reported;
    int failure = 0;

    if (!reading) {
        vt_fail(VERB, "%s", error);
        return;
    }
    vt_progress_watch(symbols);
    reported = !write_text(after, reading, symbols);
    if (!alone && !after->quiet)
        failure = vt_merged_add(merged, reading);
    if (alone) {
        vt_progress_end();
        report_one(after, reading, symbols, reported);
    }
    vt_progress_watch(NULL);
    if (failure)
        vt_fail(VERB, "cannot report on %s: %s", path, strerror(-failure));
    vt_symbols_forget(symbols, reading);
    vt_reading_close(reading);
}

static void report_batch(const struct vt_after *after, struct batch *batch)
{
    struct vt_merged *merged = vt_merged_open(after->child);
    int error;

    if (!merged) {
        vt_fail(VERB, "cannot report on %s: %s", after->directory, strerror(ENOMEM));
        return;
    }
    if (!after->quiet)
        vt_progress_begin();
    for (size_t i = 0; i < batch->count; i++)
        report_process(after, batch->path[i], merged, batch->count == 1);
    vt_progress_end();
    if (batch->count > 1 && !after->quiet) {
        error = vt_merged_write(merged, after->directory);
        if (error)
            vt_fail(VERB, "cannot report on %s: %s", after->directory, strerror(-error));
    }
    vt_merged_close(merged);
}

void vt_after_report(const struct vt_after *after)
{
    struct vt_found_list now;
    struct batch batch = {0};
    int error = vt_found_in(after->directory, &now);

    batch.path = calloc(now.count + 1, sizeof(*batch.path));
    if (error || !batch.path) {
        vt_fail(VERB, "cannot look for recordings in %s: %s", after->directory, strerror(error ? error : ENOMEM));
    } else {
        find_new(after, &now, &batch);
        if (batch.count)
            report_batch(after, &batch);
    }
    free(batch.path);
    vt_found_free(&now);
}
