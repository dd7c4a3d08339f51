/*
 * Fragmentation: which of the driver's allocations are segments, what lies where in them, what could be given back, who
 * keeps the rest, and whether a refused request would have fit in one piece.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

static const struct vt_pools *pools(const struct opened *o)
{
    const struct vt_pools *p = vt_fragmentation_of(&o->a.model.fragmentation, 0);

    assert_non_null(p);
    return p;
}

/*
 * One segment of 1 GiB, carved up by 64 tensors of 16 MiB of which every second one was freed; then PyTorch refuses
 * 1.25 GiB by a limit of its own. Returns the place of the tensors.
 */
static uint32_t carved(struct tensors *t)
{
    uint32_t segment, parts, i;

    tensors_begin(t);
    segment = segment_place(t, "first_step", 20);
    parts = tensor_place(t, "carve_up", 26);
    hold(t, segment, BASE, GIB);
    for (i = 0; i < 64; i++)
        if (i % 2)
            hold(t, parts, BASE + i * 16 * MIB, 16 * MIB);
        else
            book(t, parts, 16 * MIB, false);
    refused(t, python_line(t, 0, "second_step", 31), 1280 * MIB, "oom-1");
    return parts;
}

static void check_carved(const struct opened *o, uint32_t parts)
{
    const struct vt_fragmentation *f = &o->a.model.fragmentation;
    const struct vt_pools *p = pools(o);

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
    struct opened o;
    struct tensors t;
    uint32_t parts;

    (void)state;
    parts = carved(&t);
    open_at(&o, &t.f, "oom-1");
    check_carved(&o, parts);
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
    close_it(&o);

    /* At the end, too, the failure is explained as it was then, even if all tensors are gone; nothing leaks. */
    while (site_record(&t.f, parts)->live_count)
        unlive(&t, (uint32_t)(fixture_section(&t.f, VT_LIVE)->count - site_record(&t.f, parts)->live_count));
    open_at(&o, &t.f, NULL);
    assert_int_equal(pools(&o)->releasable, GIB);
    assert_int_equal(pools(&o)->pinned_segments, 0);
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_false(has_family(&o, VT_FAMILY_LIMIT));
    assert_int_equal(vt_fragmentation_oom(&oom, &o.a.model, 0), 0);
    assert_int_equal(oom.fit, VT_FIT_YES);
    close_it(&o);
    tensors_end(&t);
}

/* The moment has no slots: sums over places are all that is known, and nothing is guessed. */
static void test_without_slots(void **state)
{
    struct vt_oom_fit oom;
    struct opened o;
    struct tensors t;

    (void)state;
    carved(&t);
    ((struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 0))->slots = 0;
    open_at(&o, &t.f, "oom-1");
    assert_false(pools(&o)->known);
    assert_int_equal(pools(&o)->reserved, GIB);
    assert_int_equal(pools(&o)->allocated, GIB / 2);
    assert_int_equal(pools(&o)->free, GIB / 2);
    assert_int_equal(pools(&o)->segments, 0);
    assert_int_equal(vt_fragmentation_oom(&oom, &o.a.model, 0), 0);
    assert_false(oom.known);
    assert_int_equal(oom.fit, VT_FIT_UNKNOWN);
    assert_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    close_it(&o);
    open_at(&o, &t.f, "peak"); /* of no single instant */
    assert_false(pools(&o)->known);
    assert_int_equal(pools(&o)->reserved, 0);
    close_it(&o);
    fixture_section(&t.f, VT_LIVE)->lost = 3; /* some found no room */
    open_at(&o, &t.f, "end");
    assert_false(pools(&o)->known);
    assert_int_equal(pools(&o)->reserved, GIB);
    close_it(&o);
    tensors_end(&t);
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
    assert_int_equal(vt_fragmentation_fit(&p, &f), VT_FIT_YES); /* a quarter of it */
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
    struct opened o;
    struct tensors t;

    (void)state;
    carved(&t);
    failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, 0);
    failure->driver_visible = 1;
    failure->code = 2;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = 1024 * MIB;
    open_at(&o, &t.f, NULL);
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    failure->free_bytes = 256 * MIB;
    failure->reserved_bytes = 15 * GIB; /* or the rest would be other processes' */
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_FRAGMENTATION));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/*
 * Expandable segments: a reservation with 20 MiB handles mapped at 0 to 3 and at 5, another one right behind it with one
 * mapped, and one of 2 MiB for small tensors. A tensor spans handles 1 and 2.
 */
