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

struct batch {
    struct vt_reading **reading;
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

static void open_new(const struct vt_after *after, const struct vt_found_list *now, struct batch *batch)
{
    for (size_t i = 0; i < now->count; i++) {
        struct vt_reading *reading;
        char error[512];

        if (vt_found_has(&after->before, now->item[i].path))
            continue;
        reading = vt_reading_open(now->item[i].path, error, sizeof(error));
        if (!reading) {
            vt_fail(VERB, "%s", error);
            continue;
        }
        if (is_of_another_run(reading, after->run_pid) || (after->oom_only && first_oom(reading) == VT_NONE))
            vt_reading_close(reading);
        else
            batch->reading[batch->count++] = reading;
    }
}

static void report_batch(const struct vt_after *after, struct batch *batch)
{
    bool reported = false;
    int error;

    if (!after->quiet)
        vt_progress_begin();
    for (size_t i = 0; i < batch->count; i++) {
        struct vt_symbols *symbols = vt_symbols_open();

        vt_progress_watch(symbols);
        reported = !write_text(after, batch->reading[i], symbols);
        if (batch->count == 1) {
            vt_progress_end();
            report_one(after, batch->reading[0], symbols, reported);
        }
        vt_progress_watch(NULL);
        vt_symbols_close(symbols);
    }
    if (batch->count > 1 && !after->quiet) {
        error = vt_merged_write(batch->reading, batch->count, after->directory, after->child);
        if (error)
            vt_fail(VERB, "cannot report on %s: %s", after->directory, strerror(-error));
    }
    vt_progress_end();
}

void vt_after_report(const struct vt_after *after)
{
    struct vt_found_list now;
    struct batch batch = {0};
    int error = vt_found_in(after->directory, &now);

    batch.reading = calloc(now.count + 1, sizeof(*batch.reading));
    if (error || !batch.reading) {
        vt_fail(VERB, "cannot look for recordings in %s: %s", after->directory, strerror(error ? error : ENOMEM));
    } else {
        open_new(after, &now, &batch);
        report_batch(after, &batch);
    }
    for (size_t i = 0; i < batch.count; i++)
        vt_reading_close(batch.reading[i]);
    free(batch.reading);
    vt_found_free(&now);
}
