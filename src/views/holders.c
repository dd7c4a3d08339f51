/*
 * Who holds the memory, in a few lines: sites that read alike (analysis/places.h) are one holder.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/places.h"
#include "views/common.h"

#define LOOKED_AT 128 /* sites looked at one by one; they come largest first, so what is left is small */

struct holder {
    uint64_t bytes, count;
    uint64_t cards; /* a bit for each GPU; a job of more than 64 in one process there is none */
    const struct vt_place *place;
};

static bool is_holder(const struct vt_analysis *a, const struct vt_site_row *site)
{
    return site->live_bytes && vt_kind_is_memory(site->record->kind) && vt_view_is_shown(a, site);
}

/* The rows that are looked at, and in *left the number and bytes of what found no room. */
static uint32_t collect(const struct vt_analysis *a, const struct vt_site_row **rows, struct holder *left)
{
    uint32_t count = 0, i;

    for (i = 0; i < a->model.site_count; i++) {
        const struct vt_site_row *row = &a->model.sites[i];

        if (!is_holder(a, row))
            continue;
        if (count < LOOKED_AT) {
            rows[count++] = row;
            continue;
        }
        left->count++;
        left->bytes += row->live_bytes;
    }
    return count;
}

/* One holder per name of `all` rows. Returns their number. */
static uint32_t add_up(const struct vt_places *places, const struct vt_site_row *const *rows, uint32_t all,
                       struct holder *holders)
{
    uint32_t of[LOOKED_AT], count = 0, i;

    for (i = 0; i < all; i++) {
        const struct vt_place *place = &places->list[i];

        if (place->name == i)
            holders[of[i] = count++] = (struct holder){.place = place};
        holders[of[place->name]].bytes += rows[i]->live_bytes;
        holders[of[place->name]].count += rows[i]->live_count;
        if (rows[i]->record->device >= 0 && rows[i]->record->device < 64)
            holders[of[place->name]].cards |= 1ull << rows[i]->record->device;
    }
    return count;
}

static int more_bytes_first(const void *left, const void *right)
{
    const struct holder *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->place < b->place ? -1 : 1;
}

static void write_holder(struct vt_out *out, const struct holder *holder)
{
    const struct vt_site *site = holder->place->site;
    char bytes[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s in %-6llu ", vt_format_bytes(bytes, holder->bytes), (unsigned long long)holder->count);
    vt_view_place(out, vt_trace_user(&holder->place->trace));
    if (holder->place->caller) {
        vt_out_text(out, " < ");
        vt_view_place(out, holder->place->caller);
    }
    vt_out_format(out, " [%s%s", vt_kind_name(site->kind), site->level == VT_LEVEL_TENSOR ? " tensor" : "");
    if (holder->cards & (holder->cards - 1))
        vt_out_format(out, ", on %d GPUs", __builtin_popcountll(holder->cards));
    vt_out_text(out, "]\n");
}

/* Writes the largest, and the rest in one line. */
static void write_holders(struct vt_out *out, const struct holder *holders, uint32_t count, unsigned most,
                          struct holder left)
{
    char bytes[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (i < most) {
            write_holder(out, &holders[i]);
            continue;
        }
        left.count++;
        left.bytes += holders[i].bytes;
    }
    if (left.count)
        vt_out_format(out, "  %12s in %llu more place%s\n", vt_format_bytes(bytes, left.bytes),
                      (unsigned long long)left.count, left.count == 1 ? "" : "s");
}

void vt_view_holders(struct vt_out *out, const struct vt_analysis *a, unsigned most)
{
    const struct vt_site_row *rows[LOOKED_AT];
    const struct vt_site *sites[LOOKED_AT];
    struct holder holders[LOOKED_AT], left = {0};
    struct vt_places places;
    uint32_t count = collect(a, rows, &left), i;

    for (i = 0; i < count; i++)
        sites[i] = rows[i]->record;
    if (!vt_places_build(&places, a->model.reading, a->symbols, &a->style, sites, count)) {
        count = add_up(&places, rows, count, holders);
        if (count)
            qsort(holders, count, sizeof *holders, more_bytes_first);
        write_holders(out, holders, count, most, left);
    }
    vt_view_cached(out, a);
    vt_places_free(&places);
}
