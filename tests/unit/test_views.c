/*
 * The views: the text report against tests/golden/, the summary's shape and limits, the JSON's keys and values,
 * escaping of names, and errors of the descriptor.
 *
 * The golden files are rewritten with VT_GOLDEN=write in the environment; look at the difference before keeping it.
 */
#include <errno.h>
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

#include "analysis/format.h"
#include "recording/reader.h"
#include "test_golden.h"
#include "test_reader_fixture.h"
#include "views/out.h"
#include "views/views.h"

typedef int writer(struct vt_reading *, const struct vt_report_request *);

/* What a view writes, as a string; free() it. */
static char *written(writer *view, const struct fixture *f, struct vt_report_request *request)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);
    int fd = memfd_create("out", MFD_CLOEXEC);
    off_t bytes;
    char *text;

    assert_non_null(reading);
    request->fd = fd;
    request->no_symbols = true;
    assert_int_equal(view(reading, request), 0);
    bytes = lseek(fd, 0, SEEK_END);
    text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(fd, text, (size_t)bytes, 0), bytes);
    close(fd);
    vt_reading_close(reading);
    return text;
}

static unsigned lines(const char *text)
{
    unsigned count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void test_golden_text(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    struct fixture f;
    struct sample s;
    char *text;

    (void)state;
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FRAMES)->lost = 12;
    text = written(vt_text_write, &f, &request);
    check_golden("sample.txt", text);
    free(text);
    fixture_end(&f);
}

static void test_golden_summaries(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    struct fixture f;
    struct sample s;
    char *text;

    (void)state;
    fixture_sample(&f, &s);
    text = written(vt_summary_write, &f, &request);
    check_golden("summary-exit.txt", text);
    free(text);
    request.cause = VT_REPORT_OOM;
    request.failure = s.oom;
    text = written(vt_summary_write, &f, &request);
    check_golden("summary-oom.txt", text);
    free(text);
    fixture_end(&f);
}

static void test_quiet_summary(void **state)
{
    struct vt_report_request request = {.recording_path = "/tmp/demo.vtr"};
    struct fixture f;
    uint32_t total;
    char *text;

    (void)state;
    fixture_begin(&f);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 0, 0, 1280u << 20, 48, 48);
    fixture_site(&f, total, 0, "cudaMalloc", 0, 0, 48, 48);
    text = written(vt_summary_write, &f, &request);
    assert_string_equal(text, "vramtrack: peak 1.25 GiB on GPU 0, all of it given back; recording: /tmp/demo.vtr\n");
    free(text);
    request.recording_path = NULL;
    text = written(vt_summary_write, &f, &request);
    assert_string_equal(text, "vramtrack: peak 1.25 GiB on GPU 0, all of it given back\n");
    free(text);
    fixture_end(&f);
}

/* However much there is to say, it is at most 25 lines, each with one of the two prefixes. */
static void test_summary_limit(void **state)
{
    struct vt_report_request request = {.recording_path = "/tmp/it's a demo.vtr", .top = 1000};
    struct vt_failure failure = {
        .kind = VT_FAILURE_OOM, .code = 2, .count = 1, .requested_bytes = 1, .total_bytes = 9, .moment = VT_NONE};
    struct fixture f;
    struct sample s;
    unsigned i;
    char *text, *line;

    (void)state;
    fixture_sample(&f, &s);
    for (i = 0; i < 60; i++) {
        fixture_site(&f, s.total, s.app_stack, "cudaMalloc", (i + 1) << 20, 2, 2, 0);
        failure.kind = VT_FAILURE_PENDING + i % VT_FAILURE_KIND_COUNT;
        fixture_add(&f, VT_FAILURES, &failure);
    }
    for (i = 0; i < 2; i++) {
        request.cause = i ? VT_REPORT_OOM : VT_REPORT_EXIT;
        request.failure = s.oom;
        text = written(vt_summary_write, &f, &request);
        assert_true(lines(text) <= 25);
        for (line = text; *line; line = strchr(line, '\n') + 1)
            assert_true(!strncmp(line, "vramtrack: ", 11) || !strncmp(line, "  ", 2));
        assert_non_null(strstr(text, "next: vramtrack report '/tmp/it'\\''s a demo.vtr'\n"));
        free(text);
    }
    fixture_end(&f);
}

