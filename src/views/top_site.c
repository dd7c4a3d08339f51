/*
 * The screen of `vramtrack top` that shows all about one place: its figures and its whole stack. See top.h.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/category.h"
#include "analysis/format.h"
#include "views/common.h"
#include "views/top_lines.h"

static void put_figures(struct vt_top_lines *lines, const struct vt_top_screen *screen, struct vt_top *top,
                        const struct vt_site_row *site, uint32_t sites)
{
    const struct vt_analysis *a = vt_top_analysis(top);
    const struct vt_site *s = site->record;
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    struct vt_category_split split;
    struct vt_line line = vt_line_begin(screen);

    vt_line_format(&line, "#%u  %s%s on ", site->index, vt_kind_name(s->kind),
                   s->level == VT_LEVEL_TENSOR ? " (tensor)" : "");
    if (s->device < 0)
        vt_line_format(&line, "host by ");
    else
        vt_line_format(&line, "GPU %d by ", s->device);
    vt_line_name(&line, vt_reading_chars(a->model.reading, s->api), 64);
    if (sites > 1)
        vt_line_format(&line, "; the first of %u stacks that read the same in the list", sites);
    vt_line_end(&line, lines, VT_TOP_BOLD);
    line = vt_line_begin(screen);
    vt_line_format(&line, "  live %s in %llu, at the peak %s, own peak %s", vt_format_bytes(one, site->live_bytes),
                   (unsigned long long)site->live_count, vt_format_bytes(two, site->at_peak_bytes),
                   vt_format_bytes(three, s->peak_bytes));
    vt_line_end(&line, lines, VT_TOP_PLAIN);
    line = vt_line_begin(screen);
    vt_line_format(&line, "  %llu allocated, %llu freed", (unsigned long long)s->alloc_calls,
                   (unsigned long long)s->free_calls);
    if (s->phase && s->phase < VT_PHASE_COUNT)
        vt_line_format(&line, ", in phase %s", vt_phase_name(s->phase));
    if (s->range) {
        vt_line_format(&line, ", in range ");
        vt_line_name(&line, vt_reading_chars(a->model.reading, s->range), 40);
    }
    if (s->level == VT_LEVEL_TENSOR) {
        split = vt_category_of(&a->model, site, a->symbols);
        vt_line_format(&line, ", %s: %s", vt_category_name(split.main), split.reason);
    }
    vt_line_end(&line, lines, VT_TOP_PLAIN);
}

static void put_stack(struct vt_top_lines *lines, const struct vt_top_screen *screen, struct vt_top *top,
                      const struct vt_site_row *site)
{
    const struct vt_analysis *a = vt_top_analysis(top);
    struct vt_trace trace;
    char place[512];
    struct vt_line line;

    vt_view_trace(a, &trace, site->record->stack, site->record->python_stack);
    for (uint32_t i = 0; i < trace.count; i++) {
        if (trace.frames[i].hidden)
            continue;
        line = vt_line_begin(screen);
        vt_line_format(&line, "  ");
        vt_line_name(&line, vt_format_place(place, sizeof place, &trace.frames[i]), screen->width);
        vt_line_end(&line, lines, i == trace.user ? VT_TOP_BOLD : VT_TOP_PLAIN);
    }
    line = vt_line_begin(screen);
    if (!trace.count)
        vt_line_format(&line, "  (no stack)");
    else if (trace.cut_native || trace.cut_python)
        vt_line_format(&line, "  ... cut at %u frames (VRAMTRACK_DEPTH)",
                       vt_reading_header(a->model.reading)->stack_depth);
    if (line.columns)
        vt_line_end(&line, lines, VT_TOP_PLAIN);
    vt_trace_free(&trace);
}

void vt_top_draw_site(struct vt_top *top, uint32_t index, uint32_t sites, const struct vt_top_screen *screen,
                      struct vt_top_lines *lines, uint32_t *rows, uint32_t *shown)
{
    const struct vt_site_row *site = vt_model_site(&vt_top_analysis(top)->model, index);
    struct vt_line line = vt_line_begin(screen);

    memset(lines, 0, sizeof *lines);
    vt_top_put_process(top, &line);
    vt_line_end(&line, lines, VT_TOP_BOLD);
    if (site) {
        put_figures(lines, screen, top, site, sites);
        put_stack(lines, screen, top, site);
    }
    vt_lines_scroll(lines, screen, 4, rows, shown);
    vt_lines_message(lines, screen);
}
