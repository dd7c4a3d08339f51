/*
 * The reader: values of sound recordings, messages for files that are none, and survival of damaged ones. "Survival"
 * runs everything that the preload library links (reader, model, findings, summary, text) over damaged images; under
 * ASan and UBSan this is where a missing check shows.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "recording/reader.h"
#include "test_reader_fixture.h"
#include "views/views.h"

static struct vt_reading *read_image(const struct fixture *f)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);

    assert_non_null(reading);
    return reading;
}

static void test_values(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    r = read_image(&f);
    assert_int_equal(vt_reading_notes(r), 0);
    assert_int_equal(vt_reading_header(r)->pid, 4242);
    assert_string_equal(vt_reading_header(r)->program, "demo");
    assert_string_equal(vt_reading_name(r), "");
    assert_int_equal(vt_reading_count(r, VT_SITES), 4); /* in extents of 2 and 4 */
    assert_int_equal(vt_reading_site(r, s.leak)->live_bytes, 64u << 20);
    assert_int_equal(vt_reading_site(r, 3)->live_bytes, 128u << 20);
    assert_null(vt_reading_site(r, 4));
    assert_null(vt_reading_site(r, VT_NONE));
    assert_string_equal(vt_reading_chars(r, vt_reading_module(r, s.cublas)->path), "/nowhere/libcublas.so.13");
    assert_int_equal(vt_reading_string(r, vt_reading_header(r)->cmdline).length, 16);
    assert_string_equal(vt_reading_chars(r, vt_reading_header(r)->cmdline), "./demo");
    assert_false(vt_reading_incomplete(r, VT_SITES));
    vt_reading_close(r);
    fixture_end(&f);
}

static void test_strings(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    uint32_t ids[200], i;
    char text[32];

    (void)state;
    fixture_begin(&f);
    for (i = 0; i < 200; i++) { /* over several extents */
        snprintf(text, sizeof text, "string number %u", i);
        ids[i] = fixture_string(&f, text);
    }
    r = read_image(&f);
    for (i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "string number %u", i);
        assert_string_equal(vt_reading_chars(r, ids[i]), text);
    }
    assert_int_equal(vt_reading_string(r, 0).length, 0);
    assert_int_equal(vt_reading_string(r, ids[3] + 1).length, 0); /* ids are multiples of 4 */
    assert_int_equal(vt_reading_string(r, UINT32_MAX - 3).length, 0);
    for (i = 0; i < 6000; i++) /* any number may stand where an id belongs */
        assert_true(vt_reading_string(r, i).length < f.bytes);
    vt_reading_close(r);

    memset(fixture_record(&f, VT_STRINGS, ids[7]), 0xff, 4); /* a length that leads out of the file */
    r = read_image(&f);
    assert_string_equal(vt_reading_chars(r, ids[7]), "");
    assert_string_equal(vt_reading_chars(r, ids[8]), "string number 8");
    vt_reading_close(r);
    fixture_end(&f);
}

static void test_stacks(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct sample s;
    uint32_t ids[8];
    struct vt_frame *frame;

    (void)state;
    fixture_sample(&f, &s);
    r = read_image(&f);
    assert_int_equal(vt_reading_stack(r, s.app_stack, ids, 8), 4);
    assert_int_equal(ids[0], s.app_stack);
    assert_int_equal(vt_reading_frame(r, ids[3])->where, 0x1100);
    assert_int_equal(vt_reading_stack(r, s.app_stack, ids, 2), 2);
    assert_int_equal(vt_reading_stack(r, 0, ids, 8), 0);
    assert_int_equal(vt_reading_stack(r, 9999, ids, 8), 0);
    vt_reading_close(r);

    frame = (struct vt_frame *)fixture_record(&f, VT_FRAMES, 0); /* a circle: the oldest frame's parent is the newest */
    frame->parent = s.app_stack;
    r = read_image(&f);
    assert_int_equal(vt_reading_stack(r, s.app_stack, ids, 8), 4);
    vt_reading_close(r);
    fixture_end(&f);
}