static void test_names_are_escaped(void **state)
{
    struct vt_report_request request = {.recording_path = "a\033]0;evil\007.vtr"};
    struct fixture f;
    struct sample s;
    char *text;
    const char *at;

    (void)state;
    fixture_sample(&f, &s);
    strcpy(fixture_header(&f)->program, "evil\033[2J\nprogram\xff");
    text = written(vt_text_write, &f, &request);
    assert_non_null(strstr(text, "GPU memory of evil\\x1b[2J\\x0aprogram\\xff (pid"));
    for (at = text; *at; at++)
        assert_true(*at == '\n' || (unsigned char)*at >= ' ');
    free(text);
    text = written(vt_summary_write, &f, &request);
    assert_null(strchr(text, '\033'));
    free(text);
    request.colour = true; /* then there are escape sequences, but ours */
    text = written(vt_summary_write, &f, &request);
    assert_non_null(strstr(text, "\033[1;31m") ? text : strstr(text, "\033[33m"));
    assert_null(strstr(text, "\033]0;"));
    free(text);
    fixture_end(&f);
}

static json_t *json_report(const struct fixture *f, struct vt_report_request *request)
{
    char *text = written(vt_json_write, f, request);
    json_error_t error;
    json_t *root = json_loads(text, 0, &error);

    assert_non_null(root);
    free(text);
    return root;
}

/* Every key of the schema is there. names: separated by blanks. */
static void need_keys(json_t *object, const char *names)
{
    char copy[512], *name, *rest;

    assert_true(json_is_object(object));
    strcpy(copy, names);
    for (name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        assert_non_null(json_object_get(object, name));
}

static json_t *first(json_t *root, const char *key)
{
    return json_array_get(json_object_get(root, key), 0);
}

static json_int_t integer(json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static void test_json_keys(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    struct fixture f;
    struct sample s;
    json_t *root, *account, *site;

    (void)state;
    fixture_sample(&f, &s);
    root = json_report(&f, &request);
    need_keys(root, "schema recording process devices totals moments sites failures fragmentation findings");
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "vramtrack-report/1");
    need_keys(json_object_get(root, "process"),
              "pid host cmdline rank local_rank world_size start_unix duration_s end exit_code");
    need_keys(first(root, "devices"), "index name uuid total_bytes account");
    account = json_object_get(first(root, "devices"), "account");
    need_keys(account, "tensors cached_unused application libraries context_and_code other_processes unaccounted free");
    need_keys(json_object_get(account, "tensors"), "parameters gradients optimizer activations inputs other");
    need_keys(first(root, "totals"), "level kind device live_bytes live_count peak_bytes requested_bytes alloc_calls "
                                     "free_calls failed_allocs failed_frees");
    need_keys(first(root, "moments"), "name time_s");
    site = first(root, "sites");
    need_keys(site, "id level kind device api live_bytes live_count at_peak_bytes peak_bytes alloc_calls free_calls "
                    "total_bytes threads streams category verdict growth frames");
    need_keys(json_object_get(site, "growth"), "bytes allocs bytes_per_step steps bytes_per_s monotonic");
    need_keys(first(site, "frames"), "lang function file line module offset");
    need_keys(first(root, "failures"),
              "kind api code code_name count requested_bytes free_bytes total_bytes allocated_bytes reserved_bytes "
              "driver_visible pointer_offset frames allocated_at freed_at");
    need_keys(first(root, "findings"), "family title evidence advice sites confidence");
    json_decref(root);
    fixture_end(&f);
}

static void test_json_values(void **state)
{
    struct vt_report_request request = {0};
    struct fixture f;
    struct sample s;
    json_t *root, *site;

    (void)state;
    fixture_sample(&f, &s);
    memcpy(((struct vt_device *)fixture_record(&f, VT_DEVICES, 0))->uuid, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
    root = json_report(&f, &request);
    assert_int_equal(integer(first(root, "totals"), "live_bytes"), 232 << 20);
    assert_int_equal(json_array_size(json_object_get(root, "sites")), 4);
    site = json_array_get(json_object_get(root, "sites"), 1);
    assert_int_equal(integer(site, "id"), s.leak);
    assert_int_equal(integer(site, "live_count"), 4);
    assert_string_equal(json_string_value(json_object_get(site, "api")), "cudaMalloc");
    assert_int_equal(json_array_size(json_object_get(site, "frames")), 3); /* without our own */
    assert_int_equal(integer(first(site, "frames"), "offset"), 0x5000);
    assert_int_equal(integer(first(root, "failures"), "requested_bytes"), 16ll << 30);
    assert_int_equal(json_array_size(json_object_get(json_object_get(root, "process"), "cmdline")), 3);
    assert_string_equal(json_string_value(json_object_get(first(root, "devices"), "uuid")),
                        "GPU-01234567-89ab-cdef-0000-000000000000");
    json_decref(root);

    request.moment = "oom-1";
    root = json_report(&f, &request);
    assert_int_equal(integer(first(root, "totals"), "live_bytes"), 40 << 20);
    assert_string_equal(json_string_value(json_object_get(root, "moment")), "oom-1");
    json_decref(root);
    fixture_end(&f);
}

static void test_json_odd_names(void **state)
{
    struct vt_report_request request = {.recording_path = "bad\xc3(\xe2\x82.vtr"};
    struct fixture f;
    uint32_t cmdline;
    json_t *root;

    (void)state;
    fixture_begin(&f);
    cmdline = fixture_bytes(&f, "\"a\\b\xff\0\xc3\xa4", 8);
    fixture_header(&f)->cmdline = cmdline;
    fixture_header(&f)->end = VT_END_RUNNING;
    root = json_report(&f, &request);
    assert_string_equal(json_string_value(json_object_get(root, "recording")), "bad\\xc3(\\xe2\\x82.vtr");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json_object_get(root, "process"), "cmdline"), 0)),
        "\"a\\b\\xff");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(json_object_get(root, "process"), "cmdline"), 1)), "\xc3\xa4");
    assert_true(json_is_null(json_object_get(json_object_get(root, "process"), "exit_code")));
    json_decref(root);
    fixture_end(&f);
}

