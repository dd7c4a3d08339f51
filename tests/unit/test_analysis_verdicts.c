/*
 * Why memory ran out: one recording for each row of the decision table, and one that looks like it and is none. What would
 * help is asserted with its bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

#define MODULE_PY "/env/lib/python3.12/site-packages/torch/nn/modules/module.py"

static uint64_t next; /* address of the next tensor */

static uint32_t keep(struct tensors *t, uint32_t site, uint64_t bytes)
{
    next += bytes;
    return hold(t, site, next - bytes, bytes);
}

static void begin(struct tensors *t)
{
    tensors_begin(t);
    next = BASE;
}

/* The driver refuses a request of PyTorch's allocator. Returns the failure's record. */
static struct vt_failure *driver_refuses(struct tensors *t, uint64_t bytes, uint64_t free_bytes)
{
    struct vt_failure *failure = (struct vt_failure *)fixture_record(
        &t->f, VT_FAILURES, refused(t, python_line(t, 0, "train_step", 31), bytes, "oom-1"));

    failure->kind = VT_FAILURE_OOM;
    failure->code = 2;
    failure->driver_visible = 1;
    failure->stack = t->c10_stack;
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = free_bytes;
    return failure;
}

static struct vt_moment *moment_record(struct tensors *t)
{
    return (struct vt_moment *)fixture_record(&t->f, VT_MOMENTS, 0);
}

/* The advice that contains `words`, or NULL. */
static const struct vt_advice *advice(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->advice_count; i++)
        if (strstr(finding->advice[i].text, words))
            return &finding->advice[i];
    return NULL;
}

static bool says(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->evidence_count; i++)
        if (strstr(finding->evidence[i], words))
            return true;
    return false;
}

static void check_advice(const struct vt_finding *finding, const char *words, uint64_t saves, bool enough)
{
    const struct vt_advice *found = advice(finding, words);

    assert_non_null(found);
    assert_int_equal(found->saves_bytes, saves);
    assert_int_equal(found->enough, enough);
}

/* Full of tensors of one place, which nothing says anything about. */
static void fill(struct tensors *t, uint64_t bytes)
{
    hold(t, segment_place(t, "main", 1), next, bytes);
    keep(t, tensor_place(t, "main", 2), bytes);
}

static void test_host(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    uint32_t total, buffers;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_PINNED, -1, 0, 0, 0, 0, 0);
    buffers = place(&t, total, t.c10_stack, python_line(&t, 0, "pin", 20));
    hold(&t, buffers, 0x10000000, 2 * GIB);
    fill(&t, 15 * GIB);
    failure = driver_refuses(&t, GIB, 512 * MIB);
    failure->memory_kind = VT_KIND_PINNED;
    failure->device = -1;
    fixture_header(&t.f)->driver = fixture_string(&t.f, "/usr/lib/wsl/lib/libcuda.so.1");
    fixture_header(&t.f)->host_failure = 1;
    fixture_header(&t.f)->host_available_bytes = GIB / 2;
    fixture_header(&t.f)->host_limit_bytes = 4 * GIB;
    fixture_header(&t.f)->host_used_bytes = 3 * GIB;
    fixture_header(&t.f)->lockable_bytes = 8 * MIB;
    open_at(&o, &t.f, "oom-1");
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
    close_it(&o);
    fixture_header(&t.f)->host_failure = 2; /* looked at for another failure */
    fixture_header(&t.f)->lockable_bytes = VT_UNKNOWN_BYTES;
    open_at(&o, &t.f, "oom-1");
    assert_false(says(find(&o, VT_FAMILY_LIMIT, VT_LIKELY), "available"));
    close_it(&o);
    failure->memory_kind = VT_KIND_DEVICE;
    failure->device = 0;
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_LIMIT));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

