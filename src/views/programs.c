/*
 * Text about frameworks that compile programs (JAX): what their arenas say of themselves, and which programs take the most
 * temporary memory while they run. No allocation shows that memory; it lies in the arena, beside the arrays.
 */
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define SHOWN 5

/* The program with the next smaller temporaries than those of `after` (VT_NONE: the largest), or VT_NONE. Equal ones come in
 * the order of the file. */
static uint32_t next_program(const struct vt_reading *r, uint32_t after)
{
    uint64_t count = vt_reading_count(r, VT_PROGRAMS), i, limit = UINT64_MAX, best_bytes = 0;
    const struct vt_program *last = after == VT_NONE ? NULL : vt_reading_program(r, after);
    uint32_t best = VT_NONE;

    if (last)
        limit = last->temporary_bytes;
    for (i = 0; i < count && i < VT_NONE; i++) {
        const struct vt_program *p = vt_reading_program(r, i);

        if (p && p->temporary_bytes > best_bytes &&
            (p->temporary_bytes < limit || (last && p->temporary_bytes == limit && i > after))) {
            best = (uint32_t)i;
            best_bytes = p->temporary_bytes;
        }
    }
    return best;
}

static void write_program(struct vt_out *out, const struct vt_reading *r, const struct vt_program *p)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s  ", vt_format_bytes(one, p->temporary_bytes));
    vt_view_name(out, vt_reading_chars(r, p->name), 100);
    vt_out_format(out, ": %llu run%s, arguments %s, outputs %s", (unsigned long long)p->runs, p->runs == 1 ? "" : "s",
                  vt_format_bytes(two, p->argument_bytes), vt_format_bytes(three, p->output_bytes));
    if (p->aliased_bytes)
        vt_out_format(out, " (%s of them in donated arguments)", vt_format_bytes(one, p->aliased_bytes));
    if (p->executables > 1)
        vt_out_format(out, "; compiled %llu times, %llu loaded", (unsigned long long)p->executables,
                      (unsigned long long)p->loaded);
    vt_out_text(out, "\n");
}

static void write_arena(struct vt_out *out, const struct vt_reading *r, const struct vt_allocator *a)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES], four[VT_FORMAT_BYTES];

    vt_out_format(out, "  arena of GPU %d (", a->device);
    vt_view_name(out, vt_reading_chars(r, a->name), 64);
    vt_out_format(out, "), when last asked: %s in arrays, %s in temporaries, constants and rounding",
                  vt_format_bytes(one, a->sum_bytes), vt_format_bytes(two, a->base_bytes));
    if (a->reserved_bytes)
        vt_out_format(out, ", of %s reserved", vt_format_bytes(three, a->reserved_bytes));
    if (a->largest_free_bytes)
        vt_out_format(out, "; largest free block %s", vt_format_bytes(four, a->largest_free_bytes));
    vt_out_text(out, "\n");
}

static bool has_spoken(const struct vt_allocator *a)
{
    return a && a->framework == VT_FRAMEWORK_JAX && !(a->flags & VT_ALLOCATOR_UNSEEN) && a->reports;
}

void vt_view_programs(struct vt_out *out, const struct vt_reading *r)
{
    uint64_t count = vt_reading_count(r, VT_ALLOCATORS), i;
    uint32_t at = next_program(r, VT_NONE), shown;
    bool any = at != VT_NONE;

    for (i = 0; i < count && !any; i++)
        any = has_spoken(vt_reading_allocator(r, i));
    if (!any)
        return;
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, "JAX");
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
    for (i = 0; i < count; i++)
        if (has_spoken(vt_reading_allocator(r, i)))
            write_arena(out, r, vt_reading_allocator(r, i));
    if (at != VT_NONE)
        vt_out_text(out, "  temporary memory of compiled programs while they run, as the compiler says:\n");
    for (shown = 0; at != VT_NONE && shown < SHOWN; at = next_program(r, at), shown++)
        write_program(out, r, vt_reading_program(r, at));
}
