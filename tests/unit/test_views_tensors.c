/*
 * The views of a program with tensors: nothing is counted twice, the account adds up, memory that is reserved and unused is
 * explained, and the JSON has the figures. The text is compared with tests/golden/ (see test_views.c).
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "recording/reader.h"
#include "test_golden.h"
#include "test_tensor_fixture.h"
#include "views/views.h"

typedef int writer(struct vt_reading *, const struct vt_report_request *);

/* What a view writes, as a string; free() it. */
static char *written(writer *view, const struct fixture *f, struct vt_report_request request)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);
    int fd = memfd_create("out", MFD_CLOEXEC);
    off_t bytes;
    char *text;

    assert_non_null(reading);
    request.fd = fd;
    request.no_symbols = true;
    assert_int_equal(view(reading, &request), 0);
    bytes = lseek(fd, 0, SEEK_END);
    text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(fd, text, (size_t)bytes, 0), bytes);
    close(fd);
    vt_reading_close(reading);
    return text;
}

struct shown {
    uint32_t carved, parts, weights, oom;
};

/*
 * PyTorch with a segment of 1 GiB that long-lived tensors have carved up, one of 512 MiB that is empty, and one with the
 * weights; cuBLAS's workspace; a buffer of the program's own. A request of 1.25 GiB was refused by PyTorch.
 */
static struct shown begin(struct tensors *t)
{
    struct shown s;
    uint32_t segment, cublas, own, i;

    tensors_begin(t);
    segment = segment_place(t, "first_step", 20);
    s.carved = segment;
    s.parts = tensor_place(t, "carve_up", 26);
    s.weights = place(t, t->tensor, 0,
                      fixture_python(&t->f, python_line(t, python_line(t, 0, "<module>", 99), "make_model", 5),
                                     "/env/lib/python3.12/site-packages/torch/nn/modules/module.py", "Module._apply",
                                     900));
    cublas = place(t, t->driver, fixture_frame(&t->f, 0, fixture_module(&t->f, "/env/libcublas.so.13", 0), 0x500), 0);
    own = place(t, t->driver, fixture_frame(&t->f, fixture_frame(&t->f, 0, t->app, 0x900), t->ours, 0x77), 0);
    hold(t, segment, BASE, GIB);
    hold(t, segment, BASE + 2 * GIB, GIB / 2);
    hold(t, segment, BASE + 4 * GIB, 256 * MIB);
    hold(t, s.weights, BASE + 4 * GIB, 256 * MIB);
    hold(t, cublas, BASE + 8 * GIB, 64 * MIB);
    hold(t, own, BASE + 9 * GIB, 128 * MIB);
    for (i = 0; i < 64; i++)
        if (i % 2)
            hold(t, s.parts, BASE + i * 16 * MIB, 16 * MIB);
        else
            book(t, s.parts, 16 * MIB, false);
    s.oom = refused(t, python_line(t, python_line(t, 0, "<module>", 99), "second_step", 31), 1280 * MIB, "oom-1");
    finalize(t);
    return s;
}

static void test_golden(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    struct tensors t;
    struct shown s;
    char *text;

    (void)state;
    s = begin(&t);
    text = written(vt_text_write, &t.f, request);
    check_golden("tensors.txt", text);
    free(text);
    text = written(vt_summary_write, &t.f, request);
    check_golden("summary-tensors.txt", text);
    free(text);
    request.cause = VT_REPORT_OOM;
    request.failure = s.oom;
    text = written(vt_summary_write, &t.f, request);
    check_golden("summary-tensors-oom.txt", text);
    free(text);
    tensors_end(&t);
}

static char *text_at(const struct tensors *t, const char *moment)
{
    return written(vt_text_write, &t->f, (struct vt_report_request){.recording_path = "demo.vtr", .moment = moment});
}

static unsigned times(const char *text, const char *words)
{
    unsigned count = 0;

    for (; (text = strstr(text, words)); text++)
        count++;
    return count;
}

