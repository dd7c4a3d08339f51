/*
 * The books (src/preload/ledger.c) against a model without any cleverness: at each event the model writes down every
 * site's share of a new peak, keeps every event, and works buckets and histories out of those afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_ledger_fixture.h"

/* ---- the model ---- */

#define SITES 24
#define SCOPES 8
#define EVENTS 100000
#define LIVE_MAX 600

struct point {
    uint64_t at, before, after;
};

static struct model_site {
    struct vt_site_key key;
    uint32_t index;
    unsigned scope;
    uint64_t live, count, requested, peak, allocs, frees, retired, total, lifetime;
    uint64_t at_peak, at_peak_count;
    uint64_t ended[VT_FATE_COUNT], ended_bytes[VT_FATE_COUNT], ended_at_peak[VT_FATE_COUNT];
    bool blurred; /* a refused free spanned a peak: which allocations were in it is not known exactly */
    struct point *points;
    unsigned point_count;
} site[SITES];

static struct model_scope {
    int used, class_, device, level;
    uint64_t live, peak, peaks, peak_at;
    struct point *points;
    unsigned point_count;
} scope[SCOPES];

static struct model_live {
    unsigned site;
    uint64_t bytes, requested, born;
    unsigned stretch, step; /* in which it was born */
    bool in_peak;
} live[LIVE_MAX];
static unsigned live_count;

static unsigned stretch, step;

static uint64_t seed;

static unsigned random_below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 11) % n);
}

static unsigned model_scope_of(const struct vt_site_key *k)
{
    int class_ = vt_class_of((enum vt_kind)k->kind);
    for (unsigned i = 0; i < SCOPES; i++)
        if (!scope[i].used ||
            (scope[i].class_ == class_ && scope[i].device == k->device && scope[i].level == k->level)) {
            scope[i].used = 1;
            scope[i].class_ = class_;
            scope[i].device = k->device;
            scope[i].level = k->level;
            return i;
        }
    fail_msg("more scopes than the model has room for");
    return 0;
}

static void model_change(struct model_site *s, int64_t bytes, int64_t requested, int count)
{
    struct model_scope *c = &scope[s->scope];
    s->points[s->point_count++] = (struct point){now, s->live, s->live + (uint64_t)bytes};
    c->points[c->point_count++] = (struct point){now, c->live, c->live + (uint64_t)bytes};
    s->live += (uint64_t)bytes;
    s->count += (uint64_t)(int64_t)count;
    s->requested += (uint64_t)requested;
    c->live += (uint64_t)bytes;
    if (s->live > s->peak)
        s->peak = s->live;
    if (c->live <= c->peak)
        return;
    c->peak = c->live;
    c->peak_at = now;
    c->peaks++;
    for (unsigned i = 0; i < SITES; i++)
        if (site[i].scope == s->scope) {
            site[i].at_peak = site[i].live;
            site[i].at_peak_count = site[i].count;
            site[i].blurred = false;
            memset(site[i].ended_at_peak, 0, sizeof site[i].ended_at_peak);
        }
    for (unsigned i = 0; i < live_count; i++)
        if (site[live[i].site].scope == s->scope)
            live[i].in_peak = true;
}

static enum vt_fate model_fate(const struct model_live *l)
{
    return l->step != step                           ? VT_FATE_LATER
           : l->stretch == stretch                   ? VT_FATE_STRETCH
           : vt_phase_tls.phase == VT_PHASE_BACKWARD ? VT_FATE_BACKWARD
                                                     : VT_FATE_STEP;
}

static void model_end(struct model_site *s, const struct model_live *l, int64_t sign)
{
    enum vt_fate fate = model_fate(l);
    s->ended[fate] += (uint64_t)sign;
    s->ended_bytes[fate] += (uint64_t)(sign * (int64_t)l->bytes);
    if (l->in_peak)
        s->ended_at_peak[fate] += (uint64_t)(sign * (int64_t)l->bytes);
}

/* ---- events, told to both ---- */

static void allocate(unsigned which)
{
    struct model_site *s = &site[which];
    uint64_t requested = 1 + random_below(1 << 20), bytes = (requested + 511) & ~511ull;
    live[live_count++] = (struct model_live){which, bytes, requested, now, stretch, step, false};
    vt_book_alloc(s->index, bytes, requested, now);
    s->allocs++;
    s->total += bytes;
    model_change(s, (int64_t)bytes, (int64_t)requested, 1);
}

static struct model_live take(unsigned i)
{
    struct model_live l = live[i];
    live[i] = live[--live_count];
    return l;
}

static void release(enum vt_leaving how)
{
    struct model_live l = take(random_below(live_count));
    struct model_site *s = &site[l.site];
    vt_book_free(s->index, l.bytes, l.requested, l.born, now, how);
    model_change(s, -(int64_t)l.bytes, -(int64_t)l.requested, -1);
    if (how == VT_LEFT_BY_FREE) {
        s->frees++;
        s->lifetime += now - l.born;
        model_end(s, &l, 1);
    } else
        s->retired++;
}

