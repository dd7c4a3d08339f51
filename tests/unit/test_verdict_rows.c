/*
 * Rows of the decision table in their variants: what limits are suspected, what a framework's own words for a measure are, and
 * which library's measure is named. The rows themselves are in test_analysis_verdicts.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

static uint64_t next; /* address of the next allocation */

static void begin(struct tensors *t, enum vt_framework framework)
{
    tensors_begin(t);
    next = BASE;
    ((struct vt_allocator *)fixture_record(&t->f, VT_ALLOCATORS, 0))->framework = (uint8_t)framework;
}

static uint32_t keep(struct tensors *t, uint32_t site, uint64_t bytes)
{
    next += bytes;
    return hold(t, site, next - bytes, bytes);
}

/* A segment full of tensors of one place. */
static void fill(struct tensors *t, uint64_t bytes)
{
    hold(t, segment_place(t, "main", 1), next, bytes);
    keep(t, tensor_place(t, "main", 2), bytes);
}

static struct vt_failure *failure_of(struct tensors *t)
{
    return (struct vt_failure *)fixture_record(&t->f, VT_FAILURES, 0);
}

/* The framework's allocator asks, and the driver refuses. */
static void driver_refuses(struct tensors *t, uint64_t bytes, uint64_t free_bytes)
{
    refused(t, python_line(t, 0, "train_step", 31), bytes, "oom-1");
    failure_of(t)->kind = VT_FAILURE_OOM;
    failure_of(t)->code = 2;
    failure_of(t)->driver_visible = 1;
    failure_of(t)->stack = t->c10_stack;
    failure_of(t)->total_bytes = 16 * GIB;
    failure_of(t)->free_bytes = free_bytes;
}

/* A text of the header; adding it may move the image. */
static void set_text(struct tensors *t, size_t offset, const char *text)
{
    uint32_t id = fixture_string(&t->f, text);

    memcpy((char *)fixture_header(&t->f) + offset, &id, sizeof id);
}

static bool says(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->evidence_count; i++)
        if (strstr(finding->evidence[i], words))
            return true;
    return false;
}

static const struct vt_advice *advice(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->advice_count; i++)
        if (strstr(finding->advice[i].text, words))
            return &finding->advice[i];
    return NULL;
}

static void check_advice(const struct vt_finding *finding, const char *words, uint64_t saves)
{
    assert_non_null(advice(finding, words));
    assert_int_equal(advice(finding, words)->saves_bytes, saves);
}

/* Opens it at the failure; the likely finding of a family, which has to be there. */
static const struct vt_finding *verdict(struct opened *o, struct tensors *t, enum vt_family family)
{
    const struct vt_finding *finding;

    open_at(o, &t->f, "oom-1");
    finding = find(o, family, VT_LIKELY);
    if (!finding)
        fail_msg("found: %s", o->a.findings.list[0].title);
    return finding;
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
    struct opened o;
    struct tensors t;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin(&t, VT_FRAMEWORK_TORCH);
        fill(&t, 4 * GIB);
        driver_refuses(&t, GIB, 11 * GIB);
        ((struct vt_device *)fixture_record(&t.f, VT_DEVICES, 0))->flags |= known[i].flags;
        set_text(&t, offsetof(struct vt_header, driver), known[i].driver);
        set_text(&t, offsetof(struct vt_header, environment), known[i].environment);
        finding = verdict(&o, &t, VT_FAMILY_LIMIT);
        for (k = 0; k < sizeof known / sizeof known[0]; k++)
            if (known[k].words)
                assert_int_equal(says(finding, known[k].words), k == i);
        assert_false(has_family(&o, VT_FAMILY_CAPACITY));
        close_it(&o);
        tensors_end(&t);
    }
}

/* PyTorch refuses by itself: its fraction. The card had room, and that is what raising it would bring. */
static void test_fraction(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, 4 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
    failure_of(&t)->total_bytes = 16 * GIB;
    failure_of(&t)->free_bytes = 11 * GIB;
    finding = verdict(&o, &t, VT_FAMILY_LIMIT);
    assert_string_equal(finding->title,
                        "PyTorch refused 1.00 GiB on GPU 0 by a limit of its own, not for want of memory on the card.");
    assert_true(says(finding, "a limit of its own lies below 5.00 GiB"));
    check_advice(finding, "set_per_process_memory_fraction", 11 * GIB);
    close_it(&o);
    tensors_end(&t);
}

