/*
 * Memory that is held on purpose is told only where there is some, as what it is, with advice that can be followed: page-locked
 * pools are no device memory, what the environment sets already is not advised, and a user of a framework can't destroy its
 * handles. Calls that a framework tries, and does without, are no errors of the program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_verdict_fixture.h"

#define C10 "/env/torch/lib/libc10_cuda.so"
#define TENSORFLOW "/env/tensorflow/libtensorflow_framework.so.2"
#define XLA "/env/jax_plugins/xla_cuda13/xla_cuda_plugin.so"
#define CUPY "/env/cupy_backends/cuda/api/runtime.so"
#define CUBLAS "/env/lib/libcublas.so.13"

/* A place of a total in a module's code that `caller` calls (NULL: nobody known). */
static uint32_t called_place(uint32_t total, const char *module, const char *caller)
{
    uint32_t frame = caller ? fixture_frame(&t.f, 0, fixture_module(&t.f, caller, 0), 0x400) : 0;

    frame = fixture_frame(&t.f, frame, fixture_module(&t.f, module, 0), 0x500);
    return place(&t, total, fixture_frame(&t.f, frame, t.ours, 0x77), 0);
}

static void set_environment(const char *name_and_value)
{
    set_text(offsetof(struct vt_header, environment), name_and_value);
}

/* Device memory and page-locked memory of one framework: two findings, each with its own sum. */
static void check_host_pool(const char *module, const char *device_advice, const char *host_advice)
{
    const struct vt_finding *device, *host;

    begin();
    hold(&t, called_place(t.driver, module, NULL), BASE, GIB);
    hold(&t, called_place(driver_total(VT_KIND_PINNED, -1), module, NULL), BASE + 2 * GIB, 18 * MIB);
    finalize(&t);
    look(NULL);
    device = titled("1.00 GiB in the pools of frameworks: cached or in use, not leaked.");
    host = titled("18.00 MiB of page-locked host memory in the pools of frameworks: cached or in use, not leaked.");
    assert_non_null(device);
    assert_non_null(host);
    assert_non_null(advice(device, device_advice));
    assert_int_equal(host->site_count, 1);
    if (host_advice)
        assert_non_null(advice(host, host_advice));
    assert_int_equal(host->advice_count, host_advice != NULL);
}

static void test_page_locked_pools(void **state)
{
    (void)state;
    check_host_pool(TENSORFLOW, "TF_FORCE_GPU_ALLOW_GROWTH=true", NULL);
    check_host_pool(XLA, "XLA_PYTHON_CLIENT_PREALLOCATE=false", NULL);
    check_host_pool(C10, "torch.cuda.empty_cache()", "torch._C._host_emptyCache()");
    check_host_pool(CUPY, "CuPy's pool took 1.00 GiB", "get_default_pinned_memory_pool().free_all_blocks()");
}

/* A few bytes beside another framework's: no advice on these. */
static void test_a_few_bytes(void **state)
{
    uint32_t pinned;

    (void)state;
    begin();
    pinned = driver_total(VT_KIND_PINNED, -1);
    hold(&t, called_place(pinned, TENSORFLOW, NULL), BASE, 2 * MIB);
    hold(&t, called_place(pinned, C10, NULL), BASE + GIB, 4);
    finalize(&t);
    look(NULL);
    assert_non_null(titled("2.00 MiB of page-locked host memory in the pools of frameworks"));
    assert_int_equal(titled("page-locked host memory")->advice_count, 0);
}

/* What the environment says already. */
static void test_advice_in_effect(void **state)
{
    static const struct {
        const char *module, *environment;
        bool advised;
    } known[] = {{TENSORFLOW, "TF_FORCE_GPU_ALLOW_GROWTH=true", false},
                 {TENSORFLOW, "TF_FORCE_GPU_ALLOW_GROWTH=false", true},
                 {TENSORFLOW, "TF_GPU_ALLOCATOR=cuda_malloc_async", false},
                 {TENSORFLOW, "XLA_PYTHON_CLIENT_PREALLOCATE=false", true},
                 {XLA, "XLA_PYTHON_CLIENT_PREALLOCATE=False", false},
                 {XLA, "XLA_PYTHON_CLIENT_PREALLOCATE=true", true},
                 {XLA, "XLA_PYTHON_CLIENT_ALLOCATOR=platform", false}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin();
        hold(&t, called_place(t.driver, known[i].module, NULL), BASE, GIB);
        set_environment(known[i].environment);
        finalize(&t);
        look(NULL);
        assert_non_null(titled("1.00 GiB in the pools of frameworks"));
        assert_int_equal(titled("in the pools of frameworks")->advice_count, known[i].advised);
    }
}