static void test_events(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct vt_event event = {0};
    uint64_t i;

    (void)state;
    fixture_begin(&f);
    fixture_section(&f, VT_EVENTS)->limit = 6;
    for (i = 0; i < 6; i++) {
        event.address = 100 + (i < 2 ? i + 6 : i); /* 8 events in a ring of 6: the first two were overwritten */
        fixture_add(&f, VT_EVENTS, &event);
    }
    fixture_section(&f, VT_EVENTS)->count = 8;
    r = read_image(&f);
    assert_int_equal(vt_reading_count(r, VT_EVENTS), 6);
    assert_int_equal(vt_reading_events(r), 8);
    assert_null(vt_reading_event(r, 1));
    for (i = 2; i < 8; i++)
        assert_int_equal(vt_reading_event(r, i)->address, 100 + i);
    assert_null(vt_reading_event(r, 8));
    vt_reading_close(r);

    memset(fixture_section(&f, VT_EVENTS)->extent, 0, sizeof(uint64_t) * VT_MAX_EXTENTS); /* a copy without events */
    r = read_image(&f);
    assert_null(vt_reading_event(r, 5));
    assert_true(vt_reading_incomplete(r, VT_EVENTS));
    assert_int_equal(vt_reading_notes(r), 0);
    vt_reading_close(r);
    fixture_end(&f);
}

static void check_error(const struct fixture *f, uint64_t bytes, const char *expected)
{
    char error[256] = "";

    assert_null(vt_reading_from_image(f->image, bytes, "x.vtr", error, sizeof error));
    assert_string_equal(error, expected);
}

static void test_errors(void **state)
{
    struct fixture f;
    char error[256];

    (void)state;
    fixture_begin(&f);
    check_error(&f, 0, "x.vtr: not a vramtrack recording (bad magic)");
    check_error(&f, 100, "x.vtr: not a whole vramtrack recording (shorter than its header)");
    fixture_header(&f)->major = 1;
    check_error(&f, f.bytes, "x.vtr: written by format version 1, this program reads 2");
    fixture_header(&f)->endian = 0x04030201;
    check_error(&f, f.bytes, "x.vtr: written on a machine with another byte order");
    fixture_header(&f)->endian = VT_ENDIAN;
    fixture_header(&f)->major = VT_MAJOR;
    fixture_header(&f)->header_bytes = 1u << 30;
    check_error(&f, f.bytes, "x.vtr: damaged (bad header size)");
    f.image[0] = 'X';
    check_error(&f, f.bytes, "x.vtr: not a vramtrack recording (bad magic)");
    assert_null(vt_reading_from_memory(NULL, 0));
    assert_null(vt_reading_from_memory(f.image, f.bytes));
    assert_null(vt_reading_open("/nowhere/x.vtr", error, sizeof error));
    assert_string_equal(error, "/nowhere/x.vtr: No such file or directory");
    assert_null(vt_reading_open("/tmp", error, sizeof error));
    assert_string_equal(error, "/tmp: not a regular file");
    assert_null(vt_reading_open("/nowhere/x.vtr", NULL, 0));
    fixture_end(&f);
}

static void test_file(void **state)
{
    char path[] = "/tmp/vramtrack-reader-XXXXXX", error[256] = "";
    struct vt_reading *r;
    struct fixture f;
    struct sample s;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_null(vt_reading_open(path, error, sizeof error));
    assert_non_null(strstr(error, "empty file"));
    fixture_sample(&f, &s);
    assert_int_equal(write(fd, f.image, f.bytes), f.bytes);
    r = vt_reading_open(path, error, sizeof error);
    assert_non_null(r);
    assert_string_equal(vt_reading_name(r), path);
    assert_int_equal(vt_reading_site(r, s.single)->live_bytes, 8u << 20);
    vt_reading_close(r);
    close(fd);
    unlink(path);
    fixture_end(&f);
}