/* Unasked, a report tells of the out-of-memory first; who asks for a moment gets that one alone. */
static void test_the_moment_asked_for(void **state)
{
    const char *const moments[] = {"finalize", "peak", "end", "oom-1"};
    struct tensors t;
    char *text;
    unsigned i;

    (void)state;
    begin(&t);
    text = text_at(&t, NULL);
    assert_int_equal(times(text, "\nGPU 0: "), 1);
    assert_non_null(strstr(text, "; when memory ran out (oom-1, "));
    free(text);
    for (i = 0; i < 4; i++) {
        char account[32];

        snprintf(account, sizeof account, " (%s, ", moments[i]);
        text = text_at(&t, moments[i]);
        assert_int_equal(times(text, "\nGPU 0: "), 1);
        assert_non_null(strstr(text, account));
        assert_int_equal(times(text, "(oom-1, "), i == 3);
        /* Calls after the moment count too. */
        assert_int_equal(times(text, "\n  (own peak, allocated and freed: of the whole run; live and count: at the "
                                     "moment)\n"),
                         i != 2);
        free(text);
    }
    tensors_end(&t);
}

/* A segment that three places keep is in the figure of each: the line says why they add up to more. */
static void test_neighbours_in_a_segment(void **state)
{
    const char *line =
        "    1 segment is kept by live tensors, with 976.00 MiB free between them (a segment with several "
        "neighbours counts for each):\n";
    struct tensors t;
    char *text;

    (void)state;
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 20), BASE, GIB);
    hold(&t, tensor_place(&t, "one", 30), BASE + 100 * MIB, 16 * MIB);
    hold(&t, tensor_place(&t, "two", 31), BASE + 400 * MIB, 16 * MIB);
    hold(&t, tensor_place(&t, "three", 32), BASE + 700 * MIB, 16 * MIB);
    text = text_at(&t, NULL);
    assert_non_null(strstr(text, line));
    free(text);
    tensors_end(&t);
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 20), BASE, GIB);
    hold(&t, tensor_place(&t, "one", 30), BASE + 100 * MIB, 48 * MIB);
    text = text_at(&t, NULL);
    assert_non_null(strstr(text, "    1 segment is kept by live tensors, with 976.00 MiB free between them:\n"));
    free(text);
    tensors_end(&t);
}

/* Nothing is found before the end that is judged there: that is no praise. */
static void test_judged_at_the_end(void **state)
{
    struct tensors t;
    char *text;

    (void)state;
    tensors_begin(&t);
    hold(&t, place(&t, t.driver, fixture_frame(&t.f, 0, t.app, 0x500), 0), BASE, MIB);
    moment(&t, "asked", VT_MOMENT_NAMED, VT_NONE, true);
    text = text_at(&t, "peak");
    assert_non_null(strstr(text, "\n\nLeaks and growth are judged at the end: see the report without --moment.\n"));
    assert_null(strstr(text, "Nothing"));
    free(text);
    text = text_at(&t, "asked");
    assert_non_null(strstr(text, "\n\nLeaks and growth are judged at the end: see the report without --moment.\n"));
    assert_non_null(strstr(text, "; at a moment taken by name (asked, "));
    free(text);
    text = text_at(&t, "end");
    assert_null(strstr(text, "are judged at the end"));
    free(text);
    tensors_end(&t);
}

/* PyTorch has refused two sizes, one after the other: who held memory is said once, and each of the two verdicts says which it is. */
static void test_two_refusals(void **state)
{
    const char *holder = "      - 1.00 GiB in 1 held by grow (train.py:30).\n", *findings;
    struct tensors t;
    struct vt_failure *failure;
    uint32_t oom;
    char *text;

    (void)state;
    tensors_begin(&t);
    hold(&t, segment_place(&t, "main", 20), BASE, GIB);
    hold(&t, tensor_place(&t, "grow", 30), BASE, GIB);
    for (oom = 1; oom <= 2; oom++) {
        char name[8];

        snprintf(name, sizeof name, "oom-%u", oom);
        refused(&t, python_line(&t, python_line(&t, 0, "<module>", 99), "train", 40 + oom), (3 - oom) * GIB, name);
        failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, oom - 1);
        failure->total_bytes = 16 * GIB;
        failure->free_bytes = (14 - oom) * GIB;
    }
    text = text_at(&t, NULL);
    findings = strstr(text, "\nFindings\n");
    assert_non_null(findings);
    assert_int_equal(times(findings, holder), 1);
    assert_int_equal(times(findings, "  limit (likely), beside what is said above: PyTorch refused 2.00 GiB on GPU 0"),
                     1);
    assert_int_equal(times(findings, "  limit (likely), beside what is said above: PyTorch refused 1.00 GiB on GPU 0"),
                     1);
    free(text);
    tensors_end(&t);
}