static void test_huge(void **state)
{
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 8 * GIB);
    failure = driver_refuses(&t, 130206 * GIB, 7 * GIB);
    open_at(&o, &t.f, "oom-1");
    assert_string_equal(find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN)->title,
                        "A request of 127.15 TiB can never fit: GPU 0 has 16.00 GiB in total.");
    close_it(&o);
    failure->requested_bytes = 16 * GIB; /* on an empty card, as far as that goes */
    open_at(&o, &t.f, "oom-1");
    assert_null(find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN));
    assert_true(says(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY), "7.00 GiB were free of 16.00 GiB: 9.00 GiB more"));
    check_advice(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY), "main (train.py:2)", 8 * GIB, false);
    close_it(&o);
    tensors_end(&t);
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
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 8 * GIB);
    driver_refuses(&t, 64 * MIB, 7 * GIB);
    earlier.api = fixture_string(&t.f, "cudaHostAlloc");
    fixture_add(&t.f, VT_FAILURES, &earlier);
    failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, 0);
    open_at(&o, &t.f, "oom-1");
    assert_true(says(find(&o, VT_FAMILY_LIMIT, VT_LIKELY), "An earlier cudaHostAlloc of 4.00 GiB of host memory had"));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    failure->requested_bytes = 7 * GIB - MIB; /* it may have become free a moment later */
    open_at(&o, &t.f, "oom-1");
    assert_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_POSSIBLE));
    close_it(&o);
    tensors_end(&t);
}

/* What NVML said at the failure: this process, and another one. */
static struct vt_process_bytes *list_other(struct tensors *t, uint64_t own, uint64_t other, uint64_t free_bytes)
{
    struct vt_process_bytes self = {.pid = 4242, .bytes = own, .flags = VT_PROCESS_SELF}, p = {.pid = 77};
    struct vt_usage u = {.cause = VT_USAGE_OOM,
                         .flags = VT_USAGE_LISTED,
                         .time_ns = t->now,
                         .total_bytes = 16 * GIB,
                         .free_bytes = free_bytes,
                         .used_bytes = 16 * GIB - free_bytes,
                         .own_bytes = own,
                         .live_bytes = total_record(t, t->driver)->live_bytes,
                         .processes = 2};
    uint32_t index;

    p.name = fixture_string(&t->f, "/usr/bin/other");
    p.bytes = other;
    u.first_process = fixture_add(&t->f, VT_PROCESSES, &self);
    index = fixture_add(&t->f, VT_PROCESSES, &p);
    fixture_add(&t->f, VT_USAGES, &u);
    return (struct vt_process_bytes *)fixture_record(&t->f, VT_PROCESSES, index);
}

static void test_other_process(void **state)
{
    const struct vt_finding *finding;
    struct vt_process_bytes *other;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 4 * GIB);
    driver_refuses(&t, 3 * GIB, 2 * GIB);
    other = list_other(&t, 4 * GIB + 256 * MIB, 9 * GIB, 2 * GIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(
        finding->title,
        "1 other process held 9.00 GiB of the 16.00 GiB of GPU 0: without them 3.00 GiB would have fit.");
    assert_string_equal(finding->evidence[0], "/usr/bin/other (pid 77) held 9.00 GiB.");
    check_advice(finding, "CUDA_VISIBLE_DEVICES", 9 * GIB, true);
    assert_null(advice(finding, "as this process does"));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);

    other->name = fixture_string(&t.f, "demo"); /* as this one */
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    check_advice(finding, "1 of them runs demo, as this process does", 9 * GIB, true);
    assert_true(
        says(finding, "1 of them runs demo too, each with a CUDA context of its own: about 256.00 MiB, as here."));
    close_it(&o);

    tensors_end(&t);

    /* A desktop: without it the request would have fit, but that is not why the card is full. */
    begin(&t);
    fill(&t, 13 * GIB);
    failure = driver_refuses(&t, 2 * GIB + 128 * MIB, 2 * GIB);
    list_other(&t, 13 * GIB + 256 * MIB, 600 * MIB, 2 * GIB);
    failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, 0);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_POSSIBLE);
    assert_non_null(finding);
    check_advice(finding, "CUDA_VISIBLE_DEVICES", 600 * MIB, true);
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    failure->requested_bytes = 3 * GIB; /* not even without it */
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/* Without a list it is said that nobody knows who. */
static void test_unlisted_process(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 4 * GIB);
    failure = driver_refuses(&t, 3 * GIB, 2 * GIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_OTHER_PROCESS, VT_LIKELY);
    assert_non_null(finding);
    assert_true(says(finding, "Which processes is unknown"));
    check_advice(finding, "nvidia-smi", 10 * GIB, true);
    close_it(&o);
    failure->reserved_bytes = 13 * GIB; /* the rest is a context's */
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
    close_it(&o);
    tensors_end(&t);
}

