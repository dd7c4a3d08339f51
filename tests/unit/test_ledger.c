/*
 * The books (src/preload/ledger.c), one rule at a time: peaks, marks, devices, and the ring of events. Sequences of everything at
 * random: test_ledger_random.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_ledger_fixture.h"

/* What is not about one allocation stands among the events too, without a site. */
static void test_marks(void **state)
{
    (void)state;
    open_writer(64u << 20);
    now = 77;
    vt_book_mark(VT_EVENT_POOL_TRIM, 0xabc, 4096);
    const struct vt_event *e = record(VT_EVENTS, 0);
    assert_int_equal(vt_header()->section[VT_EVENTS].count, 1);
    assert_int_equal(e->type, VT_EVENT_POOL_TRIM);
    assert_int_equal(e->time_ns, 77);
    assert_int_equal(e->address, 0xabc);
    assert_int_equal(e->bytes, 4096);
    assert_int_equal(e->site, VT_NONE);
    close_writer();
}

/* A peak that is reached, left and reached again at the same height is one peak, the first. */
static void test_equal_level_is_no_new_peak(void **state)
{
    (void)state;
    open_writer(64u << 20);
    struct vt_site_key k = {VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 1};
    uint32_t a = vt_site_add(&k, 1, 0, 0), b = vt_site_add(&k, 2, 0, 0);
    vt_book_alloc(a, 100, 90, now = 10);
    vt_book_free(a, 100, 90, 10, now = 20, VT_LEFT_BY_FREE);
    vt_book_alloc(b, 100, 100, now = 30);
    const struct vt_site *sa = record(VT_SITES, a), *sb = record(VT_SITES, b);
    const struct vt_scope *c = record(VT_SCOPES, sa->scope);
    assert_int_equal(c->epoch, 1);
    assert_int_equal(c->peak_ns, 10);
    assert_int_equal(sa->peak_epoch, 1);
    assert_int_equal(sa->at_peak_bytes, 100);
    assert_int_equal(sb->peak_epoch, 1);
    assert_int_equal(sb->at_peak_bytes, 0);
    close_writer();
}

/* Devices beyond the table of known totals are found by searching. */
static void test_many_devices(void **state)
{
    (void)state;
    open_writer(64u << 20);
    for (int16_t device = -1; device < 200; device++) {
        uint32_t i = vt_total_index(VT_LEVEL_DRIVER, VT_KIND_DEVICE, device);
        assert_int_equal(i, device + 1);
        assert_int_equal(vt_total_index(VT_LEVEL_DRIVER, VT_KIND_DEVICE, device), i);
        const struct vt_total *t = record(VT_TOTALS, i);
        assert_int_equal(t->device, device);
        assert_int_equal(((const struct vt_scope *)record(VT_SCOPES, t->scope))->device, device);
    }
    close_writer();
}

/* The event ring counts on when it wraps, and the newest event is where the format says. */
static void test_events_wrap(void **state)
{
    (void)state;
    open_writer(8u << 20);
    uint64_t limit = vt_header()->section[VT_EVENTS].limit;
    for (uint64_t i = 0; i < 3 * limit + 5; i++) {
        struct vt_event e = {.time_ns = i, .address = i * 3, .type = VT_EVENT_ALLOC};
        vt_book_event(&e);
    }
    assert_int_equal(vt_header()->section[VT_EVENTS].count, 3 * limit + 5);
    assert_int_equal(vt_header()->last_ns, 3 * limit + 4);
    for (uint64_t s = 2 * limit + 5; s < 3 * limit + 5; s++)
        assert_int_equal(((const struct vt_event *)record(VT_EVENTS, s % limit))->address, s * 3);
    close_writer();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_equal_level_is_no_new_peak),
        cmocka_unit_test(test_many_devices),
        cmocka_unit_test(test_events_wrap),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
