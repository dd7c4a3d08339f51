/*
 * Memory that is held on purpose, named as what it is: CuPy's pool, page-locked buffers of PyTorch, contexts of several
 * processes; and what would give it back, with the bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

#define CUPY "/env/lib/python3.12/site-packages/cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so"
#define FFT_PY "/env/lib/python3.12/site-packages/cupy/fft/_fft.py"

static const struct vt_advice *advice(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->advice_count; i++)
        if (strstr(finding->advice[i].text, words))
            return &finding->advice[i];
    return NULL;
}

/* The finding about memory in pools of frameworks. */
static const struct vt_finding *pools(const struct opened *o)
{
    uint32_t i;

    for (i = 0; i < o->a.findings.count; i++)
        if (strstr(o->a.findings.list[i].title, "in the pools of frameworks"))
            return &o->a.findings.list[i];
    return NULL;
}

static uint32_t driver_place(struct tensors *t, const char *module, uint32_t python)
{
    uint32_t frame = fixture_frame(&t->f, 0, fixture_module(&t->f, module, 0), 0x500);

    return place(t, t->driver, fixture_frame(&t->f, frame, t->ours, 0x77), python);
}

static void test_cupy(void **state)
{
    uint32_t line, arrays, plans;
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    line = python_line(&t, python_line(&t, 0, "<module>", 99), "spectrum", 18);
    arrays = driver_place(&t, CUPY, line);
    plans = driver_place(&t, CUPY, fixture_python(&t.f, line, FFT_PY, "fft", 700));
    hold(&t, arrays, BASE, GIB);
    hold(&t, plans, BASE + 2 * GIB, 256 * MIB);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    finding = pools(&o);
    assert_non_null(finding);
    assert_int_equal(finding->family, VT_FAMILY_CACHE);
    assert_non_null(advice(finding, "CuPy's pool took 1.25 GiB"));
    assert_non_null(advice(finding, "free_all_blocks()"));
    assert_non_null(advice(finding, "set_limit(size="));
    assert_non_null(advice(finding, "get_plan_cache()"));
    assert_int_equal(advice(finding, "get_plan_cache()")->saves_bytes, 256 * MIB);
    assert_null(advice(finding, "torch"));
    close_it(&o);
    tensors_end(&t);
}

/* No plans, no advice on them; and of another framework, its own. */
static void test_each_its_own(void **state)
{
    static const struct {
        const char *module, *words;
    } known[] = {{CUPY, "free_all_blocks"},
                 {"/env/lib/libc10_cuda.so", "torch.cuda.empty_cache()"},
                 {"/env/lib/xla_cuda_plugin.so", "XLA_PYTHON_CLIENT_PREALLOCATE"},
                 {"/env/lib/libtensorflow_framework.so.2", "TF_FORCE_GPU_ALLOW_GROWTH"}};
    struct opened o;
    struct tensors t;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        tensors_begin(&t);
        hold(&t, driver_place(&t, known[i].module, python_line(&t, 0, "main", 3)), BASE, GIB);
        finalize(&t);
        open_at(&o, &t.f, NULL);
        assert_non_null(pools(&o));
        for (k = 0; k < sizeof known / sizeof known[0]; k++)
            assert_int_equal(advice(pools(&o), known[k].words) != NULL, k == i);
        assert_null(advice(pools(&o), "get_plan_cache"));
        close_it(&o);
        tensors_end(&t);
    }
}

/* A few bytes are not worth a word. */
static void test_next_to_nothing(void **state)
{
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    hold(&t, driver_place(&t, "/env/lib/libc10_cuda.so", 0), BASE, 512);
    hold(&t, driver_place(&t, "/env/lib/libcublas.so.13", 0), BASE + GIB, 4096);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_null(pools(&o));
    assert_false(has_family(&o, VT_FAMILY_OVERHEAD));
    close_it(&o);
    tensors_end(&t);
}

/* NVML's list: this process and `count` more of a name, each with 400 MiB. */
static void list_others(struct tensors *t, const char *name, uint32_t count)
{
    uint64_t live = total_record(t, t->driver)->live_bytes;
    struct vt_process_bytes self = {.pid = 4242, .bytes = live + 500 * MIB, .flags = VT_PROCESS_SELF};
    struct vt_usage u = {.cause = VT_USAGE_END,
                         .flags = VT_USAGE_LISTED,
                         .time_ns = t->now,
                         .total_bytes = 16 * GIB,
                         .used_bytes = live + (500 + 400 * count) * MIB,
                         .own_bytes = live + 500 * MIB,
                         .live_bytes = live,
                         .processes = count + 1};
    uint32_t i;

    u.free_bytes = u.total_bytes - u.used_bytes;
    u.first_process = fixture_add(&t->f, VT_PROCESSES, &self);
    for (i = 0; i < count; i++) {
        struct vt_process_bytes p = {.pid = 100 + i, .bytes = 400 * MIB};

        p.name = fixture_string(&t->f, name);
        fixture_add(&t->f, VT_PROCESSES, &p);
    }
    fixture_add(&t->f, VT_USAGES, &u);
}

static const struct vt_finding *contexts(const struct opened *o)
{
    uint32_t i;

    for (i = 0; i < o->a.findings.count; i++)
        if (strstr(o->a.findings.list[i].title, "CUDA context of its own"))
            return &o->a.findings.list[i];
    return NULL;
}

static void test_contexts(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;
    uint32_t count;

    (void)state;
    for (count = 1; count <= 3; count++) {
        tensors_begin(&t);
        hold(&t, driver_place(&t, "/env/app", 0), BASE, GIB);
        list_others(&t, count == 3 ? "/usr/bin/demo" : count == 2 ? "/usr/bin/other" : "demo", count);
        finalize(&t);
        open_at(&o, &t.f, NULL);
        finding = contexts(&o);
        assert_int_equal(finding != NULL, count == 3); /* one alone, or of another name: nothing */
        if (finding) {
            assert_int_equal(finding->confidence, VT_POSSIBLE);
            assert_string_equal(finding->title,
                                "4 processes on GPU 0 run demo, each with a CUDA context of its own: at most "
                                "500.00 MiB each, 1.66 GiB together, of what they hold.");
            assert_int_equal(finding->evidence_count, 3);
            assert_string_equal(finding->evidence[0], "pid 100 holds 400.00 MiB.");
            assert_int_equal(finding->advice[0].saves_bytes, 1200 * MIB);
        }
        close_it(&o);
        tensors_end(&t);
    }
}

/* Scripts of one interpreter are called alike; those on the GPU of a rank may be anybody's, its job's or not. */
static void test_contexts_of_an_interpreter(void **state)
{
    struct opened o;
    struct tensors t;
    uint32_t line;
    int world;

    (void)state;
    for (world = 0; world <= 4; world += 4) {
        tensors_begin(&t);
        hold(&t, driver_place(&t, "/env/app", 0), BASE, GIB);
        list_others(&t, "/usr/bin/python3", 3);
        line = fixture_bytes(&t.f, "python3\0train.py", 17);
        fixture_header(&t.f)->cmdline = line;
        fixture_header(&t.f)->world_size = world;
        finalize(&t);
        open_at(&o, &t.f, NULL);
        assert_null(contexts(&o));
        close_it(&o);
        tensors_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cupy),
        cmocka_unit_test(test_each_its_own),
        cmocka_unit_test(test_next_to_nothing),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_contexts_of_an_interpreter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
