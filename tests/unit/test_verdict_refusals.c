/*
 * Requests that the driver refuses for another reason than what this process holds on the card: of host memory, larger than
 * any card, below a limit, beside other processes. Each has a recording, and one that looks like it and is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_verdict_fixture.h"

static void test_host(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    uint32_t total, buffers;

    (void)state;
    begin();
    total = driver_total(VT_KIND_PINNED, -1);
    buffers = place(&t, total, t.c10_stack, python_line(&t, 0, "pin", 20));
    hold(&t, buffers, 0x10000000, 2 * GIB);
    fill(15 * GIB);
    failure = driver_refuses(GIB, 512 * MIB);
    failure->memory_kind = VT_KIND_PINNED;
    failure->device = -1;
    fixture_header(&t.f)->driver = fixture_string(&t.f, "/usr/lib/wsl/lib/libcuda.so.1");
    fixture_header(&t.f)->host_failure = 1;
    fixture_header(&t.f)->host_available_bytes = GIB / 2;
    fixture_header(&t.f)->host_limit_bytes = 4 * GIB;
    fixture_header(&t.f)->host_used_bytes = 3 * GIB;
    fixture_header(&t.f)->lockable_bytes = 8 * MIB;
    look("oom-1");
    finding = find(&o, VT_FAMILY_LIMIT, VT_LIKELY);
    assert_non_null(finding);
    assert_true(says(finding, "had page-locked 2.00 GiB already"));
    assert_true(says(finding, "WSL"));
    assert_true(says(finding, "The host had 512.00 MiB available, less than was asked for."));
    assert_true(says(finding, "control group is 4.00 GiB; 3.00 GiB were in use"));
    assert_true(says(finding, "ulimit -l allows 8.00 MiB of locked memory."));
    assert_true(says(finding, "up to 512.00 MiB may be rounding"));
    assert_true(says(finding, "2.00 GiB in 1 held by pin (train.py:20)"));
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], buffers);
    check_advice(finding, "pin_memory=False", 2 * GIB, false); /* of another memory than the card's */
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    fixture_header(&t.f)->host_failure = 2; /* looked at for another failure */
    fixture_header(&t.f)->lockable_bytes = VT_UNKNOWN_BYTES;
    look("oom-1");
    assert_false(says(find(&o, VT_FAMILY_LIMIT, VT_LIKELY), "available"));
    failure->memory_kind = VT_KIND_DEVICE;
    failure->device = 0;
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_LIMIT));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

static void test_huge(void **state)
{
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(8 * GIB);
    failure = driver_refuses(130206 * GIB, 7 * GIB);
    look("oom-1");
    assert_string_equal(find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN)->title,
                        "A request of 127.15 TiB can never fit: GPU 0 has 16.00 GiB in total.");
    failure->requested_bytes = 16 * GIB; /* on an empty card, as far as that goes */
    look("oom-1");
    assert_null(find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN));
    assert_true(says(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY), "7.00 GiB were free of 16.00 GiB: 9.00 GiB more"));
    check_advice(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY), "main (train.py:2)", 8 * GIB, false);
}

/* Free, and refused all the same: an earlier error may be repeated. */
static void test_limit(void **state)
{
    struct vt_failure earlier = {.kind = VT_FAILURE_OOM,
                                 .code = 2,
                                 .memory_kind = VT_KIND_PINNED,
                                 .driver_visible = 1,
                                 .device = -1,
                                 .count = 1,
                                 .requested_bytes = 4 * GIB,
                                 .first_ns = 1000,
                                 .last_ns = 1000,
                                 .moment = VT_NONE};
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(8 * GIB);
    driver_refuses(64 * MIB, 7 * GIB);
    earlier.api = fixture_string(&t.f, "cudaHostAlloc");
    fixture_add(&t.f, VT_FAILURES, &earlier);
    failure = failure_record(0);
    look("oom-1");
    assert_true(says(find(&o, VT_FAMILY_LIMIT, VT_LIKELY), "An earlier cudaHostAlloc of 4.00 GiB of host memory had"));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    failure->requested_bytes = 7 * GIB - MIB; /* it may have become free a moment later */
    look("oom-1");
    assert_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_POSSIBLE));
}

/* What NVML said at the failure: this process, and another one. */
static struct vt_process_bytes *list_other(uint64_t own, uint64_t other, uint64_t free_bytes)
{
    struct vt_process_bytes self = {.pid = 4242, .bytes = own, .flags = VT_PROCESS_SELF}, p = {.pid = 77};
    struct vt_usage u = {.cause = VT_USAGE_OOM,
                         .flags = VT_USAGE_LISTED,
                         .time_ns = t.now,
                         .total_bytes = 16 * GIB,
                         .free_bytes = free_bytes,
                         .used_bytes = 16 * GIB - free_bytes,
                         .own_bytes = own,
                         .live_bytes = total_record(&t, t.driver)->live_bytes,
                         .processes = 2};
    uint32_t index;

    p.name = fixture_string(&t.f, "/usr/bin/other");
    p.bytes = other;
    u.first_process = fixture_add(&t.f, VT_PROCESSES, &self);
    index = fixture_add(&t.f, VT_PROCESSES, &p);
    fixture_add(&t.f, VT_USAGES, &u);
    return (struct vt_process_bytes *)fixture_record(&t.f, VT_PROCESSES, index);
}

static void test_other_process(void **state)
{
    const struct vt_finding *finding;
    struct vt_process_bytes *other;
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(4 * GIB);
    driver_refuses(3 * GIB, 2 * GIB);
    other = list_other(4 * GIB + 256 * MIB, 9 * GIB, 2 * GIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "1 other process held 9.00 GiB of the 16.00 GiB of GPU 0: without it 3.00 GiB would have fit.");
    assert_string_equal(finding->evidence[0], "/usr/bin/other (pid 77) held 9.00 GiB.");
    check_advice(finding, "CUDA_VISIBLE_DEVICES", 9 * GIB, true);
    assert_null(advice(finding, "as this process does"));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));

    other->name = fixture_string(&t.f, "demo"); /* as this one */
    look("oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    check_advice(finding, "1 of them runs demo, as this process does", 9 * GIB, true);
    assert_true(
        says(finding, "1 of them runs demo too, each with a CUDA context of its own: at most 256.00 MiB of it."));

    /* A desktop: without it the request would have fit, but that is not why the card is full. */
    begin();
    fill(13 * GIB);
    failure = driver_refuses(2 * GIB + 128 * MIB, 2 * GIB);
    list_other(13 * GIB + 256 * MIB, 600 * MIB, 2 * GIB);
    failure = failure_record(0);
    look("oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_POSSIBLE);
    assert_non_null(finding);
    check_advice(finding, "CUDA_VISIBLE_DEVICES", 600 * MIB, true);
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    failure->requested_bytes = 3 * GIB; /* not even without it */
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

/* Without a list it is said that nobody knows who. */
static void test_unlisted_process(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;

    (void)state;
    begin();
    fill(4 * GIB);
    failure = driver_refuses(3 * GIB, 2 * GIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    assert_non_null(finding);
    assert_true(says(finding, "Which processes is unknown"));
    check_advice(finding, "nvidia-smi", 10 * GIB, true);
    failure->reserved_bytes = 13 * GIB; /* the rest is a context's */
    look("oom-1");
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_host), SCENE(test_huge), SCENE(test_limit), SCENE(test_other_process), SCENE(test_unlisted_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
