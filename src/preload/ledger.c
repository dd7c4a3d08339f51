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

/* Sites found lately, by the upper bits of their hashes: a walk through the table costs three cache lines more. */
static struct {
    uint64_t hash;
    uint32_t number; /* index + 1 */
} recent[1024];

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
    if (known)
        *known = (uint32_t)i + 1;
    return (uint32_t)i;
}

static inline VT_HOT uint64_t site_hash(const struct vt_site_key *k, uint64_t stack_hash)
{
    uint64_t what = (uint64_t)k->level << 56 | (uint64_t)k->kind << 48 | (uint64_t)(uint16_t)k->device << 32 | k->api;
    uint64_t around = (uint64_t)vt_phase_now() << 16 | vt_phase_tls.range;
    return stack_hash ^ (what + 1) * 0x9e3779b97f4a7c15ull ^ around * 0xd1342543de82ef95ull;
}

uint32_t vt_site_find(const struct vt_site_key *key, uint64_t stack_hash)
{
    uint64_t hash = site_hash(key, stack_hash);
    struct site_entry *e = NULL;
    uint32_t slot = (uint32_t)(hash >> 54);
    if (recent[slot].hash == hash && recent[slot].number)
        return recent[slot].number - 1;
    HASH_FIND(hh, sites, &hash, sizeof hash, e);
    if (!e)
        return VT_NONE;
    recent[slot].hash = hash;
    recent[slot].number = e->index + 1;
    return e->index;
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

uint32_t vt_site_add(const struct vt_site_key *key, uint64_t stack_hash, uint32_t stack, uint32_t python_stack)
{
    uint64_t index;
    if (sites_full() || !new_site(key, stack, python_stack, &index))
        return overflow_site(key);
    struct site_entry *e = vt_arena_take(sizeof *e);
    if (e) {
        e->hash = site_hash(key, stack_hash);
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

/* The quantity went from `before` to `after` now. */
static void draw(uint32_t scope, uint64_t before, uint64_t after, uint64_t now)
{
    if (scope >= vt_header()->section[VT_TIMELINES].count)
        return;
    struct vt_timeline *t = record(VT_TIMELINES, scope);
    while (now >> t->shift >= VT_BUCKETS) {
        empty_buckets(t, (t->used + 1) & ~1u);
        halve_timeline(t);
    }
    unsigned b = (unsigned)(now >> t->shift);
    empty_buckets(t, b + 1);
    uint64_t low = before < after ? before : after, high = before < after ? after : before;
    if (low < t->bucket[b].min)
        t->bucket[b].min = low;
    if (high > t->bucket[b].max)
        t->bucket[b].max = high;
}

/* Notes what the site has held since its last change, interval by interval. */
static VT_HOT void keep_history(struct vt_site *s, uint64_t now)
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

static void settle_peak(struct vt_site *s, const struct vt_scope *scope)
{
    if (s->peak_epoch == scope->epoch)
        return;
    s->at_peak_bytes = s->live_bytes;
    s->at_peak_count = s->live_count;
    s->peak_epoch = scope->epoch;
    for (unsigned fate = 0; fate < VT_FATE_COUNT; fate++)
        s->ended[fate].at_peak_bytes = 0;
}

static VT_HOT void change(struct vt_site *s, struct vt_total *t, struct vt_scope *c, int64_t bytes, int64_t requested,
                          int count, uint64_t now)
{
    keep_history(s, now);
    settle_peak(s, c);
    s->live_bytes += (uint64_t)bytes;
    s->live_count += (uint64_t)(int64_t)count;
    s->requested_bytes += (uint64_t)requested;
    s->last_ns = now;
    t->live_bytes += (uint64_t)bytes;
    t->live_count += (uint64_t)(int64_t)count;
    t->requested_bytes += (uint64_t)requested;
    uint64_t before = c->live_bytes;
    c->live_bytes += (uint64_t)bytes;
    draw(s->scope, before, c->live_bytes, now);
}

static void raise_peaks(struct vt_site *s, struct vt_total *t, struct vt_scope *c, uint64_t now)
{
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

void vt_book_alloc(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t now)
{
    struct vt_site *s = record(VT_SITES, site);
    struct vt_total *t = record(VT_TOTALS, s->total);
    struct vt_scope *c = record(VT_SCOPES, s->scope);
    change(s, t, c, (int64_t)bytes, (int64_t)requested, 1, now);
    s->alloc_calls++;
    s->total_bytes += bytes;
    t->alloc_calls++;
    t->total_bytes += bytes;
    raise_peaks(s, t, c, now);
}

static void freed(struct vt_site *s, const struct vt_scope *c, uint64_t bytes, uint64_t born)
{
    struct vt_fate_sum *e = &s->ended[vt_phase_fate(born)];
    e->count++;
    e->bytes += bytes;
    if (born <= c->peak_ns)
        e->at_peak_bytes += bytes;
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
    struct vt_total *t = record(VT_TOTALS, s->total);
    struct vt_scope *c = record(VT_SCOPES, s->scope);
    change(s, t, c, -(int64_t)bytes, -(int64_t)requested, -1, now);
    if (how == VT_LEFT_BY_FREE) {
        s->free_calls++;
        s->lifetime_ns += now - born;
        freed(s, c, bytes, born);
        t->free_calls++;
    } else {
        s->retired++;
        t->retired++;
    }
}

void vt_book_undo_free(uint32_t site, uint64_t bytes, uint64_t requested, uint64_t born, uint64_t freed, uint64_t now)
{
    struct vt_site *s = record(VT_SITES, site);
    struct vt_total *t = record(VT_TOTALS, s->total);
    struct vt_scope *c = record(VT_SCOPES, s->scope);
    change(s, t, c, (int64_t)bytes, (int64_t)requested, 1, now);
    s->free_calls--;
    s->lifetime_ns -= freed - born;
    not_freed(s, c, bytes, born);
    t->free_calls--;
    raise_peaks(s, t, c, now); /* another thread may have allocated meanwhile */
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
    memset(recent, 0, sizeof recent);
}