/* A free that the driver refuses, while other threads allocate: the level may be a new peak after all. */
static void refused_free(void)
{
    struct model_live l = take(random_below(live_count));
    struct model_site *s = &site[l.site];
    uint64_t begun = now, peaks = scope[s->scope].peaks;
    vt_book_free(s->index, l.bytes, l.requested, l.born, now, VT_LEFT_BY_FREE);
    model_change(s, -(int64_t)l.bytes, -(int64_t)l.requested, -1);
    now += 1 + random_below(5000);
    if (live_count + 2 < LIVE_MAX)
        allocate(random_below(SITES));
    now++;
    bool between = scope[s->scope].peaks != peaks;
    vt_book_undo_free(s->index, l.bytes, l.requested, l.born, begun, now);
    live[live_count++] = l;
    peaks = scope[s->scope].peaks;
    model_change(s, (int64_t)l.bytes, (int64_t)l.requested, 1);
    if (between && scope[s->scope].peaks == peaks)
        s->blurred = true;
}

static void change_phase(void)
{
    now++;
    vt_phase_tls.phase = (uint8_t)random_below(VT_PHASE_COUNT);
    vt_phase_times.stretch_ns = now;
    stretch++;
    if (random_below(4))
        return;
    vt_phase_times.step_ns = now;
    step++;
}

static void pass_time(unsigned long i)
{
    now += 1 + random_below(40000);
    if (random_below(2000) == 0)
        now += (uint64_t)random_below(1000) * 1000000;
    if (i == EVENTS / 2)
        now += 90ull * 1000000000;
}

/* ---- comparison ---- */

static void check_sites(void)
{
    for (unsigned i = 0; i < SITES; i++) {
        const struct model_site *m = &site[i];
        const struct vt_site *s = record(VT_SITES, m->index);
        const struct vt_scope *c = record(VT_SCOPES, s->scope);
        bool settled = s->peak_epoch == (uint32_t)c->epoch;
        assert_int_equal(s->live_bytes, m->live);
        assert_int_equal(s->live_count, m->count);
        assert_int_equal(s->requested_bytes, m->requested);
        assert_int_equal(s->peak_bytes, m->peak);
        assert_int_equal(settled ? s->at_peak_bytes : s->live_bytes, m->at_peak);
        assert_int_equal(settled ? s->at_peak_count : s->live_count, m->at_peak_count);
        assert_int_equal(s->alloc_calls, m->allocs);
        assert_int_equal(s->free_calls, m->frees);
        assert_int_equal(s->retired, m->retired);
        assert_int_equal(s->total_bytes, m->total);
        assert_int_equal(s->lifetime_ns, m->lifetime);
        for (unsigned fate = 0; fate < VT_FATE_COUNT; fate++) {
            assert_int_equal(s->ended[fate].count, m->ended[fate]);
            assert_int_equal(s->ended[fate].bytes, m->ended_bytes[fate]);
            if (settled && !m->blurred)
                assert_int_equal(s->ended[fate].at_peak_bytes, m->ended_at_peak[fate]);
        }
    }
}

static void check_scopes(void)
{
    uint64_t count = vt_header()->section[VT_SCOPES].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_scope *c = record(VT_SCOPES, i);
        struct vt_site_key k = {.level = c->level, .device = c->device};
        const struct model_scope *m = NULL;
        uint64_t at_peak = 0;
        for (unsigned j = 0; j < SCOPES; j++)
            if (scope[j].used && scope[j].class_ == c->class_ && scope[j].device == k.device &&
                scope[j].level == k.level)
                m = &scope[j];
        assert_non_null(m);
        assert_int_equal(c->live_bytes, m->live);
        assert_int_equal(c->peak_bytes, m->peak);
        assert_int_equal(c->epoch, m->peaks);
        assert_int_equal(c->peak_ns, m->peak_at);
        for (unsigned j = 0; j < SITES; j++)
            if (&scope[site[j].scope] == m)
                at_peak += site[j].at_peak;
        assert_int_equal(at_peak, m->peak);
    }
}

static void check_totals(void)
{
    uint64_t count = vt_header()->section[VT_TOTALS].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_total *t = record(VT_TOTALS, i);
        uint64_t bytes = 0, number = 0, requested = 0, allocs = 0, frees = 0, retired = 0, total = 0;
        for (unsigned j = 0; j < SITES; j++) {
            const struct model_site *m = &site[j];
            if (m->key.level != t->level || m->key.kind != t->kind || m->key.device != t->device)
                continue;
            bytes += m->live, number += m->count, requested += m->requested, allocs += m->allocs, frees += m->frees;
            retired += m->retired, total += m->total;
        }
        assert_int_equal(t->live_bytes, bytes);
        assert_int_equal(t->live_count, number);
        assert_int_equal(t->requested_bytes, requested);
        assert_int_equal(t->alloc_calls, allocs);
        assert_int_equal(t->free_calls, frees);
        assert_int_equal(t->retired, retired);
        assert_int_equal(t->total_bytes, total);
        assert_true(t->peak_bytes >= t->live_bytes);
    }
}