static void test_notes(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FRAMES)->lost = 12;
    fixture_section(&f, VT_SITES)->extent[1] = 0;
    fixture_header(&f)->flags = VT_FLAG_NO_SPACE | VT_FLAG_MISSED;
    fixture_header(&f)->missed_events = 5;
    r = read_image(&f);
    assert_int_equal(vt_reading_count(r, VT_SITES), 2);
    assert_true(vt_reading_incomplete(r, VT_SITES));
    assert_int_equal(vt_reading_notes(r), 4);
    assert_string_equal(vt_reading_note(r, 0),
                        "stack frames: 12 found no room within the size limit and were not recorded.");
    assert_string_equal(vt_reading_note(r, 1), "sites: 2 of 4 are missing from the file (the disk was full).");
    assert_string_equal(vt_reading_note(r, 2),
                        "The disk was full while recording: what came later is missing from the file.");
    assert_string_equal(vt_reading_note(r, 3),
                        "5 calls could not be recorded (inside signal handlers or nested calls).");
    vt_reading_close(r);
    fixture_end(&f);
}

/* A version with shorter or longer records, or with sections that this one does not know, is read all the same. */
static void test_other_minor_versions(void **state)
{
    struct vt_device old = {.ordinal = 0, .total_bytes = 8ull << 30, .context_bytes = 77};
    struct vt_section_entry *s;
    struct vt_reading *r;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    s = fixture_section(&f, VT_DEVICES);
    s->record_bytes -= 8; /* without context_bytes */
    fixture_room(&f, VT_DEVICES, 2);
    memcpy(fixture_record(&f, VT_DEVICES, 0), &old, sizeof old - 8);
    fixture_section(&f, VT_DEVICES)->count = 2;
    memcpy(fixture_record(&f, VT_DEVICES, 1), &old, sizeof old - 8);
    s = fixture_section(&f, VT_POOLS);
    s->record_bytes += 16;
    fixture_room(&f, VT_POOLS, 2);
    fixture_section(&f, VT_POOLS)->count = 2;
    ((struct vt_pool *)fixture_record(&f, VT_POOLS, 1))->live_bytes = 99;
    fixture_section(&f, VT_THREADS)->record_bytes = 3; /* makes no sense */
    fixture_section(&f, VT_THREADS)->count = 1;
    fixture_header(&f)->section_count = VT_SECTION_COUNT + 5;
    fixture_header(&f)->minor = 9;
    r = read_image(&f);
    assert_int_equal(vt_reading_device(r, 0)->total_bytes, 8ull << 30);
    assert_int_equal(vt_reading_device(r, 0)->context_bytes, 0);
    assert_int_equal(vt_reading_device(r, 1)->total_bytes, 8ull << 30);
    assert_int_equal(vt_reading_pool(r, 1)->live_bytes, 99);
    assert_int_equal(vt_reading_count(r, VT_THREADS), 0);
    assert_int_equal(vt_reading_notes(r), 2); /* the threads, and the newer format */
    vt_reading_close(r);
    fixture_end(&f);
}

/* Reads an image in every way that the preload library may. The copy has no byte to spare, so ASan sees every overrun.
 */
static void survive(const uint8_t *image, uint64_t bytes, int null_fd)
{
    struct vt_report_request request = {.recording_path = "x.vtr", .fd = null_fd, .no_symbols = true};
    uint8_t *copy = malloc(bytes ? bytes : 1);
    struct vt_reading *r;
    uint64_t i;

    memcpy(copy, image, bytes);
    if ((r = vt_reading_from_memory(copy, bytes))) {
        vt_text_write(r, &request);
        vt_summary_write(r, &request);
        request.moment = "peak";
        vt_summary_write(r, &request);
        request.moment = NULL;
        request.cause = VT_REPORT_OOM;
        vt_summary_write(r, &request);
        for (i = 0; i < 16; i++)
            vt_reading_event(r, i);
        vt_reading_close(r);
    }
    free(copy);
}

/* Distance to the next byte worth flipping: every one of the header, a seventh of the records, none of the padding. */
static uint64_t next_step(const struct fixture *f, uint64_t at)
{
    static const uint8_t zeros[64];

    if (at < sizeof(struct vt_header))
        return 1;
    return at + sizeof zeros < f->bytes && !memcmp(f->image + at, zeros, sizeof zeros) ? sizeof zeros : 7;
}