/* Every second block of a segment is free. */
static void test_pieces(void **state)
{
    const struct vt_finding *finding;
    uint32_t parts, i;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 11 * GIB);
    hold(&t, segment_place(&t, "first_step", 20), next, 4 * GIB);
    parts = tensor_place(&t, "carve_up", 26);
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(&t, parts, next, 256 * MIB);
    driver_refuses(&t, GIB, 256 * MIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->sites[0], parts);
    check_advice(finding, "expandable_segments:True", 2 * GIB, true);
    check_advice(finding, "max_split_size_mb", 2 * GIB, true);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    fixture_header(&t.f)->environment = fixture_string(&t.f, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:256");
    open_at(&o, &t.f, "oom-1");
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "max_split_size_mb"));
    close_it(&o);
    tensors_end(&t);
}

/* Segments of 12 sizes, `step` apart, each kept by a small tensor. */
static void strand_segments(struct tensors *t, uint64_t step)
{
    uint32_t segments, tensors, i;

    begin(t);
    fill(t, 9 * GIB);
    segments = segment_place(t, "batch", 20);
    tensors = tensor_place(t, "remember", 21);
    for (i = 0; i < 12; i++, next += GIB) {
        hold(t, segments, next, 258 * MIB + i * step);
        hold(t, tensors, next + 128 * MIB, MIB);
    }
    driver_refuses(t, GIB, 256 * MIB);
}

/* Requests whose sizes vary strand segments; rounding them helps only if it makes few sizes of many. */
static void test_sizes_that_vary(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    strand_segments(&t, 2 * MIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY);
    assert_non_null(finding);
    check_advice(finding, "roundup_power2_divisions:8", 0, false);
    check_advice(finding, "segments of 12 sizes", 0, false);
    close_it(&o);
    fixture_header(&t.f)->environment = fixture_string(&t.f, "PYTORCH_ALLOC_CONF=roundup_power2_divisions:4");
    open_at(&o, &t.f, "oom-1");
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));
    close_it(&o);
    tensors_end(&t);

    strand_segments(&t, 32 * MIB); /* as far apart as rounding would put them */
    open_at(&o, &t.f, "oom-1");
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));
    close_it(&o);
    tensors_end(&t);

    strand_segments(&t, 0); /* one size fits all */
    open_at(&o, &t.f, "oom-1");
    assert_non_null(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY));
    assert_null(advice(find(&o, VT_FAMILY_FRAGMENTATION, VT_LIKELY), "roundup_power2_divisions"));
    close_it(&o);
    tensors_end(&t);
}

/* A free block of that size lies beside a live one, and PyTorch asked the driver all the same. */
static void test_pending(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 12 * GIB);
    hold(&t, segment_place(&t, "prefetch", 20), next, 3 * GIB);
    hold(&t, tensor_place(&t, "prefetch", 21), next, GIB);
    failure = driver_refuses(&t, GIB, 512 * MIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_PENDING, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "1.00 GiB did not fit although a free block of 2.00 GiB was there"));
    check_advice(finding, "torch.cuda.synchronize()", 2 * GIB, true);
    close_it(&o);
    failure->stack = 0; /* other code than PyTorch's can't have that block, but the segments could be given back */
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_PENDING));
    close_it(&o);
    tensors_end(&t);
}

