/*
 * What places of a training loop do, healthy and not, for tests of growth: each actor is a place that allocates and frees in
 * every step in a way of its own.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_GROWTH_ACTORS_H
#define VRAMTRACK_TEST_GROWTH_ACTORS_H

#include "test_growth_fixture.h"

#define LIBRARY_PY "/env/lib/python3.12/site-packages/torch/nn/functional.py"

#define HELD_MAX 512

static struct sim s;

/* What a place does in each step. */
struct actor {
    void (*step)(struct actor *actor, uint64_t step);
    uint32_t site, variants; /* the first of its sites, and how many: each allocation is of one of them */
    uint32_t blocks[HELD_MAX], count;
    uint64_t bytes, bound, period;
};

static inline uint32_t site_now(const struct actor *a)
{
    return a->variants > 1 ? a->site + (uint32_t)sim_random(&s, a->variants) : a->site;
}

static inline void add(struct actor *a)
{
    assert_true(a->count < HELD_MAX);
    a->blocks[a->count++] = sim_alloc(&s, site_now(a), a->bytes);
}

static inline void drop(struct actor *a, uint32_t which)
{
    sim_free(&s, a->blocks[which]);
    memmove(&a->blocks[which], &a->blocks[which + 1], (--a->count - which) * sizeof *a->blocks);
}

/* Activations: made in the step and gone in it. */
static inline void temporary(struct actor *a, uint64_t step)
{
    uint64_t i;

    (void)step;
    for (i = 0; i < a->bound % 8 + 1; i++)
        add(a);
    while (a->count)
        drop(a, a->count - 1);
}

/* Optimizer's state, gradients that stay. */
static inline void first_step(struct actor *a, uint64_t step)
{
    uint64_t i;

    for (i = 0; !step && i < a->bound; i++)
        add(a);
}

/* Gradients with set_to_none: of the step before until this one. */
static inline void replaced(struct actor *a, uint64_t step)
{
    (void)step;
    while (a->count)
        drop(a, 0);
    add(a);
    add(a);
}

static inline void ring(struct actor *a, uint64_t step)
{
    (void)step;
    if (a->count >= a->bound)
        drop(a, 0);
    add(a);
}

/* Fills up to a bound, one a step. */
static inline void cache(struct actor *a, uint64_t step)
{
    (void)step;
    if (a->count < a->bound)
        add(a);
}

/* Knows more and more of what comes at random: bound / 2 different things. */
static inline void collector(struct actor *a, uint64_t step)
{
    (void)step;
    if (sim_random(&s, a->bound / 2 + 1) >= a->count && a->count < a->bound / 2)
        add(a);
}

/* Full, and throws out any of its entries for a new one. */
static inline void evicting(struct actor *a, uint64_t step)
{
    uint64_t i;

    for (i = 0; !step && i < a->bound / 4 + 1; i++)
        add(a);
    for (i = 0; i < a->bound / 16 + 1; i++) {
        drop(a, (uint32_t)sim_random(&s, a->count));
        add(a);
    }
}

static inline void sawtooth(struct actor *a, uint64_t step)
{
    while (step % a->period == 0 && a->count)
        drop(a, 0);
    add(a);
}

/* Freed some steps later, several at once. */
static inline void deferred(struct actor *a, uint64_t step)
{
    add(a);
    add(a);
    while (step % 3 == 0 && a->count > 4)
        drop(a, 0);
}

static inline void warm_up(struct actor *a, uint64_t step)
{
    if (step < a->bound / 2)
        add(a);
}

/* Buffers for new sizes: in steps 1, 2, 4, 8 ... */
static inline void lazily(struct actor *a, uint64_t step)
{
    if (!(step & (step - 1)))
        add(a);
}

/* A better checkpoint replaces the last one now and then. */
static inline void checkpoint(struct actor *a, uint64_t step)
{
    if (step % a->period && sim_random(&s, 8))
        return;
    add(a);
    if (a->count > 3)
        drop(a, 0);
}

/* A list of losses: by design, and next to nothing. */
static inline void numbers(struct actor *a, uint64_t step)
{
    (void)step;
    a->bytes = 512;
    add(a);
}

