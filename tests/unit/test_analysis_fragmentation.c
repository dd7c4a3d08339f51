/*
 * Fragmentation: what could be given back of a segment in pieces, who keeps the rest, and whether a refused request would have
 * fit in one piece. Which of the driver's allocations are segments: test_analysis_segments.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_scene.h"

/*
 * One segment of 1 GiB, carved up by 64 tensors of 16 MiB of which every second one was freed; then PyTorch refuses
 * 1.25 GiB by a limit of its own. Returns the place of the tensors.
 */
static uint32_t carved(void)
{
    uint32_t segment, parts, i;

    begin();
    segment = segment_place(&t, "first_step", 20);
    parts = tensor_place(&t, "carve_up", 26);
    hold(&t, segment, BASE, GIB);
    for (i = 0; i < 64; i++)
        if (i % 2)
            hold(&t, parts, BASE + i * 16 * MIB, 16 * MIB);
        else
            book(&t, parts, 16 * MIB, false);
    refused(&t, python_line(&t, 0, "second_step", 31), 1280 * MIB, "oom-1");
    return parts;
}

static void check_carved(uint32_t parts)
{
    const struct vt_fragmentation *f = &o.a.model.fragmentation;
    const struct vt_pools *p = pools();

    assert_true(p->known);
    assert_int_equal(p->reserved, GIB);
    assert_int_equal(p->allocated, GIB / 2);
    assert_int_equal(p->free, GIB / 2);
    assert_int_equal(p->largest_free, 16 * MIB);
    assert_int_equal(p->segments, 1);
    assert_int_equal(p->releasable, 0);
    assert_int_equal(p->split_free, GIB / 2);
    assert_int_equal(p->pinned_segments, 1);
    assert_int_equal(p->pinned_bytes, GIB / 2);
    assert_int_equal(p->outside, 0);
    assert_true(p->private_known);
    assert_int_equal(p->private_bytes, 0);
    assert_false(p->expandable);
    assert_false(p->rounded);                                        /* the allocator tells block sizes alone */
    assert_true(p->gap_squares > 0.0078 && p->gap_squares < 0.0079); /* 32 * 16^2 / 1024^2 */
    assert_int_equal(f->pinning_count, 1);
    assert_int_equal(f->pinnings[0].site, parts);
    assert_int_equal(f->pinnings[0].pinned_bytes, GIB / 2);
    assert_int_equal(f->pinnings[0].live_bytes, GIB / 2);
    assert_int_equal(f->pinnings[0].blocks, 32);
    assert_int_equal(f->block_count, 64);
    assert_int_equal(f->blocks[0].site, VT_NONE);
    assert_int_equal(f->blocks[1].site, parts);
    assert_int_equal(f->blocks[1].address, BASE + 16 * MIB);
    assert_int_equal(f->blocks[63].bytes, 16 * MIB);
}

static void test_carved_segment(void **state)
{
    const struct vt_finding *finding;
    struct vt_oom_fit oom;
    uint32_t parts;

    (void)state;
    parts = carved();
    look("oom-1");
    check_carved(parts);
    assert_int_equal(vt_fragmentation_oom(&oom, &o.a.model, 0), 0);
    assert_int_equal(oom.fit, VT_FIT_YES);
    assert_int_equal(oom.usable, GIB / 2);
    assert_int_equal(oom.largest, 16 * MIB);
    finding = find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], parts);
    assert_non_null(strstr(finding->title, "1.25 GiB did not fit although 512.00 MiB of PyTorch's memory"));
    assert_int_equal(finding->advice[0].saves_bytes, GIB / 2);
    assert_non_null(strstr(finding->advice[0].text, "expandable_segments"));

    /* At the end, too, the failure is explained as it was then, even if all tensors are gone; nothing leaks. */
    while (site_record(&t.f, parts)->live_count)
        unlive(&t, (uint32_t)(fixture_section(&t.f, VT_LIVE)->count - site_record(&t.f, parts)->live_count));
    look(NULL);
    assert_int_equal(pools()->releasable, GIB);
    assert_int_equal(pools()->pinned_segments, 0);
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_false(has_family(&o, VT_FAMILY_LIMIT));
    assert_int_equal(vt_fragmentation_oom(&oom, &o.a.model, 0), 0);
    assert_int_equal(oom.fit, VT_FIT_YES);
}