static json_t *json_of(const struct tensors *t, const char *moment, bool blocks)
{
    struct vt_report_request request = {.recording_path = "demo.vtr", .moment = moment, .blocks = blocks};
    char *text = written(vt_json_write, &t->f, request);
    json_t *report = json_loads(text, 0, NULL);

    assert_non_null(report);
    free(text);
    return report;
}

static json_int_t integer(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void check_null(json_t *object, const char *key)
{
    assert_true(json_is_null(json_object_get(object, key)));
}

static void test_json(void **state)
{
    static const char *const null_without_slots[] = {"largest_free_block",     "segments",           "releasable_bytes",
                                                     "pinned_segments",        "private_pool_bytes", "private_pools",
                                                     "would_fit_if_contiguous"};
    static const char *const parts[] = {"parameters", "gradients", "optimizer", "activations", "inputs", "other"};
    json_t *report, *entry, *account, *map;
    json_int_t sum;
    struct tensors t;
    struct shown s;
    size_t i;

    (void)state;
    s = begin(&t);
    report = json_of(&t, "oom-1", true);
    entry = json_array_get(json_object_get(report, "fragmentation"), 0);
    assert_string_equal(json_string_value(json_object_get(entry, "framework")), "PyTorch");
    assert_int_equal(integer(entry, "device"), 0);
    assert_int_equal(integer(entry, "reserved_bytes"), 1792 * MIB);
    assert_int_equal(integer(entry, "allocated_bytes"), 768 * MIB);
    assert_int_equal(integer(entry, "free_in_segments"), 1024 * MIB);
    assert_int_equal(integer(entry, "largest_free_block"), 512 * MIB);
    assert_int_equal(integer(entry, "segments"), 3);
    assert_int_equal(integer(entry, "releasable_bytes"), 512 * MIB);
    assert_int_equal(integer(entry, "pinned_segments"), 1);
    assert_int_equal(integer(entry, "private_pool_bytes"), 0);
    assert_int_equal(integer(entry, "private_pools"), 0);
    assert_int_equal(json_array_size(json_object_get(entry, "pinning_sites")), 1);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(entry, "pinning_sites"), 0)), s.parts);
    assert_true(json_is_true(json_object_get(entry, "would_fit_if_contiguous")));
    assert_int_equal(integer(json_object_get(entry, "oom"), "requested_bytes"), 1280 * MIB);
    assert_int_equal(integer(json_object_get(entry, "measures"), "inactive_split_bytes"), 512 * MIB);
    check_null(json_object_get(entry, "measures"), "rounding_bytes");
    assert_true(json_real_value(json_object_get(json_object_get(entry, "measures"), "beyond_largest")) == 0.5);
    map = json_object_get(entry, "map");
    assert_int_equal(json_array_size(map), 3);
    assert_int_equal(integer(json_array_get(map, 0), "address"), BASE);
    assert_int_equal(json_array_size(json_object_get(json_array_get(map, 0), "blocks")), 64);
    assert_int_equal(
        json_integer_value(json_array_get(json_array_get(json_object_get(json_array_get(map, 0), "blocks"), 1), 2)),
        s.parts);
    assert_true(json_is_null(json_array_get(json_array_get(json_object_get(json_array_get(map, 0), "blocks"), 0), 2)));

    /* tensors 256 + 512 + cached 1024 + application 128 + libraries 64 + unaccounted + free = 16 GiB */
    account = json_object_get(json_array_get(json_object_get(report, "devices"), 0), "account");
    assert_int_equal(integer(json_object_get(account, "tensors"), "parameters"), 256 * MIB);
    for (sum = i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sum += integer(json_object_get(account, "tensors"), parts[i]);
    assert_int_equal(sum, 768 * MIB);
    assert_int_equal(integer(account, "cached_unused"), 1024 * MIB);
    assert_int_equal(integer(account, "application"), 128 * MIB);
    assert_int_equal(integer(json_array_get(json_object_get(account, "libraries"), 0), "bytes"), 64 * MIB);
    assert_int_equal(integer(account, "unaccounted") + integer(account, "free"), 16 * GIB - 1984 * MIB);
    json_decref(report);

    ((struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 0))->slots = 0;
    report = json_of(&t, "oom-1", true);
    entry = json_array_get(json_object_get(report, "fragmentation"), 0);
    assert_int_equal(integer(entry, "reserved_bytes"), 1792 * MIB);
    assert_int_equal(integer(entry, "free_in_segments"), 1024 * MIB);
    for (i = 0; i < sizeof null_without_slots / sizeof null_without_slots[0]; i++)
        check_null(entry, null_without_slots[i]);
    check_null(entry, "map");
    json_decref(report);
    tensors_end(&t);
}

