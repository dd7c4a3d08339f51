/*
 * A card that filled up, without training steps: a program without a framework that keeps something in each turn of its loop.
 * What looks like it (a loader, buffers that were made once, a ring) is a matter of capacity.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

#define TURNS 24

static uint64_t next; /* address of the next allocation */
static uint32_t code; /* offset of the next place in the program */

static void event(struct tensors *t, uint32_t type, uint32_t site)
{
    struct vt_event e = {.time_ns = t->now, .type = (uint8_t)type, .site = site};

    fixture_add(&t->f, VT_EVENTS, &e);
}

/* A line of the program that allocates from the driver. */
static uint32_t own_place(struct tensors *t)
{
    code += 0x10;
    return place(t, t->driver, fixture_frame(&t->f, fixture_frame(&t->f, 0, t->app, code), t->ours, 0x77), 0);
}

static uint32_t keep(struct tensors *t, uint32_t site, uint64_t bytes)
{
    event(t, VT_EVENT_ALLOC, site);
    next += bytes;
    return hold(t, site, next - bytes, bytes);
}

/* Allocated and freed again. */
static void use(struct tensors *t, uint32_t site, uint64_t bytes)
{
    event(t, VT_EVENT_ALLOC, site);
    book(t, site, bytes, false);
    event(t, VT_EVENT_FREE, site);
    t->now += SECOND / 1000;
}

static void refuse(struct tensors *t, uint64_t bytes, uint64_t free_bytes)
{
    uint32_t stack = fixture_frame(&t->f, 0, t->app, 0x42); /* adding one may move the image */
    struct vt_failure *failure = (struct vt_failure *)fixture_record(&t->f, VT_FAILURES, refused(t, 0, bytes, "oom-1"));

    failure->kind = VT_FAILURE_OOM;
    failure->code = 2;
    failure->driver_visible = 1;
    failure->stack = stack;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = free_bytes;
}

static void begin(struct tensors *t)
{
    tensors_begin(t);
    next = BASE;
    code = 0x1000;
}

/* The verdict on the failure, and nothing likely beside it. */
static const struct vt_finding *verdict(struct opened *o, struct tensors *t, enum vt_family family)
{
    const struct vt_finding *finding;

    open_at(o, &t->f, "oom-1");
    finding = find(o, family, VT_LIKELY);
    if (!finding)
        fail_msg("found: %s", o->a.findings.list[0].title);
    return finding;
}

static uint32_t leaking_loop(struct tensors *t)
{
    uint32_t weights, temporary, kept, i;

    begin(t);
    weights = own_place(t);
    temporary = own_place(t);
    kept = own_place(t);
    for (i = 0; i < 6; i++)
        keep(t, weights, 512 * MIB);
    for (i = 0; i < TURNS; i++) {
        use(t, temporary, 128 * MIB);
        keep(t, kept, 512 * MIB);
    }
    refuse(t, GIB, 512 * MIB);
    return kept;
}

static void test_round_by_round(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;
    uint32_t kept;

    (void)state;
    kept = leaking_loop(&t);
    finding = verdict(&o, &t, VT_FAMILY_LEAK);
    assert_string_equal(finding->title, "GPU 0 filled up round by round: 12.00 GiB of the 15.00 GiB that this process "
                                        "held were allocated again and again, and kept.");
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], kept);
    assert_non_null(strstr(finding->evidence[0], "12.00 GiB in 24 by "));
    assert_non_null(strstr(finding->evidence[0], ": 512.00 MiB more per round."));
    assert_int_equal(finding->advice[0].saves_bytes, 12 * GIB);
    assert_true(finding->advice[0].enough);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    tensors_end(&t);
}

/* The report that the process writes itself has no events: the same by time. */
static void test_without_events(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    leaking_loop(&t);
    fixture_section(&t.f, VT_EVENTS)->count = 0;
    finding = verdict(&o, &t, VT_FAMILY_LEAK);
    assert_non_null(strstr(finding->title, "GPU 0 filled up bit by bit: 12.00 GiB of the 15.00 GiB"));
    close_it(&o);
    tensors_end(&t);
}

/* Weights are loaded, one after the other, and nothing is freed meanwhile. */
static void test_loader(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t weights, header, i;
    bool events;

    (void)state;
    for (events = false;; events = true) {
        begin(&t);
        header = own_place(&t);
        weights = own_place(&t);
        use(&t, header, MIB);
        for (i = 0; i < 30; i++)
            keep(&t, weights, 512 * MIB);
        refuse(&t, GIB, 512 * MIB);
        if (!events)
            fixture_section(&t.f, VT_EVENTS)->count = 0;
        verdict(&o, &t, VT_FAMILY_CAPACITY);
        assert_false(has_family(&o, VT_FAMILY_LEAK));
        close_it(&o);
        tensors_end(&t);
        if (events)
            break;
    }
}

/* All that is held was made before the loop began. */
static void test_made_once(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t buffers, temporary, i;
    bool events;

    (void)state;
    for (events = false;; events = true) {
        begin(&t);
        buffers = own_place(&t);
        temporary = own_place(&t);
        for (i = 0; i < 30; i++)
            keep(&t, buffers, 512 * MIB);
        for (i = 0; i < TURNS; i++)
            use(&t, temporary, 128 * MIB);
        refuse(&t, GIB, 512 * MIB);
        if (!events)
            fixture_section(&t.f, VT_EVENTS)->count = 0;
        verdict(&o, &t, VT_FAMILY_CAPACITY);
        assert_false(has_family(&o, VT_FAMILY_LEAK));
        close_it(&o);
        tensors_end(&t);
        if (events)
            break;
    }
}

/* The last so many results are kept: what is older has been freed. */
static void test_ring(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t ring, slots[10], i;

    (void)state;
    begin(&t);
    ring = own_place(&t);
    for (i = 0; i < 4 * TURNS; i++) {
        if (i >= 10) {
            event(&t, VT_EVENT_FREE, ring);
            unlive(&t, slots[i % 10]);
        }
        slots[i % 10] = keep(&t, ring, 1536 * MIB);
    }
    refuse(&t, 2 * GIB, GIB);
    verdict(&o, &t, VT_FAMILY_CAPACITY);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    tensors_end(&t);
}

/* A leak beside large buffers is not what filled the card. */
static void test_small_leak(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t buffers, temporary, kept, i;

    (void)state;
    begin(&t);
    buffers = own_place(&t);
    temporary = own_place(&t);
    kept = own_place(&t);
    for (i = 0; i < 28; i++)
        keep(&t, buffers, 512 * MIB);
    for (i = 0; i < TURNS; i++) {
        use(&t, temporary, 128 * MIB);
        keep(&t, kept, 32 * MIB);
    }
    refuse(&t, 2 * GIB, GIB);
    verdict(&o, &t, VT_FAMILY_CAPACITY);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_by_round), cmocka_unit_test(test_without_events), cmocka_unit_test(test_loader),
        cmocka_unit_test(test_made_once),      cmocka_unit_test(test_ring),           cmocka_unit_test(test_small_leak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
