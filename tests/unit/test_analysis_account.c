/*
 * The account of a GPU: it adds up to the card whatever happened after free memory was last read, and uses a reading
 * together with what this process held when it was taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_analysis_fixture.h"

#define GIB (1024 * MIB)

#define FIRST (512 * MIB)

/*
 * A card of 16 GiB, 1 GiB of it in use by others when the process came. The call that uses it first has taken 512 MiB when
 * free memory is read, and gives them back; then the process takes `live` bytes. Returns the site of these.
 */
static uint32_t begin(struct fixture *f, uint64_t live)
{
    struct vt_device device = {
        .ordinal = 0, .total_bytes = 16 * GIB, .free_bytes = 15 * GIB - FIRST, .free_ns = 1000000, .name = "Test GPU"};
    uint32_t total, stack, first;

    fixture_begin(f);
    stack = fixture_frame(f, 0, fixture_module(f, "/nowhere/demo", 0), 0x1000);
    total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, live, 1, live, 1, 0);
    fixture_add(f, VT_DEVICES, &device);
    first = fixture_site(f, total, stack, "cudaMalloc", 0, 0, 1, 1);
    site_record(f, first)->first_ns = 1000100;
    site_record(f, first)->total_bytes = FIRST;
    return fixture_site(f, total, stack, "cudaMalloc", live, live ? 1 : 0, 1, 0);
}

static struct vt_failure oom_at(uint64_t time_ns, uint64_t free_bytes, uint64_t live)
{
    return (struct vt_failure){.kind = VT_FAILURE_OOM,
                               .code = 2,
                               .memory_kind = VT_KIND_DEVICE,
                               .count = 1,
                               .requested_bytes = 8 * GIB,
                               .free_bytes = free_bytes,
                               .total_bytes = 16 * GIB,
                               .reserved_bytes = live,
                               .first_ns = time_ns,
                               .last_ns = time_ns,
                               .moment = VT_NONE};
}

static void expect(const struct opened *o, uint64_t application, uint64_t unaccounted, uint64_t free_bytes)
{
    const struct vt_device_row *d = &o->a.model.devices[0];

    assert_true(d->unaccounted_known && d->free_known);
    assert_int_equal(d->application, application);
    assert_int_equal(d->unaccounted, unaccounted);
    assert_int_equal(d->free, free_bytes);
    assert_int_equal(d->application + d->unaccounted + d->free, 16 * GIB);
}

/* What was live at the device's own reading is its first allocation, of which nothing was recorded yet. */
static void test_first_reading(void **state)
{
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 10 * GIB);
    open_at(&o, &f, NULL);
    expect(&o, 10 * GIB, 1 * GIB, 5 * GIB);
    assert_true(o.a.model.devices[0].free_computed);
    close_it(&o);

    /* Its size is in its event, if the site made other sizes later. */
    site_record(&f, 0)->alloc_calls = 3;
    site_record(&f, 0)->total_bytes = 9 * GIB;
    fixture_add(&f, VT_EVENTS, &(struct vt_event){.type = VT_EVENT_ALLOC, .bytes = FIRST, .site = 0});
    open_at(&o, &f, NULL);
    expect(&o, 10 * GIB, 1 * GIB, 5 * GIB);
    close_it(&o);

    /* The first call may have been for host memory. */
    site_record(&f, 0)->kind = VT_KIND_PINNED;
    ((struct vt_device *)fixture_record(&f, VT_DEVICES, 0))->free_bytes = 15 * GIB;
    open_at(&o, &f, NULL);
    expect(&o, 10 * GIB, 1 * GIB, 5 * GIB);
    close_it(&o);
    fixture_end(&f);
}

/* After the failure the program gave everything back: the reading at the failure must not be set against that. */
static void test_freed_after_failure(void **state)
{
    struct vt_failure oom = oom_at(500000000, 2 * GIB, 11 * GIB);
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 1 * GIB);
    fixture_add(&f, VT_FAILURES, &oom);
    open_at(&o, &f, NULL);
    expect(&o, 1 * GIB, 3 * GIB, 12 * GIB); /* 14 GiB were in use then, 11 of them ours */
    close_it(&o);
    fixture_end(&f);
}

