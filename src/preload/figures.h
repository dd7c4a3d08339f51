/*
 * The figures of a site, of its total and of its scope, as one allocation begins or ends: what ledger.c does, in line, for
 * ledger.c itself and for the path of every tensor (tensor.h). There what counts is how many lines of code the processor
 * has to fetch anew after the program ran, so all that is seldom needed stays in ledger.c.
 *
 * With the state lock held.
 */
#ifndef VT_PRELOAD_FIGURES_H
#define VT_PRELOAD_FIGURES_H

#include "preload/ledger.h"

/* Where the figures of a (level, kind, device) lie. Records never move. */
struct vt_book {
    struct vt_total *total;
    struct vt_scope *scope;
    struct vt_timeline *timeline; /* NULL: there was no room for one */
};

/* Of the first totals, by index; others are looked up. */
#define VT_BOOKS 64u
extern struct vt_book vt_books[VT_BOOKS];
const struct vt_book *vt_book_of_total(uint32_t total);

static inline const struct vt_book *vt_book_of(const struct vt_site *s)
{
    return __builtin_expect(s->total < VT_BOOKS, 1) ? &vt_books[s->total] : vt_book_of_total(s->total);
}

/* The seldom part of each: another interval of the history or bucket of the timeline has begun, the peak is a newer one. */
void vt_history_advance(struct vt_site *s, uint64_t now);
void vt_timeline_advance(struct vt_timeline *t, uint64_t now);
void vt_peak_settle(struct vt_site *s, const struct vt_scope *c);

/* The scope's bytes went from `before` to `after`. */
static inline void vt_timeline_draw(struct vt_timeline *t, uint64_t before, uint64_t after, uint64_t now)
{
    if (!t)
        return;
    if (__builtin_expect((now >> t->shift) + 1 != t->used, 0))
        vt_timeline_advance(t, now);
    uint64_t b = now >> t->shift, low = before < after ? before : after, high = before < after ? after : before;
    if (low < t->bucket[b].min)
        t->bucket[b].min = low;
    if (high > t->bucket[b].max)
        t->bucket[b].max = high;
}

/* The live figures change by so much. */
static inline void vt_figures_change(struct vt_site *s, const struct vt_book *book, uint64_t bytes, uint64_t requested,
                                     uint64_t count, uint64_t now)
{
    struct vt_total *t = book->total;
    struct vt_scope *c = book->scope;
    if (__builtin_expect(now >> s->history_shift != s->history_count, 0))
        vt_history_advance(s, now);
    if (__builtin_expect(s->peak_epoch != (uint32_t)c->epoch, 0))
        vt_peak_settle(s, c);
    s->live_bytes += bytes;
    s->live_count += (uint32_t)count;
    s->requested_bytes += requested;
    s->last_ns = now;
    t->live_bytes += bytes;
    t->live_count += count;
    t->requested_bytes += requested;
    uint64_t before = c->live_bytes;
    c->live_bytes += bytes;
    vt_timeline_draw(book->timeline, before, c->live_bytes, now);
}

static inline void vt_figures_raise_peaks(struct vt_site *s, const struct vt_book *book, uint64_t now)
{
    struct vt_total *t = book->total;
    struct vt_scope *c = book->scope;
    if (s->live_bytes > s->peak_bytes)
        s->peak_bytes = s->live_bytes;
    if (t->live_bytes > t->peak_bytes)
        t->peak_bytes = t->live_bytes;
    if (c->live_bytes > c->peak_bytes) {
        c->peak_bytes = c->live_bytes;
        c->peak_ns = now;
        c->peak_phase = vt_header()->phase;
        c->epoch++;
    }
}

/* Behind vt_figures_change: an allocation of the site began. */
static inline void vt_figures_began(struct vt_site *s, const struct vt_book *book, uint64_t bytes, uint64_t now)
{
    s->alloc_calls++;
    s->total_bytes += bytes;
    book->total->alloc_calls++;
    book->total->total_bytes += bytes;
    vt_figures_raise_peaks(s, book, now);
}

/* Behind vt_figures_change: one that began at `born` was freed. */
static inline void vt_figures_ended(struct vt_site *s, const struct vt_book *book, uint64_t bytes, uint64_t born,
                                    uint64_t now)
{
    s->free_calls++;
    s->lifetime_ns += now - born;
    struct vt_fate_sum *e = &s->ended[vt_phase_fate(born)];
    e->count++;
    e->bytes += bytes;
    if (born <= book->scope->peak_ns)
        e->at_peak_bytes += bytes;
    book->total->free_calls++;
}

#endif