/* What the allocator says, and growth against steps. */
static void test_json_of_training(void **state)
{
    json_t *report, *entry, *growth, *sites;
    uint32_t segment, kept, step;
    struct tensors t;
    size_t i;

    (void)state;
    tensors_begin(&t);
    segment = segment_place(&t, "main", 1);
    kept = tensor_place(&t, "train", 7);
    hold(&t, segment, BASE, GIB);
    for (step = 0; step < 10; step++) {
        hold(&t, kept, BASE + step * 32 * MIB, 32 * MIB);
        step_ends(&t);
    }
    finalize(&t);
    report = json_of(&t, NULL, false);
    entry = json_array_get(json_object_get(report, "allocators"), 0);
    assert_string_equal(json_string_value(json_object_get(entry, "library")), "libc10_cuda.so");
    assert_string_equal(json_string_value(json_object_get(entry, "framework")), "PyTorch");
    assert_int_equal(integer(entry, "reports"), 100);
    assert_int_equal(integer(entry, "mismatches"), 0);
    assert_null(json_object_get(json_array_get(json_object_get(report, "fragmentation"), 0), "map"));
    sites = json_object_get(report, "sites");
    for (i = 0; i < json_array_size(sites); i++) {
        entry = json_array_get(sites, i);
        growth = json_object_get(entry, "growth");
        assert_int_equal(json_is_true(json_object_get(entry, "holds_tensors")), integer(entry, "id") == segment);
        if (integer(entry, "id") != kept) {
            check_null(growth, "steps");
            continue;
        }
        assert_int_equal(integer(growth, "bytes"), 320 * MIB);
        assert_int_equal(integer(growth, "steps"), 10);
        assert_true(json_real_value(json_object_get(growth, "bytes_per_step")) == 32.0 * MIB);
        assert_string_equal(json_string_value(json_object_get(entry, "verdict")), "growth");
    }
    json_decref(report);
    tensors_end(&t);
}

/* A damaged recording is read as far as it is sound: every view, whatever byte is wrong. */
static void test_damage(void **state)
{
    struct vt_report_request request = {.recording_path = "x.vtr", .no_symbols = true, .blocks = true};
    struct tensors t;
    uint64_t at;

    (void)state;
    request.failure = begin(&t).oom;
    request.fd = open("/dev/null", O_WRONLY);
    for (at = 0; at < t.f.bytes; at += at < VT_HEADER_BYTES ? 61 : 97) {
        uint8_t *byte = t.f.image + at, old = *byte;
        struct vt_reading *reading;

        *byte ^= at % 3 ? 0xff : 0x01;
        if ((reading = vt_reading_from_memory(t.f.image, t.f.bytes))) {
            request.cause = at % 2 ? VT_REPORT_OOM : VT_REPORT_EXIT;
            vt_json_write(reading, &request);
            vt_text_write(reading, &request);
            vt_summary_write(reading, &request);
            vt_reading_close(reading);
        }
        *byte = old;
    }
    close(request.fd);
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_moment_asked_for),
        cmocka_unit_test(test_neighbours_in_a_segment),
        cmocka_unit_test(test_judged_at_the_end),
        cmocka_unit_test(test_two_refusals),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_training),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
