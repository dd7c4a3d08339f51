/*
 * Fuzz target: everything that reads a recording and is linked into the preload library (reader, model, findings,
 * summary, text), plus JSON, the page, jobs and comparisons, on arbitrary bytes. Output goes to /dev/null; the program's files are not looked at.
 *
 *   libFuzzer   clang -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE= -Iinclude -Isrc tests/fuzz/fuzz_reader.c \
 *                     src/recording/reader*.c src/analysis/[a-z]*.c src/views/[a-z]*.c -ljansson -o fuzz_reader
 *   AFL, plain  the same with -DFUZZ_MAIN instead of -fsanitize=fuzzer: reads the files named, or standard input
 *
 * make_corpus.c writes recordings to start from. A recording is zeros for the most part, so -max_len=131072 is enough.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "analysis/diff.h"
#include "analysis/job.h"
#include "analysis/recorded_names.h"
#include "recording/reader.h"
#include "views/diff.h"
#include "views/job.h"
#include "views/views.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_everything(struct vt_reading *reading)
{
    struct vt_recorded_names *names = vt_recorded_names_open(reading);
    struct vt_symbol symbol;
    struct vt_text text;
    uint64_t i, s;

    for (i = 0; i < 256; i++)
        if (vt_recorded_names_find(names, (uint32_t)i % 8, i / 8, &symbol) && symbol.count > 32)
            abort();
    vt_recorded_names_close(names);
    for (s = VT_STRINGS + 1; s < VT_SECTION_COUNT; s++)
        for (i = 0; i < 64; i++)
            vt_reading_record(reading, (enum vt_section)s, i);
    for (i = 0; i < 256; i++) {
        text = vt_reading_string(reading, (uint32_t)i * 4);
        if (text.text[text.length]) /* strings end with a NUL, always */
            abort();
        vt_reading_event(reading, i);
    }
}

/* As the ranks of a job, each at another moment. The header is the reading's own copy. */
static void as_job(struct vt_reading *reading, int fd)
{
    static const char *const moments[] = {NULL, "peak", "end", "oom-1"};
    struct vt_job_view view = {.fd = fd, .directory = "x"};
    struct vt_header *header = (struct vt_header *)vt_reading_header(reading);
    int32_t rank = header->rank;
    struct vt_analysis a;
    struct vt_job job;
    unsigned i;

    if (vt_job_open(&job, false))
        return;
    for (i = 0; i < 4; i++) {
        header->rank = (int32_t)((uint32_t)rank + i);
        if (vt_analysis_open(&a, reading, moments[i], false, NULL, NULL))
            continue;
        vt_job_add(&job, &a, "x.vtr", false, 0);
        vt_analysis_close(&a);
    }
    header->rank = rank;
    if (job.rank_count && !vt_job_finish(&job)) {
        vt_job_text_write(&job, &view);
        vt_job_json_write(&job, &view);
        vt_job_html_write(&job, &view);
    }
    vt_job_free(&job);
}

/* The end against the peak, and with itself. */
static void compare(struct vt_reading *reading, int fd, enum vt_diff_by by)
{
    struct vt_diff_view view = {.fd = fd, .stacks = true};
    struct vt_analysis a;
    struct vt_diff diff;
    unsigned side;

    if (vt_diff_open(&diff, by, by == VT_DIFF_ALLOCATED, false))
        return;
    for (side = 0; side < 2; side++) {
        diff.side[side].path = "x.vtr";
        if (vt_analysis_open(&a, reading, vt_diff_moment(&diff, side ? "peak" : "end"), false, NULL, NULL))
            continue;
        vt_diff_add(&diff, side, &a, side, true);
        vt_analysis_close(&a);
    }
    if (!vt_diff_finish(&diff)) {
        vt_diff_text_write(&diff, &view);
        vt_diff_json_write(&diff, &view);
        vt_diff_html_write(&diff, &view);
    }
    vt_diff_free(&diff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const moments[] = {NULL, "end", "peak", "oom-1"};
    static int null_fd = -1;
    struct vt_report_request request = {.recording_path = "x.vtr", .no_symbols = true};
    struct vt_reading *reading = vt_reading_from_memory(data, bytes);
    size_t i;

    if (!reading)
        return 0;
    if (null_fd < 0)
        null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    request.fd = null_fd;
    read_everything(reading);
    for (i = 0; i < sizeof moments / sizeof moments[0]; i++) {
        request.moment = moments[i];
        vt_text_write(reading, &request);
        vt_summary_write(reading, &request);
        vt_json_write(reading, &request);
    }
    request.moment = NULL;
    vt_html_write(reading, &request);
    as_job(reading, null_fd);
    for (i = 0; i < VT_DIFF_BY_COUNT; i++)
        compare(reading, null_fd, (enum vt_diff_by)i);
    request.cause = VT_REPORT_OOM;
    vt_summary_write(reading, &request);
    vt_reading_close(reading);
    return 0;
}

#ifdef FUZZ_MAIN
static void one_file(int fd)
{
    static uint8_t data[1 << 22];
    size_t bytes = 0;
    ssize_t got;

    while (bytes < sizeof data && (got = read(fd, data + bytes, sizeof data - bytes)) > 0)
        bytes += (size_t)got;
    LLVMFuzzerTestOneInput(data, bytes);
}

int main(int count, char **names)
{
    int i, fd;

    if (count < 2)
        one_file(STDIN_FILENO);
    for (i = 1; i < count; i++) {
        if ((fd = open(names[i], O_RDONLY)) < 0)
            return 1;
        one_file(fd);
        close(fd);
    }
    return 0;
}
#endif
