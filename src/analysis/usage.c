/*
 * Whose the rest of a card is; see usage.h. NVML's list of processes says it best: this process's bytes in it, less what it
 * had allocated, are its context and code. In a container the pids are the host's, and this process is not found by its
 * own; then it is the one that appeared when its context was made, or the only one whose size fits. Where that is not
 * certain, nobody is named.
 */
#include "analysis/usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE (64ull << 20)

static bool is_known(uint64_t bytes)
{
    return bytes != VT_UNKNOWN_BYTES;
}

static uint64_t less(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

static const struct vt_process_bytes *process_at(const struct vt_model *m, const struct vt_usage *u, uint32_t i)
{
    if (i >= u->processes || i >= VT_OTHERS_MAX || u->first_process > UINT32_MAX)
        return NULL;
    return vt_reading_process_bytes(m->reading, u->first_process + i);
}

static bool has_pid(const struct vt_model *m, const struct vt_usage *u, uint32_t pid)
{
    const struct vt_process_bytes *p;
    uint32_t i;

    for (i = 0; (p = process_at(m, u, i)); i++)
        if (p->pid == pid)
            return true;
    return false;
}

/* The device's reading of this cause; NULL: none. There is one at most. */
static const struct vt_usage *usage_of_cause(const struct vt_model *m, int device, enum vt_usage_cause cause)
{
    const struct vt_usage *u;
    uint64_t k;

    for (k = 0; k < VT_USAGES_MAX && (u = vt_reading_usage(m->reading, k)); k++)
        if (u->device == device && u->cause == cause)
            return u;
    return NULL;
}

/* Of two readings with a list of processes, does the other one tell more about the moment? */
static bool is_better(const struct vt_model *m, const struct vt_usage *best, const struct vt_usage *other)
{
    bool own = vt_usage_is_own(m, best), other_own = vt_usage_is_own(m, other);

    if (own != other_own)
        return other_own;
    if (best->time_ns <= m->moment_ns)
        return other->time_ns <= m->moment_ns && other->time_ns >= best->time_ns;
    return other->time_ns < best->time_ns;
}

/* The reading whose list of processes tells most; NULL: none has one. */
static const struct vt_usage *best_list(const struct vt_model *m, int device)
{
    const struct vt_usage *u, *best = NULL;
    uint64_t k;

    for (k = 0; k < VT_USAGES_MAX && (u = vt_reading_usage(m->reading, k)); k++)
        if (u->device == device && (u->flags & VT_USAGE_LISTED) && u->cause != VT_USAGE_BEFORE_CONTEXT &&
            (!best || is_better(m, best, u)))
            best = u;
    return best;
}

static bool is_near(uint64_t a, uint64_t b)
{
    uint64_t apart = a > b ? a - b : b - a;

    return apart <= TOLERANCE || apart <= b / 20;
}

/* The only process that came when the context was made, if it is as large as that; NULL: not certain. */
static const struct vt_process_bytes *newcomer(const struct vt_model *m, const struct vt_device *device)
{
    const struct vt_usage *before = usage_of_cause(m, device->ordinal, VT_USAGE_BEFORE_CONTEXT),
                          *after = usage_of_cause(m, device->ordinal, VT_USAGE_AFTER_CONTEXT);
    const struct vt_process_bytes *p, *found = NULL;
    uint32_t i;

    if (!before || !after || !(before->flags & after->flags & VT_USAGE_LISTED) || before->more_processes ||
        !device->context_bytes)
        return NULL;
    for (i = 0; (p = process_at(m, after, i)); i++) {
        if (has_pid(m, before, p->pid))
            continue;
        if (found)
            return NULL;
        found = p;
    }
    return found && is_known(found->bytes) && is_near(found->bytes, device->context_bytes) ? found : NULL;
}

/* The only process of a list that is as large as this one must be; NULL: not certain. */
static const struct vt_process_bytes *only_fit(const struct vt_model *m, const struct vt_usage *u,
                                               const struct vt_device *device)
{
    const struct vt_process_bytes *p, *found = NULL;
    uint32_t i;

    if (!device->context_bytes || !u->live_bytes || device->context_bytes > UINT64_MAX - u->live_bytes)
        return NULL;
    for (i = 0; (p = process_at(m, u, i)); i++) {
        if (!is_known(p->bytes) || !is_near(p->bytes, u->live_bytes + device->context_bytes))
            continue;
        if (found)
            return NULL;
        found = p;
    }
    return found;
}

/* This process in a list. *found: it is known which it is; then NULL: it is not there, and holds nothing (any more). */
static const struct vt_process_bytes *find_self(const struct vt_model *m, const struct vt_usage *u,
                                                const struct vt_device *device, bool *found)
{
    const struct vt_process_bytes *p, *came = NULL;
    uint32_t i;

    *found = !(u->flags & VT_USAGE_FOREIGN) && u->cause != VT_USAGE_BEFORE_CONTEXT;
    if (!*found && (came = newcomer(m, device)))
        *found = true;
    for (i = 0; (p = process_at(m, u, i)); i++)
        if (came ? p->pid == came->pid : (p->flags & VT_PROCESS_SELF) != 0)
            return p;
    if (*found) {
        *found = came || !u->own_bytes; /* else it was listed, and that part of the file is missing */
        return NULL;
    }
    p = only_fit(m, u, device);
    *found = p != NULL;
    return p;
}

static int larger_first(const void *left, const void *right)
{
    const struct vt_other_process *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* Everybody in the list but `self`, as far as it is known what they hold. */
static int take_others(const struct vt_model *m, const struct vt_usage *u, const struct vt_process_bytes *self,
                       struct vt_card_usage *card)
{
    const struct vt_process_bytes *p;
    uint32_t i, count = 0;

    while (process_at(m, u, count))
        count++;
    card->others_known = !u->more_processes;
    if (!count)
        return 0;
    if (!(card->others = calloc(count, sizeof *card->others)))
        return -ENOMEM;
    for (i = 0; i < count && (p = process_at(m, u, i)); i++)
        if (p != self && !is_known(p->bytes))
            card->others_known = false;
        else if (p != self && p->bytes)
            card->others[card->other_count++] = (struct vt_other_process){p->pid, vt_reading_chars(m->reading, p->name),
                                                                          p->bytes};
    qsort(card->others, card->other_count, sizeof *card->others, larger_first);
    return 0;
}

/* Own bytes at a reading, less what was live: context and code, and what pools have not given back. Code is loaded as it
 * is used, so only what is beyond the context at its start can be a pool's. */
static void split_own(const struct vt_usage *u, const struct vt_device *device, uint64_t own,
                      struct vt_card_usage *card)
{
    uint64_t beside = less(own, u->live_bytes), more = less(beside, device->context_bytes);

    card->pool_unused = device->context_bytes && more < u->pool_bytes ? more : u->pool_bytes;
    if (!device->context_bytes || card->pool_unused > beside)
        card->pool_unused = 0;
    card->context_known = true;
    card->context = beside - card->pool_unused;
}

static int take_processes(const struct vt_model *m, const struct vt_device *device, struct vt_card_usage *card)
{
    const struct vt_usage *u = best_list(m, device->ordinal);
    bool found = false;
    const struct vt_process_bytes *self = u ? find_self(m, u, device, &found) : NULL;

    card->context = device->context_bytes;
    card->context_known = device->context_bytes != 0;
    if (!found)
        return 0;
    if (!self || is_known(self->bytes))
        split_own(u, device, self ? self->bytes : 0, card);
    return take_others(m, u, self, card);
}

/* What the driver keeps: outside of what CUDA offers as far as the card is larger than that. */
static void take_reserved(const struct vt_model *m, const struct vt_device *device, struct vt_card_usage *card)
{
    const struct vt_usage *u;
    uint64_t k;

    for (k = 0; k < VT_USAGES_MAX && (u = vt_reading_usage(m->reading, k)); k++) {
        uint64_t outside = is_known(u->total_bytes) ? less(u->total_bytes, device->total_bytes) : 0;

        if (u->device != device->ordinal || u->cause == VT_USAGE_PROGRAM || !vt_usage_fits(u, device))
            continue;
        card->card_known = true;
        card->card_bytes = u->total_bytes;
        card->card_reserved = is_known(u->reserved_bytes) && u->reserved_bytes > outside ? u->reserved_bytes : outside;
        card->reserved = card->card_reserved - outside;
    }
}

static void cut(uint64_t *part, uint64_t *too_much)
{
    uint64_t off = *part < *too_much ? *part : *too_much;

    *part -= off;
    *too_much -= off;
}

static uint64_t sum_of_parts(const struct vt_card_usage *card)
{
    uint64_t parts[3] = {card->context, card->pool_unused, card->reserved}, sum = 0;
    uint32_t i;

    for (i = 0; i < 3; i++)
        if (__builtin_add_overflow(sum, parts[i], &sum))
            return UINT64_MAX;
    for (i = 0; i < card->other_count; i++)
        if (__builtin_add_overflow(sum, card->others[i].bytes, &sum))
            return UINT64_MAX;
    return sum;
}

/* Makes the parts fit into the rest, those first that are known least. */
static void fit(struct vt_card_usage *card)
{
    uint64_t too_much;
    uint32_t i;

    for (i = 0; i < card->other_count; i++)
        if (card->others[i].bytes > card->rest)
            card->others[i].bytes = card->rest;
    too_much = less(sum_of_parts(card), card->rest);
    cut(&card->pool_unused, &too_much);
    for (i = 0; i < card->other_count; i++)
        cut(&card->others[i].bytes, &too_much);
    cut(&card->context, &too_much);
    cut(&card->reserved, &too_much);
}

void vt_usage_limit(struct vt_card_usage *card, uint64_t most)
{
    if (card->rest_known && card->rest > most) {
        card->rest = most;
        card->exact = false;
    }
    if (card->rest_known)
        fit(card);
}

uint64_t vt_usage_unaccounted(const struct vt_card_usage *card)
{
    return less(card->rest, sum_of_parts(card));
}

int vt_usage_of(const struct vt_model *m, const struct vt_device *device, struct vt_card_usage *card)
{
    struct vt_free_reading free_reading = vt_usage_free(m, device);
    int error;

    memset(card, 0, sizeof *card);
    take_reserved(m, device, card);
    if ((error = take_processes(m, device, card)))
        return error;
    if (free_reading.known && device->total_bytes && free_reading.free_bytes <= device->total_bytes) {
        card->rest_known = true;
        card->exact = free_reading.own;
        card->free_bytes = free_reading.free_bytes;
        card->rest = less(device->total_bytes - free_reading.free_bytes, free_reading.live_bytes);
        fit(card);
    }
    return 0;
}
