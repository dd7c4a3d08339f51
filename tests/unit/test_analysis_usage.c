/*
 * Who holds the rest of a card: from readings made for each case, with this process in NVML's list, under a pid of another
 * namespace, or not at all; and with what doesn't fit together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/usage.h"
#include "test_analysis_fixture.h"

#define GIB (1024 * MIB)
#define TOTAL (16 * GIB)
#define CONTEXT (300 * MIB)
#define OWN_PID 4242 /* the fixture's */

/* A process that holds `live` bytes on a card of 16 GiB, and whose context took 300 MiB. */
static void begin(struct fixture *f, uint64_t live)
{
    struct vt_device device = {.ordinal = 0, .total_bytes = TOTAL, .context_bytes = CONTEXT, .name = "Test GPU"};
    uint32_t total, stack;

    fixture_begin(f);
    stack = fixture_frame(f, 0, fixture_module(f, "/nowhere/demo", 0), 0x1000);
    total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, live, 1, live, 1, 0);
    fixture_add(f, VT_DEVICES, &device);
    fixture_site(f, total, stack, "cudaMalloc", live, live ? 1 : 0, 1, 0);
}

struct entry {
    uint32_t pid;
    const char *name;
    uint64_t bytes;
};

/* Adds a reading with its list of processes, which ends with pid 0; own: under which pid this process is in it. */
static struct vt_usage *reading(struct fixture *f, enum vt_usage_cause cause, uint64_t time_ns, uint64_t free_bytes,
                                uint64_t live, const struct entry *list, uint32_t own)
{
    struct vt_usage u = {.cause = (uint8_t)cause,
                         .time_ns = time_ns,
                         .moment = VT_NONE,
                         .total_bytes = TOTAL + 512 * MIB,
                         .reserved_bytes = 512 * MIB,
                         .free_bytes = free_bytes,
                         .used_bytes = TOTAL - free_bytes,
                         .own_bytes = VT_UNKNOWN_BYTES,
                         .live_bytes = live,
                         .flags = list ? VT_USAGE_LISTED | (own ? 0 : VT_USAGE_FOREIGN) : 0,
                         .first_process = fixture_section(f, VT_PROCESSES)->count};

    for (; list && list->pid; list++) {
        struct vt_process_bytes p = {.pid = list->pid, .bytes = list->bytes, .flags = list->pid == own};

        p.name = list->name ? fixture_string(f, list->name) : 0;
        u.own_bytes = list->pid == own ? list->bytes : u.own_bytes;
        fixture_add(f, VT_PROCESSES, &p);
        u.processes++;
    }
    return (struct vt_usage *)fixture_record(f, VT_USAGES, fixture_add(f, VT_USAGES, &u));
}

/* The account's parts, and that they are all. */
static const struct vt_device_row *expect(const struct opened *o, uint64_t context, uint64_t others,
                                          uint64_t unaccounted, uint64_t free_bytes)
{
    const struct vt_device_row *d = &o->a.model.devices[0];
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < d->other_count; i++)
        sum += d->others[i].bytes;
    assert_true(d->unaccounted_known && d->free_known);
    assert_int_equal(d->context, context);
    assert_int_equal(sum, others);
    assert_int_equal(d->unaccounted, unaccounted);
    assert_int_equal(d->free, free_bytes);
    assert_int_equal(d->application + d->cached_unused + d->context + d->reserved + sum + d->unaccounted + d->free,
                     TOTAL);
    return d;
}

static void expect_other(const struct vt_device_row *d, uint32_t i, uint32_t pid, const char *name, uint64_t bytes)
{
    assert_true(i < d->other_count);
    assert_int_equal(d->others[i].pid, pid);
    assert_string_equal(d->others[i].name, name);
    assert_int_equal(d->others[i].bytes, bytes);
}

