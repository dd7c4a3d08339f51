/*
 * Who holds the memory, in a few lines: sites of one kind whose user frame is the same line of code are one holder. Where
 * that line is a wrapper that all of a program allocates through, it says nothing; so if its callers differ, holders are
 * told apart by the innermost frame that differs: "gpu_alloc (mem.cpp:9) < build_cache (cache.cpp:11)".
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define LOOKED_AT 128  /* sites looked at one by one; they come largest first, so what is left is small */
#define OUTWARDS_MAX 8 /* callers looked at */

struct entry {
    const struct vt_site_row *row;
    struct vt_trace trace;
    unsigned first;                        /* the first entry with this user frame */
    const struct vt_display_frame *caller; /* shown behind the user frame; NULL: none */
};

struct holder {
    uint64_t bytes, count;
    const struct entry *entry;
};

static bool is_holder(const struct vt_analysis *a, const struct vt_site_row *site)
{
    return site->live_bytes && vt_kind_is_memory(site->record->kind) && vt_view_is_shown(a, site);
}

static bool same_user(const struct entry *a, const struct entry *b)
{
    return a->row->record->kind == b->row->record->kind && a->row->record->level == b->row->record->level &&
           vt_same_place(vt_trace_user(&a->trace), vt_trace_user(&b->trace));
}

/* The visible frame `steps` outside the user frame, or NULL. */
static const struct vt_display_frame *outwards(const struct entry *entry, unsigned steps)
{
    uint32_t i = entry->trace.user;

    while (steps && i < entry->trace.count && ++i < entry->trace.count)
        steps -= !entry->trace.frames[i].hidden;
    return i < entry->trace.count && !steps ? &entry->trace.frames[i] : NULL;
}

/* Sets the callers of all entries with the user frame of entries[first], if they differ. */
static void tell_apart(struct entry *entries, unsigned count, unsigned first)
{
    unsigned steps, i;
    bool differ = false;

    for (steps = 1; steps <= OUTWARDS_MAX && !differ; steps++) {
        const struct vt_display_frame *caller = outwards(&entries[first], steps);

        for (i = first + 1; i < count && !differ; i++)
            if (entries[i].first == first && (caller || outwards(&entries[i], steps)))
                differ = !vt_same_place(caller, outwards(&entries[i], steps));
    }
    for (i = first; differ && i < count; i++)
        if (entries[i].first == first)
            entries[i].caller = outwards(&entries[i], steps - 1);
}

/* Fills entries, and *left with the number and bytes of what found no room. */
static unsigned collect(const struct vt_analysis *a, struct entry *entries, struct holder *left)
{
    const struct vt_model *m = &a->model;
    unsigned count = 0, j;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        struct entry *entry = &entries[count];

        if (!is_holder(a, &m->sites[i]))
            continue;
        if (count == LOOKED_AT) {
            left->count++;
            left->bytes += m->sites[i].live_bytes;
            continue;
        }
        entry->row = &m->sites[i];
        vt_view_trace(a, &entry->trace, entry->row->record->stack, entry->row->record->python_stack);
        for (j = 0; j < count && !(entries[j].first == j && same_user(&entries[j], entry));)
            j++;
        entry->first = j;
        count++;
    }
    for (j = 0; j < count; j++)
        if (entries[j].first == j)
            tell_apart(entries, count, j);
    return count;
}

static unsigned add_up(const struct entry *entries, unsigned count, struct holder *holders)
{
    unsigned holder_count = 0, i, h;

    for (i = 0; i < count; i++) {
        const struct entry *entry = &entries[i];

        for (h = 0; h < holder_count; h++) {
            const struct entry *other = holders[h].entry;

            if (other->first == entry->first &&
                (vt_same_place(other->caller, entry->caller) || (!other->caller && !entry->caller)))
                break;
        }
        if (h == holder_count)
            holders[holder_count++] = (struct holder){0, 0, entry};
        holders[h].bytes += entry->row->live_bytes;
        holders[h].count += entry->row->live_count;
    }
    return holder_count;
}

static int more_bytes_first(const void *left, const void *right)
{
    const struct holder *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->entry < b->entry ? -1 : 1;
}

static void write_holder(struct vt_out *out, const struct holder *holder)
{
    const struct vt_site *site = holder->entry->row->record;
    char bytes[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s in %-6llu ", vt_format_bytes(bytes, holder->bytes), (unsigned long long)holder->count);
    vt_view_place(out, vt_trace_user(&holder->entry->trace));
    if (holder->entry->caller) {
        vt_out_text(out, " < ");
        vt_view_place(out, holder->entry->caller);
    }
    vt_out_format(out, " [%s%s]\n", vt_kind_name(site->kind), site->level == VT_LEVEL_TENSOR ? " tensor" : "");
}

void vt_view_holders(struct vt_out *out, const struct vt_analysis *a, unsigned most)
{
    struct entry *entries = calloc(LOOKED_AT + 1, sizeof *entries);
    struct holder *holders = calloc(LOOKED_AT, sizeof *holders), left = {0, 0, NULL};
    unsigned count = 0, entry_count = 0, i;
    char bytes[VT_FORMAT_BYTES];

    if (entries && holders) {
        entry_count = collect(a, entries, &left);
        count = add_up(entries, entry_count, holders);
    }
    if (count)
        qsort(holders, count, sizeof *holders, more_bytes_first);
    for (i = 0; i < count; i++) {
        if (i < most) {
            write_holder(out, &holders[i]);
        } else {
            left.count++;
            left.bytes += holders[i].bytes;
        }
    }
    if (left.count)
        vt_out_format(out, "  %12s in %llu more places\n", vt_format_bytes(bytes, left.bytes),
                      (unsigned long long)left.count);
    vt_view_cached(out, a);
    for (i = 0; i < entry_count; i++)
        vt_trace_free(&entries[i].trace);
    free(entries);
    free(holders);
}
