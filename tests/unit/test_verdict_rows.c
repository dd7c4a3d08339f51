/*
 * Rows of the decision table in their variants: what limits are suspected, what a framework's own words for a measure are, and
 * which library's measure is named. The rows themselves are in test_verdict_refusals.c, _cache.c and _capacity.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_verdict_fixture.h"

/* A recording of a program with another framework's allocator. */
static void begin_with(enum vt_framework framework)
{
    begin();
    allocator_record()->framework = (uint8_t)framework;
}

/* The driver refuses although much is free: who else may have set a limit. */
static void test_suspects(void **state)
{
    static const struct {
        const char *driver, *environment, *words;
        uint32_t flags;
    } known[] = {
        {"/usr/lib/libcuda.so.1", "", NULL, 0},
        {"/usr/lib/wsl/lib/libcuda.so.1", "", "It runs under WSL", 0},
        {"/usr/lib/libcuda.so.1", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is set",
         0},
        {"/usr/lib/libcuda.so.1", "", "The device is a MIG instance", VT_DEVICE_MIG},
    };
    const struct vt_finding *finding;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin_with(VT_FRAMEWORK_TORCH);
        fill(4 * GIB);
        driver_refuses(GIB, 11 * GIB);
        ((struct vt_device *)fixture_record(&t.f, VT_DEVICES, 0))->flags |= known[i].flags;
        set_text(offsetof(struct vt_header, driver), known[i].driver);
        set_text(offsetof(struct vt_header, environment), known[i].environment);
        finding = verdict(VT_FAMILY_LIMIT);
        for (k = 0; k < sizeof known / sizeof known[0]; k++)
            if (known[k].words)
                assert_int_equal(says(finding, known[k].words), k == i);
        assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    }
}

/* PyTorch refuses by itself: its fraction. The card had room, and that is what raising it would bring. */
static void test_fraction(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(4 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = 11 * GIB;
    finding = verdict(VT_FAMILY_LIMIT);
    assert_string_equal(finding->title,
                        "PyTorch refused 1.00 GiB on GPU 0 by a limit of its own, not for want of memory on the card.");
    assert_true(says(finding, "a limit of its own lies below 5.00 GiB"));
    check_saves(finding, "set_per_process_memory_fraction", 11 * GIB);
}

/* The arena of JAX is full: its share of the card could be larger, as far as that is free. */
static void test_full_arena(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    begin_with(VT_FRAMEWORK_JAX);
    fill(12 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = 2 * GIB;
    finding = verdict(VT_FAMILY_CAPACITY);
    assert_string_equal(finding->title, "The arena of 12.00 GiB that JAX took had no room for 1.00 GiB.");
    check_saves(finding, "XLA_PYTHON_CLIENT_MEM_FRACTION", 2 * GIB);
}

/* TensorFlow's arena of one piece has some room, and cannot grow: no matter of pieces, and what filled it is said as well. */
static void test_full_arena_that_filled_up(void **state)
{
    uint32_t kept;
    unsigned i;

    (void)state;
    begin_with(VT_FRAMEWORK_TENSORFLOW);
    hold(&t, segment_place(&t, "first_step", 20), next, 12 * GIB);
    kept = tensor_place(&t, "remember", 26);
    for (i = 0; i < 23; i++) {
        book(&t, tensor_place(&t, "forward", 27), 16 * MIB, false);
        hold(&t, kept, next + i * GIB / 2, GIB / 2);
    }
    refused(&t, python_line(&t, 0, "remember", 26), GIB, "oom-1");
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = 2 * GIB;
    assert_string_equal(verdict(VT_FAMILY_CAPACITY)->title,
                        "The arena of 12.00 GiB that TensorFlow took had no room for 1.00 GiB.");
    assert_false(has_family(&o, VT_FAMILY_FRAGMENTATION));
}

/* TensorFlow has nearly filled the card, knows it, and does not ask: that is no limit of its own that could be raised. */
static void test_full_card_unasked(void **state)
{
    (void)state;
    begin_with(VT_FRAMEWORK_TENSORFLOW);
    fill(7 * GIB);
    hold(&t, segment_place(&t, "second_step", 21), next, 8 * GIB);
    hold(&t, tensor_place(&t, "second_step", 22), next, 7 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), 2 * GIB, "oom-1");
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = GIB - 1;
    assert_non_null(verdict(VT_FAMILY_CAPACITY));
    assert_false(has_family(&o, VT_FAMILY_LIMIT));
    assert_false(has_family(&o, VT_FAMILY_FRAGMENTATION));
}

/* Every second block of a segment of 4 GiB is free; 1 GiB is asked for. */
static void pieces(enum vt_framework framework, const char *environment)
{
    uint32_t parts, i;

    begin_with(framework);
    fill(11 * GIB);
    hold(&t, segment_place(&t, "first_step", 20), next, 4 * GIB);
    parts = tensor_place(&t, "carve_up", 26);
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(&t, parts, next, 256 * MIB);
    driver_refuses(GIB, 256 * MIB);
    set_text(offsetof(struct vt_header, environment), environment);
}

/* Each framework has its own measure against pieces. */
static void test_pieces_of_frameworks(void **state)
{
    static const struct {
        enum vt_framework framework;
        const char *words;
    } known[] = {{VT_FRAMEWORK_TORCH, "expandable_segments:True"},
                 {VT_FRAMEWORK_TENSORFLOW, "TF_GPU_ALLOCATOR=cuda_malloc_async"},
                 {VT_FRAMEWORK_JAX, "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"}};
    const struct vt_finding *finding;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        pieces(known[i].framework, "");
        finding = verdict(VT_FAMILY_FRAGMENTATION);
        for (k = 0; k < sizeof known / sizeof known[0]; k++)
            assert_int_equal(advice(finding, known[k].words) != NULL, k == i);
        check_saves(finding, known[i].words, 2 * GIB);
        assert_true(
            says(finding, "2.00 GiB of free memory lie between 8 blocks (2.00 GiB) of carve_up (train.py:26)."));
    }
}

