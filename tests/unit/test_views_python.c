/*
 * The views of a Python program: golden text and summary, JSON frames in merged order, the switches for stacks and the
 * user's paths, and what is said when no Python frames could be read.
 *
 * Golden files are rewritten with VT_GOLDEN=write in the environment, as for test_views.c.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "recording/reader.h"
#include "test_golden.h"
#include "test_reader_fixture.h"
#include "views/views.h"

typedef int writer(struct vt_reading *, const struct vt_report_request *);

/* What a view writes about the sample, as a string; free() it. `change` may be NULL. */
static char *written(writer *view, struct vt_report_request request, void (*change)(struct fixture *, struct sample *))
{
    struct vt_reading *reading;
    struct fixture f;
    struct sample s;
    int fd = memfd_create("out", MFD_CLOEXEC);
    off_t bytes;
    char *text;

    fixture_sample(&f, &s);
    fixture_sample_python(&f, &s);
    if (change)
        change(&f, &s);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_non_null(reading);
    request.recording_path = "demo.vtr";
    request.fd = fd;
    request.no_symbols = true;
    assert_int_equal(view(reading, &request), 0);
    bytes = lseek(fd, 0, SEEK_END);
    text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(fd, text, (size_t)bytes, 0), bytes);
    close(fd);
    vt_reading_close(reading);
    fixture_end(&f);
    return text;
}

static void check_and_free(const char *name, char *text)
{
    check_golden(name, text);
    free(text);
}

static void test_golden(void **state)
{
    const struct vt_report_request request = {0};

    (void)state;
    check_and_free("python.txt", written(vt_text_write, request, NULL));
    check_and_free("summary-python.txt", written(vt_summary_write, request, NULL));
}

static void need(char *text, const char *present, const char *absent)
{
    if (!strstr(text, present))
        fail_msg("'%s' is not in:\n%s", present, text);
    if (absent && strstr(text, absent))
        fail_msg("'%s' is in:\n%s", absent, text);
    free(text);
}

static void test_switches(void **state)
{
    const struct vt_report_request all = {.all_frames = true}, python = {.stacks = VT_SHOW_PYTHON},
                                   native = {.stacks = VT_SHOW_NATIVE},
                                   torch = {.user_paths = "/env/lib/python3.12/site-packages/torch"},
                                   step = {.user_paths = "/nowhere:/home/me/train.py"};

    (void)state;
    need(written(vt_text_write, all, NULL),
         "      libcuda.so.1+0x5000\n      libc10_cuda.so+0xb000\n      einsum (functional.py:402)\n"
         "      Net.forward (net.py:12)\n      Module._call_impl (module.py:1775)\n      Trainer.step (train.py:34)\n"
         "      <module> (train.py:50)\n      python3.12+0x310\n      python3.12+0x300\n      libc.so.6+0x20\n",
         NULL);
    need(
        written(vt_text_write, python, NULL),
        "128.00 MiB in 1, Net.forward (net.py:12)\n    device on GPU 0 by cudaMalloc; at the peak 128.00 MiB, own peak "
        "128.00 MiB; 2 allocated, 1 freed, 1 thread [cache]\n      einsum (functional.py:402)\n",
        "libc10_cuda.so+");
    need(written(vt_text_write, native, NULL), "128.00 MiB in 1, libc10_cuda.so+0xb000\n", "train.py");
    need(written(vt_summary_write, native, NULL), "128.00 MiB in 1      libc10_cuda.so+0xb000 [device]\n", "net.py");
    need(written(vt_summary_write, torch, NULL), "128.00 MiB in 1      einsum (functional.py:402) [device]\n", NULL);
    need(written(vt_text_write, step, NULL), "128.00 MiB in 1, Trainer.step (train.py:34)\n", NULL);
}

static void unreadable(struct fixture *f, struct sample *s)
{
    uint32_t text = fixture_string(f, "CPython 3.17.0 is not known\033[2J");

    (void)s;
    fixture_header(f)->python = text;
    fixture_section(f, VT_CODES)->count = 0;
}

static void none(struct fixture *f, struct sample *s)
{
    uint32_t text = fixture_string(f, "no Python in this process");

    (void)s;
    fixture_header(f)->python = text;
}

static void free_threaded(struct fixture *f, struct sample *s)
{
    uint32_t text = fixture_string(f, "CPython 3.14.0 (free-threaded)");

    (void)s;
    fixture_header(f)->python = text;
}