static void test_expandable(void **state)
{
    const struct vt_fragmentation *f;
    uint32_t mapped_total, va_total, physical_total, mapped, room, physical, parts, i;
    static const uint64_t at[] = {0, 20, 40, 60, 100, 120};
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    mapped_total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_VMM_MAPPED, 0, 0, 0, 0, 0, 0);
    va_total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_VMM_RESERVED_VA, -1, 0, 0, 0, 0, 0);
    physical_total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_VMM_PHYSICAL, 0, 0, 0, 0, 0, 0);
    mapped = place(&t, mapped_total, t.c10_stack, 0);
    room = place(&t, va_total, t.c10_stack, 0);
    physical = place(&t, physical_total, t.c10_stack, 0);
    parts = tensor_place(&t, "forward", 12);
    hold(&t, room, BASE, 120 * MIB);
    hold(&t, room, BASE + 120 * MIB, 20 * MIB);
    hold(&t, room, BASE + GIB, 20 * MIB);
    for (i = 0; i < 6; i++) {
        hold(&t, physical, 0x1000 + i, 20 * MIB); /* a handle's number is no address */
        hold(&t, mapped, BASE + at[i] * MIB, 20 * MIB);
    }
    hold(&t, physical, 0x2000, 2 * MIB);
    hold(&t, mapped, BASE + GIB, 2 * MIB);
    hold(&t, parts, BASE + 30 * MIB, 15 * MIB);
    hold(&t, parts, BASE + GIB + 512, MIB / 2);
    open_at(&o, &t.f, NULL);
    f = &o.a.model.fragmentation;
    assert_true(pools(&o)->known && pools(&o)->expandable);
    assert_int_equal(pools(&o)->reserved, 122 * MIB); /* once, by its mappings */
    assert_int_equal(pools(&o)->allocated, 15 * MIB + MIB / 2);
    assert_int_equal(pools(&o)->segments, 4);
    assert_int_equal(f->segments[0].bytes, 80 * MIB);
    assert_int_equal(f->segments[0].largest_gap, 35 * MIB);
    assert_int_equal(f->segments[0].releasable, 40 * MIB); /* handles 0 and 3 */
    assert_int_equal(f->segments[1].address, BASE + 100 * MIB);
    assert_int_equal(f->segments[1].bytes, 20 * MIB); /* what follows lies in another reservation */
    assert_int_equal(f->segments[2].bytes, 20 * MIB);
    assert_true(f->segments[3].small && !f->segments[2].small);
    assert_int_equal(pools(&o)->releasable, 80 * MIB);
    assert_int_equal(pools(&o)->split_free, 0); /* as torch counts it: expandable segments are never split */
    assert_int_equal(pools(&o)->free_small, MIB + MIB / 2);
    assert_int_equal(pools(&o)->free_large, 105 * MIB);
    assert_true(vt_model_site(&o.a.model, physical)->pool && vt_model_site(&o.a.model, mapped)->pool);
    assert_int_equal(o.a.model.devices[0].pool, 122 * MIB);
    assert_int_equal(o.a.model.devices[0].cached_unused, 122 * MIB - 15 * MIB - MIB / 2);
    close_it(&o);
    tensors_end(&t);
}