/* At the failure's own moment, free memory is what was read; before the failure, its reading does not count. */
static void test_moments(void **state)
{
    struct vt_failure oom = oom_at(500000000, 2 * GIB, 11 * GIB);
    struct vt_moment at_oom = {.name = "oom-1", .time_ns = 500000000, .kind = VT_MOMENT_OOM, .totals = 1, .sites = 1};
    struct vt_moment early = {.name = "early",
                              .time_ns = 100000000,
                              .kind = VT_MOMENT_NAMED,
                              .failure = VT_NONE,
                              .first_total = 1,
                              .totals = 1,
                              .first_site = 1,
                              .sites = 1};
    struct vt_moment_total total = {.live_bytes = 11 * GIB, .live_count = 1};
    struct vt_moment_site site = {.live_bytes = 11 * GIB, .live_count = 1};
    struct opened o;
    struct fixture f;

    (void)state;
    site.site = begin(&f, 1 * GIB);
    oom.moment = 0;
    fixture_add(&f, VT_FAILURES, &oom);
    fixture_add(&f, VT_MOMENTS, &at_oom);
    fixture_add(&f, VT_MOMENTS, &early);
    fixture_add(&f, VT_MOMENT_TOTALS, &total);
    fixture_add(&f, VT_MOMENT_SITES, &site);
    total.live_bytes = site.live_bytes = 4 * GIB;
    fixture_add(&f, VT_MOMENT_TOTALS, &total);
    fixture_add(&f, VT_MOMENT_SITES, &site);

    open_at(&o, &f, "oom-1");
    expect(&o, 11 * GIB, 3 * GIB, 2 * GIB);
    assert_false(o.a.model.devices[0].free_computed);
    close_it(&o);
    open_at(&o, &f, "early");
    expect(&o, 4 * GIB, 1 * GIB, 11 * GIB);
    close_it(&o);

    /* Equal failures share a record: the reading is the newest one's, and so is the moment. */
    ((struct vt_failure *)fixture_record(&f, VT_FAILURES, 0))->count = 3;
    ((struct vt_failure *)fixture_record(&f, VT_FAILURES, 0))->reserved_bytes = 5 * GIB;
    open_at(&o, &f, "end");
    expect(&o, 1 * GIB, 3 * GIB, 12 * GIB);
    close_it(&o);
    fixture_end(&f);
}

/* Somebody else has given memory back since the reading, or the card is smaller than what is live on it. */
static void test_contradictions(void **state)
{
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 15 * GIB + 512 * MIB);
    open_at(&o, &f, NULL);
    expect(&o, 15 * GIB + 512 * MIB, 512 * MIB, 0);
    close_it(&o);
    ((struct vt_device *)fixture_record(&f, VT_DEVICES, 0))->total_bytes = 15 * GIB;
    open_at(&o, &f, NULL);
    assert_false(o.a.model.devices[0].unaccounted_known);
    assert_false(o.a.model.devices[0].free_known);
    close_it(&o);
    ((struct vt_device *)fixture_record(&f, VT_DEVICES, 0))->total_bytes = 16 * GIB;
    ((struct vt_device *)fixture_record(&f, VT_DEVICES, 0))->free_ns = 0; /* never read */
    open_at(&o, &f, NULL);
    assert_false(o.a.model.devices[0].free_known);
    close_it(&o);
    fixture_end(&f);
}

/* A record with a count of 0 was withdrawn by the writer: it is no failure. */
static void test_withdrawn_failure(void **state)
{
    struct vt_failure oom = oom_at(500000000, 2 * GIB, 11 * GIB);
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 0);
    oom.count = 0;
    fixture_add(&f, VT_FAILURES, &oom);
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.model.failure_count, 0);
    assert_non_null(find(&o, VT_FAMILY_NONE, VT_CERTAIN));
    expect(&o, 0, 1 * GIB, 15 * GIB);
    close_it(&o);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_reading),     cmocka_unit_test(test_freed_after_failure),
        cmocka_unit_test(test_moments),           cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_withdrawn_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