static void test_private_pools(void **state)
{
    const struct vt_finding *finding;
    uint32_t segment, output, i;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 9 * GIB);
    segment = segment_place(&t, "capture", 23);
    output = tensor_place(&t, "capture", 24);
    for (i = 0; i < 3; i++, next += 2 * GIB) {
        captured(&t, hold(&t, segment, next, 2 * GIB), (uint16_t)(i + 1));
        captured(&t, hold(&t, output, next, 512 * MIB), (uint16_t)(i + 1));
    }
    failure = driver_refuses(&t, 2 * GIB, 512 * MIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "held 6.00 GiB of GPU 0, 4.50 GiB of it unused"));
    check_advice(finding, "Capture fewer shapes", 4608 * MIB, true);
    assert_int_equal(finding->sites[0], segment);
    close_it(&o);
    failure->requested_bytes = 8 * GIB; /* not even without them */
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_CACHE));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/* Communicators hold much beside PyTorch; a workspace of 200 MiB is usual. */
static void test_libraries(void **state)
{
    const struct vt_finding *finding;
    uint32_t nccl, site;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    fill(&t, 11 * GIB);
    nccl = fixture_module(&t.f, "/env/lib/libnccl.so.2", 0);
    site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, nccl, 0x500), t.ours, 0x77), 0);
    hold(&t, site, next, 4 * GIB);
    driver_refuses(&t, GIB, 512 * MIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_OVERHEAD, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title, "4.00 GiB of GPU 0 were held beside PyTorch's own memory.");
    assert_true(says(finding, "4.00 GiB by libnccl.so.2."));
    check_advice(finding, "NCCL_BUFFSIZE", 2 * GIB, true);
    assert_int_equal(finding->sites[0], site);
    assert_true(vt_finding_is_loud(finding));
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    tensors_end(&t);

    begin(&t);
    fill(&t, 15 * GIB);
    nccl = fixture_module(&t.f, "/env/lib/libnccl.so.2", 0);
    site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, nccl, 0x500), t.ours, 0x77), 0);
    hold(&t, site, next, 700 * MIB);
    driver_refuses(&t, 512 * MIB, 256 * MIB);
    open_at(&o, &t.f, "oom-1");
    assert_false(has_family(&o, VT_FAMILY_OVERHEAD));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/* Twelve steps; each keeps a GiB, or the first one makes all of it. */
static void twelve_steps(struct tensors *t, bool grows)
{
    uint32_t outputs, temporary, step, i;

    begin(t);
    hold(t, segment_place(t, "main", 1), next, 15 * GIB);
    keep(t, tensor_place(t, "main", 2), 3 * GIB);
    outputs = tensor_place(t, "train_step", 12);
    temporary = tensor_place(t, "train_step", 13);
    for (step = 0; step < 12; step++) {
        for (i = 0; i < (grows ? 1 : step ? 0 : 12); i++)
            keep(t, outputs, GIB);
        book(t, temporary, 64 * MIB, false);
        step_ends(t);
    }
    driver_refuses(t, GIB, 512 * MIB);
    moment_record(t)->steps = 12;
    moment_record(t)->step_ns = fixture_header(&t->f)->step_ns;
}