/* Segments that were made while graphs were captured: 1 and 2 share a pool, 3 has its own; a fourth is ordinary. */
static void test_private_pools(void **state)
{
    const struct vt_finding *finding;
    uint32_t segment, capture, input, output, i;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    segment = segment_place(&t, "capture", 19);
    capture = segment_place(&t, "capture", 23);
    input = tensor_place(&t, "capture", 19);
    output = tensor_place(&t, "capture", 24);
    hold(&t, segment, BASE, 64 * MIB);
    hold(&t, input, BASE, 64 * MIB);
    for (i = 1; i <= 3; i++) {
        captured(&t, hold(&t, capture, BASE + i * GIB, 64 * MIB), (uint16_t)i);
        captured(&t, hold(&t, capture, BASE + i * GIB + 512 * MIB, 64 * MIB), (uint16_t)i);
        captured(&t, hold(&t, output, BASE + i * GIB, 32 * MIB), (uint16_t)i);
    }
    captured(&t, hold(&t, output, BASE + 1 * GIB + 32 * MIB, 32 * MIB), 2);
    open_at(&o, &t.f, NULL);
    assert_int_equal(pools(&o)->private_segments, 6);
    assert_int_equal(pools(&o)->private_bytes, 384 * MIB);
    assert_int_equal(pools(&o)->private_free, 256 * MIB);
    assert_int_equal(pools(&o)->private_pools, 2);
    assert_int_equal(pools(&o)->releasable, 0); /* half of them are empty, but kept for the graphs */
    assert_int_equal(pools(&o)->free_large, 0);
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(
        strstr(finding->title, "2 private pools of CUDA graphs hold 384.00 MiB on GPU 0, 256.00 MiB of it unused"));
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], capture);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    fixture_header(&t.f)->minor = 2; /* that version didn't watch captures */
    open_at(&o, &t.f, NULL);
    assert_false(pools(&o)->private_known);
    close_it(&o);
    tensors_end(&t);
}

/* What makes a segment: tensors in it, or the library; the program's own allocations and workspaces are none. */
static void test_what_is_a_segment(void **state)
{
    uint32_t own_stack, segment, elsewhere, own, arena, tensor, cublas;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    own_stack = fixture_frame(&t.f, fixture_frame(&t.f, 0, t.app, 0x900), t.ours, 0x77);
    segment = segment_place(&t, "a", 1);
    elsewhere = segment_place(&t, "b", 2);
    own = place(&t, t.driver, own_stack, 0);
    arena = place(&t, t.driver, fixture_frame(&t.f, own_stack, t.ours, 0x88), 0);
    cublas = place(&t, t.driver, fixture_frame(&t.f, 0, fixture_module(&t.f, "/env/libcublas.so.13", 0), 0x1), 0);
    tensor = tensor_place(&t, "c", 3);
    hold(&t, segment, BASE, 20 * MIB);
    hold(&t, elsewhere, BASE + GIB, 40 * MIB);  /* no tensor in it */
    hold(&t, own, BASE + 2 * GIB, 80 * MIB);    /* the program's */
    hold(&t, arena, BASE + 3 * GIB, 160 * MIB); /* the program's, which hands it to the framework */
    hold(&t, cublas, BASE + 4 * GIB, 320 * MIB);
    hold(&t, tensor, BASE, 4 * MIB);
    hold(&t, tensor, BASE + 3 * GIB + 8 * MIB, 8 * MIB);
    hold(&t, tensor, BASE + 9 * GIB, 16 * MIB); /* in nothing that was seen */
    open_at(&o, &t.f, NULL);
    assert_int_equal(pools(&o)->segments, 3);
    assert_int_equal(pools(&o)->reserved, 220 * MIB);
    assert_int_equal(pools(&o)->allocated, 12 * MIB);
    assert_int_equal(pools(&o)->outside, 16 * MIB);
    assert_int_equal(pools(&o)->releasable, 40 * MIB);
    assert_true(vt_model_site(&o.a.model, elsewhere)->pool && vt_model_site(&o.a.model, arena)->pool);
    assert_false(vt_model_site(&o.a.model, own)->pool || vt_model_site(&o.a.model, cublas)->pool);
    /* 28 MiB of tensors and 192 MiB of what is left of the pool; nothing is counted twice. */
    assert_int_equal(o.a.model.devices[0].tensors, 28 * MIB);
    assert_int_equal(o.a.model.devices[0].cached_unused, 192 * MIB);
    assert_int_equal(o.a.model.devices[0].application, 80 * MIB);
    assert_int_equal(o.a.model.devices[0].libraries[0].bytes, 320 * MIB);
    close_it(&o);
    tensors_end(&t);
}

