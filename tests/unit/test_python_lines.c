/* The line tables of the three formats: constructed ones, and what happens at their ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "preload/python/interpreter.h"

#define LINE(minor, table, first, offset) vt_py_line(minor, table, sizeof table, first, offset)

static void lnotab_counts_pairs(void **state)
{
    (void)state;
    /* 0..5: 10, 6..55: 11, 56..: 16, then back by 3 at 60; 300 lines ahead in steps of 127 at 70 */
    static const uint8_t table[] = {6, 1, 50, 5, 4, 0xfd, 10, 127, 0, 127, 0, 46};
    assert_int_equal(LINE(9, table, 10, -1), 10);
    assert_int_equal(LINE(9, table, 10, 0), 10);
    assert_int_equal(LINE(9, table, 10, 5), 10);
    assert_int_equal(LINE(9, table, 10, 6), 11);
    assert_int_equal(LINE(9, table, 10, 55), 11);
    assert_int_equal(LINE(8, table, 10, 56), 16);
    assert_int_equal(LINE(8, table, 10, 60), 13);
    assert_int_equal(LINE(8, table, 10, 69), 13);
    assert_int_equal(LINE(8, table, 10, 70), 313);
    assert_int_equal(LINE(8, table, 10, 100000), 313);
    assert_int_equal(vt_py_line(8, table, 0, 10, 5), 10);
    assert_int_equal(vt_py_line(8, table, 1, 10, 5), 10); /* half a pair */
}

static void ranges_have_gaps(void **state)
{
    (void)state;
    static const uint8_t table[] = {4, 1, 6, 0x80, 2, 5, 0, 100, 4, 0xff};
    assert_int_equal(LINE(10, table, 7, -1), 7);
    assert_int_equal(LINE(10, table, 7, 0), 8);
    assert_int_equal(LINE(10, table, 7, 3), 8);
    assert_int_equal(LINE(10, table, 7, 4), 0); /* no line */
    assert_int_equal(LINE(10, table, 7, 9), 0);
    assert_int_equal(LINE(10, table, 7, 10), 13);
    assert_int_equal(LINE(10, table, 7, 12), 112);
    assert_int_equal(LINE(10, table, 7, 16), 0); /* beyond the end */
    assert_int_equal(vt_py_line(10, table, 0, 7, 0), 0);
}

static void locations_of_every_code(void **state)
{
    (void)state;
    static const uint8_t table[] = {
        0x80 | 14 << 3 | 0, 2,      0, 1, 1, /* long: +1, one unit */
        0x80 | 0 << 3 | 1,  5,               /* short: +0, two units */
        0x80 | 10 << 3 | 0, 1,      2,       /* one line: +0 */
        0x80 | 11 << 3 | 0, 1,      2,       /* +1 */
        0x80 | 12 << 3 | 0, 1,      2,       /* +2 */
        0x80 | 15 << 3 | 7,                  /* none, eight units */
        0x80 | 13 << 3 | 0, 64 | 8, 3,       /* no columns: 8 + 3 * 64 = 200, so +100 */
        0x80 | 13 << 3 | 0, 64 | 9, 3,       /* 201: -100 */
    };
    assert_int_equal(LINE(11, table, 20, -2), 20);
    assert_int_equal(LINE(11, table, 20, 0), 21);
    assert_int_equal(LINE(12, table, 20, 1), 21);
    assert_int_equal(LINE(12, table, 20, 2), 21);
    assert_int_equal(LINE(13, table, 20, 5), 21);
    assert_int_equal(LINE(13, table, 20, 6), 21);
    assert_int_equal(LINE(14, table, 20, 8), 22);
    assert_int_equal(LINE(14, table, 20, 10), 24);
    assert_int_equal(LINE(14, table, 20, 12), 0);
    assert_int_equal(LINE(14, table, 20, 27), 0);
    assert_int_equal(LINE(15, table, 20, 28), 124);
    assert_int_equal(LINE(15, table, 20, 30), 24);
    assert_int_equal(LINE(15, table, 20, 32), 0);
}

static void broken_tables_end(void **state)
{
    (void)state;
    static const uint8_t cut[] = {0x80 | 14 << 3 | 0};
    assert_int_equal(LINE(11, cut, 20, 0), 20);
    static const uint8_t endless[] = {0x80 | 13 << 3 | 0, 127, 127, 127, 127, 127, 127, 127, 127, 127, 127};
    (void)LINE(11, endless, 1, 0);
    uint8_t any[64];
    for (unsigned seed = 1; seed < 20000; seed++) { /* under the sanitizers: no read outside, no overflow */
        uint32_t x = seed * 2654435761u;
        for (unsigned i = 0; i < sizeof any; i++)
            any[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
        for (unsigned minor = 8; minor <= 15; minor++)
            (void)vt_py_line(minor, any, seed % (sizeof any + 1), (int32_t)x, (int32_t)(seed % 900));
    }
    assert_int_equal(vt_py_line(11, any, 0, INT32_MAX, 0), 0);
    static const uint8_t far[] = {0, 127, 0, 127, 1, 127};
    assert_int_equal(LINE(9, far, INT32_MAX, 1), 0); /* past what a line can be */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lnotab_counts_pairs),
        cmocka_unit_test(ranges_have_gaps),
        cmocka_unit_test(locations_of_every_code),
        cmocka_unit_test(broken_tables_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
