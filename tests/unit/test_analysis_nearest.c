/*
 * Names out of a library itself, whole or stripped: what lies nearest where the function has no symbol, and which file is not looked
 * into.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "analysis/format.h"
#include "analysis/stack.h"
#include "recording/reader.h"
#include "test_debugfiles_fixture.h"
#include "test_reader_fixture.h"

static void test_nearest(void **state)
{
    (void)state;
    NEED(possible);
    check("stripped.so", address_of("first_public", "lib.so"), "first_public", false, 0);
    check("stripped.so", address_of("hidden_helper", "lib.so") + 2, "first_public", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + 1, "bare", true, 0); /* who knows how long it is */
    check("stripped.so", address_of("unsized", "lib.so") + 1, "bare", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + VT_OBJECT_NEAREST, "bare", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + VT_OBJECT_NEAREST + 1, NULL, false, 0);
    check("stripped.so", address_of("far_helper", "lib.so"), NULL, false, 0);
    check("stripped.so", address_of("last_public", "lib.so"), "last_public", false, 0);
    check("stripped.so", address_of("elsewhere", "lib.so"), NULL, false, 0); /* another section */
    check("stripped.so", section_address(".plt", "lib.so") + 0x12, NULL, false, 0);
    check("stripped.so", section_address(".fini", "lib.so") + 1, NULL, false, 0);
    check("stripped.so", section_address(".data", "lib.so") + 1, NULL, false, 0);
    check("stripped.so", UINT64_MAX, NULL, false, 0);
}

/* What the views make of it: an address that is near something, not a function; and never the same place as another. */
static void test_nearest_in_views(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_display_frame other;
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint64_t helper = address_of("hidden_helper", "lib.so") + 2;
    uint32_t module, stack;
    char text[128], expected[128];

    (void)state;
    if (!possible) {
        vt_symbols_close(symbols);
        skip();
    }
    fixture_begin(&f);
    fixture_header(&f)->start_unix_ns = UINT64_MAX / 2;
    module = fixture_module(&f, in_folder("stripped.so"), 0);
    stack = fixture_frame(&f, 0, module, helper + 1);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, stack, 0), 0);
    assert_int_equal(trace.count, 1);
    assert_null(trace.frames[0].function);
    assert_string_equal(trace.frames[0].nearest, "first_public");
    snprintf(expected, sizeof expected, "stripped.so+0x%llx (after first_public)", (unsigned long long)helper + 1);
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[0]), expected);
    other = trace.frames[0];
    assert_true(vt_same_place(&trace.frames[0], &other));
    other.offset++;
    assert_false(vt_same_place(&trace.frames[0], &other));
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
    vt_symbols_close(symbols);
}

/* With the local functions at hand, one without a size ends where the next one begins. */
static void test_full_table(void **state)
{
    (void)state;
    NEED(possible);
    check("full.so", address_of("bare", "lib.so") + 1, "bare", false, 0);
    check("full.so", address_of("unsized", "lib.so") + 1, "unsized", false, 0);
    check("lib.so", address_of("hidden_helper", "lib.so") + 1, "hidden_helper", false, 6);
    check("lib.so", address_of("elsewhere", "lib.so") + 1, "elsewhere", false, 18);
}

/* Of several names the exported one that is not for internal use. */
static void test_alias(void **state)
{
    (void)state;
    NEED(possible);
    check("stripped.so", address_of("__internal", "lib.so"), "alias_target", false, 0);
}

/* A file without a build-id that was changed after it had been seen in use. */
static void test_newer_file(void **state)
{
    const uint64_t year = 365ull * 86400 * 1000000000;
    struct vt_symbols *symbols = vt_symbols_open();
    uint64_t at = address_of("first_public", "noid.so") + 1, now = (uint64_t)time(NULL) * 1000000000;

    (void)state;
    if (!possible) {
        vt_symbols_close(symbols);
        skip();
    }
    assert_int_equal(vt_symbols_find_used(symbols, in_folder("noid.so"), NULL, 0, now + year, at).count, 1);
    assert_int_equal(vt_symbols_notes(symbols), 0);
    assert_int_equal(vt_symbols_find_used(symbols, in_folder("noid.so"), NULL, 0, now - year, at).count, 0);
    assert_int_equal(vt_symbols_notes(symbols), 1);
    assert_non_null(strstr(vt_symbols_note(symbols, 0), "noid.so: it was changed after"));
    vt_symbols_close(symbols);
}

/* Names that lead to something else in every process are not followed. */
static void test_no_files(void **state)
{
    static const char *const names[] = {"/proc/self/exe",     "/proc/self/fd/0", "/dev/fd/0",
                                        "/memfd:x (deleted)", "[vdso]",          ""};
    struct vt_object object;
    size_t i;

    (void)state;
    NEED(vt_elfutils());
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        vt_object_open(&object, names[i], NULL, 0);
        assert_string_equal(object.problem, "it is no file");
        assert_null(object.main);
        vt_object_close(&object);
    }
    vt_object_open(&object, "/bin/ls (deleted)", NULL, 0);
    assert_string_equal(object.problem, "the file was deleted or replaced while it was in use");
    vt_object_close(&object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_nearest_in_views), cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_alias),   cmocka_unit_test(test_newer_file),       cmocka_unit_test(test_no_files),
    };

    return cmocka_run_group_tests(tests, build, remove_folder);
}