static void check_timelines(void)
{
    uint64_t count = vt_header()->section[VT_TIMELINES].count;
    assert_int_equal(count, vt_header()->section[VT_SCOPES].count);
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_timeline *t = record(VT_TIMELINES, i);
        const struct vt_scope *c = record(VT_SCOPES, i);
        const struct model_scope *m = scope;
        while (m->class_ != c->class_ || m->device != c->device || m->level != c->level)
            m++;
        uint64_t last = m->points[m->point_count - 1].at;
        uint32_t shift = 20;
        while (last >> shift >= VT_BUCKETS)
            shift++;
        assert_int_equal(t->scope, i);
        assert_int_equal(t->shift, shift);
        assert_int_equal(t->used, (last >> shift) + 1);
        unsigned p = 0;
        for (unsigned b = 0; b < t->used; b++) {
            uint64_t min = UINT64_MAX, max = 0;
            for (; p < m->point_count && m->points[p].at >> shift == b; p++) {
                uint64_t low = m->points[p].before < m->points[p].after ? m->points[p].before : m->points[p].after;
                uint64_t high = m->points[p].before + m->points[p].after - low;
                min = low < min ? low : min;
                max = high > max ? high : max;
            }
            if (min > max) /* no event: any pair that says so */
                assert_true(t->bucket[b].min > t->bucket[b].max);
            else {
                assert_int_equal(t->bucket[b].min, min);
                assert_int_equal(t->bucket[b].max, max);
            }
        }
        assert_int_equal(p, m->point_count);
    }
}

static void check_histories(void)
{
    for (unsigned i = 0; i < SITES; i++) {
        const struct model_site *m = &site[i];
        const struct vt_site *s = record(VT_SITES, m->index);
        uint64_t last = m->points[m->point_count - 1].at, level = 0;
        unsigned p = 0, shift = 20;
        while (last >> shift >= VT_HISTORY)
            shift++;
        assert_int_equal(s->last_ns, last);
        assert_int_equal(s->history_shift, shift);
        assert_int_equal(s->history_count, last >> shift);
        for (unsigned k = 0; k < s->history_count; k++) {
            for (; p < m->point_count && m->points[p].at < (uint64_t)(k + 1) << shift; p++)
                level = m->points[p].after;
            assert_int_equal(s->history[k], level);
        }
    }
}

static void make_sites(void)
{
    static const uint8_t kinds[] = {VT_KIND_DEVICE, VT_KIND_ASYNC, VT_KIND_PINNED, VT_KIND_MANAGED};
    memset(site, 0, sizeof site);
    memset(scope, 0, sizeof scope);
    live_count = 0;
    for (unsigned i = 0; i < SITES; i++) {
        struct model_site *s = &site[i];
        uint8_t kind = kinds[i % 4];
        s->key = (struct vt_site_key){VT_LEVEL_DRIVER, kind,
                                      kind == VT_KIND_PINNED ? (int16_t)-1 : (int16_t)(i / 4 % 2), 1};
        s->scope = model_scope_of(&s->key);
        assert_int_equal(vt_site_find(vt_site_hash(&s->key, i * 77)), VT_NONE);
        s->index = vt_site_add(&s->key, vt_site_hash(&s->key, i * 77), 0, 0);
        assert_int_equal(s->index, i);
        assert_int_equal(vt_site_find(vt_site_hash(&s->key, i * 77)), i);
        s->points = realloc(s->points, 2 * EVENTS * sizeof *s->points);
        assert_non_null(s->points);
    }
    for (unsigned i = 0; i < SCOPES; i++)
        assert_non_null(scope[i].points = malloc(3 * EVENTS * sizeof *scope[i].points));
}

static void free_sites(void)
{
    for (unsigned i = 0; i < SITES; i++)
        free(site[i].points);
    for (unsigned i = 0; i < SCOPES; i++)
        free(scope[i].points);
}

static void run_random(uint64_t with)
{
    seed = with;
    open_writer(256u << 20);
    make_sites();
    for (unsigned long i = 0; i < EVENTS; i++) {
        unsigned growing = i / 5000 % 3 != 2 ? 55 : 35, dice = random_below(100);
        pass_time(i);
        if ((dice < growing && live_count + 4 < LIVE_MAX) || live_count < 2)
            allocate(random_below(i < 3000 ? 3 : SITES)); /* some sites begin late */
        else if (dice < 97)
            release(dice < 94 ? VT_LEFT_BY_FREE : VT_LEFT_BY_TEARDOWN);
        else
            refused_free();
        if (random_below(20) == 0)
            change_phase();
        if (i % 500 == 0)
            check_sites();
    }
    check_sites();
    check_scopes();
    check_totals();
    check_timelines();
    check_histories();
    free_sites();
    close_writer();
}

static void test_random_sequences(void **state)
{
    (void)state;
    run_random(0x9e3779b97f4a7c15ull);
    run_random(42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sequences),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
