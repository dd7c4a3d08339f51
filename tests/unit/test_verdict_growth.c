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

#include "test_verdict_fixture.h"

#define TURNS 24

static uint32_t code = 0x1000; /* offset of the next place in the program */

static void event(uint32_t type, uint32_t site)
{
    struct vt_event e = {.time_ns = t.now, .type = (uint8_t)type, .site = site};

    fixture_add(&t.f, VT_EVENTS, &e);
}

/* A line of the program that allocates from the driver. */
static uint32_t own_place(void)
{
    code += 0x10;
    return native_place(t.driver, code);
}

static uint32_t allocate(uint32_t site, uint64_t bytes)
{
    event(VT_EVENT_ALLOC, site);
    return keep(site, bytes);
}

/* Allocated and freed again. */
static void use(uint32_t site, uint64_t bytes)
{
    event(VT_EVENT_ALLOC, site);
    book(&t, site, bytes, false);
    event(VT_EVENT_FREE, site);
    t.now += SECOND / 1000;
}

/* The driver refuses a request of the program's own. */
static void refuse(uint64_t bytes, uint64_t free_bytes)
{
    uint32_t stack = fixture_frame(&t.f, 0, t.app, 0x42);

    refused_by_driver(0, stack, bytes, free_bytes);
}

static uint32_t leaking_loop(void)
{
    uint32_t weights, temporary, kept, i;

    begin();
    weights = own_place();
    temporary = own_place();
    kept = own_place();
    for (i = 0; i < 6; i++)
        allocate(weights, 512 * MIB);
    for (i = 0; i < TURNS; i++) {
        use(temporary, 128 * MIB);
        allocate(kept, 512 * MIB);
    }
    refuse(GIB, 512 * MIB);
    return kept;
}

static void test_round_by_round(void **state)
{
    const struct vt_finding *finding;
    uint32_t kept;

    (void)state;
    kept = leaking_loop();
    finding = verdict(VT_FAMILY_LEAK);
    assert_string_equal(finding->title, "GPU 0 filled up round by round: 12.00 GiB of the 15.00 GiB that this process "
                                        "held were allocated again and again, and kept.");
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], kept);
    assert_non_null(strstr(finding->evidence[0], "12.00 GiB in 24 by "));
    assert_non_null(strstr(finding->evidence[0], ": 512.00 MiB more per round."));
    assert_int_equal(finding->advice[0].saves_bytes, 12 * GIB);
    assert_true(finding->advice[0].enough);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
}

/* The report that the process writes itself has no events: the same by time. */
static void test_without_events(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    leaking_loop();
    fixture_section(&t.f, VT_EVENTS)->count = 0;
    finding = verdict(VT_FAMILY_LEAK);
    assert_non_null(strstr(finding->title, "GPU 0 filled up bit by bit: 12.00 GiB of the 15.00 GiB"));
}

/* Weights are loaded, one after the other, and nothing is freed meanwhile. */
static void test_loader(void **state)
{
    uint32_t weights, header, i;
    bool events;

    (void)state;
    for (events = false;; events = true) {
        begin();
        header = own_place();
        weights = own_place();
        use(header, MIB);
        for (i = 0; i < 30; i++)
            allocate(weights, 512 * MIB);
        refuse(GIB, 512 * MIB);
        if (!events)
            fixture_section(&t.f, VT_EVENTS)->count = 0;
        verdict(VT_FAMILY_CAPACITY);
        assert_false(has_family(&o, VT_FAMILY_LEAK));
        if (events)
            break;
    }
}

/* All that is held was made before the loop began. */
static void test_made_once(void **state)
{
    uint32_t buffers, temporary, i;
    bool events;

    (void)state;
    for (events = false;; events = true) {
        begin();
        buffers = own_place();
        temporary = own_place();
        for (i = 0; i < 30; i++)
            allocate(buffers, 512 * MIB);
        for (i = 0; i < TURNS; i++)
            use(temporary, 128 * MIB);
        refuse(GIB, 512 * MIB);
        if (!events)
            fixture_section(&t.f, VT_EVENTS)->count = 0;
        verdict(VT_FAMILY_CAPACITY);
        assert_false(has_family(&o, VT_FAMILY_LEAK));
        if (events)
            break;
    }
}

/* The last so many results are kept: what is older has been freed. */
static void test_ring(void **state)
{
    uint32_t ring, slots[10], i;

    (void)state;
    begin();
    ring = own_place();
    for (i = 0; i < 4 * TURNS; i++) {
        if (i >= 10) {
            event(VT_EVENT_FREE, ring);
            unlive(&t, slots[i % 10]);
        }
        slots[i % 10] = allocate(ring, 1536 * MIB);
    }
    refuse(2 * GIB, GIB);
    verdict(VT_FAMILY_CAPACITY);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
}

/* A leak beside large buffers is not what filled the card. */
static void test_small_leak(void **state)
{
    uint32_t buffers, temporary, kept, i;

    (void)state;
    begin();
    buffers = own_place();
    temporary = own_place();
    kept = own_place();
    for (i = 0; i < 28; i++)
        allocate(buffers, 512 * MIB);
    for (i = 0; i < TURNS; i++) {
        use(temporary, 128 * MIB);
        allocate(kept, 32 * MIB);
    }
    refuse(2 * GIB, GIB);
    verdict(VT_FAMILY_CAPACITY);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_round_by_round), SCENE(test_without_events), SCENE(test_loader),
        SCENE(test_made_once),      SCENE(test_ring),           SCENE(test_small_leak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