/* Tensors whose place in memory nobody tells (JAX's buffers are known by their handles). */
static void test_arena_of_jax(void **state)
{
    const struct vt_finding *finding;
    uint32_t stack, arena, array;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    ((struct vt_allocator *)fixture_record(&t.f, VT_ALLOCATORS, 0))->framework = VT_FRAMEWORK_JAX;
    ((struct vt_allocator *)fixture_record(&t.f, VT_ALLOCATORS, 0))->name = fixture_string(&t.f, "xla_cuda_plugin.so");
    stack = fixture_frame(&t.f, 0, fixture_module(&t.f, "/env/jax_plugins/xla_cuda13/xla_cuda_plugin.so", 0), 0x10);
    arena = place(&t, t.driver, fixture_frame(&t.f, stack, t.ours, 0x77), 0);
    array = tensor_place(&t, "record", 28);
    hold(&t, arena, BASE, 12 * GIB);
    hold(&t, array, 0x5000, 32 * MIB);
    hold(&t, array, 0x6000, 32 * MIB);
    open_at(&o, &t.f, NULL);
    assert_false(pools(&o)->known);
    assert_int_equal(pools(&o)->reserved, 12 * GIB);
    assert_int_equal(pools(&o)->allocated, 64 * MIB);
    assert_true(vt_model_site(&o.a.model, arena)->pool);
    finding = find(&o, VT_FAMILY_CACHE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "JAX took one arena of 12.00 GiB on GPU 0: preallocation, not a leak; 64.00 MiB of it "
                        "are in use by arrays.");
    assert_int_equal(finding->sites[0], arena);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    tensors_end(&t);
}

/* Tensors that are the driver's allocations themselves (other backends of PyTorch): nothing lies between them. */
static void test_direct(void **state)
{
    uint32_t async_total, async, tensor, i;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    async_total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_ASYNC, 0, 0, 0, 0, 0, 0);
    async = place(&t, async_total, t.c10_stack, 0);
    tensor = tensor_place(&t, "forward", 8);
    for (i = 0; i < 3; i++) {
        hold(&t, async, BASE + i * GIB, 8 * MIB);
        slot_record(&t, hold(&t, tensor, BASE + i * GIB, 8 * MIB))->flags = VT_SLOT_DIRECT;
    }
    open_at(&o, &t.f, NULL);
    assert_int_equal(pools(&o)->reserved, 24 * MIB);
    assert_int_equal(pools(&o)->allocated, 24 * MIB);
    assert_int_equal(pools(&o)->free, 0);
    assert_int_equal(o.a.model.devices[0].tensors, 24 * MIB);
    assert_int_equal(o.a.model.devices[0].application, 0);
    close_it(&o);
    tensors_end(&t);
}

/* A damaged file: overlapping allocations and tensors, sizes beyond the end of the address space, sites that are not there. */
static void test_nonsense(void **state)
{
    uint32_t segment, tensor, i;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    segment = segment_place(&t, "a", 1);
    tensor = tensor_place(&t, "b", 2);
    hold(&t, segment, BASE, 20 * MIB);
    hold(&t, segment, BASE + 10 * MIB, 20 * MIB);
    hold(&t, segment, BASE, 20 * MIB);
    hold(&t, tensor, BASE + MIB, 4 * MIB);
    hold(&t, tensor, BASE + 2 * MIB, MIB);
    hold(&t, tensor, BASE + 2 * MIB, 8 * MIB);
    hold(&t, tensor, BASE + 19 * MIB, 100 * MIB);
    hold(&t, tensor, UINT64_MAX - 100, 1000);
    slot_record(&t, hold(&t, tensor, BASE, MIB))->site = 12345;
    slot_record(&t, hold(&t, tensor, BASE, MIB))->kind = 200;
    open_at(&o, &t.f, NULL);
    assert_int_equal(pools(&o)->reserved, 20 * MIB);
    assert_int_equal(pools(&o)->allocated, 10 * MIB); /* 1 to 10 and 19 to 20 */
    for (i = 1; i < o.a.model.fragmentation.block_count; i++)
        assert_int_equal(o.a.model.fragmentation.blocks[i].address,
                         o.a.model.fragmentation.blocks[i - 1].address + o.a.model.fragmentation.blocks[i - 1].bytes);
    close_it(&o);
    tensors_end(&t);
}

/* No tensors, no figures: a program without a framework has no fragmentation to speak of. */
static void test_no_tensors(void **state)
{
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.model.fragmentation.pool_count, 0);
    assert_false(o.a.model.devices[0].tensors_known);
    close_it(&o);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_carved_segment),
        cmocka_unit_test(test_without_slots),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_driver_refuses),
        cmocka_unit_test(test_expandable),
        cmocka_unit_test(test_private_pools),
        cmocka_unit_test(test_what_is_a_segment),
        cmocka_unit_test(test_arena_of_jax),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_no_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