/* This process is in the list: code that was loaded since the context was made counts too. */
static void test_listed(void **state)
{
    static const struct entry list[] = {
        {99, "small", 10 * MIB}, {OWN_PID, "demo", 2 * GIB + 460 * MIB}, {7, "big\n", GIB}, {0}};
    const struct vt_device_row *d;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    reading(&f, VT_USAGE_END, 1900000000, TOTAL - 4 * GIB, 2 * GIB, list, OWN_PID);
    open_at(&o, &f, "end");
    d = expect(&o, 460 * MIB, GIB + 10 * MIB, GIB - 470 * MIB, 12 * GIB);
    assert_true(d->others_known && d->context_known);
    assert_false(d->free_computed);
    assert_int_equal(d->other_count, 2);
    expect_other(d, 0, 7, "big\n", GIB);
    expect_other(d, 1, 99, "small", 10 * MIB);
    assert_true(d->card_known);
    assert_int_equal(d->card_bytes, TOTAL + 512 * MIB);
    assert_int_equal(d->card_reserved, 512 * MIB);
    assert_int_equal(d->reserved, 0);
    close_it(&o);
    fixture_end(&f);
}

/* What the driver reserves may be part of what CUDA offers, or not be told apart (NVML's first version). */
static void test_reserved(void **state)
{
    static const struct entry list[] = {{OWN_PID, "demo", 2 * GIB + CONTEXT}, {0}};
    const struct vt_device_row *d;
    struct vt_usage *u;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    u = reading(&f, VT_USAGE_END, 1900000000, TOTAL - 3 * GIB, 2 * GIB, list, OWN_PID);
    u->total_bytes = TOTAL;
    open_at(&o, &f, "end");
    d = expect(&o, CONTEXT, 0, GIB - CONTEXT - 512 * MIB, 13 * GIB);
    assert_int_equal(d->reserved, 512 * MIB);
    assert_int_equal(d->card_reserved, 512 * MIB);
    close_it(&o);

    u = (struct vt_usage *)fixture_record(&f, VT_USAGES, 0);
    u->total_bytes = TOTAL + 100 * MIB;
    u->reserved_bytes = VT_UNKNOWN_BYTES;
    open_at(&o, &f, "end");
    d = expect(&o, CONTEXT, 0, GIB - CONTEXT, 13 * GIB);
    assert_int_equal(d->reserved, 0);
    assert_int_equal(d->card_reserved, 100 * MIB);
    close_it(&o);
    fixture_end(&f);
}

/* The pids are the host's: this process is the one that came with its context. */
static void test_foreign_newcomer(void **state)
{
    static const struct entry before[] = {{7, NULL, GIB}, {0}}, after[] = {{7, NULL, GIB}, {900, NULL, 301 * MIB}, {0}},
                              end[] = {{7, NULL, GIB},
                                       {900, NULL, 2 * GIB + 500 * MIB},
                                       {901, NULL, 2 * GIB + 500 * MIB},
                                       {0}};
    const struct vt_device_row *d;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    reading(&f, VT_USAGE_BEFORE_CONTEXT, 0, 15 * GIB, 0, before, 0);
    reading(&f, VT_USAGE_AFTER_CONTEXT, 0, 15 * GIB - CONTEXT, 0, after, 0);
    reading(&f, VT_USAGE_END, 1900000000, 10 * GIB, 2 * GIB, end, 0);
    open_at(&o, &f, "end");
    d = expect(&o, 500 * MIB, 3 * GIB + 500 * MIB, 24 * MIB, 10 * GIB);
    expect_other(d, 0, 901, "", 2 * GIB + 500 * MIB);
    expect_other(d, 1, 7, "", GIB);
    close_it(&o);
    fixture_end(&f);
}