static void test_growth(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    twelve_steps(&t, true);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(
        finding->title,
        "GPU 0 filled up step by step: 12.00 GiB of the 15.00 GiB in tensors came in 12 steps and stayed.");
    assert_true(says(finding, "12.00 GiB in 12 by train_step (train.py:12): 1.00 GiB more per step."));
    check_advice(finding, ".item()", 12 * GIB, true);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    close_it(&o);
    tensors_end(&t);
    twelve_steps(&t, false);
    open_at(&o, &t.f, "oom-1");
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/* What tensors are, in GiB: the card is full of that. */
struct parts {
    uint32_t weights, gradients, optimizer, activations;
};

static uint32_t module_place(struct tensors *t, const char *inner, uint32_t line)
{
    uint32_t own = python_line(t, python_line(t, 0, "<module>", 99), "train_step", line);

    return place(t, t->tensor, 0, fixture_python(&t->f, own, MODULE_PY, inner, 100));
}

static struct vt_failure *full_of(struct tensors *t, struct parts parts, enum vt_phase phase)
{
    uint64_t sum = parts.weights + parts.gradients + parts.optimizer + parts.activations;
    uint32_t site;
    struct vt_failure *failure;

    begin(t);
    fixture_header(&t->f)->world_size = -1;
    hold(t, segment_place(t, "main", 1), next, sum * GIB);
    if (parts.weights)
        keep(t, module_place(t, "Module._apply", 10), parts.weights * GIB);
    if (parts.gradients) {
        site = tensor_place(t, "train_step", 25);
        site_record(&t->f, site)->phase = VT_PHASE_BACKWARD;
        keep(t, site, parts.gradients * GIB);
    }
    if (parts.optimizer) {
        site = tensor_place(t, "train_step", 26);
        site_record(&t->f, site)->phase = VT_PHASE_OPTIMIZER;
        keep(t, site, parts.optimizer * GIB);
    }
    if (parts.activations)
        keep(t, module_place(t, "Module._call_impl", 24), parts.activations * GIB);
    failure = driver_refuses(t, GIB, 512 * MIB);
    moment_record(t)->phase = phase;
    return failure;
}

static void test_activations(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    full_of(&t, (struct parts){.weights = 2, .gradients = 2, .optimizer = 3, .activations = 8}, VT_PHASE_BACKWARD);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "GPU 0 was full: 1.00 GiB did not fit. Most of it were activations: 8.00 GiB of "
                        "15.00 GiB in tensors.");
    assert_true(says(finding, "Of 15.00 GiB in tensors: 2.00 GiB parameters, 2.00 GiB gradients, 3.00 GiB optimizer "
                              "state, 8.00 GiB activations."));
    assert_int_equal(finding->advice_count, 5);
    assert_non_null(strstr(finding->advice[0].text, "Halve the batch"));
    assert_non_null(strstr(finding->advice[0].text, "Accumulating gradients over 2 steps"));
    check_advice(finding, "Halve the batch", 4 * GIB, true);
    check_advice(finding, "torch.utils.checkpoint", 4 * GIB, true);
    check_advice(finding, "torch.autocast", 4 * GIB, true);
    check_advice(finding, "over 2 GPUs: ZeRO-1 saves 1.50 GiB on each, ZeRO-2 2.50 GiB, ZeRO-3 or FSDP 3.50 GiB",
                 3584 * MIB, true);
    check_advice(finding, "offload_optimizer", 3 * GIB, true);
    assert_null(advice(finding, "set_to_none")); /* gradients have to be there in backward */
    close_it(&o);

    /* Measures that are in use already are not named; ranks are those of the run. */
    fixture_python(&t.f, 0, "/env/torch/utils/checkpoint.py", "checkpoint", 1);
    fixture_python(&t.f, 0, "/env/torch/amp/autocast_mode.py", "decorate_autocast", 1);
    fixture_header(&t.f)->world_size = 4;
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_null(advice(finding, "torch.utils.checkpoint"));
    assert_null(advice(finding, "torch.autocast"));
    check_advice(finding, "over the 4 GPUs", 5376 * MIB, true);
    check_advice(finding, "Adam8bit", 2304 * MIB, true);
    close_it(&o);
    tensors_end(&t);
}

static void test_optimizer_state(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;

    (void)state;
    failure = full_of(&t, (struct parts){.weights = 4, .gradients = 4, .optimizer = 7}, VT_PHASE_OPTIMIZER);
    failure->requested_bytes = 6 * GIB;
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were optimizer state: 7.00 GiB of 15.00 GiB"));
    check_advice(finding, "offload_optimizer", 7 * GIB, true);
    check_advice(finding, "Adam8bit", 5376 * MIB, false); /* 5.5 GiB were missing */
    check_advice(finding, "foreach=False", 4 * GIB, false);
    assert_null(advice(finding, "Halve the batch"));
    assert_null(advice(finding, "Load the weights"));
    close_it(&o);
    tensors_end(&t);
}