/* One region of an arena that grows is none that was taken in advance. */
static void test_first_region(void **state)
{
    (void)state;
    begin();
    allocator_record()->framework = VT_FRAMEWORK_TENSORFLOW;
    hold(&t, called_place(t.driver, TENSORFLOW, NULL), BASE, 14 * GIB);
    hold(&t, tensor_place(&t, "train_step", 28), BASE, 64 * MIB);
    finalize(&t);
    look(NULL);
    assert_non_null(titled("preallocation"));
    set_environment("TF_FORCE_GPU_ALLOW_GROWTH=true");
    look(NULL);
    assert_null(titled("preallocation"));
    assert_non_null(
        titled("TensorFlow has reserved 14.00 GiB on GPU 0: 64.00 MiB in tensors, 13.94 GiB cached but unused"));
    assert_int_equal(titled("TensorFlow has reserved")->advice_count, 0);
    assert_int_equal(titled("TensorFlow has reserved")->evidence_count, 0); /* it gives nothing back when it is told */
}

/* A full cache is none, and a part that is nothing is not named. */
static void test_nothing_cached(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    begin();
    fill(4 * GIB);
    finalize(&t);
    look(NULL);
    assert_null(titled("has reserved"));
    assert_non_null(titled("Nothing suspicious was found"));

    begin(); /* half of a segment */
    hold(&t, segment_place(&t, "main", 1), next, 2 * GIB);
    keep(tensor_place(&t, "main", 2), GIB);
    finalize(&t);
    look(NULL);
    finding = titled(
        "PyTorch has reserved 2.00 GiB on GPU 0: 1.00 GiB in tensors, 1.00 GiB cached but unused, not leaked.");
    assert_non_null(finding);
    assert_int_equal(finding->evidence_count, 1);
    assert_string_equal(finding->evidence[0], "Nothing of it could be given back: it lies between live tensors.");
    assert_int_equal(finding->advice_count, 0);

    begin(); /* and a whole one */
    fill(GIB);
    hold(&t, segment_place(&t, "main", 1), next, 2 * GIB);
    finalize(&t);
    look(NULL);
    finding = titled("PyTorch has reserved 3.00 GiB");
    assert_non_null(finding);
    assert_string_equal(finding->evidence[0], "All of it could be given back at once.");
    check_saves(finding, "torch.cuda.empty_cache()", 2 * GIB);
}

/* Two frameworks have; and what one of them could give back is not the sum. */
static void test_two_frameworks(void **state)
{
    struct vt_allocator other = {.device = 0, .framework = VT_FRAMEWORK_TENSORFLOW, .reports = 100};
    const struct vt_finding *finding;

    (void)state;
    begin();
    other.name = fixture_string(&t.f, "libtensorflow_framework.so.2");
    fixture_add(&t.f, VT_ALLOCATORS, &other);
    fill(GIB);
    hold(&t, segment_place(&t, "main", 1), next, 2 * GIB);
    next += 8 * GIB;
    hold(&t, called_place(t.driver, TENSORFLOW, NULL), next, 4 * GIB);
    finalize(&t);
    look(NULL);
    finding = titled("PyTorch and TensorFlow have reserved 7.00 GiB on GPU 0: 1.00 GiB in tensors, 6.00 GiB cached");
    assert_non_null(finding);
    check_saves(finding, "torch.cuda.empty_cache(), which gives back PyTorch's part", 2 * GIB);
}

