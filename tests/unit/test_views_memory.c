/*
 * The views when memory runs out: the summary and the text report run inside the recorded process, which may be out of
 * host memory as well. Every allocation is made to fail in turn; the views must return, with an error or with less to
 * show, and give back what they took.
 *
 * This program's own malloc stands in for the C library's; with a sanitizer's malloc there is nothing to replace.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/symbols.h"
#include "recording/reader.h"
#include "test_tensor_fixture.h"
#include "views/views.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

static volatile long left = -1; /* allocations until one fails; negative: none does */
static volatile long live;      /* blocks allocated and not freed */
static volatile bool no_large;  /* allocations of a megabyte or more fail */

#ifndef SANITIZED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

#define EXPORTED __attribute__((visibility("default"))) /* the C library is to call these too */

static bool fails(size_t bytes)
{
    return (no_large && bytes >= 1 << 20) || (left >= 0 && left-- == 0);
}

EXPORTED void *malloc(size_t bytes)
{
    void *block = fails(bytes) ? NULL : __libc_malloc(bytes);

    live += block != NULL;
    return block;
}

EXPORTED void *calloc(size_t count, size_t bytes)
{
    void *block = fails(count * bytes) ? NULL : __libc_calloc(count, bytes);

    live += block != NULL;
    return block;
}

EXPORTED void *realloc(void *old, size_t bytes)
{
    void *block = fails(bytes) ? NULL : __libc_realloc(old, bytes);

    live += block && !old;
    return block;
}

EXPORTED void free(void *block)
{
    live -= block != NULL;
    __libc_free(block);
}
#endif

typedef int writer(struct vt_reading *, const struct vt_report_request *);

static void once(writer *view, const struct fixture *f, const struct vt_report_request *request)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);

    assert_int_equal(view(reading, request), 0);
    vt_reading_close(reading);
}

/* Fails allocation 0, 1, 2 ... of opening and viewing, until one run needs fewer than that. Returns how many there
 * were. */
static long fail_each(writer *view, const struct fixture *f, const struct vt_report_request *request)
{
    long n, failed = 0;

    once(view, f, request); /* what libraries load and keep for ever is loaded before anything fails */
    for (n = 0;; n++) {
        struct vt_reading *reading;
        long before = live, unused;

        left = n;
        reading = vt_reading_from_memory(f->image, f->bytes);
        if (reading && view(reading, request))
            failed++;
        vt_reading_close(reading);
        unused = left;
        left = -1;
        assert_int_equal(live, before); /* nothing is lost on the way */
        if (unused >= 0)                /* it was never reached */
            break;
    }
    assert_true(failed > 0);
    return n;
}

static void test_every_failure(void **state)
{
    struct vt_report_request request = {.recording_path = "x.vtr", .no_symbols = true};
    struct fixture f;
    struct sample s;

    (void)state;
#ifdef SANITIZED
    skip();
#endif
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FRAMES)->lost = 3; /* a note to allocate */
    request.fd = open("/dev/null", O_WRONLY);
    assert_true(fail_each(vt_summary_write, &f, &request) > 20);
    assert_true(fail_each(vt_text_write, &f, &request) > 20);
    request.cause = VT_REPORT_OOM;
    assert_true(fail_each(vt_summary_write, &f, &request) > 20);
    close(request.fd);
    fixture_end(&f);
}

/* The same with tensors in segments, some of a captured graph, and an out-of-memory after another one. */
static void test_every_failure_with_tensors(void **state)
{
    struct vt_report_request request = {.recording_path = "x.vtr", .no_symbols = true};
    uint32_t segment, tensor, i;
    struct tensors t;

    (void)state;
#ifdef SANITIZED
    skip();
#endif
    tensors_begin(&t);
    segment = segment_place(&t, "main", 1);
    tensor = tensor_place(&t, "step", 2);
    for (i = 0; i < 4; i++)
        captured(&t, hold(&t, segment, BASE + i * GIB, 64 * MIB), (uint16_t)(i + 1));
    for (i = 0; i < 8; i++)
        hold(&t, tensor, BASE + i % 4 * GIB + i * MIB, MIB);
    refused(&t, python_line(&t, 0, "step", 3), GIB, "oom-1");
    request.failure = refused(&t, python_line(&t, 0, "step", 4), GIB, "oom-2");
    request.fd = open("/dev/null", O_WRONLY);
    assert_true(fail_each(vt_text_write, &t.f, &request) > 40);
    request.cause = VT_REPORT_OOM;
    assert_true(fail_each(vt_summary_write, &t.f, &request) > 40);
    close(request.fd);
    tensors_end(&t);
}

/* Symbols are not looked up where memory is scarce: elfutils would not survive it. */
static void test_no_symbols_without_memory(void **state)
{
    struct vt_symbols *symbols;
    char path[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    (void)state;
#ifdef SANITIZED
    skip();
#endif
    assert_true(length > 0);
    path[length] = '\0';
    symbols = vt_symbols_open();
    no_large = true;
    assert_int_equal(vt_symbols_find(symbols, path, NULL, 0, 0x2000).count, 0);
    no_large = false;
    assert_int_equal(vt_symbols_notes(symbols), 1);
    assert_non_null(strstr(vt_symbols_note(symbols, 0), "too little memory"));
    vt_symbols_close(symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_every_failure_with_tensors),
        cmocka_unit_test(test_no_symbols_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