/* The arena of JAX is full: its share of the card could be larger, as far as that is free. */
static void test_full_arena(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t, VT_FRAMEWORK_JAX);
    fill(&t, 12 * GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), GIB, "oom-1");
    failure_of(&t)->total_bytes = 16 * GIB;
    failure_of(&t)->free_bytes = 2 * GIB;
    finding = verdict(&o, &t, VT_FAMILY_CAPACITY);
    assert_string_equal(finding->title, "The arena of 12.00 GiB that JAX took had no room for 1.00 GiB.");
    check_advice(finding, "XLA_PYTHON_CLIENT_MEM_FRACTION", 2 * GIB);
    close_it(&o);
    tensors_end(&t);
}

/* Every second block of a segment of 4 GiB is free; 1 GiB is asked for. */
static void pieces(struct tensors *t, enum vt_framework framework, const char *environment)
{
    uint32_t parts, i;

    begin(t, framework);
    fill(t, 11 * GIB);
    hold(t, segment_place(t, "first_step", 20), next, 4 * GIB);
    parts = tensor_place(t, "carve_up", 26);
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(t, parts, next, 256 * MIB);
    driver_refuses(t, GIB, 256 * MIB);
    set_text(t, offsetof(struct vt_header, environment), environment);
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
    struct opened o;
    struct tensors t;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        pieces(&t, known[i].framework, "");
        finding = verdict(&o, &t, VT_FAMILY_FRAGMENTATION);
        for (k = 0; k < sizeof known / sizeof known[0]; k++)
            assert_int_equal(advice(finding, known[k].words) != NULL, k == i);
        check_advice(finding, known[i].words, 2 * GIB);
        assert_true(
            says(finding, "2.00 GiB of free memory lie between 8 blocks (2.00 GiB) of carve_up (train.py:26)."));
        close_it(&o);
        tensors_end(&t);
    }
}

/* Several sites of one line keep the pieces: one line of evidence, with the blocks of all. */
static void test_pieces_of_one_line(void **state)
{
    const struct vt_finding *finding;
    uint32_t parts[2], line, i;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, 11 * GIB);
    hold(&t, segment_place(&t, "first_step", 20), next, 4 * GIB);
    line = python_line(&t, python_line(&t, 0, "<module>", 99), "carve_up", 26);
    for (i = 0; i < 2; i++)
        parts[i] = place(&t, t.tensor, 0,
                         fixture_python(&t.f, line, "/env/lib/python3.12/site-packages/torch/functional.py",
                                        i ? "relu" : "linear", 10));
    for (i = 0; i < 16; i++, next += 256 * MIB)
        if (i % 2)
            hold(&t, parts[i / 2 % 2], next, 256 * MIB);
    driver_refuses(&t, GIB, 256 * MIB);
    finding = verdict(&o, &t, VT_FAMILY_FRAGMENTATION);
    assert_int_equal(finding->site_count, 2);
    assert_true(says(finding, "2.00 GiB of free memory lie between 8 blocks (2.00 GiB) of carve_up (train.py:26)."));
    for (i = 1; i < finding->evidence_count; i++)
        assert_null(strstr(finding->evidence[i], "carve_up"));
    close_it(&o);
    tensors_end(&t);
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
    struct opened o;
    struct tensors t;
    uint32_t module, site;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        begin(&t, VT_FRAMEWORK_TORCH);
        fill(&t, 11 * GIB);
        module = fixture_module(&t.f, known[i].library, 0);
        site = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, module, 0x500), t.ours, 0x77), 0);
        keep(&t, site, 4 * GIB);
        driver_refuses(&t, GIB, 512 * MIB);
        finding = verdict(&o, &t, VT_FAMILY_OVERHEAD);
        check_advice(finding, known[i].words, known[i].saves);
        close_it(&o);
        if (known[i].setting) {
            set_text(&t, offsetof(struct vt_header, environment), known[i].setting);
            assert_null(advice(verdict(&o, &t, VT_FAMILY_OVERHEAD), known[i].words));
            close_it(&o);
        }
        tensors_end(&t);
    }
}

