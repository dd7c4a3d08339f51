/*
 * The text views at their limits: names of every length, words for a shell, the summary of a recording with everything in
 * it, and lists that would repeat themselves.
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

#include "recording/reader.h"
#include "test_reader_fixture.h"
#include "views/common.h"
#include "views/out.h"
#include "views/views.h"

/* What was written to a descriptor, as a string; free() it. Closes it. */
static char *contents(int fd)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)bytes + 1);

    assert_int_equal(pread(fd, text, (size_t)bytes, 0), bytes);
    close(fd);
    return text;
}

static char *written(int (*view)(struct vt_reading *, const struct vt_report_request *), const struct fixture *f,
                     struct vt_report_request *request)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);

    assert_non_null(reading);
    request->fd = memfd_create("out", MFD_CLOEXEC);
    request->no_symbols = true;
    assert_int_equal(view(reading, request), 0);
    vt_reading_close(reading);
    return contents(request->fd);
}

static unsigned lines(const char *text)
{
    unsigned count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* Every limit against every length, on memory that ends where the name ends. */
static void test_cut_names(void **state)
{
    size_t most, length;

    (void)state;
    for (most = 1; most <= 8; most++)
        for (length = 0; length <= 12; length++) {
            char *name = malloc(length + 1), *text, expected[32];
            struct vt_out out;

            memcpy(name, "abcdefghijkl", length);
            name = realloc(name, length ? length : 1);
            vt_out_open(&out, memfd_create("out", MFD_CLOEXEC), false);
            vt_out_name(&out, name, length, most);
            assert_int_equal(vt_out_close(&out), 0);
            text = contents(out.fd);
            snprintf(expected, sizeof expected, "%.*s%s",
                     (int)(length <= most ? length
                           : most > 3     ? most - 3
                                          : 0),
                     "abcdefghijkl", length <= most ? "" : "...");
            assert_string_equal(text, expected);
            free(text);
            free(name);
        }
}

/* A command line is cut somewhere for every length of its last argument. */
static void test_cut_command(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    char line[520];
    uint32_t length, i;

    (void)state;
    for (length = 380; length <= 420; length++) {
        struct fixture f;
        uint32_t cmdline;
        char *text;

        memset(line, 'x', sizeof line);
        line[7] = line[length - 3] = line[length - 1] = '\0';
        fixture_begin(&f);
        for (i = 0; i < 12; i++) /* on to an extent that has room for it */
            fixture_bytes(&f, line, 100);
        cmdline = fixture_bytes(&f, line, length);
        fixture_header(&f)->cmdline = cmdline;
        text = written(vt_text_write, &f, &request);
        assert_non_null(strstr(text, "\n  command    xxxxxxx xxx"));
        assert_int_equal(strstr(text, "...") != NULL, length > 401);
        free(text);
        fixture_end(&f);
    }
}

static void check_word(const char *word, size_t length, const char *expected)
{
    struct vt_out out;
    char *text;

    vt_out_open(&out, memfd_create("out", MFD_CLOEXEC), false);
    vt_out_word(&out, word, length);
    assert_int_equal(vt_out_close(&out), 0);
    text = contents(out.fd);
    assert_string_equal(text, expected);
    free(text);
}

static void test_words(void **state)
{
    (void)state;
    check_word("a/b-1.vtr", 9, "a/b-1.vtr");
    check_word("", 0, "''");
    check_word("a b", 3, "'a b'");
    check_word("~", 1, "'~'");
    check_word("it's", 4, "'it'\\''s'");
    check_word("$(x)`y`", 7, "'$(x)`y`'");
    check_word("\xc3\xa4", 2, "'\xc3\xa4'");
    check_word("a\\b", 3, "'a\\b'");
    check_word("a\nb'c\\d", 7, "$'a\\x0ab\\'c\\\\d'");
    check_word("\xff\x1b[0m", 5, "$'\\xff\\x1b[0m'");
}

/* Everything at once: all kinds of failures, many sites, pools, others on the card, records missing. */
static void fixture_of_everything(struct fixture *f, struct sample *s)
{
    struct vt_failure failure = {.code = 2,
                                 .count = 1,
                                 .requested_bytes = 4096ull << 20,
                                 .free_bytes = 1u << 20,
                                 .total_bytes = 8ull << 30,
                                 .moment = VT_NONE};
    struct vt_pool pool = {.handle = 1, .release_threshold = UINT64_MAX, .after_trim_peak = 1u << 30};
    unsigned i;

    fixture_sample(f, s);
    for (i = 0; i < 200; i++) {
        uint32_t stack = fixture_frame(f, 0, s->app, 0x2000 + 16 * i);

        fixture_site(f, s->total, stack, "cudaMalloc", (uint64_t)(i + 1) << 20, 2, 2, 0);
        failure.kind = VT_FAILURE_PENDING + i % VT_FAILURE_KIND_COUNT;
        failure.code = (int)(i % 5);
        failure.stack = stack;
        failure.allocated_at = failure.freed_at = s->app_stack;
        fixture_add(f, VT_FAILURES, &failure);
    }
    fixture_add(f, VT_POOLS, &pool);
    fixture_section(f, VT_FAILURES)->lost = 1;
}

static void test_everything_at_once(void **state)
{
    struct vt_report_request request = {.recording_path = "demo.vtr"};
    struct fixture f;
    struct sample s;
    unsigned i;

    (void)state;
    fixture_of_everything(&f, &s);
    for (i = 0; i < 4; i++) {
        char *text, *line;

        request.cause = i & 1 ? VT_REPORT_OOM : VT_REPORT_EXIT;
        request.failure = 2; /* with others on the card */
        request.top = i & 2 ? 1000 : 0;
        text = written(vt_summary_write, &f, &request);
        assert_true(lines(text) <= 25);
        assert_true(lines(text) >= 20);
        for (line = text; *line; line = strchr(line, '\n') + 1)
            assert_true(!strncmp(line, "vramtrack: ", 11) || !strncmp(line, "  ", 2));
        assert_non_null(strstr(text, "vramtrack: the recording is incomplete: failures are missing"));
        assert_non_null(strstr(text, " more findings\n"));
        assert_non_null(strstr(text, " more places\n"));
        assert_non_null(strstr(text, "\nvramtrack: next: vramtrack report demo.vtr\n"));
        if (request.cause == VT_REPORT_OOM)
            assert_non_null(strstr(text, "unaccounted for hold 7.71 GiB of 8.00 GiB, this process 0 B\n"));
        free(text);
    }
    fixture_end(&f);
}

/* Nothing is live, nothing was ever allocated: no list of nobody. */
static void test_nothing_held(void **state)
{
    struct vt_failure oom = {.kind = VT_FAILURE_OOM, .code = 2, .count = 1, .requested_bytes = 1, .moment = VT_NONE};
    struct vt_report_request request = {.recording_path = "demo.vtr", .cause = VT_REPORT_OOM};
    struct fixture f;
    char *text;

    (void)state;
    fixture_begin(&f);
    fixture_add(&f, VT_FAILURES, &oom);
    text = written(vt_summary_write, &f, &request);
    assert_null(strstr(text, "by:"));
    assert_non_null(strstr(text, "vramtrack: this process held nothing\n"));
    free(text);
    request.cause = VT_REPORT_EXIT;
    fixture_section(&f, VT_FAILURES)->count = 0;
    text = written(vt_summary_write, &f, &request);
    assert_string_equal(text, "vramtrack: nothing was allocated; recording: demo.vtr\n");
    free(text);
    fixture_end(&f);
}

static void test_device_of_failure(void **state)
{
    struct vt_failure unknown = {
        .kind = VT_FAILURE_UNKNOWN_POINTER, .code = 1, .device = -1, .count = 1, .moment = VT_NONE};
    struct vt_report_request request = {0};
    struct fixture f;
    char *text;

    (void)state;
    fixture_begin(&f);
    unknown.api = fixture_string(&f, "cudaFree");
    fixture_add(&f, VT_FAILURES, &unknown);
    text = written(vt_text_write, &f, &request);
    assert_non_null(strstr(text, "unknown_pointer: cudaFree returned 1 cudaErrorInvalidValue on unknown device"));
    free(text);
    ((struct vt_failure *)fixture_record(&f, VT_FAILURES, 0))->memory_kind = VT_KIND_PINNED;
    text = written(vt_text_write, &f, &request);
    assert_non_null(strstr(text, " on host, 1 time"));
    free(text);
    fixture_end(&f);
}

/* Equal frames behind each other are folded, and sites that look the same are joined. */
static void test_repetition(void **state)
{
    struct vt_report_request request = {0};
    struct fixture f;
    uint32_t app, total, stack = 0, base;
    unsigned i;
    char *text;

    (void)state;
    fixture_begin(&f);
    app = fixture_module(&f, "/nowhere/demo", 0);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 6 << 20, 3, 6 << 20, 3, 0);
    base = stack = fixture_frame(&f, 0, app, 0x1000);
    for (i = 0; i < 24; i++)
        stack = fixture_frame(&f, stack, app, 0x2000);
    stack = fixture_frame(&f, stack, app, 0x3000);
    fixture_site(&f, total, stack, "cudaMalloc", 4 << 20, 1, 1, 0);
    stack = fixture_frame(&f, base, app, 0x4000);
    fixture_site(&f, total, stack, "cudaMalloc", 1 << 20, 1, 2, 1);
    fixture_site(&f, total, fixture_frame(&f, base, app, 0x4000), "cudaMalloc", 1 << 20, 1, 1, 0);
    memcpy(fixture_record(&f, VT_SITES, 2) + offsetof(struct vt_site, api),
           fixture_record(&f, VT_SITES, 1) + offsetof(struct vt_site, api), sizeof(uint32_t)); /* interned once */
    text = written(vt_text_write, &f, &request);
    assert_non_null(
        strstr(text, "      demo+0x3000\n      demo+0x2000\n      ... 23 more of the same\n      demo+0x1000\n"));
    assert_non_null(strstr(text, "2.00 MiB in 2, demo+0x4000\n"));
    assert_non_null(strstr(text, "; 3 allocated, 1 freed, 1 thread; 2 sites that look the same"));
    free(text);
    fixture_end(&f);
}

