/*
 * Growth and leaks at places that the recording has as several sites: what reads alike is judged together and told once, where
 * one helper allocates for everybody its callers are named, and healthy places that are spread over many sites raise no alarm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_growth_actors.h"

#define SEEDS 400

static bool says(const struct vt_finding *finding, const char *words)
{
    uint32_t i;

    for (i = 0; finding && i < finding->evidence_count; i++)
        if (!strcmp(finding->evidence[i], words))
            return true;
    return false;
}

static bool names(const struct vt_finding *finding, uint32_t site)
{
    uint32_t i;

    for (i = 0; finding && i < finding->site_count; i++)
        if (finding->sites[i] == site)
            return true;
    return false;
}

/* Each look-alike, spread over as many sites as it makes few allocations at each. */
static void test_spread_look_alikes(void **state)
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
            spread(&actors[0], k % 2 ? 4 : 24);
            set_up(&actors[1], temporary, steps[k / 6]);
            run(actors, 2, steps[k / 6], (enum clock)(k / 2 % 3), true);
            open_at(&o, &s.t.f, NULL);
            check_healthy(&o, i * 100 + k);
            close_it(&o);
            tensors_end(&s.t);
        }
}

/* Healthy loops, in which lines call many functions; several actors of a loop may be at one line. */
static void test_healthy_loops(void **state)
{
    struct actor actors[12];
    struct opened o;
    uint64_t seed, steps;
    uint32_t count, i;

    (void)state;
    for (seed = 0; seed < SEEDS; seed++) {
        sim_begin(&s, seed + 5000);
        steps = 12 + sim_random(&s, 120);
        count = 1 + (uint32_t)sim_random(&s, 12);
        for (i = 0; i < count; i++) {
            set_up(&actors[i], healthy[sim_random(&s, HEALTHY)], steps);
            spread(&actors[i], 1 + (uint32_t)sim_random(&s, 16));
            s.lines -= sim_random(&s, 3) == 0; /* the next one is at the same line */
        }
        run(actors, count, steps, (enum clock)(seed % 3), seed % 8 != 7);
        open_at(&o, &s.t.f, NULL);
        check_healthy(&o, seed);
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* A leak that is spread over the sites of a line, among healthy places that are spread as well: it is found, and it alone. */
static void test_leaking_loops(void **state)
{
    const struct vt_finding *finding;
    struct actor actors[8];
    struct opened o;
    uint64_t seed, steps;
    uint32_t count, i;

    (void)state;
    for (seed = 0; seed < SEEDS; seed++) {
        sim_begin(&s, seed + 9000);
        steps = 16 + sim_random(&s, 120);
        count = 1 + (uint32_t)sim_random(&s, 7);
        for (i = 0; i < count; i++) {
            set_up(&actors[i], healthy[sim_random(&s, HEALTHY)], steps);
            spread(&actors[i], 1 + (uint32_t)sim_random(&s, 16));
        }
        set_up(&actors[count], leaking, steps);
        spread(&actors[count], 1 + (uint32_t)sim_random(&s, 16));
        actors[count].period = sim_random(&s, 4);
        if (actors[count].bytes * steps < 2 * MIB)
            actors[count].bytes = MIB;
        run(actors, count + 1, steps, STEPS, true);
        open_at(&o, &s.t.f, NULL);
        finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
        if (!finding || finding->evidence_count != 1)
            fail_msg("seed %llu: %s", (unsigned long long)seed, finding ? finding->title : "nothing found");
        for (i = 0; i < finding->site_count; i++)
            assert_in_range(finding->sites[i], actors[count].site, actors[count].site + actors[count].variants - 1);
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* One block a step is kept, made by another function each time; none of these has births enough. */
static void test_leak_of_many_sites(void **state)
{
    const struct vt_finding *finding;
    struct actor actors[2];
    struct opened o;
    uint32_t variants, i;

    (void)state;
    for (variants = 2; variants <= 40; variants += 19) {
        sim_begin(&s, variants);
        set_up(&actors[0], temporary, 40);
        set_up(&actors[1], leaking, 40);
        actors[1].bytes = MIB;
        actors[1].period = 0;
        spread(&actors[1], variants);
        run(actors, 2, 40, STEPS, true);
        open_at(&o, &s.t.f, NULL);
        finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
        assert_non_null(finding);
        assert_non_null(strstr(finding->title, "Tensors grow with every step: by 1.0"));
        assert_non_null(strstr(finding->title, " MiB a step at 1 place, to 40.00 MiB."));
        assert_int_equal(finding->evidence_count, 1);
        assert_non_null(strstr(finding->evidence[0], "40.00 MiB in 40 by train_step (train.py:102): 1.0"));
        for (i = 0; i < variants; i++)
            assert_true(names(finding, actors[1].site + i) || !site_record(&s.t.f, actors[1].site + i)->live_count);
        assert_null(find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE));
        close_it(&o);
        tensors_end(&s.t);
    }
}

/* Three functions have their turns, ten steps each: alone, two of them are silent since. */
static void turns(struct actor *a, uint64_t step)
{
    a->blocks[a->count++] = sim_alloc(&s, a->site + (uint32_t)(step / 10), a->bytes);
}

static void test_sites_in_turn(void **state)
{
    const struct vt_finding *finding;
    struct actor actors[2];
    struct opened o;

    (void)state;
    sim_begin(&s, 1);
    set_up(&actors[0], temporary, 30);
    set_up(&actors[1], turns, 30);
    actors[1].bytes = MIB;
    spread(&actors[1], 3);
    run(actors, 2, 30, STEPS, true);
    open_at(&o, &s.t.f, NULL);
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 3);
    assert_int_equal(finding->evidence_count, 1);
    assert_non_null(strstr(finding->evidence[0], "30.00 MiB in 30 by train_step (train.py:102)"));
    close_it(&o);
    tensors_end(&s.t);
}

static uint32_t called_place(const char *caller, uint32_t line)
{
    struct tensors *t = &s.t;

    return place(t, t->tensor, 0,
                 python_line(t, python_line(t, python_line(t, 0, "<module>", 99), caller, line), "zeros", 6));
}

/* All tensors come from one helper: who called it is what tells places apart. */
static void test_callers_are_named(void **state)
{
    const struct vt_finding *finding;
    struct actor actors[3];
    struct opened o;

    (void)state;
    sim_begin(&s, 3);
    set_up(&actors[0], first_step, 20);
    set_up(&actors[1], leaking, 20);
    set_up(&actors[2], leaking, 20);
    actors[1].period = actors[2].period = 0;
    actors[0].bytes = actors[1].bytes = MIB;
    actors[2].bytes = 2 * MIB;
    actors[0].site = called_place("Net.__init__", 11);
    actors[1].site = called_place("validate", 15);
    actors[2].site = called_place("train_step", 18);
    run(actors, 3, 20, STEPS, true);
    open_at(&o, &s.t.f, NULL);
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "at 2 places, to 60.00 MiB"));
    assert_int_equal(finding->evidence_count, 2);
    assert_non_null(strstr(finding->evidence[0], "40.00 MiB in 20 by zeros (train.py:6) < train_step (train.py:18): "));
    assert_non_null(strstr(finding->evidence[1], "20.00 MiB in 20 by zeros (train.py:6) < validate (train.py:15): "));
    close_it(&o);
    tensors_end(&s.t);
}