static void test_errors(void **state)
{
    struct vt_report_request request = {.fd = -1, .no_symbols = true, .moment = "nope"};
    struct vt_reading *reading;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_text_write(reading, &request), -ENOENT);
    assert_int_equal(vt_json_write(reading, &request), -ENOENT);
    request.moment = NULL;
    assert_int_equal(vt_text_write(reading, &request), -EBADF);
    assert_int_equal(vt_json_write(reading, &request), -EBADF);
    request.cause = VT_REPORT_OOM;
    request.failure = 99;
    assert_int_equal(vt_summary_write(reading, &request), -ENOENT);
    request.failure = s.oom;
    request.fd = open("/dev/full", O_WRONLY);
    assert_int_equal(vt_summary_write(reading, &request), -ENOSPC);
    close(request.fd);
    vt_reading_close(reading);
    fixture_end(&f);
}

static void test_utf8(void **state)
{
    (void)state;
    assert_int_equal(vt_utf8_sequence("a", 1), 1);
    assert_int_equal(vt_utf8_sequence("\xc3\xa4", 2), 2);
    assert_int_equal(vt_utf8_sequence("\xc3\xa4", 1), 0);
    assert_int_equal(vt_utf8_sequence("\xe2\x82\xac", 3), 3);
    assert_int_equal(vt_utf8_sequence("\xf0\x9f\x98\x80", 4), 4);
    assert_int_equal(vt_utf8_sequence("\xc0\x80", 2), 0);         /* overlong */
    assert_int_equal(vt_utf8_sequence("\xed\xa0\x80", 3), 0);     /* a surrogate */
    assert_int_equal(vt_utf8_sequence("\xf4\x90\x80\x80", 4), 0); /* beyond Unicode */
    assert_int_equal(vt_utf8_sequence("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_text),
        cmocka_unit_test(test_golden_summaries),
        cmocka_unit_test(test_quiet_summary),
        cmocka_unit_test(test_summary_limit),
        cmocka_unit_test(test_names_are_escaped),
        cmocka_unit_test(test_json_keys),
        cmocka_unit_test(test_json_values),
        cmocka_unit_test(test_json_odd_names),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
