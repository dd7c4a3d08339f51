/*
 * Names that a recording brings along: taken where nobody else knows, weighed against the file's where both do, and left
 * out as far as they are damaged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/objfile.h"
#include "analysis/recorded_names.h"
#include "analysis/stack.h"
#include "analysis/symbols.h"
#include "test_reader_fixture.h"

#define GONE "/nowhere/libgone.so"

/* Adds one record; returns its index. */
static uint32_t add(struct fixture *f, uint32_t module, uint64_t where, const char *function, const char *file,
                    uint32_t line, unsigned inner, unsigned flags)
{
    struct vt_frame_name name = {
        .where = where, .module = module, .line = line, .inner = (uint16_t)inner, .flags = (uint16_t)flags};

    name.function = function ? fixture_string(f, function) : 0;
    name.file = file ? fixture_string(f, file) : 0;
    return fixture_add(f, VT_NAMES, &name);
}

static struct vt_frame_name *record(struct fixture *f, uint64_t index)
{
    return (struct vt_frame_name *)fixture_record(f, VT_NAMES, index);
}

/* What the recording says about a frame: -1 nothing, else the number of frames. */
static int found(const struct fixture *f, uint32_t module, uint64_t where, struct vt_symbol_frame *first)
{
    struct vt_reading *reading = vt_reading_from_memory(f->image, f->bytes);
    struct vt_recorded_names *names = vt_recorded_names_open(reading);
    struct vt_symbol symbol = {NULL, 0};
    int count = vt_recorded_names_find(names, module, where, &symbol) ? (int)symbol.count : -1;

    if (first)
        memset(first, 0, sizeof *first);
    if (first && count > 0) /* strings are in the image */
        *first = symbol.frames[0];
    vt_recorded_names_close(names);
    vt_reading_close(reading);
    return count;
}

static void test_inlined_frames_and_nothing(void **state)
{
    struct vt_symbol_frame first;
    struct fixture f;
    uint32_t module;

    (void)state;
    fixture_begin(&f);
    assert_int_equal(found(&f, 0, 0x100, NULL), -1); /* no names at all */
    module = fixture_module(&f, GONE, 0);
    add(&f, module, 0x100, "inner", "a.c", 7, 0, 0);
    add(&f, module, 0x100, "middle", "a.c", 17, 1, 0);
    add(&f, module, 0x100, "outer", "b.c", 27, 2, VT_NAME_LAST);
    add(&f, module, 0x200, NULL, NULL, 0, 0, VT_NAME_LAST);
    add(&f, module, 0x300, "near", NULL, 0, 0, VT_NAME_LAST | VT_NAME_NEAREST);
    add(&f, VT_NONE, 0x300, "generated", NULL, 0, 0, VT_NAME_LAST);
    assert_int_equal(found(&f, module, 0x100, &first), 3);
    assert_string_equal(first.function, "inner");
    assert_string_equal(first.file, "a.c");
    assert_int_equal(first.line, 7);
    assert_false(first.nearest);
    assert_int_equal(found(&f, module, 0x200, NULL), 0); /* looked up, and there was nothing to know */
    assert_int_equal(found(&f, module, 0x300, &first), 1);
    assert_true(first.nearest);
    assert_null(first.file);
    assert_int_equal(found(&f, VT_NONE, 0x300, &first), 1);
    assert_string_equal(first.function, "generated");
    assert_int_equal(found(&f, module, 0x301, NULL), -1);
    assert_int_equal(found(&f, module + 1, 0x300, NULL), -1);
    fixture_end(&f);
}

static void test_damaged_groups(void **state)
{
    struct vt_symbol_frame first;
    struct fixture f;
    uint32_t module, i;

    (void)state;
    fixture_begin(&f);
    module = fixture_module(&f, GONE, 0);
    add(&f, module, 1, "no end", NULL, 0, 0, 0);
    add(&f, module, 2, "no beginning", NULL, 0, 1, VT_NAME_LAST);
    add(&f, module, 3, "gap", NULL, 0, 0, 0);
    add(&f, module, 3, "gap", NULL, 0, 2, VT_NAME_LAST);
    for (i = 0; i <= VT_OBJECT_FRAMES; i++)
        add(&f, module, 4, "too many", NULL, 0, i, i == VT_OBJECT_FRAMES ? VT_NAME_LAST : 0);
    add(&f, module, 5, "interrupted", NULL, 0, 0, 0);
    add(&f, module, 6, "between", NULL, 0, 0, VT_NAME_LAST);
    add(&f, module, 5, "interrupted", NULL, 0, 1, VT_NAME_LAST);
    add(&f, module, 7, "first", NULL, 0, 0, VT_NAME_LAST);
    add(&f, module, 7, "second", NULL, 0, 0, VT_NAME_LAST);
    add(&f, module, 8, "at the end of the file", NULL, 0, 0, 0);
    for (i = 1; i <= 8; i++)
        assert_int_equal(found(&f, module, i, &first), i == 6 || i == 7 ? 1 : -1);
    found(&f, module, 7, &first);
    assert_string_equal(first.function, "first");
    fixture_end(&f);
}