static uint32_t own_memory(const char *caller, uint32_t line, const char *inner)
{
    struct tensors *t = &s.t;
    uint32_t python = python_line(t, python_line(t, python_line(t, 0, "<module>", 99), caller, line), "gpu_alloc", 6);

    return place(t, t->driver, fixture_frame(&t->f, fixture_frame(&t->f, 0, t->app, 0x900 + s.lines++), t->ours, 0x77),
                 fixture_python(&t->f, python, LIBRARY_PY, inner, 10));
}

/* What is kept step by step is a pattern, at two sites that read alike as well; a buffer of another caller is none. Two of Python's
 * objects are none either. */
static void test_leaks_of_one_chain(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    uint32_t a, b, c, i;

    (void)state;
    sim_begin(&s, 4);
    a = own_memory("load", 20, "first");
    b = own_memory("load", 20, "second");
    c = own_memory("main", 30, "first");
    hold(&s.t, c, BASE + 22 * GIB, 4 * MIB);
    for (i = 0; i < 10; i++) {
        hold(&s.t, i % 2 ? b : a, BASE + 20 * GIB + i * 8 * MIB, 8 * MIB);
        step_ends(&s.t);
    }
    finalize(&s.t);
    open_at(&o, &s.t.f, NULL);
    finding = find(&o, VT_FAMILY_LEAK, VT_LIKELY);
    assert_non_null(finding);
    assert_true(names(finding, a) && names(finding, b) && !names(finding, c));
    assert_int_equal(finding->evidence_count, 1);
    assert_true(
        says(finding, "80.00 MiB in 10 (device) by gpu_alloc (train.py:6): 10 allocated, 0 freed.") ||
        says(finding,
             "80.00 MiB in 10 (device) by gpu_alloc (train.py:6) < load (train.py:20): 10 allocated, 0 freed."));
    finding = find(&o, VT_FAMILY_LEAK, VT_POSSIBLE);
    assert_non_null(finding);
    assert_true(names(finding, c) && finding->site_count == 1);
    close_it(&o);
    tensors_end(&s.t);

    sim_begin(&s, 4);
    a = own_memory("load", 20, "first");
    b = own_memory("load", 20, "second");
    hold(&s.t, a, BASE + 20 * GIB, 8 * MIB);
    hold(&s.t, b, BASE + 21 * GIB, 8 * MIB);
    finalize(&s.t);
    open_at(&o, &s.t.f, NULL);
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    finding = find(&o, VT_FAMILY_LEAK, VT_POSSIBLE);
    assert_true(names(finding, a) && names(finding, b) && finding->evidence_count == 1);
    close_it(&o);
    tensors_end(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread_look_alikes), cmocka_unit_test(test_healthy_loops),
        cmocka_unit_test(test_leaking_loops),      cmocka_unit_test(test_leak_of_many_sites),
        cmocka_unit_test(test_sites_in_turn),      cmocka_unit_test(test_callers_are_named),
        cmocka_unit_test(test_leaks_of_one_chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
