/*
 * Which of the driver's allocations are segments of a framework's allocator, and what lies where in them: expandable ones, private
 * pools, arenas, tensors that are allocations themselves, and what a damaged file claims.
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
 * Expandable segments: a reservation with 20 MiB handles mapped at 0 to 3 and at 5, another one right behind it with one
 * mapped, and one of 2 MiB for small tensors. A tensor spans handles 1 and 2.
 */
static void test_expandable(void **state)
{
    const struct vt_fragmentation *f;
    uint32_t mapped_total, va_total, physical_total, mapped, room, physical, parts, i;
    static const uint64_t at[] = {0, 20, 40, 60, 100, 120};

    (void)state;
    begin();
    mapped_total = driver_total(VT_KIND_VMM_MAPPED, 0);
    va_total = driver_total(VT_KIND_VMM_RESERVED_VA, -1);
    physical_total = driver_total(VT_KIND_VMM_PHYSICAL, 0);
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
    look(NULL);
    f = &o.a.model.fragmentation;
    assert_true(pools()->known && pools()->expandable);
    assert_int_equal(pools()->reserved, 122 * MIB); /* once, by its mappings */
    assert_int_equal(pools()->allocated, 15 * MIB + MIB / 2);
    assert_int_equal(pools()->segments, 4);
    assert_int_equal(f->segments[0].bytes, 80 * MIB);
    assert_int_equal(f->segments[0].largest_gap, 35 * MIB);
    assert_int_equal(f->segments[0].releasable, 40 * MIB); /* handles 0 and 3 */
    assert_int_equal(f->segments[1].address, BASE + 100 * MIB);
    assert_int_equal(f->segments[1].bytes, 20 * MIB); /* what follows lies in another reservation */
    assert_int_equal(f->segments[2].bytes, 20 * MIB);
    assert_true(f->segments[3].small && !f->segments[2].small);
    assert_int_equal(pools()->releasable, 80 * MIB);
    assert_int_equal(pools()->split_free, 0); /* as torch counts it: expandable segments are never split */
    assert_int_equal(pools()->free_small, MIB + MIB / 2);
    assert_int_equal(pools()->free_large, 105 * MIB);
    assert_true(vt_model_site(&o.a.model, physical)->pool && vt_model_site(&o.a.model, mapped)->pool);
    assert_int_equal(o.a.model.devices[0].pool, 122 * MIB);
    assert_int_equal(o.a.model.devices[0].cached_unused, 122 * MIB - 15 * MIB - MIB / 2);
}

/* Segments that were made while graphs were captured: 1 and 2 share a pool, 3 has its own; a fourth is ordinary. */
static void test_private_pools(void **state)
{
    const struct vt_finding *finding;
    uint32_t segment, capture, input, output, i;

    (void)state;
    begin();
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
    look(NULL);
    assert_int_equal(pools()->private_segments, 6);
    assert_int_equal(pools()->private_bytes, 384 * MIB);
    assert_int_equal(pools()->private_free, 256 * MIB);
    assert_int_equal(pools()->private_pools, 2);
    assert_int_equal(pools()->releasable, 0); /* half of them are empty, but kept for the graphs */
    assert_int_equal(pools()->free_large, 0);
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(
        strstr(finding->title, "2 private pools of CUDA graphs hold 384.00 MiB on GPU 0, 256.00 MiB of it unused"));
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], capture);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    fixture_header(&t.f)->minor = 2; /* that version didn't watch captures */
    look(NULL);
    assert_false(pools()->private_known);
}