static void test_unreadable(void **state)
{
    const struct vt_report_request request = {0};
    json_t *root;
    char *text;

    (void)state;
    need(written(vt_text_write, request, unreadable), "\n  python     CPython 3.17.0 is not known\\x1b[2J\n", "\033");
    need(written(vt_text_write, request, unreadable),
         "\n  - Python frames are missing: CPython 3.17.0 is not known\\x1b[2J.\n", NULL);
    need(written(vt_text_write, request, none), "GPU memory of", "no Python");
    need(written(vt_text_write, request, free_threaded), "\n  python     CPython 3.14.0 (free-threaded)\n", "Notes");
    text = written(vt_json_write, request, unreadable);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "notes")), 1);
    json_decref(root);
    free(text);
}

static json_t *at(json_t *list, size_t i, const char *key)
{
    return json_object_get(json_array_get(list, i), key);
}

static void check_frame(json_t *frames, size_t i, const char *function, const char *file, int line)
{
    assert_string_equal(json_string_value(at(frames, i, "lang")), "python");
    assert_string_equal(json_string_value(at(frames, i, "function")), function);
    assert_string_equal(json_string_value(at(frames, i, "file")), file);
    if (line)
        assert_int_equal(json_integer_value(at(frames, i, "line")), line);
    else
        assert_true(json_is_null(at(frames, i, "line")));
    assert_true(json_is_null(at(frames, i, "module")) && json_is_null(at(frames, i, "offset")));
}

static void test_json(void **state)
{
    const struct vt_report_request request = {0};
    char *text = written(vt_json_write, request, NULL);
    json_t *root = json_loads(text, 0, NULL), *sites, *frames, *failure;

    (void)state;
    assert_non_null(root);
    free(text);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "process"), "python")),
                        "CPython 3.12.3");
    assert_int_equal(json_array_size(json_object_get(root, "notes")), 0);
    sites = json_object_get(root, "sites");
    frames = at(sites, 0, "frames"); /* the pool: driver, allocator, five of Python, the C library */
    assert_int_equal(json_array_size(frames), 8);
    assert_string_equal(json_string_value(at(frames, 1, "lang")), "native");
    assert_int_equal(json_integer_value(at(frames, 1, "offset")), 0xb000);
    check_frame(frames, 2, "einsum", "/env/lib/python3.12/site-packages/torch/functional.py", 402);
    check_frame(frames, 3, "Net.forward", "/home/me/net.py", 12);
    check_frame(frames, 6, "<module>", "/home/me/train.py", 50);
    assert_string_equal(json_string_value(at(frames, 7, "module")), "/nowhere/libc.so.6");
    assert_int_equal(json_integer_value(at(sites, 0, "user_frame")), 3);
    assert_string_equal(json_string_value(at(sites, 0, "category")), "framework"); /* Python or not: a pool */
    assert_string_equal(json_string_value(at(sites, 0, "verdict")), "cache");
    failure = json_array_get(json_object_get(root, "failures"), 1);
    frames = json_object_get(failure, "allocated_at");
    check_frame(frames, json_array_size(frames) - 1, "make", "/home/me/net.py", 3);
    frames = json_object_get(failure, "freed_at");
    check_frame(frames, json_array_size(frames) - 1, "drop", "/home/me/net.py", 0);
    json_decref(root);
}

static void depth_5(struct fixture *f, struct sample *s)
{
    (void)s;
    fixture_header(f)->stack_depth = 5; /* as many as the pool's Python stack has; its native one has six */
}

/* The native stack is full, but begins in the C library, where programs do. */
static void depth_6(struct fixture *f, struct sample *s)
{
    (void)s;
    fixture_header(f)->stack_depth = 6;
}

static void depth_64(struct fixture *f, struct sample *s)
{
    (void)s;
    fixture_header(f)->stack_depth = 64;
}

static bool pool_is_cut(void (*change)(struct fixture *, struct sample *))
{
    const struct vt_report_request request = {0};
    char *text = written(vt_json_write, request, change);
    json_t *root = json_loads(text, 0, NULL), *cut;
    bool is;

    assert_non_null(root);
    cut = at(json_object_get(root, "sites"), 0, "cut");
    assert_true(json_is_boolean(cut));
    is = json_is_true(cut);
    json_decref(root);
    free(text);
    return is;
}

/* A stack with as many frames as are kept says so. */
static void test_cut(void **state)
{
    struct vt_report_request request = {0};

    (void)state;
    need(written(vt_text_write, request, depth_5),
         "<module> (train.py:50)\n      ... cut at 5 frames (VRAMTRACK_DEPTH)\n", NULL);
    need(written(vt_text_write, request, depth_6), "GPU memory", "... cut at");
    need(written(vt_text_write, request, depth_64), "GPU memory", "... cut at");
    assert_true(pool_is_cut(depth_5));
    assert_false(pool_is_cut(depth_64));
    assert_false(pool_is_cut(NULL)); /* no depth in the header */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_switches), cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_json),   cmocka_unit_test(test_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
