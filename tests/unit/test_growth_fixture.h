/*
 * Programs in miniature, for tests of growth: places allocate and free on a clock of steps, and the recording of it has
 * what a real one has: histories, fates, steps, the slots of what is live.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_GROWTH_FIXTURE_H
#define VRAMTRACK_TEST_GROWTH_FIXTURE_H

#include "test_tensor_fixture.h"

#define SIM_BLOCKS 8192

struct sim_block {
    uint32_t site;
    uint64_t bytes, born, step;
};

struct sim {
    struct tensors t;
    struct sim_block live[SIM_BLOCKS]; /* bytes 0: no block */
    uint32_t blocks;
    uint64_t step, random;
    uint32_t lines;
};

static inline uint64_t sim_random(struct sim *s, uint64_t below)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (s->random >> 11) % below;
}

static inline void sim_begin(struct sim *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->random = (seed + 1) * 0x9e3779b97f4a7c15ull;
    tensors_begin(&s->t);
    hold(&s->t, segment_place(&s->t, "main", 1), BASE, 8 * GIB);
}

/* A place of tensors of its own in the program's code. */
static inline uint32_t sim_place(struct sim *s, const char *function)
{
    return tensor_place(&s->t, function, 100 + s->lines++);
}

/* Notes what the site has held since its last change, as the ledger does. */
static inline void sim_history(struct sim *s, uint32_t index)
{
    struct vt_site *site = site_record(&s->t.f, index);

    if (!site->history_shift)
        site->history_shift = 20;
    while (s->t.now >> site->history_shift >= VT_HISTORY) {
        if (site->history_count & 1)
            site->history[site->history_count++] = site->live_bytes;
        site->history_count /= 2;
        for (unsigned i = 0; i < site->history_count; i++)
            site->history[i] = site->history[2 * i + 1];
        site->history_shift++;
    }
    while (site->history_count < s->t.now >> site->history_shift)
        site->history[site->history_count++] = site->live_bytes;
}

/* Time passes: as for a kernel. */
static inline void sim_work(struct sim *s)
{
    s->t.now += (s->step ? 100000 : 1000000) + sim_random(s, 400000);
}

/* Allocates; returns the block's number. */
static inline uint32_t sim_alloc(struct sim *s, uint32_t index, uint64_t bytes)
{
    struct vt_site *site = site_record(&s->t.f, index);
    uint32_t block = 0;

    sim_work(s);
    sim_history(s, index);
    if (!site->first_ns)
        site->first_ns = s->t.now;
    site->last_ns = s->t.now;
    site->alloc_calls++;
    site->total_bytes += bytes;
    site->live_bytes += bytes;
    site->live_count++;
    site->requested_bytes += bytes;
    if (site->live_bytes > site->peak_bytes)
        site->peak_bytes = site->live_bytes;
    while (block < s->blocks && s->live[block].bytes)
        block++;
    assert_true(block < SIM_BLOCKS);
    if (block == s->blocks)
        s->blocks++;
    s->live[block] = (struct sim_block){index, bytes, s->t.now, s->step};
    return block;
}

static inline void sim_free(struct sim *s, uint32_t block)
{
    struct sim_block *b = &s->live[block];
    struct vt_site *site = site_record(&s->t.f, b->site);
    struct vt_fate_sum *fate = &site->ended[b->step < s->step ? VT_FATE_LATER : VT_FATE_STRETCH];

    assert_true(b->bytes);
    sim_work(s);
    sim_history(s, b->site);
    site->last_ns = s->t.now;
    site->live_bytes -= b->bytes;
    site->live_count--;
    site->requested_bytes -= b->bytes;
    site->free_calls++;
    fate->count++;
    fate->bytes += b->bytes;
    b->bytes = 0;
}

static inline void sim_step(struct sim *s)
{
    sim_work(s);
    step_ends(&s->t);
    s->step++;
}

/* A backward pass; no optimizer ends a step. */
static inline void sim_pass(struct sim *s)
{
    static const uint64_t phases[] = {VT_PHASE_BACKWARD, VT_PHASE_NONE};
    size_t i;

    for (i = 0; i < 2; i++) {
        struct vt_event event = {.type = VT_EVENT_PHASE, .site = VT_NONE, .address = phases[i]};

        sim_work(s);
        event.time_ns = s->t.now;
        fixture_add(&s->t.f, VT_EVENTS, &event);
    }
}

/* The program's own code ends: what is live becomes slots, and a moment. slots: the moment copies them. */
static inline void sim_end(struct sim *s, bool slots)
{
    uint32_t i;

    for (i = 0; i < s->blocks; i++) {
        const struct sim_block *b = &s->live[i];
        struct vt_slot slot = {.address = BASE + (uint64_t)i * MIB,
                               .bytes = b->bytes,
                               .requested = b->bytes,
                               .time_ns = b->born,
                               .site = b->site,
                               .kind = VT_KIND_DEVICE};

        if (!b->bytes)
            continue;
        fixture_add(&s->t.f, VT_LIVE, &slot);
        total_record(&s->t, s->t.tensor)->live_bytes += b->bytes;
        total_record(&s->t, s->t.tensor)->live_count++;
    }
    s->t.now += SECOND / 1000;
    moment(&s->t, "finalize", VT_MOMENT_FINALIZE, VT_NONE, slots);
    s->t.now += SECOND / 1000;
    fixture_header(&s->t.f)->last_ns = s->t.now;
    fixture_header(&s->t.f)->end_ns = s->t.now + SECOND / 1000;
}

#endif