/* A native stack with as many frames as are kept, and one with fewer. */
static void test_cut(void **state)
{
    struct vt_report_request request = {0};
    struct fixture f;
    uint32_t app, total, stack = 0;
    unsigned i;
    char *text;

    (void)state;
    fixture_begin(&f);
    fixture_header(&f)->stack_depth = 9;
    app = fixture_module(&f, "/nowhere/demo", 0);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 6 << 20, 2, 6 << 20, 2, 0);
    for (i = 0; i < 8; i++)
        stack = fixture_frame(&f, stack, app, 0x2000);
    fixture_site(&f, total, stack, "cudaMalloc", 2 << 20, 1, 1, 0);
    fixture_site(&f, total, fixture_frame(&f, stack, app, 0x3000), "cudaMalloc", 4 << 20, 1, 1, 0);
    text = written(vt_text_write, &f, &request);
    assert_non_null(strstr(text, "      demo+0x3000\n      demo+0x2000\n      ... 7 more of the same\n"
                                 "      ... cut at 9 frames (VRAMTRACK_DEPTH)\n"));
    assert_ptr_equal(strstr(strstr(text, "... cut at") + 1, "... cut at"), NULL);
    free(text);
    fixture_end(&f);
}

/* All allocations go through one function: its callers tell the holders apart. */
static void test_wrapper(void **state)
{
    struct vt_report_request request = {0};
    struct fixture f;
    uint32_t app, total, base, other;
    char *text;

    (void)state;
    fixture_begin(&f);
    app = fixture_module(&f, "/nowhere/demo", 0);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 7 << 20, 3, 7 << 20, 3, 0);
    base = fixture_frame(&f, 0, app, 0x1000);
    other = fixture_frame(&f, base, app, 0x5000);
    fixture_site(&f, total, fixture_frame(&f, fixture_frame(&f, base, app, 0x2000), app, 0x9000), "cudaMalloc", 4 << 20,
                 1, 1, 0);
    fixture_site(&f, total, fixture_frame(&f, fixture_frame(&f, base, app, 0x3000), app, 0x9000), "cudaMalloc", 2 << 20,
                 1, 1, 0);
    fixture_site(&f, total, fixture_frame(&f, fixture_frame(&f, other, app, 0x3000), app, 0x9000), "cudaMalloc",
                 1 << 20, 1, 1, 0);
    text = written(vt_summary_write, &f, &request);
    assert_non_null(strstr(text, "4.00 MiB in 1      demo+0x9000 < demo+0x2000 [device]\n"));
    assert_non_null(strstr(text, "3.00 MiB in 2      demo+0x9000 < demo+0x3000 [device]\n"));
    free(text);
    fixture_end(&f);
}

