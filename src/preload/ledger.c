/*
 * Exact figures at constant cost.
 *
 * Peak attribution is lazy: a peak of a scope is a number (its epoch). A site that changes for the first time since the
 * newest peak first writes down what it held at that peak, which is what it has held ever since. So nobody walks all
 * sites at a peak, and yet every site knows its share (recording.h, struct vt_site).
 */
#include "preload/ledger.h"

#include <string.h>

#include "preload/arena.h"
#include "preload/figures.h"
#include "preload/hot.h"
#include "preload/phase.h"
#include "preload/range.h"
#include "preload/resolve.h"
#include "preload/state.h"

#define DEVICES 64 /* -1 (host) to 62 have a table cell; others are searched */

static uint32_t total_of[VT_LEVEL_COUNT][VT_KIND_COUNT][DEVICES + 1]; /* index + 1 */

struct site_entry {
    UT_hash_handle hh;
    uint64_t hash;
    uint32_t index;
};
static struct site_entry *sites;

struct vt_recent_site vt_recent_sites[1u << VT_RECENT_BITS];
VT_HOT_DATA struct vt_book vt_books[VT_BOOKS];

static uint32_t overflow_of[VT_LEVEL_COUNT][VT_KIND_COUNT]
                           [DEVICES + 1]; /* index + 1: where allocations go when no site can be added */
#define OVERFLOW_RESERVE 512              /* sites kept back for them */

static void *record(enum vt_section section, uint64_t i)
{
    return vt_writer_at(&vt_state.writer, section, i);
}

/* The scope of a kind on a device, with its timeline. Few: searched. */
static uint32_t scope_index(uint8_t level, uint8_t kind, int16_t device)
{
    uint8_t class = (uint8_t)vt_class_of((enum vt_kind)kind);
    uint64_t count = vt_header()->section[VT_SCOPES].count, i;
    for (i = 0; i < count; i++) {
        struct vt_scope *s = record(VT_SCOPES, i);
        if (s->level == level && s->class_ == class && s->device == device)
            return (uint32_t)i;
    }
    struct vt_scope *s = vt_writer_append(&vt_state.writer, VT_SCOPES, &i);
    if (!s)
        return VT_NONE;
    s->level = level;
    s->class_ = class;
    s->device = device;
    uint64_t timeline;
    struct vt_timeline *t = vt_writer_append(&vt_state.writer, VT_TIMELINES, &timeline);
    if (t && timeline == i) {
        t->scope = (uint32_t)i;
        t->shift = 20; /* 1 ms at first */
        vt_writer_publish(&vt_state.writer, VT_TIMELINES);
    }
    vt_writer_publish(&vt_state.writer, VT_SCOPES);
    return (uint32_t)i;
}

static uint32_t search_total(uint8_t level, uint8_t kind, int16_t device)
{
    uint64_t count = vt_header()->section[VT_TOTALS].count;
    for (uint64_t i = 0; i < count; i++) {
        struct vt_total *t = record(VT_TOTALS, i);
        if (t->level == level && t->kind == kind && t->device == device)
            return (uint32_t)i;
    }
    return VT_NONE;
}

static struct vt_book book_at(uint32_t total)
{
    struct vt_total *t = record(VT_TOTALS, total);
    bool drawn = t->scope < vt_header()->section[VT_TIMELINES].count;
    return (struct vt_book){t, record(VT_SCOPES, t->scope), drawn ? record(VT_TIMELINES, t->scope) : NULL};
}

const struct vt_book *vt_book_of_total(uint32_t total)
{
    static struct vt_book one;
    one = book_at(total);
    return &one;
}

uint32_t vt_total_index(uint8_t level, uint8_t kind, int16_t device)
{
    unsigned cell = (unsigned)(device + 1);
    uint32_t *known = cell <= DEVICES ? &total_of[level][kind][cell] : NULL;
    if (known && *known)
        return *known - 1;
    uint32_t found = known ? VT_NONE : search_total(level, kind, device);
    if (found != VT_NONE)
        return found;
    uint64_t i;
    uint32_t scope = scope_index(level, kind, device);
    struct vt_total *t = scope == VT_NONE ? NULL : vt_writer_append(&vt_state.writer, VT_TOTALS, &i);
    if (!t)
        return VT_NONE;
    t->level = level;
    t->kind = kind;
    t->device = device;
    t->scope = scope;
    vt_writer_publish(&vt_state.writer, VT_TOTALS);
    if (i < VT_BOOKS)
        vt_books[i] = book_at((uint32_t)i);
    if (known)
        *known = (uint32_t)i + 1;
    return (uint32_t)i;
}