/* Where memory ran out, the report begins with that moment: what is cached later says when. */
static void test_another_moment(void **state)
{
    uint32_t slot;

    (void)state;
    begin();
    hold(&t, segment_place(&t, "main", 1), next, 8 * GIB);
    slot = keep(tensor_place(&t, "main", 2), 8 * GIB);
    driver_refuses(12 * GIB, 5 * GIB);
    unlive(&t, slot);
    finalize(&t);
    look(NULL);
    assert_non_null(titled("When the program's own code had ended, PyTorch had reserved 8.00 GiB on GPU 0: 0 B in "
                           "tensors, 8.00 GiB cached but unused, not leaked."));

    begin();
    allocator_record()->framework = VT_FRAMEWORK_JAX;
    hold(&t, segment_place(&t, "main", 1), next, 14 * GIB);
    slot = keep(tensor_place(&t, "main", 2), 8 * GIB);
    driver_refuses(12 * GIB, GIB);
    finalize(&t);
    look(NULL);
    assert_non_null(
        titled("JAX took one arena of 14.00 GiB on GPU 0: preallocation, not a leak; 8.00 GiB of it were in "
               "use by arrays when the program's own code had ended."));
}

/* Handles that a framework made are not its user's to destroy. */
static void test_handles(void **state)
{
    (void)state;
    begin();
    hold(&t, called_place(t.driver, CUBLAS, C10), BASE, 128 * MIB);
    finalize(&t);
    look(NULL);
    assert_non_null(titled("128.00 MiB in workspaces of libraries."));
    assert_int_equal(titled("in workspaces of libraries")->advice_count, 0);
    hold(&t, called_place(t.driver, CUBLAS, NULL), BASE + 2 * GIB, 64 * MIB); /* on a thread of its own */
    moment(&t, "finalize", VT_MOMENT_FINALIZE, VT_NONE, true);
    look(NULL);
    assert_int_equal(titled("192.00 MiB in workspaces of libraries.")->advice_count, 0);
    hold(&t, called_place(t.driver, CUBLAS, "/nowhere/demo"), BASE + GIB, 128 * MIB);
    moment(&t, "finalize", VT_MOMENT_FINALIZE, VT_NONE, true);
    look(NULL);
    assert_non_null(titled("320.00 MiB in workspaces of libraries."));
    assert_non_null(advice(titled("in workspaces of libraries"), "Destroying handles"));
}

/* A pool of the driver: how sure, and who could trim it. */
static void test_stream_pools(void **state)
{
    static const struct {
        const char *module, *words;
    } known[] = {{"/nowhere/demo", "cudaMemPoolTrimTo"},
                 {C10, "torch.cuda.empty_cache()"},
                 {CUPY, "free_all_blocks()"},
                 {TENSORFLOW, NULL}};
    struct vt_pool pool = {
        .flags = VT_POOL_DEFAULT, .release_threshold = UINT64_MAX, .peak_bytes = 64 * MIB, .after_trim_peak = 64 * MIB};
    const struct vt_finding *finding;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin();
        book(&t, called_place(driver_total(VT_KIND_ASYNC, 0), known[i].module, NULL), 64 * MIB, false);
        site_record(&t.f, 0)->peak_bytes = 64 * MIB;
        fixture_add(&t.f, VT_POOLS, &pool);
        finalize(&t);
        look(NULL);
        finding = titled("A stream-ordered pool of GPU 0 may still hold 64.00 MiB that nobody uses.");
        assert_non_null(finding);
        assert_int_equal(finding->confidence, VT_POSSIBLE);
        assert_int_equal(finding->advice_count, known[i].words != NULL);
        if (known[i].words)
            check_saves(finding, known[i].words, 64 * MIB);
    }
    driver_refuses(GIB, 512 * MIB);
    look(NULL);
    assert_int_equal(titled("When the program's own code had ended, a stream-ordered pool of GPU 0")->confidence,
                     VT_LIKELY);
}

/* A failed call of a module's, with `code`; what follows is made after it. */
static void fails(int code, const char *module)
{
    struct vt_failure failure = {.kind = VT_FAILURE_FAILED_ALLOC,
                                 .code = code,
                                 .memory_kind = VT_KIND_VMM_PHYSICAL,
                                 .driver_visible = 1,
                                 .count = 1,
                                 .requested_bytes = 20 * MIB,
                                 .first_ns = t.now,
                                 .last_ns = t.now,
                                 .moment = VT_NONE};
    uint32_t frame = fixture_frame(&t.f, 0, fixture_module(&t.f, module, 0), 0x600);

    failure.api = fixture_string(&t.f, "cuMemCreate");
    failure.stack = fixture_frame(&t.f, frame, t.ours, 0x77);
    fixture_add(&t.f, VT_FAILURES, &failure);
    t.now += SECOND / 1000;
}