static void test_bad_strings(void **state)
{
    static const uint32_t ids[] = {1, 2, 6, 0xfffffffc, 0xffffffff, 1 << 20};
    struct vt_symbol_frame first;
    struct fixture f;
    uint32_t module, index, function;
    size_t i;

    (void)state;
    fixture_begin(&f);
    module = fixture_module(&f, GONE, 0);
    index = add(&f, module, 1, "name", "file.c", 3, 0, VT_NAME_LAST);
    function = record(&f, index)->function;
    for (i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        record(&f, index)->function = ids[i];
        assert_int_equal(found(&f, module, 1, &first), 1);
        assert_null(first.function);
        assert_string_equal(first.file, "file.c");
    }
    record(&f, index)->function = record(&f, index)->file = function + 1; /* into a string */
    assert_int_equal(found(&f, module, 1, NULL), 0);
    fixture_end(&f);
}

/* Whatever the bytes are: no crash, and no more frames than may be. */
static void test_noise(void **state)
{
    unsigned seed = 1, round;

    (void)state;
    for (round = 0; round < 3000; round++) {
        struct fixture f;
        uint32_t module, i, changes;

        fixture_begin(&f);
        module = fixture_module(&f, GONE, 0);
        for (i = 0; i < 24; i++)
            add(&f, module, i / 3, "name", "file.c", i, i % 3, i % 3 == 2 ? VT_NAME_LAST : 0);
        for (changes = 0; changes < 12; changes++) {
            uint64_t at = (unsigned)rand_r(&seed) % 24;
            uint8_t *bytes = fixture_record(&f, VT_NAMES, at);

            bytes[(unsigned)rand_r(&seed) % sizeof(struct vt_frame_name)] = (uint8_t)rand_r(&seed);
        }
        if (round % 7 == 0)
            fixture_section(&f, VT_NAMES)->count = (uint64_t)rand_r(&seed) << 31 | (unsigned)rand_r(&seed);
        if (round % 11 == 0)
            fixture_section(&f, VT_NAMES)->extent[(unsigned)rand_r(&seed) % 4] = (unsigned)rand_r(&seed);
        for (i = 0; i < 8; i++)
            assert_in_range(found(&f, module, i, NULL) + 1, 0, VT_OBJECT_FRAMES + 1);
        fixture_end(&f);
    }
}

/* A stack whose frames have names in the recording alone. No note complains about the file that is gone, until a frame
 * comes that the process had not looked up. */
static void test_stack_of_a_file_that_is_gone(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t module, known, unknown;

    (void)state;
    fixture_begin(&f);
    module = fixture_module(&f, GONE, 0);
    known = fixture_frame(&f, fixture_frame(&f, fixture_frame(&f, 0, module, 0x300), module, 0x200), module, 0x100);
    unknown = fixture_frame(&f, known, module, 0x400);
    add(&f, module, 0x100, "inlined", "a.c", 7, 0, 0);
    add(&f, module, 0x100, "outer", "a.c", 17, 1, VT_NAME_LAST);
    add(&f, module, 0x200, NULL, NULL, 0, 0, VT_NAME_LAST);
    add(&f, module, 0x300, "neighbour", NULL, 0, 0, VT_NAME_LAST | VT_NAME_NEAREST);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, known, 0), 0);
    assert_int_equal(trace.count, 4);
    assert_string_equal(trace.frames[0].function, "inlined");
    assert_true(trace.frames[0].inlined);
    assert_string_equal(trace.frames[1].function, "outer");
    assert_int_equal(trace.frames[1].line, 17);
    assert_null(trace.frames[2].function);
    assert_null(trace.frames[3].function);
    assert_string_equal(trace.frames[3].nearest, "neighbour");
    vt_trace_free(&trace);
    assert_int_equal(vt_symbols_notes(symbols), 0);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, unknown, 0), 0);
    assert_int_equal(trace.count, 5);
    assert_null(trace.frames[0].function);
    vt_trace_free(&trace);
    if (vt_symbols_available(symbols))
        assert_string_equal(vt_symbols_note(symbols, 0), "No symbols of " GONE ": the file is gone.");
    assert_int_equal(vt_symbols_notes(symbols), 1);
    vt_symbols_close(symbols);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* Two recordings at once, as in the report over all processes of a run: each has its own names. */