/* The pieces lie below PyTorch's own limit: raising that is a measure too. */
static void test_pieces_below_a_fraction(void **state)
{
    (void)state;
    pieces(VT_FRAMEWORK_TORCH, "");
    check_saves(verdict(VT_FAMILY_FRAGMENTATION), "expandable_segments:True", 2 * GIB);
    assert_null(advice(verdict(VT_FAMILY_FRAGMENTATION), "set_per_process_memory_fraction"));
    pieces(VT_FRAMEWORK_TORCH, "");
    failure_record(0)->driver_visible = 0;
    failure_record(0)->kind = VT_FAILURE_FRAMEWORK_OOM;
    failure_record(0)->free_bytes = 5 * GIB;
    check_saves(verdict(VT_FAMILY_FRAGMENTATION), "set_per_process_memory_fraction", 5 * GIB);
}

/* Several sites of one line keep the pieces: one line of evidence, with the blocks of all. */
static void test_pieces_of_one_line(void **state)
{
    const struct vt_finding *finding;
    uint32_t parts[2], line, i;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(11 * GIB);
    hold(&t, segment_place(&t, "first_step", 20), next, 4 * GIB);
    line = python_line(&t, python_line(&t, 0, "<module>", 99), "carve_up", 26);
    for (i = 0; i < 2; i++)
        parts[i] = place(&t, t.tensor, 0,
                         fixture_python(&t.f, line, "/env/lib/python3.12/site-packages/torch/functional.py",
                                        i ? "relu" : "linear", 10));
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(&t, parts[i / 2 % 2], next, 256 * MIB);
    driver_refuses(GIB, 256 * MIB);
    finding = verdict(VT_FAMILY_FRAGMENTATION);
    assert_int_equal(finding->site_count, 2);
    assert_true(says(finding, "2.00 GiB of free memory lie between 8 blocks (2.00 GiB) of carve_up (train.py:26)."));
    for (i = 1; i < finding->evidence_count; i++)
        assert_null(strstr(finding->evidence[i], "carve_up"));
}

/* A library holds 4 GiB beside PyTorch: its own measure, unless a setting shows it in use. */
static void test_measures_of_libraries(void **state)
{
    static const struct {
        const char *library, *words, *setting;
        uint64_t saves;
    } known[] = {{"/env/lib/libnccl.so.2", "NCCL_BUFFSIZE", "NCCL_BUFFSIZE=1048576", 2 * GIB},
                 {"/env/lib/libcublas.so.13", "CUBLAS_WORKSPACE_CONFIG", "CUBLAS_WORKSPACE_CONFIG=:16:8", 4 * GIB},
                 {"/env/lib/libcufft.so.12", "cufft_plan_cache", NULL, 4 * GIB},
                 {"/env/lib/libcudnn_graph.so.9", "cudnn.benchmark", NULL, 4 * GIB},
                 {"/nowhere/demo", "the program's own driver calls", NULL, 4 * GIB}};
    const struct vt_finding *finding;
    uint32_t module, site;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin_with(VT_FRAMEWORK_TORCH);
        fill(11 * GIB);
        module = fixture_module(&t.f, known[i].library, 0);
        site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, module, 0x500), t.ours, 0x77), 0);
        keep(site, 4 * GIB);
        driver_refuses(GIB, 512 * MIB);
        finding = verdict(VT_FAMILY_OVERHEAD);
        check_saves(finding, known[i].words, known[i].saves);
        if (known[i].setting) {
            set_text(offsetof(struct vt_header, environment), known[i].setting);
            assert_null(advice(verdict(VT_FAMILY_OVERHEAD), known[i].words));
        }
    }
}

