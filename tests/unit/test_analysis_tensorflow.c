/*
 * What a report says of TensorFlow: its arena is preallocation, its refusals are explained and advised in its own words, and
 * the map that it writes itself is pointed at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/retention.h"

#include "test_tensor_fixture.h"

/* A recording of TensorFlow on GPU 0. */
static void begin(struct tensors *t)
{
    struct vt_allocator *a;

    tensors_begin(t);
    a = (struct vt_allocator *)fixture_record(&t->f, VT_ALLOCATORS, 0);
    a->framework = VT_FRAMEWORK_TENSORFLOW;
    a->name = fixture_string(&t->f, "libtensorflow_framework.so.2");
}

static bool advises(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->advice_count; i++)
        if (strstr(finding->advice[i].text, words))
            return true;
    return false;
}

static bool says(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->evidence_count; i++)
        if (strstr(finding->evidence[i], words))
            return true;
    return false;
}

/* One allocation of the driver, with tensors in it. */
static uint32_t arena_of(struct tensors *t, uint64_t bytes, uint64_t tensors)
{
    uint32_t stack = fixture_frame(&t->f, 0, fixture_module(&t->f, "/env/tensorflow/libtensorflow_framework.so.2", 0),
                                   0x10);
    uint32_t arena = place(t, t->driver, fixture_frame(&t->f, stack, t->ours, 0x77), 0);

    hold(t, arena, BASE, bytes);
    hold(t, tensor_place(t, "train_step", 28), BASE, tensors);
    return arena;
}

static void test_arena(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;
    uint32_t arena;

    (void)state;
    begin(&t);
    arena = arena_of(&t, 14 * GIB, 64 * MIB);
    open_at(&o, &t.f, NULL);
    finding = find(&o, VT_FAMILY_CACHE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_string_equal(finding->title, "TensorFlow took one arena of 14.00 GiB on GPU 0: preallocation, not a leak; "
                                        "64.00 MiB of it are in use by tensors.");
    assert_int_equal(finding->sites[0], arena);
    assert_true(advises(finding, "TF_FORCE_GPU_ALLOW_GROWTH=true"));
    assert_true(advises(finding, "tf.config.experimental.set_memory_growth"));
    assert_true(advises(finding, "tf.config.set_logical_device_configuration"));
    assert_true(advises(finding, "TF_GPU_ALLOCATOR=cuda_malloc_async"));
    assert_false(advises(finding, "XLA_"));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    tensors_end(&t);
}

/* A request that the arena refused; opened at the failure. */
static void refuse(struct tensors *t, struct opened *o, const char *environment)
{
    struct vt_failure *failure;

    refused(t, python_line(t, 0, "train_step", 31), GIB, "oom-1");
    failure = (struct vt_failure *)fixture_record(&t->f, VT_FAILURES, 0);
    failure->total_bytes = 16 * GIB;
    failure->free_bytes = 2 * GIB;
    fixture_header(&t->f)->environment = fixture_string(&t->f, environment);
    open_at(o, &t->f, "oom-1");
}

static void test_full_arena(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    arena_of(&t, 12 * GIB, 12 * GIB);
    refuse(&t, &o, "");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title, "The arena of 12.00 GiB that TensorFlow took had no room for 1.00 GiB.");
    assert_true(advises(finding, "memory_limit"));
    assert_true(advises(finding, "per_process_gpu_memory_fraction"));
    assert_false(says(finding, "TF_BFC_MEMORY_DUMP"));
    close_it(&o);
    tensors_end(&t);
}

/* A growing arena that stays below the limit of a logical device. */
static void test_limit(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;
    uint32_t segments, i;

    (void)state;
    begin(&t);
    segments = segment_place(&t, "main", 1);
    for (i = 0; i < 2; i++) {
        hold(&t, segments, BASE + i * GIB, GIB);
        hold(&t, tensor_place(&t, "main", 2 + i), BASE + i * GIB, GIB);
    }
    refuse(&t, &o, "");
    finding = find(&o, VT_FAMILY_LIMIT, VT_LIKELY);
    assert_non_null(finding);
    assert_true(advises(finding, "memory_limit of tf.config.set_logical_device_configuration"));
    assert_false(advises(finding, "torch"));
    close_it(&o);
    tensors_end(&t);
}

/* Where TensorFlow wrote its own map, the report says so: only of its own refusals, and only if it was told to. */
static void test_memory_dump(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    begin(&t);
    arena_of(&t, 12 * GIB, 12 * GIB);
    refuse(&t, &o, "TF_BFC_MEMORY_DUMP=/tmp/bfc");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_true(says(finding, "TensorFlow wrote its own map of its memory (TF_BFC_MEMORY_DUMP): files that begin with "
                              "/tmp/bfc."));
    close_it(&o);
    tensors_end(&t);

    tensors_begin(&t); /* PyTorch */
    arena_of(&t, 12 * GIB, 12 * GIB);
    refuse(&t, &o, "TF_BFC_MEMORY_DUMP=/tmp/bfc");
    assert_false(says(&o.a.findings.list[0], "TF_BFC_MEMORY_DUMP"));
    close_it(&o);
    tensors_end(&t);

    begin(&t);
    arena_of(&t, 12 * GIB, 12 * GIB);
    refuse(&t, &o, "TF_BFC_MEMORY_DUMP=");
    assert_false(says(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY), "TF_BFC_MEMORY_DUMP"));
    close_it(&o);
    tensors_end(&t);
}

/* What keeps results: a program of TensorFlow's has no .item() and no no_grad(). */
static void test_words_for_growth(void **state)
{
    const char *own = vt_retention_advice(VT_RETAINED_RESULT, 1u << VT_FRAMEWORK_TENSORFLOW);
    const char *both = vt_retention_advice(VT_RETAINED_RESULT,
                                           1u << VT_FRAMEWORK_TENSORFLOW | 1u << VT_FRAMEWORK_TORCH);

    (void)state;
    assert_non_null(strstr(own, "GradientTape"));
    assert_null(strstr(own, "torch"));
    assert_non_null(strstr(both, "torch.no_grad()"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),       cmocka_unit_test(test_full_arena),       cmocka_unit_test(test_limit),
        cmocka_unit_test(test_memory_dump), cmocka_unit_test(test_words_for_growth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