/* Gradients in a forward pass were zeroed instead of dropped. */
static void test_gradients(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    full_of(&t, (struct parts){.weights = 5, .gradients = 7, .activations = 3}, VT_PHASE_NONE);
    moment_record(&t)->steps = 3;
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were gradients: 7.00 GiB"));
    check_advice(finding, "set_to_none=True", 7 * GIB, true);
    assert_null(advice(finding, "offload_optimizer"));
    close_it(&o);
    tensors_end(&t);
}

static void test_weights(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    full_of(&t, (struct parts){.weights = 15}, VT_PHASE_NONE);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were weights: 15.00 GiB"));
    check_advice(finding, "Load the weights with half the bits", 7680 * MIB, true);
    check_advice(finding, "device_map", 7680 * MIB, true);
    assert_int_equal(finding->advice_count, 2); /* nothing is trained */
    close_it(&o);
    tensors_end(&t);
}

/* The report of the whole run looks at the failure as it was then. */
static void test_at_the_end(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    full_of(&t, (struct parts){.weights = 2, .activations = 13}, VT_PHASE_NONE);
    unlive(&t, 2);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were activations: 13.00 GiB of 15.00 GiB"));
    check_advice(finding, "Halve the batch", 6656 * MIB, true);
    assert_null(advice(finding, "Accumulating")); /* nothing shows that it trains */
    close_it(&o);
    tensors_end(&t);
}

/* JAX took its arena; then other code asks the driver. */
static void test_preallocation(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;
    struct opened o;
    struct tensors t;
    uint32_t arrays;

    (void)state;
    begin(&t);
    ((struct vt_allocator *)fixture_record(&t.f, VT_ALLOCATORS, 0))->framework = VT_FRAMEWORK_JAX;
    hold(&t, segment_place(&t, "main", 1), BASE, 14 * GIB);
    arrays = tensor_place(&t, "main", 2);
    site_record(&t.f, arrays)->api = fixture_string(&t.f, "jax.buffer");
    keep(&t, arrays, GIB);
    failure = driver_refuses(&t, GIB, 512 * MIB);
    failure->stack = fixture_frame(&t.f, 0, t.app, 0x900);
    failure->requested_bytes = 14 * GIB; /* more than the rest of the arena */
    open_at(&o, &t.f, "oom-1");
    assert_null(find(&o, VT_FAMILY_CACHE, VT_LIKELY));
    close_it(&o);
    failure = (struct vt_failure *)fixture_record(&t.f, VT_FAILURES, 0);
    failure->requested_bytes = GIB;
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CACHE, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "JAX had taken an arena of 14.00 GiB of GPU 0 in advance, with 1.00 GiB of "
                                           "arrays in it"));
    check_advice(finding, "XLA_PYTHON_CLIENT_PREALLOCATE=false", 13 * GIB, true);
    close_it(&o);
    tensors_end(&t);
}

/* The next attempt succeeded: nothing failed. */
static void test_retry(void **state)
{
    struct opened o;
    struct tensors t;

    (void)state;
    full_of(&t, (struct parts){.activations = 15}, VT_PHASE_NONE)->kind = VT_FAILURE_RETRY;
    moment_record(&t)->name[0] = '\0';
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
    close_it(&o);
    tensors_end(&t);
}

/* Counts that a damaged file claims cost no time. */
static void test_counts_that_lie(void **state)
{
    struct opened o;
    struct tensors t;
    size_t i;
    static const char *const moments[] = {"oom-1", "end"};

    (void)state;
    full_of(&t, (struct parts){.activations = 15}, VT_PHASE_NONE);
    refused(&t, python_line(&t, 0, "again", 40), GIB, "oom-2");
    moment_record(&t)->totals = moment_record(&t)->sites = 1ull << 60;
    for (i = 0; i < 2; i++) {
        open_at(&o, &t.f, moments[i]);
        assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
        close_it(&o);
    }
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_other_process),
        cmocka_unit_test(test_unlisted_process),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_sizes_that_vary),
        cmocka_unit_test(test_pending),
        cmocka_unit_test(test_private_pools),
        cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_optimizer_state),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_at_the_end),
        cmocka_unit_test(test_preallocation),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_counts_that_lie),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