static void test_flipped_bytes(void **state)
{
    int null_fd = open("/dev/null", O_WRONLY);
    struct fixture f;
    struct sample s;
    uint64_t i;

    (void)state;
    fixture_sample(&f, &s);
    fixture_sample_python(&f, &s);
    for (i = 0; i < f.bytes; i += next_step(&f, i)) {
        uint8_t flip = (uint8_t)(i % 3 == 0 ? 0xff : i % 3 == 1 ? 0x01 : 0x80);

        f.image[i] ^= flip;
        survive(f.image, f.bytes, null_fd);
        f.image[i] ^= flip;
    }
    fixture_end(&f);
    close(null_fd);
}

static void test_truncated(void **state)
{
    int null_fd = open("/dev/null", O_WRONLY);
    struct fixture f;
    struct sample s;
    uint64_t bytes;

    (void)state;
    fixture_sample(&f, &s);
    fixture_sample_python(&f, &s);
    for (bytes = 0; bytes <= f.bytes; bytes += bytes % VT_PAGE < 300 || bytes % VT_PAGE > VT_PAGE - 8 ? 1 : 101)
        survive(f.image, bytes, null_fd);
    fixture_end(&f);
    close(null_fd);
}

static void test_unaligned(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct sample s;
    uint8_t *copy;

    (void)state;
    fixture_sample(&f, &s);
    copy = malloc(f.bytes + 1);
    memcpy(copy + 1, f.image, f.bytes);
    r = vt_reading_from_memory(copy + 1, f.bytes);
    assert_non_null(r);
    assert_int_equal(vt_reading_site(r, s.pool)->live_bytes, 128u << 20);
    vt_reading_close(r);
    free(copy);
    fixture_end(&f);
}

static void test_python(void **state)
{
    struct vt_reading *r;
    struct fixture f;
    struct sample s;
    const struct vt_frame *frame;

    (void)state;
    fixture_sample(&f, &s);
    fixture_sample_python(&f, &s);
    r = read_image(&f);
    frame = vt_reading_frame(r, vt_reading_site(r, s.pool)->python_stack);
    assert_int_equal(frame->module, VT_PYTHON);
    assert_int_equal(vt_frame_python_line(frame), 402);
    assert_string_equal(vt_reading_chars(r, vt_reading_frame_code(r, frame)->function), "einsum");
    assert_null(vt_reading_module(r, VT_PYTHON));
    assert_non_null(vt_reading_code(r, vt_reading_count(r, VT_CODES) - 1));
    assert_null(vt_reading_code(r, vt_reading_count(r, VT_CODES)));
    assert_null(vt_reading_code(r, UINT64_MAX));
    frame = vt_reading_frame(r, vt_reading_site(r, s.pool)->stack);
    assert_null(vt_reading_frame_code(r, frame)); /* a native one */
    vt_reading_close(r);
    fixture_end(&f);
}

/* Format 1.0 had no Python: no such section, shorter failures. */
static void test_before_python(void **state)
{
    struct vt_failure failure = {.kind = VT_FAILURE_DOUBLE_FREE, .count = 3, .allocated_at = 5, .allocated_python = 77};
    struct vt_reading *r;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    fixture_header(&f)->minor = 0;
    fixture_header(&f)->section_count = VT_CODES;
    fixture_section(&f, VT_CODES)->count = 9; /* not a section of that version */
    fixture_section(&f, VT_FAILURES)->record_bytes = offsetof(struct vt_failure, allocated_python);
    fixture_room(&f, VT_FAILURES, 2);
    fixture_section(&f, VT_FAILURES)->count = 2;
    memcpy(fixture_record(&f, VT_FAILURES, 1), &failure, offsetof(struct vt_failure, allocated_python));
    r = read_image(&f);
    assert_int_equal(vt_reading_count(r, VT_CODES), 0);
    assert_null(vt_reading_code(r, 0));
    assert_int_equal(vt_reading_failure(r, 1)->count, 3);
    assert_int_equal(vt_reading_failure(r, 1)->allocated_at, 5);
    assert_int_equal(vt_reading_failure(r, 1)->allocated_python, 0);
    assert_int_equal(vt_reading_notes(r), 0);
    vt_reading_close(r);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_stacks),        cmocka_unit_test(test_events),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_file),
        cmocka_unit_test(test_notes),         cmocka_unit_test(test_other_minor_versions),
        cmocka_unit_test(test_flipped_bytes), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_unaligned),     cmocka_unit_test(test_python),
        cmocka_unit_test(test_before_python),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