/* The same, with two large blocks among them: constants that come when a shape is first seen. */
static inline void constants(struct actor *a, uint64_t step)
{
    a->bytes = step == 1 ? MIB : step == 2 + a->bound / 2 ? 8 * MIB : 256;
    add(a);
}

/* Concatenated: a larger one takes the place of the last. */
static inline void concatenated(struct actor *a, uint64_t step)
{
    (void)step;
    a->bytes += MIB;
    add(a);
    if (a->count > 1)
        drop(a, 0);
}

static inline void leaking(struct actor *a, uint64_t step)
{
    uint64_t i;

    (void)step;
    for (i = 0; i < a->period; i++)
        sim_free(&s, sim_alloc(&s, site_now(a), a->bytes)); /* most is given back */
    add(a);
}

/* Several small blocks in each step, and with every fifth a large one: what leaks is of mixed sizes. */
static inline void mixed(struct actor *a, uint64_t step)
{
    uint64_t i;

    for (i = 0; i < 3; i++) {
        a->bytes = 512;
        add(a);
    }
    a->bytes = MIB;
    if (step % 5 == 0)
        add(a);
}

/* A leak on the way of an error that comes in one step of four, by chance. */
static inline void sometimes(struct actor *a, uint64_t step)
{
    (void)step;
    if (!sim_random(&s, 4))
        add(a);
}

/* From a third of the run on. */
static inline void late_leak(struct actor *a, uint64_t step)
{
    uint32_t block = sim_alloc(&s, site_now(a), a->bytes);

    if (step >= a->bound)
        a->blocks[a->count++] = block;
    else
        sim_free(&s, block);
}

static void (*const healthy[])(struct actor *actor, uint64_t step) = {
    temporary, first_step, replaced, ring,    cache,     collector,  evicting,     sawtooth,
    deferred,  warm_up,    lazily,   numbers, constants, checkpoint, concatenated,
};
#define HEALTHY (sizeof healthy / sizeof healthy[0])

static inline void set_up(struct actor *a, void (*step)(struct actor *actor, uint64_t step), uint64_t steps)
{
    memset(a, 0, sizeof *a);
    a->step = step;
    a->site = sim_place(&s, "train_step");
    a->bytes = 65536 << sim_random(&s, 8);
    a->bound = 4 + sim_random(&s, steps / 2 - 3); /* half of the run at most: later, it is growth to everybody */
    a->period = 2 + sim_random(&s, steps / 2 - 1);
}

/* One line of the program that calls `variants` different functions of a library. */
static inline void spread(struct actor *a, uint32_t variants)
{
    uint32_t line = s.lines++, own, i;
    char inner[32];

    a->variants = variants;
    own = python_line(&s.t, python_line(&s.t, 0, "<module>", 99), "train_step", 100 + line);
    for (i = 0; i < variants; i++) {
        snprintf(inner, sizeof inner, "kernel_%u", i);
        if (!i)
            a->site = place(&s.t, s.t.tensor, 0, fixture_python(&s.t.f, own, LIBRARY_PY, inner, 10));
        else
            place(&s.t, s.t.tensor, 0, fixture_python(&s.t.f, own, LIBRARY_PY, inner, 10));
    }
}

enum clock { STEPS, PASSES, NOTHING }; /* what shows the rounds of a loop */

static inline void run(struct actor *actors, uint32_t count, uint64_t steps, enum clock clock, bool slots)
{
    uint64_t step;
    uint32_t i;

    for (step = 0; step < steps; step++) {
        for (i = 0; i < count; i++)
            actors[i].step(&actors[i], step);
        if (clock == STEPS)
            sim_step(&s);
        if (clock == PASSES)
            sim_pass(&s);
    }
    sim_end(&s, slots);
}

static inline void check_healthy(const struct opened *o, uint64_t seed)
{
    uint32_t i;

    for (i = 0; i < o->a.findings.count; i++) {
        const struct vt_finding *f = &o->a.findings.list[i];

        if ((f->family == VT_FAMILY_GROWTH || f->family == VT_FAMILY_LEAK) && f->confidence != VT_POSSIBLE)
            fail_msg("seed %llu: %s %s", (unsigned long long)seed, f->title, f->evidence[0]);
    }
}

#endif
