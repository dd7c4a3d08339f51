/* The quick clock against the clock itself, for a tenth of a second, and when it is found to be off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "preload/clock.h"

#define MS 1000000ull

/* Between two readings of the clock, but for the microsecond that it may be off, and for what a reading costs; how often it
 * was not. A thread may be stopped at any place. */
static unsigned follow(struct vt_clock *c, uint64_t duration, unsigned *readings)
{
    uint64_t begin = vt_clock_read(), before;
    unsigned off = 0;
    *readings = 0;
    do {
        before = vt_clock_read();
        uint64_t now = vt_clock_quick(c), after = vt_clock_read();
        off += now + 2000 < before || now > after + 2000;
        assert_true(now + MS > before && now < after + MS);
        (*readings)++;
    } while (before - begin < duration);
    return off;
}

static void test_follows_the_clock(void **state)
{
    struct vt_clock c = {0};
    unsigned readings, off = follow(&c, 100 * MS, &readings);
    (void)state;
    assert_true(readings > 1000);
    assert_true(off <= readings / 100);
    if (c.rate) /* a counter that can be used: then it is */
        assert_true(c.horizon > 0 && c.ns - c.first_ns >= 10 * MS);
}

static void test_notices_that_it_is_off(void **state)
{
    struct vt_clock c = {0};
    unsigned readings;
    (void)state;
    follow(&c, 20 * MS, &readings);
    if (!c.rate)
        skip();
    c.rate *= 3; /* the counter runs at another rate from now on */
    uint64_t begin = vt_clock_read(), now, after;
    do {
        now = vt_clock_quick(&c);
        after = vt_clock_read();
        assert_true(now < after + 3 * MS); /* until it is read again, after a millisecond */
        /* a thread that was stopped in between looks late once */
    } while (after - begin < 5 * MS || (now + MS <= after && after - begin < 5000 * MS));
    assert_true(now <= after && now + MS > after);
    assert_int_equal(follow(&c, 30 * MS, &readings) > readings / 100, 0);
}

static void test_begins_anew_after_a_leap(void **state)
{
    struct vt_clock c = {0};
    unsigned readings;
    (void)state;
    follow(&c, 20 * MS, &readings);
    c.ns -= 1000 * MS; /* the machine slept for a second that the counter did not count */
    c.first_ns -= 1000 * MS;
    c.counter -= 2 * c.horizon;
    uint64_t before = vt_clock_read(), now = vt_clock_quick(&c), after = vt_clock_read();
    assert_true(now >= before && now <= after);
    assert_true(follow(&c, 30 * MS, &readings) <= readings / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_clock),
        cmocka_unit_test(test_notices_that_it_is_off),
        cmocka_unit_test(test_begins_anew_after_a_leap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