/* A framework that was told no and went on is no finding; nor does it hide one that stopped there, or the program's own. */
static void test_probes(void **state)
{
    static const int answers[] = {201, 800, 801};
    uint32_t module;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        begin();
        fails(answers[i], C10);
        look(NULL);
        assert_non_null(titled("1 allocation failed")); /* nothing came after it */

        module = fixture_module(&t.f, C10, 0);
        fails(answers[i], "/nowhere/demo");
        failure_record(0)->stack = fixture_frame(&t.f, fixture_frame(&t.f, 0, module, 0x600), t.ours, 0x77);
        hold(&t, place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, module, 0x700), t.ours, 0x77), 0), BASE,
             GIB);
        look(NULL);
        assert_non_null(titled("1 allocation failed")); /* the program's own */
        assert_int_equal(titled("1 allocation failed")->evidence_count, 1);
        assert_true(says(titled("1 allocation failed"), "demo+0x600"));
        failure_record(1)->kind = VT_FAILURE_DOUBLE_FREE;
        look(NULL);
        assert_null(titled("1 allocation failed"));
        failure_record(0)->code = 700; /* an error, and no answer */
        look(NULL);
        assert_non_null(titled("1 allocation failed: an earlier kernel had accessed an illegal address."));
    }
}

/* An arena that could not be so much larger that the request would fit. */
static void test_larger_arena(void **state)
{
    static const struct {
        uint64_t asked, free_bytes;
        bool advised;
    } known[] = {{GIB, 2 * GIB, true}, {GIB, 768 * MIB, false}, {3 * GIB, 3 * GIB, true}, {4 * GIB, 3 * GIB, false}};
    const struct vt_finding *finding;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        for (k = VT_FRAMEWORK_JAX; k <= VT_FRAMEWORK_TENSORFLOW; k++) {
            begin();
            allocator_record()->framework = (uint32_t)k;
            fill(12 * GIB);
            refused(&t, python_line(&t, 0, "train_step", 31), known[i].asked, "oom-1");
            failure_record(0)->total_bytes = 16 * GIB;
            failure_record(0)->free_bytes = known[i].free_bytes;
            finding = verdict(VT_FAMILY_CAPACITY);
            assert_int_equal(advice(finding, k == VT_FRAMEWORK_JAX ? "MEM_FRACTION" : "memory_limit") != NULL,
                             known[i].advised);
            assert_true(finding->advice_count > 0);
            assert_true(finding->advice[0].saves_bytes >= known[i].asked);
        }
}

/* The only region of an allocator that takes memory as it needs it is no arena that a refusal could be blamed on. */
static void test_growing_region_is_no_arena(void **state)
{
    struct vt_failure *failure;

    (void)state;
    begin();
    allocator_record()->framework = VT_FRAMEWORK_JAX;
    hold(&t, segment_place(&t, "main", 1), BASE, 14 * GIB);
    keep(tensor_place(&t, "main", 2), GIB);
    failure = driver_refuses(GIB, 512 * MIB);
    failure->stack = fixture_frame(&t.f, 0, t.app, 0x900);
    look("oom-1");
    assert_non_null(titled("JAX had taken an arena of 14.00 GiB of GPU 0 in advance"));
    set_environment("XLA_PYTHON_CLIENT_PREALLOCATE=false");
    look("oom-1");
    assert_null(titled("arena"));

    begin();
    allocator_record()->framework = VT_FRAMEWORK_TENSORFLOW;
    fill(12 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = 2 * GIB;
    look("oom-1");
    assert_non_null(titled("The arena of 12.00 GiB that TensorFlow took had no room for 1.00 GiB."));
    set_environment("TF_FORCE_GPU_ALLOW_GROWTH=true");
    look("oom-1");
    assert_null(titled("arena"));
    assert_non_null(titled("TensorFlow refused 1.00 GiB on GPU 0 by a limit of its own"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_page_locked_pools), SCENE(test_a_few_bytes),
        SCENE(test_advice_in_effect),  SCENE(test_first_region),
        SCENE(test_nothing_cached),    SCENE(test_two_frameworks),
        SCENE(test_another_moment),    SCENE(test_handles),
        SCENE(test_stream_pools),      SCENE(test_probes),
        SCENE(test_larger_arena),      SCENE(test_growing_region_is_no_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