const struct vt_recent_site vt_no_site;

const struct vt_recent_site *vt_site_look_up(uint64_t hash, uint64_t key)
{
    struct site_entry *e = NULL;
    HASH_FIND(hh, sites, &hash, sizeof hash, e);
    if (!e)
        return &vt_no_site;
    struct vt_site *s = record(VT_SITES, e->index);
    struct vt_recent_site *r = &vt_recent_sites[key >> (64 - VT_RECENT_BITS)];
    uint64_t line = (uint64_t)((unsigned char *)s - vt_state.writer.base) / 64;
    if (line > UINT32_MAX) {
        vt_arena_failed = 1; /* the recording has grown beyond 256 GiB of address space */
        return &vt_no_site;
    }
    s->threads |= 1ull << (vt_thread_index() % 64);
    *r = (struct vt_recent_site){key, e->index + 1, (uint32_t)line};
    return r;
}

static struct vt_site *new_site(const struct vt_site_key *key, uint32_t stack, uint32_t python_stack, uint64_t *index)
{
    uint32_t total = vt_total_index(key->level, key->kind, key->device);
    struct vt_site *s = total == VT_NONE ? NULL : vt_writer_append(&vt_state.writer, VT_SITES, index);
    if (!s)
        return NULL;
    s->stack = stack;
    s->python_stack = python_stack;
    s->api = vt_intern(vt_entry_name(key->api));
    s->level = key->level;
    s->kind = key->kind;
    s->device = key->device;
    s->phase = (uint8_t)vt_phase_now();
    s->range = vt_intern(vt_range_name(vt_phase_tls.range));
    s->total = total;
    s->scope = ((struct vt_total *)record(VT_TOTALS, total))->scope;
    s->first_ns = vt_now();
    s->history_shift = 20;
    vt_writer_publish(&vt_state.writer, VT_SITES);
    return s;
}

/* No room to tell sites apart any more: one site without a stack per (level, kind, device) takes what comes, so that the
 * totals stay exact. */
static uint32_t overflow_site(const struct vt_site_key *key)
{
    unsigned cell = (unsigned)(key->device + 1);
    uint32_t *known = &overflow_of[key->level][key->kind][cell <= DEVICES ? cell : DEVICES];
    uint64_t index;
    struct vt_site *s = *known ? NULL : new_site(key, 0, 0, &index);
    if (s) {
        s->phase = 0; /* of all phases */
        s->range = 0;
        *known = (uint32_t)index + 1;
    }
    vt_header()->section[VT_SITES].lost++;
    vt_header()->flags |= VT_FLAG_BOUND_REACHED;
    return *known ? *known - 1 : VT_NONE;
}

static bool sites_full(void)
{
    const struct vt_section_entry *s = &vt_header()->section[VT_SITES];
    return s->count + OVERFLOW_RESERVE >= s->limit;
}

uint32_t vt_site_add(const struct vt_site_key *key, uint64_t hash, uint32_t stack, uint32_t python_stack)
{
    uint64_t index;
    if (sites_full() || !new_site(key, stack, python_stack, &index))
        return overflow_site(key);
    struct site_entry *e = vt_arena_take(sizeof *e);
    if (e) {
        e->hash = hash;
        e->index = (uint32_t)index;
        HASH_ADD(hh, sites, hash, sizeof e->hash, e);
    }
    return (uint32_t)index;
}

static void halve_timeline(struct vt_timeline *t)
{
    for (unsigned i = 0; i < VT_BUCKETS / 2; i++) {
        uint64_t min = t->bucket[2 * i].min, max = t->bucket[2 * i].max;
        if (t->bucket[2 * i + 1].min < min)
            min = t->bucket[2 * i + 1].min;
        if (t->bucket[2 * i + 1].max > max)
            max = t->bucket[2 * i + 1].max;
        t->bucket[i].min = min;
        t->bucket[i].max = max;
    }
    t->used = (t->used + 1) / 2;
    t->shift++;
}

static void empty_buckets(struct vt_timeline *t, unsigned until)
{
    for (; t->used < until; t->used++) {
        t->bucket[t->used].min = UINT64_MAX;
        t->bucket[t->used].max = 0;
    }
}