static void test_two_readings(void **state)
{
    static const char *const functions[] = {"one", "two"};
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_reading *reading[2];
    struct fixture f[2];
    uint32_t i, stack[2], round;

    (void)state;
    for (i = 0; i < 2; i++) {
        uint32_t module;

        fixture_begin(&f[i]);
        module = fixture_module(&f[i], GONE, 0);
        stack[i] = fixture_frame(&f[i], 0, module, 0x100);
        add(&f[i], module, 0x100, functions[i], NULL, 0, 0, VT_NAME_LAST);
        reading[i] = vt_reading_from_memory(f[i].image, f[i].bytes);
    }
    for (round = 0; round < 4; round++) {
        struct vt_symbol symbol = vt_symbols_frame(symbols, reading[round % 2],
                                                   vt_reading_frame(reading[round % 2], stack[round % 2]), NULL);

        assert_int_equal(symbol.count, 1);
        assert_string_equal(symbol.frames[0].function, functions[round % 2]);
    }
    vt_symbols_close(symbols);
    for (i = 0; i < 2; i++) {
        vt_reading_close(reading[i]);
        fixture_end(&f[i]);
    }
}

/* A file without a build-id to tell by (as recorded) may be any: what the process saw counts. */
static void test_without_build_id(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_reading *reading;
    struct vt_symbol symbol;
    struct fixture f;
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    uint32_t module, stack;
    bool known;

    (void)state;
    assert_true(length > 0);
    path[length] = '\0';
    fixture_begin(&f);
    module = fixture_module(&f, path, 0);
    stack = fixture_frame(&f, 0, module, 0x1200);
    add(&f, module, 0x1200, "as_it_was", NULL, 0, 0, VT_NAME_LAST);
    reading = vt_reading_from_memory(f.image, f.bytes);
    symbol = vt_symbols_frame(symbols, reading, vt_reading_frame(reading, stack), &known);
    assert_true(known);
    assert_int_equal(symbol.count, 1);
    assert_string_equal(symbol.frames[0].function, "as_it_was");
    vt_symbols_close(symbols);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* One symbolizer looks at recordings that come and go: names are those of the recording that is asked about, though the next
 * one may lie where the last one was. */
static void test_names_of_recordings_one_after_the_other(void **state)
{
    unsigned i;
    char text[16];
    struct vt_symbols *symbols = vt_symbols_open();

    (void)state;
    assert_non_null(symbols);
    for (i = 0; i < 100; i++) {
        struct vt_frame_name name = {.where = 0x1234, .flags = VT_NAME_LAST};
        struct vt_reading *reading;
        struct vt_symbol symbol;
        struct fixture f;
        uint32_t frame;

        fixture_begin(&f);
        snprintf(text, sizeof text, "name_%u", i);
        if (i & 1)
            fixture_string(&f, "what comes behind lies elsewhere");
        name.module = fixture_module(&f, "/nowhere/demo", 0);
        name.function = fixture_string(&f, text);
        fixture_add(&f, VT_NAMES, &name);
        frame = fixture_frame(&f, 0, name.module, 0x1234);
        reading = vt_reading_from_memory(f.image, f.bytes);
        assert_non_null(reading);
        symbol = vt_symbols_frame(symbols, reading, vt_reading_frame(reading, frame), NULL);
        assert_int_equal(symbol.count, 1);
        assert_string_equal(symbol.frames[0].function, text);
        vt_symbols_forget(symbols, reading);
        vt_reading_close(reading);
        fixture_end(&f);
    }
    vt_symbols_close(symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inlined_frames_and_nothing),
        cmocka_unit_test(test_damaged_groups),
        cmocka_unit_test(test_bad_strings),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_stack_of_a_file_that_is_gone),
        cmocka_unit_test(test_two_readings),
        cmocka_unit_test(test_without_build_id),
        cmocka_unit_test(test_names_of_recordings_one_after_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