/* Without readings around the context, it is the only one of its size; if two have it, nobody is named. */
static void test_foreign_fit(void **state)
{
    static const struct entry one[] = {{7, NULL, GIB}, {900, NULL, 2 * GIB + 310 * MIB}, {0}},
                              two[] = {{901, NULL, 2 * GIB + 290 * MIB}, {900, NULL, 2 * GIB + 310 * MIB}, {0}};
    const struct vt_device_row *d;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    reading(&f, VT_USAGE_END, 1900000000, 12 * GIB, 2 * GIB, one, 0);
    open_at(&o, &f, "end");
    d = expect(&o, 310 * MIB, GIB, GIB - 310 * MIB, 12 * GIB);
    expect_other(d, 0, 7, "", GIB);
    close_it(&o);
    fixture_end(&f);

    begin(&f, 2 * GIB);
    reading(&f, VT_USAGE_END, 1900000000, 11 * GIB, 2 * GIB, two, 0);
    open_at(&o, &f, "end");
    d = expect(&o, CONTEXT, 0, 3 * GIB - CONTEXT, 11 * GIB);
    assert_false(d->others_known);
    close_it(&o);
    fixture_end(&f);
}

/* No list (a sandbox refuses it): the context's size is what was free before and after. */
static void test_no_list(void **state)
{
    const struct vt_device_row *d;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    reading(&f, VT_USAGE_END, 1900000000, 12 * GIB, 2 * GIB, NULL, 0);
    open_at(&o, &f, "end");
    d = expect(&o, CONTEXT, 0, 2 * GIB - CONTEXT, 12 * GIB);
    assert_false(d->others_known);
    close_it(&o);
    fixture_end(&f);
}

/* At an out-of-memory, what is free is the failure's; who holds the rest was read a little later, and is cut to fit. */
static void test_oom(void **state)
{
    static const struct entry list[] = {{7, "trainer", 6 * GIB}, {OWN_PID, "demo", 8 * GIB + CONTEXT}, {0}},
                              later[] = {{OWN_PID, "demo", 8 * GIB + CONTEXT}, {0}};
    struct vt_moment moment = {.name = "oom-1", .time_ns = 500000000, .kind = VT_MOMENT_OOM, .totals = 1, .sites = 1};
    struct vt_moment_total total = {.live_bytes = 8 * GIB, .live_count = 1};
    struct vt_moment_site site = {.live_bytes = 8 * GIB, .live_count = 1};
    struct vt_failure oom = {.kind = VT_FAILURE_OOM,
                             .memory_kind = VT_KIND_DEVICE,
                             .count = 1,
                             .requested_bytes = 8 * GIB,
                             .free_bytes = GIB,
                             .total_bytes = TOTAL,
                             .reserved_bytes = 8 * GIB,
                             .first_ns = 500000000,
                             .last_ns = 500000000};
    const struct vt_device_row *d;
    struct vt_usage *u;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 8 * GIB);
    fixture_add(&f, VT_FAILURES, &oom);
    fixture_add(&f, VT_MOMENTS, &moment);
    fixture_add(&f, VT_MOMENT_TOTALS, &total);
    fixture_add(&f, VT_MOMENT_SITES, &site);
    reading(&f, VT_USAGE_END, 1900000000, TOTAL - 8 * GIB - CONTEXT, 8 * GIB, later, OWN_PID);
    u = reading(&f, VT_USAGE_OOM, 700000000, TOTAL - 14 * GIB - CONTEXT, 8 * GIB, list, OWN_PID);
    u->moment = 0;
    open_at(&o, &f, "oom-1");
    d = expect(&o, CONTEXT, 6 * GIB, GIB - CONTEXT, GIB);
    assert_false(d->free_computed);
    expect_other(d, 0, 7, "trainer", 6 * GIB);
    close_it(&o);

    ((struct vt_failure *)fixture_record(&f, VT_FAILURES, 0))->free_bytes = 3 * GIB; /* the trainer has grown since */
    open_at(&o, &f, "oom-1");
    d = expect(&o, CONTEXT, 5 * GIB - CONTEXT, 0, 3 * GIB);
    expect_other(d, 0, 7, "trainer", 5 * GIB - CONTEXT);
    close_it(&o);

    open_at(&o, &f, "end"); /* the trainer is gone */
    d = expect(&o, CONTEXT, 0, 0, TOTAL - 8 * GIB - CONTEXT);
    assert_true(d->others_known);
    close_it(&o);
    fixture_end(&f);
}