void vt_timeline_advance(struct vt_timeline *t, uint64_t now)
{
    while (now >> t->shift >= VT_BUCKETS) {
        empty_buckets(t, (t->used + 1) & ~1u);
        halve_timeline(t);
    }
    empty_buckets(t, (unsigned)(now >> t->shift) + 1);
}

/* Notes what the site has held since its last change, interval by interval. */
void vt_history_advance(struct vt_site *s, uint64_t now)
{
    while (now >> s->history_shift >= VT_HISTORY) {
        if (s->history_count & 1)
            s->history[s->history_count++] = s->live_bytes;
        s->history_count /= 2;
        for (unsigned i = 0; i < s->history_count; i++)
            s->history[i] = s->history[2 * i + 1];
        s->history_shift++;
    }
    while (s->history_count < now >> s->history_shift)
        s->history[s->history_count++] = s->live_bytes;
}

void vt_peak_settle(struct vt_site *s, const struct vt_scope *c)
{
    s->at_peak_bytes = s->live_bytes;
    s->at_peak_count = s->live_count;
    s->peak_epoch = (uint32_t)c->epoch;
    for (unsigned fate = 0; fate < VT_FATE_COUNT; fate++)
        s->ended[fate].at_peak_bytes = 0;
}

void vt_book_alloc(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t now)
{
    struct vt_site *s = record(VT_SITES, site);
    const struct vt_book *book = vt_book_of(s);
    vt_figures_change(s, book, bytes, requested, 1, now);
    vt_figures_began(s, book, bytes, now);
}

/* The phase may have changed since: then another fate gives way, and their sum stays right. */
static void not_freed(struct vt_site *s, const struct vt_scope *c, uint64_t bytes, uint64_t born)
{
    unsigned fate = vt_phase_fate(born), n = 0;
    while (n++ < VT_FATE_COUNT && (!s->ended[fate].count || s->ended[fate].bytes < bytes))
        fate = (fate + 1) % VT_FATE_COUNT;
    struct vt_fate_sum *e = &s->ended[fate];
    e->count--;
    e->bytes -= bytes;
    if (born <= c->peak_ns && e->at_peak_bytes >= bytes) /* unless the peak is a newer one */
        e->at_peak_bytes -= bytes;
}

void vt_book_free(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t born, uint64_t now, enum vt_leaving how)
{
    struct vt_site *s = record(VT_SITES, site);
    const struct vt_book *book = vt_book_of(s);
    vt_figures_change(s, book, -bytes, -requested, -1ull, now);
    if (how == VT_LEFT_BY_FREE) {
        vt_figures_ended(s, book, bytes, born, now);
        return;
    }
    s->retired++;
    book->total->retired++;
}

void vt_book_undo_free(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t born, uint64_t freed, uint64_t now)
{
    struct vt_site *s = record(VT_SITES, site);
    const struct vt_book *book = vt_book_of(s);
    vt_figures_change(s, book, bytes, requested, 1, now);
    s->free_calls--;
    s->lifetime_ns -= freed - born;
    not_freed(s, book->scope, bytes, born);
    book->total->free_calls--;
    vt_figures_raise_peaks(s, book, now); /* another thread may have allocated meanwhile */
}

void vt_book_event(const struct vt_event *event)
{
    struct vt_event *to = vt_event_begin(event->time_ns);
    if (!to)
        return;
    *to = *event;
    vt_event_end();
}

void vt_book_mark(enum vt_event_type type, uint64_t address, uint64_t bytes)
{
    uint32_t thread = vt_thread_index();
    uint64_t now = vt_now(), newest = vt_header()->last_ns;
    struct vt_event e = {.time_ns = now < newest ? newest : now, /* as vt_now_held() */
                         .address = address,
                         .bytes = bytes,
                         .site = VT_NONE,
                         .thread = thread < UINT16_MAX ? (uint16_t)thread : UINT16_MAX,
                         .type = (uint8_t)type};
    vt_book_event(&e);
}

void vt_ledger_forget(void)
{
    memset(total_of, 0, sizeof total_of);
    memset(overflow_of, 0, sizeof overflow_of);
    sites = NULL;
    memset(vt_recent_sites, 0, sizeof vt_recent_sites);
    memset(vt_books, 0, sizeof vt_books);
}
