/*
 * Growth told apart from everything that looks like it: each look-alike by itself, then hundreds of random training loops,
 * healthy and leaking. A healthy one must raise no alarm; a leak of a block per step must be found at its place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/trend.h"
#include "test_growth_actors.h"

#define SEEDS 200

/* Each look-alike alone, in runs of several lengths, with and without the slots. */
static void test_look_alikes(void **state)
{
    static const uint64_t steps[] = {9, 16, 40, 150, 400};
    struct actor actors[2];
    struct opened o;
    size_t i, k;

    (void)state;
    for (i = 0; i < HEALTHY; i++)
        for (k = 0; k < 6 * sizeof steps / sizeof steps[0]; k++) {
            sim_begin(&s, i * 100 + k);
            set_up(&actors[0], healthy[i], steps[k / 6]);
            set_up(&actors[1], temporary, steps[k / 6]);
            run(actors, 2, steps[k / 6], (enum clock)(k / 2 % 3), k % 2);
            open_at(&o, &s.t.f, NULL);
            check_healthy(&o, i * 100 + k);
            close_it(&o);
            tensors_end(&s.t);
        }
}

static void test_healthy_loops(void **state)
{
    struct actor actors[12];
    struct opened o;
    uint64_t seed;

    (void)state;
    for (seed = 0; seed < SEEDS; seed++) {
        uint64_t steps;
        uint32_t count, i;

        sim_begin(&s, seed);
        steps = 12 + sim_random(&s, 120);
        count = 1 + (uint32_t)sim_random(&s, 12);
        for (i = 0; i < count; i++)
            set_up(&actors[i], healthy[sim_random(&s, HEALTHY)], steps);
        run(actors, count, steps, (enum clock)(seed % 3), seed % 8 != 7);
        open_at(&o, &s.t.f, NULL);
        check_healthy(&o, seed);
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* A leak among healthy places: it is found, and it alone. */
static void check_leak(const struct opened *o, uint32_t site, uint64_t seed)
{
    const struct vt_finding *finding = find(o, VT_FAMILY_GROWTH, VT_LIKELY);

    if (!finding || finding->site_count != 1 || finding->sites[0] != site)
        fail_msg("seed %llu: %s", (unsigned long long)seed, finding ? finding->title : "nothing found");
    assert_true(vt_finding_is_loud(finding));
}

static void test_leaking_loops(void **state)
{
    struct actor actors[8];
    struct opened o;
    uint64_t seed;

    (void)state;
    for (seed = 0; seed < SEEDS; seed++) {
        uint64_t steps;
        uint32_t count, i;

        sim_begin(&s, seed + 1000);
        steps = 16 + sim_random(&s, 120);
        count = 1 + (uint32_t)sim_random(&s, 7);
        for (i = 0; i < count; i++)
            set_up(&actors[i], healthy[sim_random(&s, HEALTHY)], steps);
        set_up(&actors[count], leaking, steps);
        actors[count].period = sim_random(&s, 4);
        if (actors[count].bytes * steps < 2 * MIB)
            actors[count].bytes = MIB;
        run(actors, count + 1, steps, seed % 4 ? STEPS : PASSES, true);
        open_at(&o, &s.t.f, NULL);
        check_leak(&o, actors[count].site, seed);
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* One leak, of one kind. */
static bool is_found(void (*step)(struct actor *actor, uint64_t step), uint64_t steps, uint64_t seed, bool slots)
{
    struct actor actors[2];
    struct opened o;
    bool found;

    sim_begin(&s, seed);
    set_up(&actors[0], temporary, steps);
    set_up(&actors[1], step, steps);
    actors[1].bytes = MIB;
    actors[1].period = 1;
    actors[1].bound = steps / 3;
    run(actors, 2, steps, STEPS, slots);
    open_at(&o, &s.t.f, NULL);
    found = find(&o, VT_FAMILY_GROWTH, VT_LIKELY) && find(&o, VT_FAMILY_GROWTH, VT_LIKELY)->sites[0] == actors[1].site;
    close_it(&o);
    tensors_end(&s.t);
    return found;
}

static void test_kinds_of_leaks(void **state)
{
    unsigned found = 0;
    uint64_t seed;

    (void)state;
    for (seed = 0; seed < 20; seed++) {
        assert_true(is_found(leaking, 60, seed, false)); /* from the curve alone */
        assert_true(is_found(late_leak, 60, seed, true));
        assert_true(is_found(mixed, 60, seed, true));
        found += is_found(sometimes, 120, seed, true);
    }
    assert_true(found >= 17); /* by chance, it may have been silent at an end */
}

/* Memory of the program's own calls, with steps that it marked: while it runs, or when it was killed. At its end, it is a
 * leak and nothing else. */
static void test_own_memory(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    uint64_t step;
    uint32_t site;

    (void)state;
    sim_begin(&s, 1);
    site = place(&s.t, s.t.driver, fixture_frame(&s.t.f, fixture_frame(&s.t.f, 0, s.t.app, 0x700), s.t.ours, 0x77), 0);
    for (step = 0; step < 12; step++) {
        hold(&s.t, site, BASE + (9 + step) * GIB, 4 * MIB);
        sim_step(&s);
    }
    s.t.now = 0;
    open_at(&o, &s.t.f, NULL);
    assert_true(find(&o, VT_FAMILY_LEAK, VT_LIKELY)->sites[0] == site);
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    close_it(&o);
    fixture_header(&s.t.f)->end = VT_END_RUNNING; /* of a process that is gone */
    fixture_header(&s.t.f)->end_ns = 0;
    open_at(&o, &s.t.f, NULL);
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title, "Memory grows with every step: by 4.00 MiB a step at 1 place, to 48.00 MiB.");
    assert_int_equal(finding->sites[0], site);
    assert_string_equal(finding->advice[0].text, "Free what these places allocate in each round.");
    close_it(&o);
    tensors_end(&s.t);
}

/* One that is concatenated is possible; what is replaced by its like is none. */
static void test_replaced(void **state)
{
    struct actor actor;
    struct opened o;
    unsigned i;

    (void)state;
    for (i = 0; i < 2; i++) {
        sim_begin(&s, i);
        set_up(&actor, i ? replaced : concatenated, 100);
        actor.bytes = i ? 16 * MIB : 0;
        run(&actor, 1, 100, STEPS, true);
        open_at(&o, &s.t.f, NULL);
        assert_int_equal(has_family(&o, VT_FAMILY_GROWTH), !i);
        if (!i) {
            assert_non_null(strstr(find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE)->title,
                                   "100.00 MiB in tensors of 1 place that larger ones replaced"));
            assert_int_equal(find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE)->sites[0], actor.site);
        }
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* Two large blocks among many small ones of the same place are not what grows: possible, at the rate of the small. */
static void test_few_large(void **state)
{
    const struct vt_finding *finding;
    struct actor actor;
    struct opened o;

    (void)state;
    sim_begin(&s, 1);
    set_up(&actor, constants, 18);
    actor.bound = 10;
    run(&actor, 1, 18, STEPS, true);
    open_at(&o, &s.t.f, NULL);
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    finding = find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE);
    assert_non_null(finding);
    assert_string_equal(finding->title, "Tensors grow with every step: by 271 B a step at 1 place, to 9.00 MiB.");
    close_it(&o);
    tensors_end(&s.t);
}

/* What is said of how it is kept, by the stack and the phase. */
static void test_retention(void **state)
{
    static const char module[] = "/env/lib/python3.12/site-packages/torch/nn/modules/module.py";
    static const struct {
        const char *file, *function;
        unsigned phase;
        const char *words, *advice;
    } kinds[] = {
        {module, "Module._call_impl", VT_PHASE_NONE, "what is saved for backward", "loss.item()"},
        {"/home/me/net.py", "Net.save_hook", VT_PHASE_NONE, "made in a hook", "handle.remove()"},
        {"/home/me/net.py", "grads", VT_PHASE_BACKWARD, "made in backward", "create_graph=True"},
        {"/home/me/net.py", "batches", VT_PHASE_DATA, "while data was fetched", "one batch at a time"},
        {module, "Module._apply", VT_PHASE_NONE, "copies of what modules hold", "keep the best one alone"},
        {"/home/me/net.py", "collect", VT_PHASE_NONE, "made by the program itself", ".cpu()"},
    };
    const struct vt_finding *finding;
    struct opened o;
    uint64_t step;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint32_t site;

        sim_begin(&s, i);
        site = place(&s.t, s.t.tensor, 0,
                     fixture_python(&s.t.f, python_line(&s.t, 0, "<module>", 9), kinds[i].file, kinds[i].function, 7));
        site_record(&s.t.f, site)->phase = (uint8_t)kinds[i].phase;
        for (step = 0; step < 20; step++) {
            sim_alloc(&s, site, MIB);
            sim_step(&s);
        }
        sim_end(&s, true);
        open_at(&o, &s.t.f, NULL);
        finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
        assert_non_null(finding);
        assert_string_equal(finding->title,
                            "Tensors grow with every step: by 1.00 MiB a step at 1 place, to 20.00 MiB.");
        assert_non_null(strstr(finding->evidence[0], "20.00 MiB in 20 by "));
        assert_non_null(strstr(finding->evidence[0], ": 1.00 MiB more per step over 20 steps; "));
        assert_non_null(strstr(finding->evidence[0], kinds[i].words));
        assert_non_null(strstr(finding->advice[0].text, kinds[i].advice));
        assert_int_equal(finding->advice[0].saves_bytes, 20 * MIB);
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* A count of slots that no file could hold ends with those that there are. */
static void test_damaged_moment(void **state)
{
    struct vt_moment *damaged;
    struct actor actor;
    struct opened o;

    (void)state;
    sim_begin(&s, 1);
    set_up(&actor, leaking, 20);
    actor.bytes = MIB;
    run(&actor, 1, 20, STEPS, true);
    damaged = (struct vt_moment *)fixture_record(&s.t.f, VT_MOMENTS, 0);
    damaged->slots = UINT64_MAX;
    open_at(&o, &s.t.f, NULL);
    assert_true(find(&o, VT_FAMILY_GROWTH, VT_LIKELY)->sites[0] == actor.site);
    close_it(&o);
    damaged->first_slot = UINT64_MAX;
    open_at(&o, &s.t.f, NULL);
    close_it(&o);
    tensors_end(&s.t);
}

static void test_statistics(void **state)
{
    static const double rising[] = {1, 2, 3, 4, 5, 6, 7, 8}, flat[] = {5, 5, 5, 5, 5, 5, 5, 5},
                        saw[] = {1, 9, 2, 8, 1, 9, 2, 8}, full[] = {1, 3, 5, 7, 8, 8, 8, 8, 8, 8},
                        noisy[] = {2, 1, 4, 5, 4, 7, 6, 9, 8, 10}, jump[] = {0, 0, 0, 100, 100, 100, 100, 100};
    static const uint64_t even[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, once[] = {0, 0, 0, 0, 0, 0, 0, 0},
                          late[] = {60, 61, 62, 63, 64, 65, 66, 67, 68, 69};

    (void)state;
    assert_true(vt_trend_is_rising(rising, 8));
    assert_true(vt_trend_is_rising(noisy, 10));
    assert_false(vt_trend_is_rising(rising, 5)); /* five in a row may be chance */
    assert_true(vt_trend_is_rising(rising, 6));
    assert_false(vt_trend_is_rising(flat, 8));
    assert_false(vt_trend_is_rising(saw, 8));
    assert_true(vt_trend_is_significant(full, 10));
    assert_false(vt_trend_is_rising(full, 10));
    assert_false(vt_trend_is_rising(jump, 8));
    assert_true(vt_trend_slope(rising, 8) == 1);
    assert_true(vt_trend_slope(jump, 8) < 17); /* the median, not the mean of 100 / 8 steps of one */
    assert_true(vt_trend_is_steady(even, 10, 0, 10));
    assert_false(vt_trend_is_steady(even, 10, 0, 20)); /* silent since */
    assert_false(vt_trend_is_steady(once, 8, 0, 8));
    assert_false(vt_trend_is_steady(late, 10, 0, 70));
    assert_true(vt_trend_is_steady(late, 10, 60, 70));
    assert_false(vt_trend_is_steady(late, 10, 60, 50)); /* of a damaged file */
    assert_false(vt_trend_is_steady(NULL, 0, 0, 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics),     cmocka_unit_test(test_look_alikes),
        cmocka_unit_test(test_healthy_loops),  cmocka_unit_test(test_leaking_loops),
        cmocka_unit_test(test_kinds_of_leaks), cmocka_unit_test(test_own_memory),
        cmocka_unit_test(test_damaged_moment), cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_retention),      cmocka_unit_test(test_few_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