/* What makes a segment: tensors in it, or the library; the program's own allocations and workspaces are none. */
static void test_what_is_a_segment(void **state)
{
    uint32_t own_stack, segment, elsewhere, own, arena, tensor, cublas;

    (void)state;
    begin();
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
    look(NULL);
    assert_int_equal(pools()->segments, 3);
    assert_int_equal(pools()->reserved, 220 * MIB);
    assert_int_equal(pools()->allocated, 12 * MIB);
    assert_int_equal(pools()->outside, 16 * MIB);
    assert_int_equal(pools()->releasable, 40 * MIB);
    assert_true(vt_model_site(&o.a.model, elsewhere)->pool && vt_model_site(&o.a.model, arena)->pool);
    assert_false(vt_model_site(&o.a.model, own)->pool || vt_model_site(&o.a.model, cublas)->pool);
    /* 28 MiB of tensors and 192 MiB of what is left of the pool; nothing is counted twice. */
    assert_int_equal(o.a.model.devices[0].tensors, 28 * MIB);
    assert_int_equal(o.a.model.devices[0].cached_unused, 192 * MIB);
    assert_int_equal(o.a.model.devices[0].application, 80 * MIB);
    assert_int_equal(o.a.model.devices[0].libraries[0].bytes, 320 * MIB);
}

/* Tensors whose place in memory nobody tells (JAX's buffers are known by their handles). */
static void test_arena_of_jax(void **state)
{
    const struct vt_finding *finding;
    uint32_t stack, arena, array;

    (void)state;
    begin();
    allocator_record()->framework = VT_FRAMEWORK_JAX;
    allocator_record()->name = fixture_string(&t.f, "xla_cuda_plugin.so");
    stack = fixture_frame(&t.f, 0, fixture_module(&t.f, "/env/jax_plugins/xla_cuda13/xla_cuda_plugin.so", 0), 0x10);
    arena = place(&t, t.driver, fixture_frame(&t.f, stack, t.ours, 0x77), 0);
    array = tensor_place(&t, "record", 28);
    hold(&t, arena, BASE, 12 * GIB);
    hold(&t, array, 0x5000, 32 * MIB);
    hold(&t, array, 0x6000, 32 * MIB);
    look(NULL);
    assert_false(pools()->known);
    assert_int_equal(pools()->reserved, 12 * GIB);
    assert_int_equal(pools()->allocated, 64 * MIB);
    assert_true(vt_model_site(&o.a.model, arena)->pool);
    finding = find(&o, VT_FAMILY_CACHE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "JAX took one arena of 12.00 GiB on GPU 0: preallocation, not a leak; 64.00 MiB of it "
                        "are in use by arrays.");
    assert_int_equal(finding->sites[0], arena);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
}

/* Tensors that are the driver's allocations themselves (other backends of PyTorch): nothing lies between them. */
static void test_direct(void **state)
{
    uint32_t async_total, async, tensor, i;

    (void)state;
    begin();
    async_total = driver_total(VT_KIND_ASYNC, 0);
    async = place(&t, async_total, t.c10_stack, 0);
    tensor = tensor_place(&t, "forward", 8);
    for (i = 0; i < 3; i++) {
        hold(&t, async, BASE + i * GIB, 8 * MIB);
        slot_record(&t, hold(&t, tensor, BASE + i * GIB, 8 * MIB))->flags = VT_SLOT_DIRECT;
    }
    look(NULL);
    assert_int_equal(pools()->reserved, 24 * MIB);
    assert_int_equal(pools()->allocated, 24 * MIB);
    assert_int_equal(pools()->free, 0);
    assert_int_equal(o.a.model.devices[0].tensors, 24 * MIB);
    assert_int_equal(o.a.model.devices[0].application, 0);
}

/* A damaged file: overlapping allocations and tensors, sizes beyond the end of the address space, sites that are not there. */
static void test_nonsense(void **state)
{
    uint32_t segment, tensor, i;

    (void)state;
    begin();
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
    look(NULL);
    assert_int_equal(pools()->reserved, 20 * MIB);
    assert_int_equal(pools()->allocated, 10 * MIB); /* 1 to 10 and 19 to 20 */
    for (i = 1; i < o.a.model.fragmentation.block_count; i++)
        assert_int_equal(o.a.model.fragmentation.blocks[i].address,
                         o.a.model.fragmentation.blocks[i - 1].address + o.a.model.fragmentation.blocks[i - 1].bytes);
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
        SCENE(test_expandable), SCENE(test_private_pools), SCENE(test_what_is_a_segment), SCENE(test_arena_of_jax),
        SCENE(test_direct),     SCENE(test_nonsense),      SCENE(test_no_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
