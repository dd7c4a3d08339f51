/*
 * The text report on what the program said of itself: memory by phase and by named range, marks in their order; and the first
 * screen, which has to tell what happened and what to do in 15 lines.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "recording/reader.h"
#include "test_tensor_fixture.h"
#include "views/views.h"

/* The text report; free() it. */
static char *report(const struct tensors *t)
{
    struct vt_reading *reading = vt_reading_from_memory(t->f.image, t->f.bytes);
    struct vt_report_request request = {.recording_path = "demo.vtr", .no_symbols = true};
    char *text;
    off_t bytes;

    assert_non_null(reading);
    request.fd = memfd_create("out", MFD_CLOEXEC);
    assert_int_equal(vt_text_write(reading, &request), 0);
    bytes = lseek(request.fd, 0, SEEK_END);
    text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(request.fd, text, (size_t)bytes, 0), bytes);
    close(request.fd);
    vt_reading_close(reading);
    return text;
}

static void mark(struct tensors *t, const char *name, uint64_t time)
{
    struct vt_event e = {.time_ns = time, .type = VT_EVENT_MARK, .site = VT_NONE};

    e.address = fixture_string(&t->f, name);
    fixture_add(&t->f, VT_EVENTS, &e);
}

static uint32_t named(struct tensors *t, uint32_t line, const char *range, enum vt_phase phase)
{
    uint32_t site = tensor_place(t, "main", line), name = range ? fixture_string(&t->f, range) : 0;

    site_record(&t->f, site)->range = name;
    site_record(&t->f, site)->phase = (uint8_t)phase;
    return site;
}

static void test_ranges(void **state)
{
    struct tensors t;
    uint32_t range;
    char *text;

    (void)state;
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 1), BASE, 2 * GIB);
    hold(&t, named(&t, 2, "validate", VT_PHASE_NONE), BASE, 256 * MIB);
    range = site_record(&t.f, (uint32_t)fixture_section(&t.f, VT_SITES)->count - 1)->range;
    hold(&t, named(&t, 3, "train \033[31m", VT_PHASE_BACKWARD), BASE + GIB, 64 * MIB);
    hold(&t, named(&t, 4, NULL, VT_PHASE_OPTIMIZER), BASE + GIB + 64 * MIB, 512 * MIB);
    book(&t, named(&t, 5, NULL, VT_PHASE_NONE), 16 * MIB, false);
    site_record(&t.f, (uint32_t)fixture_section(&t.f, VT_SITES)->count - 1)->range = range;
    mark(&t, "epoch 2", 3 * SECOND / 1000);
    mark(&t, "epoch 1", SECOND / 1000);
    mark(&t, "later", 100 * SECOND); /* behind the moment */
    finalize(&t);
    text = report(&t);
    assert_non_null(strstr(text, "\nMemory by phase\n"
                                 "          live  at the peak    allocated\n"
                                 "    512.00 MiB   512.00 MiB   512.00 MiB  optimizer\n"
                                 "    256.00 MiB   256.00 MiB   272.00 MiB  (no phase: forward, loading, validation)\n"
                                 "     64.00 MiB    64.00 MiB    64.00 MiB  backward\n"));
    assert_non_null(strstr(text, "\nMemory by named range\n"
                                 "          live  at the peak    allocated\n"
                                 "    256.00 MiB   256.00 MiB   272.00 MiB  validate\n"
                                 "     64.00 MiB    64.00 MiB    64.00 MiB  train \\x1b[31m\n"));
    assert_non_null(strstr(text, "\nMarks\n"
                                 "       0.001 s  epoch 1\n"
                                 "       0.003 s  epoch 2\n"
                                 "\n"));
    assert_null(strstr(text, "later"));
    free(text);
    tensors_end(&t);
}

