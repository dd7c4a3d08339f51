/*
 * A stack as lines of text, the same in every text view.
 */
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define STACK_LINES 24 /* visible frames of a stack */

/* How many visible frames from `at` on look the same as that one, hidden ones between them included in `*end`. */
static uint32_t run_of_frames(const struct vt_trace *trace, uint32_t at, bool all, uint32_t *end)
{
    char first[512], next[512];
    uint32_t count = 1, i;

    *end = at + 1;
    vt_format_place(first, sizeof first, &trace->frames[at]);
    for (i = at + 1; i < trace->count; i++) {
        if (trace->frames[i].hidden && !all)
            continue;
        if (strcmp(first, vt_format_place(next, sizeof next, &trace->frames[i])))
            break;
        count++;
        *end = i + 1;
    }
    return count;
}

static void write_frame(struct vt_out *out, const struct vt_trace *trace, uint32_t i, const char *indent)
{
    vt_out_text(out, indent);
    vt_out_colour(out, i == trace->user ? VT_BOLD : VT_PLAIN);
    vt_view_place(out, &trace->frames[i]);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

void vt_view_frames(struct vt_out *out, const char *indent, const struct vt_trace *trace, uint32_t depth, bool all)
{
    uint32_t i, same, end, shown = 0;

    for (i = 0; i < trace->count; i = end) {
        end = i + 1;
        if (trace->frames[i].hidden && !all)
            continue;
        if (shown++ == STACK_LINES && !all) {
            vt_out_format(out, "%s...\n", indent);
            break;
        }
        write_frame(out, trace, i, indent);
        same = run_of_frames(trace, i, all, &end);
        if (same > 2)
            vt_out_format(out, "%s... %u more of the same\n", indent, same - 1);
        else
            end = i + 1;
    }
    if (!trace->count)
        vt_out_format(out, "%s(no stack)\n", indent);
    vt_view_cut(out, indent, trace, depth);
}