/* One place on several cards is one holder, which says so. */
static void test_several_cards(void **state)
{
    struct vt_report_request request = {0};
    struct fixture f;
    uint32_t app, stack, first, second;
    char *text;

    (void)state;
    fixture_begin(&f);
    app = fixture_module(&f, "/nowhere/demo", 0);
    stack = fixture_frame(&f, fixture_frame(&f, 0, app, 0x1000), app, 0x9000);
    first = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 5 << 20, 2, 5 << 20, 2, 0);
    second = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 3, 2 << 20, 1, 2 << 20, 1, 0);
    fixture_site(&f, first, stack, "cudaMalloc", 4 << 20, 1, 1, 0);
    fixture_site(&f, second, stack, "cudaMalloc", 2 << 20, 1, 1, 0);
    fixture_site(&f, first, fixture_frame(&f, 0, app, 0x5000), "cudaMalloc", 1 << 20, 1, 1, 0);
    text = written(vt_summary_write, &f, &request);
    assert_non_null(strstr(text, "6.00 MiB in 2      demo+0x9000 [device, on 2 GPUs]\n"));
    assert_non_null(strstr(text, "1.00 MiB in 1      demo+0x5000 [device]\n"));
    free(text);
    fixture_end(&f);
}

/* "rank 1 of -1" is nobody's rank; "what was cut off" is one thing. */
static void test_ranks_and_gaps(void **state)
{
    static const struct {
        int32_t rank, world;
        const char *said;
    } ranks[] = {{1, 8, "rank 1 of 8"}, {1, -1, "rank 1"}, {0, 0, "rank 0"}, {5, 2, "rank 5"}, {2, 2, "rank 2"}};
    struct vt_model m = {.missing = "what was cut off"};
    char rank[VT_VIEW_RANK];

    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        assert_string_equal(
            vt_view_rank(rank, &(struct vt_header){.rank = ranks[i].rank, .world_size = ranks[i].world}),
            ranks[i].said);
    assert_string_equal(vt_view_are_missing(&m), "is missing");
    strcpy(m.missing, "places");
    assert_string_equal(vt_view_are_missing(&m), "are missing");
    strcpy(m.missing, "what came after recording stopped, places");
    assert_string_equal(vt_view_are_missing(&m), "are missing");
}