/* Other code than PyTorch's asks: nobody gives back what PyTorch keeps unless it is told to. */
static void test_empty_cache(void **state)
{
    const struct vt_finding *finding;
    uint32_t other;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(13 * GIB);
    hold(&t, segment_place(&t, "main", 3), next, 2 * GIB);
    driver_refuses(3 * GIB, 512 * MIB);
    other = fixture_frame(&t.f, 0, t.app, 0x900); /* adding one may move the image */
    failure_record(0)->stack = other;
    finding = verdict(VT_FAMILY_CAPACITY);
    check_saves(finding, "torch.cuda.empty_cache() before this call", 2 * GIB);
    failure_record(0)->stack = t.c10_stack; /* it does that by itself */
    assert_null(advice(verdict(VT_FAMILY_CAPACITY), "empty_cache"));
}

/* Workspaces that PyTorch makes as tensors. */
static void test_workspaces(void **state)
{
    uint32_t site, name;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(14 * GIB);
    hold(&t, segment_place(&t, "main", 3), next, GIB);
    site = tensor_place(&t, "main", 4);
    name = fixture_string(&t.f, "torch.cublas_workspace");
    site_record(&t.f, site)->api = name;
    keep(site, GIB);
    driver_refuses(GIB, 512 * MIB);
    check_saves(verdict(VT_FAMILY_CAPACITY), "CUBLAS_WORKSPACE_CONFIG=:16:8", GIB);
}

/* All code is loaded at once: what NVML said of this process is more than it allocated. */
static void test_module_loading(void **state)
{
    struct vt_process_bytes self = {.pid = 4242, .bytes = 14 * GIB + 700 * MIB, .flags = VT_PROCESS_SELF};
    struct vt_usage u = {.cause = VT_USAGE_OOM,
                         .flags = VT_USAGE_LISTED,
                         .total_bytes = 16 * GIB,
                         .free_bytes = GIB,
                         .used_bytes = 15 * GIB,
                         .own_bytes = 14 * GIB + 700 * MIB,
                         .live_bytes = 14 * GIB,
                         .processes = 1};

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(14 * GIB);
    driver_refuses(2 * GIB, GIB);
    u.time_ns = t.now;
    u.first_process = fixture_add(&t.f, VT_PROCESSES, &self);
    fixture_add(&t.f, VT_USAGES, &u);
    assert_null(advice(verdict(VT_FAMILY_CAPACITY), "CUDA_MODULE_LOADING"));
    set_text(offsetof(struct vt_header, environment), "CUDA_MODULE_LOADING=EAGER");
    check_saves(verdict(VT_FAMILY_CAPACITY), "CUDA_MODULE_LOADING=LAZY", 350 * MIB);
}

/* A size that was computed as negative. */
static void test_negative_size(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    fill(GIB);
    driver_refuses(-8 * GIB, 14 * GIB);
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN);
    assert_true(says(finding, "As a signed number it is -8.00 GiB: a size that was computed as negative."));
    failure_record(0)->requested_bytes = 130206 * GIB; /* too large, and no more than that */
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN);
    assert_non_null(finding);
    assert_false(says(finding, "signed"));
}

/* Who gave up because memory had run out had no chance to free anything: nothing it held is called a likely leak. */
static void test_gave_up(void **state)
{
    uint32_t own;

    (void)state;
    begin_with(VT_FRAMEWORK_TORCH);
    own = native_place(t.driver, 0x900);
    keep(own, GIB);
    keep(own, GIB);
    driver_refuses(15 * GIB, 13 * GIB);
    look("end");
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY)); /* it went on, and ended well */
    fixture_header(&t.f)->exit_code = 1;
    look("end");
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    assert_string_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->title,
                        "2.00 GiB from 1 place: 2 allocations held when the process gave up for want of memory.");
    assert_int_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->advice_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_suspects),
        SCENE(test_fraction),
        SCENE(test_full_arena),
        SCENE(test_full_arena_that_filled_up),
        SCENE(test_full_card_unasked),
        SCENE(test_pieces_of_frameworks),
        SCENE(test_pieces_below_a_fraction),
        SCENE(test_pieces_of_one_line),
        SCENE(test_measures_of_libraries),
        SCENE(test_empty_cache),
        SCENE(test_workspaces),
        SCENE(test_module_loading),
        SCENE(test_negative_size),
        SCENE(test_gave_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
