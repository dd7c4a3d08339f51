/* Python strings of every kind as UTF-8, on constructed objects; the offset tables against what an interpreter says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "preload/python/interpreter.h"

union object {
    uint64_t align;
    unsigned char bytes[512];
};

static void put(union object *o, unsigned offset, const void *value, size_t size)
{
    memcpy(o->bytes + offset, value, size);
}

static void string(union object *o, const struct vt_py_layout *at, unsigned kind, unsigned flags, const void *data,
                   size_t length)
{
    uint64_t n = length;
    uint32_t word = (kind | flags) << at->text_kind_bit;
    memset(o, 0, sizeof *o);
    put(o, at->text_length, &n, sizeof n);
    put(o, at->text_state, &word, sizeof word);
    if (flags & 8)
        put(o, flags & 16 ? at->text_ascii : at->text_compact, data, length * kind);
    else
        put(o, at->text_compact, &data, sizeof data);
}

#define COMPACT 8u
#define ASCII 16u

static void every_layout(void (*test)(const struct vt_py_layout *))
{
    for (unsigned minor = VT_PY_OLDEST; minor <= VT_PY_NEWEST; minor++)
        for (unsigned free_threaded = 0; free_threaded < 2; free_threaded++)
            if (vt_py_layout(minor, free_threaded))
                test(vt_py_layout(minor, free_threaded));
}

static void check_kinds(const struct vt_py_layout *at)
{
    union object o;
    char out[64];
    string(&o, at, 1, COMPACT | ASCII, "train.py", 8);
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "train.py");
    string(&o, at, 1, COMPACT, "caf\xe9", 4);
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "caf\xc3\xa9");
    static const uint16_t two[] = {0x5909, 0xdcff, 0xd800, 'x', 0};
    string(&o, at, 2, COMPACT, two, 5);
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "\xe5\xa4\x89\xff\xef\xbf\xbdx?"); /* escaped byte, half a pair, NUL */
    static const uint32_t four[] = {0x10400, 'y'};
    string(&o, at, 4, COMPACT, four, 2);
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "\xf0\x90\x90\x80y");
    string(&o, at, 4, 0, four, 2); /* a subclass of str: the characters are elsewhere */
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "\xf0\x90\x90\x80y");
    string(&o, at, 0, 0, four, 2); /* wchar_t only */
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "?");
    string(&o, at, 1, 0, NULL, 2);
    vt_py_text(at, &o, out, sizeof out);
    assert_string_equal(out, "?");
}

static void kinds(void **state)
{
    (void)state;
    every_layout(check_kinds);
}

static void cut_between_characters(void **state)
{
    (void)state;
    const struct vt_py_layout *at = vt_py_layout(12, false);
    union object o;
    char out[8] = "unused!";
    static const uint16_t two[] = {'a', 0x5909, 0x5909};
    string(&o, at, 2, COMPACT, two, 3);
    vt_py_text(at, &o, out, 0);
    assert_string_equal(out, "unused!");
    vt_py_text(at, &o, out, 1);
    assert_string_equal(out, "");
    vt_py_text(at, &o, out, 4);
    assert_string_equal(out, "a");
    vt_py_text(at, &o, out, 5);
    assert_string_equal(out, "a\xe5\xa4\x89");
    vt_py_text(at, &o, out, 8);
    assert_string_equal(out, "a\xe5\xa4\x89\xe5\xa4\x89");
}

/* What an interpreter of 3.14 says of itself, in its words (pycore_debug_offsets.h). */
static void debug_offsets(void **state)
{
    (void)state;
    uint64_t runtime[128] = {0};
    const struct vt_py_layout *at = vt_py_layout(14, false);
    bool free_threaded = true;
    memcpy(runtime, "xdebugpy", 8);
    runtime[1] = 0x030e0af0;
    static const struct {
        unsigned word, offset;
    } says[] = {{26, 72}, {32, 8},   {33, 0}, {34, 56}, {36, 74}, {40, 112}, {41, 120}, {42, 128}, {43, 136},
                {44, 68}, {48, 208}, {51, 8}, {75, 16}, {76, 32}, {78, 32},  {79, 16},  {80, 40}};
    for (unsigned i = 0; i < sizeof says / sizeof *says; i++)
        runtime[says[i].word] = says[i].offset;
    assert_true(vt_py_debug_header(runtime, 0x030e0af0, &free_threaded));
    assert_false(free_threaded);
    assert_true(vt_py_debug_agrees(at, runtime));
    for (unsigned i = 0; i < sizeof says / sizeof *says; i++) {
        runtime[says[i].word] += 8;
        assert_false(vt_py_debug_agrees(at, runtime));
        runtime[says[i].word] -= 8;
    }
    assert_false(vt_py_debug_agrees(vt_py_layout(14, true), runtime));
    assert_false(vt_py_debug_header(runtime, 0x030e0bf0, &free_threaded));
    runtime[2] = 1;
    assert_true(vt_py_debug_header(runtime, 0x030e0af0, &free_threaded) && free_threaded);
    runtime[0]++;
    assert_false(vt_py_debug_header(runtime, 0x030e0af0, &free_threaded));
}

static void known_versions(void **state)
{
    (void)state;
    for (unsigned minor = 0; minor < 30; minor++) {
        assert_int_equal(vt_py_layout(minor, false) != NULL, minor >= 8 && minor <= 15);
        assert_int_equal(vt_py_layout(minor, true) != NULL, minor >= 13 && minor <= 15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(cut_between_characters),
        cmocka_unit_test(debug_offsets),
        cmocka_unit_test(known_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