/* Other code than PyTorch's asks: nobody gives back what PyTorch keeps unless it is told to. */
static void test_empty_cache(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;
    uint32_t other;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, 13 * GIB);
    hold(&t, segment_place(&t, "main", 3), next, 2 * GIB);
    driver_refuses(&t, 3 * GIB, 512 * MIB);
    other = fixture_frame(&t.f, 0, t.app, 0x900); /* adding one may move the image */
    failure_of(&t)->stack = other;
    finding = verdict(&o, &t, VT_FAMILY_CAPACITY);
    check_advice(finding, "torch.cuda.empty_cache() before this call", 2 * GIB);
    close_it(&o);
    failure_of(&t)->stack = t.c10_stack; /* it does that by itself */
    assert_null(advice(verdict(&o, &t, VT_FAMILY_CAPACITY), "empty_cache"));
    close_it(&o);
    tensors_end(&t);
}

/* Workspaces that PyTorch makes as tensors. */
static void test_workspaces(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t site, name;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, 14 * GIB);
    hold(&t, segment_place(&t, "main", 3), next, GIB);
    site = tensor_place(&t, "main", 4);
    name = fixture_string(&t.f, "torch.cublas_workspace");
    site_record(&t.f, site)->api = name;
    keep(&t, site, GIB);
    driver_refuses(&t, GIB, 512 * MIB);
    check_advice(verdict(&o, &t, VT_FAMILY_CAPACITY), "CUBLAS_WORKSPACE_CONFIG=:16:8", GIB);
    close_it(&o);
    tensors_end(&t);
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
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, 14 * GIB);
    driver_refuses(&t, 2 * GIB, GIB);
    u.time_ns = t.now;
    u.first_process = fixture_add(&t.f, VT_PROCESSES, &self);
    fixture_add(&t.f, VT_USAGES, &u);
    assert_null(advice(verdict(&o, &t, VT_FAMILY_CAPACITY), "CUDA_MODULE_LOADING"));
    close_it(&o);
    set_text(&t, offsetof(struct vt_header, environment), "CUDA_MODULE_LOADING=EAGER");
    check_advice(verdict(&o, &t, VT_FAMILY_CAPACITY), "CUDA_MODULE_LOADING=LAZY", 350 * MIB);
    close_it(&o);
    tensors_end(&t);
}

/* A size that was computed as negative. */
static void test_negative_size(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    fill(&t, GIB);
    driver_refuses(&t, -8 * GIB, 14 * GIB);
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN);
    assert_true(says(finding, "As a signed number it is -8.00 GiB: a size that was computed as negative."));
    close_it(&o);
    failure_of(&t)->requested_bytes = 130206 * GIB; /* too large, and no more than that */
    open_at(&o, &t.f, "oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN);
    assert_non_null(finding);
    assert_false(says(finding, "signed"));
    close_it(&o);
    tensors_end(&t);
}

/* Who gave up because memory had run out had no chance to free anything: nothing it held is called a likely leak. */
static void test_gave_up(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t own;

    (void)state;
    begin(&t, VT_FRAMEWORK_TORCH);
    own = place(&t, t.driver, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.app, 0x900), t.ours, 0x77), 0);
    keep(&t, own, GIB);
    keep(&t, own, GIB);
    driver_refuses(&t, 15 * GIB, 13 * GIB);
    open_at(&o, &t.f, "end");
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY)); /* it went on, and ended well */
    close_it(&o);
    fixture_header(&t.f)->exit_code = 1;
    open_at(&o, &t.f, "end");
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    assert_string_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->title,
                        "2.00 GiB from 1 place: 2 allocations held when the process gave up for want of memory.");
    assert_int_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->advice_count, 0);
    close_it(&o);
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suspects),
        cmocka_unit_test(test_fraction),
        cmocka_unit_test(test_full_arena),
        cmocka_unit_test(test_pieces_of_frameworks),
        cmocka_unit_test(test_pieces_of_one_line),
        cmocka_unit_test(test_measures_of_libraries),
        cmocka_unit_test(test_empty_cache),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_module_loading),
        cmocka_unit_test(test_negative_size),
        cmocka_unit_test(test_gave_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