/* The newest marks are shown; without ranges and phases there is no word of them. */
static void test_many_marks(void **state)
{
    struct tensors t;
    char *text, name[16];
    unsigned i;

    (void)state;
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 1), BASE, GIB);
    hold(&t, named(&t, 2, NULL, VT_PHASE_NONE), BASE, 256 * MIB);
    for (i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "batch-%u", i);
        mark(&t, name, (i + 1) * 1000);
    }
    finalize(&t);
    text = report(&t);
    assert_non_null(strstr(text, "\nMarks\n  the newest 12 of 40\n"));
    assert_null(strstr(text, "batch-27\n"));
    assert_non_null(strstr(text, "batch-28\n"));
    assert_non_null(strstr(text, "batch-39\n"));
    assert_null(strstr(text, "Memory by"));
    free(text);
    tensors_end(&t);
}

/* Of an out-of-memory: the end, the request, the verdict with numbers and measures, all before the account. */
static void test_first_screen(void **state)
{
    struct vt_failure *failure;
    struct tensors t;
    char *text, *account, *at;
    unsigned lines = 0;

    (void)state;
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 1), BASE, 14 * GIB);
    hold(&t, named(&t, 2, NULL, VT_PHASE_NONE), BASE, 14 * GIB);
    failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES,
                                                  refused(&t, python_line(&t, 0, "train_step", 31), 3 * GIB, "oom-1"));
    failure->kind = VT_FAILURE_OOM;
    failure->driver_visible = 1;
    failure->stack = t.c10_stack;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = GIB;
    fixture_header(&t.f)->exit_code = 1;
    finalize(&t);
    text = report(&t);
    account = strstr(text, "\nGPU 0: Test GPU");
    assert_non_null(account);
    for (at = text; at < account; at++)
        lines += *at == '\n';
    assert_in_range(lines, 8, 14);
    *account = '\0';
    assert_non_null(strstr(text, "exit status 1\n"));
    assert_non_null(
        strstr(text, "\nout of memory: PyTorch's allocator could not get 3.00 GiB on GPU 0: 1.00 GiB free of 16.00 "
                     "GiB\n  requested by train_step (train.py:31)\n\n"));
    assert_non_null(strstr(text, "\ncapacity (likely): GPU 0 was full: 3.00 GiB did not fit.\n"
                                 "  - 1.00 GiB were free of 16.00 GiB: 2.00 GiB more were needed.\n"));
    assert_non_null(strstr(text, "\n  - 14.00 GiB in 1 held by ")); /* the only diagnosis: all its reasons find room */
    assert_non_null(strstr(text, "\n  try (saves up to 14.00 GiB, enough): Make the largest holder smaller"));
    *account = '\n';
    assert_null(strstr(text, "capacity (likely), beside what is said above"));
    at = strstr(account, "; when memory ran out (oom-1, ");
    assert_non_null(at);
    assert_non_null(strstr(at, "  (it held the same when the program's own code had ended)\n"));
    free(text);
    tensors_end(&t);
}

/* Loading or training, and how far it had come. */
static void test_progress_at_failure(void **state)
{
    static const struct {
        uint32_t phase;
        uint64_t steps, all;
        const char *words;
    } known[] = {{VT_PHASE_NONE, 0, 0, "train_step (train.py:31)\n"},
                 {VT_PHASE_NONE, 0, 5, "train_step (train.py:31), before the first step was done\n"},
                 {VT_PHASE_BACKWARD, 0, 0, "train_step (train.py:31), in backward, before the first step was done\n"},
                 {VT_PHASE_NONE, 1, 5, "train_step (train.py:31), after 1 step\n"},
                 {VT_PHASE_OPTIMIZER, 12, 12, "train_step (train.py:31), in the optimizer's step, after 12 steps\n"}};
    struct vt_moment *at;
    struct tensors t;
    char *text;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        tensors_begin(&t);
        hold(&t, segment_place(&t, "main", 1), BASE, GIB);
        refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
        at = (struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 0);
        at->phase = known[i].phase;
        at->steps = known[i].steps;
        fixture_header(&t.f)->steps = known[i].all;
        finalize(&t);
        text = report(&t);
        assert_non_null(strstr(text, known[i].words));
        free(text);
        tensors_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_many_marks),
        cmocka_unit_test(test_first_screen),
        cmocka_unit_test(test_progress_at_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