/* A name with a byte that is no UTF-8, and one that is spelled like its escape, stay two in JSON and in text. */
static void test_names_stay_apart(void **state)
{
    static const struct {
        const char *name, *json, *text;
    } known[] = {{"a\xff", "\"a\\\\xff\"", "GPU memory of a\\xff ("},
                 {"a\\xff", "\"a\\\\x5cxff\"", "GPU memory of a\\x5cxff ("},
                 {"a\\nb", "\"a\\\\nb\"", "GPU memory of a\\nb ("}};
    struct vt_report_request request = {0};
    struct fixture f;
    char *text;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        fixture_begin(&f);
        strcpy(fixture_header(&f)->program, known[i].name);
        strcpy(fixture_header(&f)->host, known[i].name);
        text = written(vt_json_write, &f, &request);
        assert_non_null(strstr(text, known[i].json));
        free(text);
        text = written(vt_text_write, &f, &request);
        assert_non_null(strstr(text, known[i].text));
        free(text);
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_stay_apart),
        cmocka_unit_test(test_cut_names),
        cmocka_unit_test(test_cut_command),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_nothing_held),
        cmocka_unit_test(test_device_of_failure),
        cmocka_unit_test(test_repetition),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_wrapper),
        cmocka_unit_test(test_several_cards),
        cmocka_unit_test(test_ranks_and_gaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