/* What the program was told counts if it is the newest; who holds the rest is known from before. */
static void test_program_asked(void **state)
{
    static const struct entry list[] = {{7, "trainer", 2 * GIB}, {OWN_PID, "demo", CONTEXT}, {0}};
    struct vt_usage *u;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 8 * GIB);
    reading(&f, VT_USAGE_AFTER_CONTEXT, 0, TOTAL - 2 * GIB - CONTEXT, 0, list, OWN_PID);
    u = reading(&f, VT_USAGE_PROGRAM, 1000000000, TOTAL - 11 * GIB, 8 * GIB, NULL, 0);
    u->total_bytes = TOTAL;
    u->reserved_bytes = VT_UNKNOWN_BYTES;
    open_at(&o, &f, "end");
    expect(&o, CONTEXT, 2 * GIB, GIB - CONTEXT, 5 * GIB);
    close_it(&o);
    fixture_end(&f);
}

/* Stream-ordered pools keep what was freed: that is no code. */
static void test_pools(void **state)
{
    static const struct entry list[] = {{OWN_PID, "demo", 6 * GIB + CONTEXT}, {0}};
    struct vt_usage *u;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    u = reading(&f, VT_USAGE_END, 1900000000, 9 * GIB, 2 * GIB, list, OWN_PID);
    u->pool_bytes = 5 * GIB; /* at most; it had given some back */
    open_at(&o, &f, "end");
    expect(&o, CONTEXT, 0, GIB - CONTEXT, 9 * GIB);
    assert_int_equal(o.a.model.devices[0].cached_unused, 4 * GIB);
    close_it(&o);
    fixture_end(&f);
}

/* The whole card of a MIG instance, and numbers that no card has. */
static void test_nonsense(void **state)
{
    static const struct entry list[] = {
        {7, "a", UINT64_MAX - 1}, {8, "b", UINT64_MAX - 1}, {OWN_PID, "demo", UINT64_MAX - 5}, {0}};
    const struct vt_device_row *d;
    struct vt_usage *u;
    struct opened o;
    struct fixture f;

    (void)state;
    begin(&f, 2 * GIB);
    u = reading(&f, VT_USAGE_END, 1900000000, 7 * GIB, 2 * GIB, NULL, 0);
    u->total_bytes = 7 * TOTAL;
    open_at(&o, &f, "end");
    assert_false(o.a.model.devices[0].free_known);
    assert_false(o.a.model.devices[0].card_known);
    close_it(&o);
    fixture_end(&f);

    begin(&f, 2 * GIB);
    u = reading(&f, VT_USAGE_END, 1900000000, 7 * GIB, 2 * GIB, list, OWN_PID);
    u->processes = UINT32_MAX;
    open_at(&o, &f, "end");
    d = expect(&o, 7 * GIB, 0, 0, 7 * GIB);
    assert_int_equal(d->others[0].bytes, 0);
    close_it(&o);
    ((struct vt_usage *)fixture_record(&f, VT_USAGES, 0))->first_process = UINT64_MAX - 3;
    open_at(&o, &f, "end");
    expect(&o, CONTEXT, 0, 7 * GIB - CONTEXT, 7 * GIB);
    close_it(&o);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed),        cmocka_unit_test(test_reserved), cmocka_unit_test(test_foreign_newcomer),
        cmocka_unit_test(test_foreign_fit),   cmocka_unit_test(test_no_list),  cmocka_unit_test(test_oom),
        cmocka_unit_test(test_program_asked), cmocka_unit_test(test_pools),    cmocka_unit_test(test_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
