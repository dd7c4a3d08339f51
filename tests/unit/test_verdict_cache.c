/*
 * Memory that this process holds on a full card, and does not use: pieces of segments, blocks that wait for a stream, pools of
 * graphs, a framework's arena, a library's buffers. Each has a recording, and one that looks like it and is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_verdict_fixture.h"

/* Every second block of a segment is free. */
static void test_pieces(void **state)
{
    const struct vt_finding *finding;
    uint32_t parts, i;

    (void)state;
    begin();
    fill(11 * GIB);
    hold(&t, segment_place(&t, "first_step", 20), next, 4 * GIB);
    parts = tensor_place(&t, "carve_up", 26);
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(&t, parts, next, 256 * MIB);
    driver_refuses(GIB, 256 * MIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->sites[0], parts);
    check_advice(finding, "expandable_segments:True", 2 * GIB, true);
    check_advice(finding, "max_split_size_mb", 2 * GIB, true);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    fixture_header(&t.f)->environment = fixture_string(&t.f, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256");
    look("oom-1");
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "max_split_size_mb"));
}

/* Segments of 12 sizes, `step` apart, each kept by a small tensor. */
static void strand_segments(uint64_t step)
{
    uint32_t segments, tensors, i;

    begin();
    fill(9 * GIB);
    segments = segment_place(&t, "batch", 20);
    tensors = tensor_place(&t, "remember", 21);
    for (i = 0; i < 12; i++, next += GIB) {
        hold(&t, segments, next, 258 * MIB + i * step);
        hold(&t, tensors, next + 128 * MIB, MIB);
    }
    driver_refuses(GIB, 256 * MIB);
}

/* Requests whose sizes vary strand segments; rounding them helps only if it makes few sizes of many. */
static void test_sizes_that_vary(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    strand_segments(2 * MIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY);
    assert_non_null(finding);
    check_advice(finding, "roundup_power2_divisions:8", 0, false);
    check_advice(finding, "segments of 12 sizes", 0, false);
    fixture_header(&t.f)->environment = fixture_string(&t.f, "PYTORCH_ALLOC_CONF=roundup_power2_divisions:4");
    look("oom-1");
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));

    strand_segments(32 * MIB); /* as far apart as rounding would put them */
    look("oom-1");
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));

    strand_segments(0); /* one size fits all */
    look("oom-1");
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));
}

/* A free block of that size lies beside a live one, and PyTorch asked the driver all the same. */
static void test_pending(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(12 * GIB);
    hold(&t, segment_place(&t, "prefetch", 20), next, 3 * GIB);
    hold(&t, tensor_place(&t, "prefetch", 21), next, GIB);
    failure = driver_refuses(GIB, 512 * MIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_PENDING, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "1.00 GiB did not fit although a free block of 2.00 GiB was there"));
    check_advice(finding, "torch.cuda.synchronize()", 2 * GIB, true);
    failure->stack = 0; /* other code than PyTorch's can't have that block, but the segments could be given back */
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_PENDING));
}

static void test_private_pools(void **state)
{
    const struct vt_finding *finding;
    uint32_t segment, output, i;
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(9 * GIB);
    segment = segment_place(&t, "capture", 23);
    output = tensor_place(&t, "capture", 24);
    for (i = 0; i < 3; i++, next += 2 * GIB) {
        captured(&t, hold(&t, segment, next, 2 * GIB), (uint16_t)(i + 1));
        captured(&t, hold(&t, output, next, 512 * MIB), (uint16_t)(i + 1));
    }
    failure = driver_refuses(2 * GIB, 512 * MIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "held 6.00 GiB of GPU 0, 4.50 GiB of it unused"));
    check_advice(finding, "Capture fewer shapes", 4608 * MIB, true);
    assert_int_equal(finding->sites[0], segment);
    failure->requested_bytes = 8 * GIB; /* not even without them */
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_CACHE));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

/* Communicators hold much beside PyTorch; a workspace of 200 MiB is usual. */
static void test_libraries(void **state)
{
    const struct vt_finding *finding;
    uint32_t nccl, site;

    (void)state;
    begin();
    fill(11 * GIB);
    nccl = fixture_module(&t.f, "/env/lib/libnccl.so.2", 0);
    site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, nccl, 0x500), t.ours, 0x77), 0);
    hold(&t, site, next, 4 * GIB);
    driver_refuses(GIB, 512 * MIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_OVERHEAD, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title, "4.00 GiB of GPU 0 were held beside PyTorch's own memory.");
    assert_true(says(finding, "4.00 GiB by libnccl.so.2."));
    check_advice(finding, "NCCL_BUFFSIZE", 2 * GIB, true);
    assert_int_equal(finding->sites[0], site);
    assert_true(vt_finding_is_loud(finding));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));

    begin();
    fill(15 * GIB);
    nccl = fixture_module(&t.f, "/env/lib/libnccl.so.2", 0);
    site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, nccl, 0x500), t.ours, 0x77), 0);
    hold(&t, site, next, 700 * MIB);
    driver_refuses(512 * MIB, 256 * MIB);
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_OVERHEAD));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

/* JAX took its arena; then other code asks the driver. */
static void test_preallocation(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    uint32_t arrays;

    (void)state;
    begin();
    allocator_record()->framework = VT_FRAMEWORK_JAX;
    hold(&t, segment_place(&t, "main", 1), BASE, 14 * GIB);
    arrays = tensor_place(&t, "main", 2);
    site_record(&t.f, arrays)->api = fixture_string(&t.f, "jax.buffer");
    keep(arrays, GIB);
    failure = driver_refuses(GIB, 512 * MIB);
    failure->stack = fixture_frame(&t.f, 0, t.app, 0x900);
    failure->requested_bytes = 14 * GIB; /* more than the rest of the arena */
    look("oom-1");
    assert_null(find(&o, VT_FAMILY_CACHE, VT_LIKELY));
    failure = failure_record(0);
    failure->requested_bytes = GIB;
    look("oom-1");
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "JAX had taken an arena of 14.00 GiB of GPU 0 in advance, with 1.00 GiB of "
                                           "arrays in it"));
    check_advice(finding, "XLA_PYTHON_CLIENT_PREALLOCATE=false", 13 * GIB, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_pieces),        SCENE(test_sizes_that_vary), SCENE(test_pending),
        SCENE(test_private_pools), SCENE(test_libraries),       SCENE(test_preallocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