/* The moment has no slots: sums over places are all that is known, and nothing is guessed. */
static void test_without_slots(void **state)
{
    struct vt_oom_fit oom;

    (void)state;
    carved();
    moment_record(0)->slots = 0;
    look("oom-1");
    assert_false(pools()->known);
    assert_int_equal(pools()->reserved, GIB);
    assert_int_equal(pools()->allocated, GIB / 2);
    assert_int_equal(pools()->free, GIB / 2);
    assert_int_equal(pools()->segments, 0);
    assert_int_equal(vt_fragmentation_oom(&oom, &o.a.model, 0), 0);
    assert_false(oom.known);
    assert_int_equal(oom.fit, VT_FIT_UNKNOWN);
    assert_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    look("peak"); /* of no single instant */
    assert_false(pools()->known);
    assert_int_equal(pools()->reserved, 0);
    fixture_section(&t.f, VT_LIVE)->lost = 3; /* some found no room */
    look("end");
    assert_false(pools()->known);
    assert_int_equal(pools()->reserved, GIB);
}

/* Who refused, and what was free, decide whether one piece would have been enough. */
static void test_fit(void **state)
{
    struct vt_pools p = {.known = true, .free_large = 512 * MIB, .largest_large = 16 * MIB};
    struct vt_failure f = {.kind = VT_FAILURE_OOM,
                           .driver_visible = 1,
                           .total_bytes = 16 * GIB,
                           .free_bytes = 1 * GIB,
                           .requested_bytes = 1536 * MIB};
    uint64_t largest;

    (void)state;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_YES); /* 1 GiB on the card and 512 MiB in segments */
    f.requested_bytes++;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_NO);
    f.requested_bytes = 512 * MIB;
    f.free_bytes = 0;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_YES);
    f.requested_bytes = 600 * MIB;
    f.free_bytes = 700 * MIB; /* the card had room: something else refused */
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_UNKNOWN);
    f.kind = VT_FAILURE_FRAMEWORK_OOM;
    f.driver_visible = 0;
    f.requested_bytes = 2 * GIB;
    f.free_bytes = 1536 * MIB;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_YES); /* a quarter of it */
    f.free_bytes = 1535 * MIB;                                  /* the card had not the rest */
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_NO);
    f.free_bytes = 14 * GIB;
    f.requested_bytes = 4 * GIB;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_UNKNOWN);
    p.free_large = 0;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_NO);
    p.known = false;
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_UNKNOWN);
    assert_int_equal(vt_fragmentation_fit(NULL, &f), VT_FIT_UNKNOWN);

    /* Small requests have segments of their own: one is of no use to the other. */
    p = (struct vt_pools){.known = true,
                          .small_pool = true,
                          .free_small = MIB,
                          .largest_small = MIB / 2,
                          .free_large = GIB,
                          .largest_large = GIB};
    assert_int_equal(vt_fragmentation_usable(&p, VT_SMALL_REQUEST, &largest), MIB);
    assert_int_equal(largest, MIB / 2);
    assert_int_equal(vt_fragmentation_usable(&p, VT_SMALL_REQUEST + 1, &largest), GIB);
    assert_int_equal(largest, GIB);
}

/* A driver that refuses: what is free on the card counts, too; without enough in pieces it is a matter of capacity. */
static void test_driver_refuses(void **state)
{
    struct vt_failure *failure;

    (void)state;
    carved();
    failure = failure_record(0);
    failure->driver_visible = 1;
    failure->code = 2;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = 1024 * MIB;
    look(NULL);
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    failure->free_bytes = 256 * MIB;
    failure->reserved_bytes = 15 * GIB; /* or the rest would be other processes' */
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_FRAGMENTATION));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_carved_segment),
        SCENE(test_without_slots),
        SCENE(test_fit),
        SCENE(test_driver_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
