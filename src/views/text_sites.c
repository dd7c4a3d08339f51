/* The places that allocated, in the text report: figures and stacks, largest first. */
#include <stdlib.h>

#include "analysis/format.h"
#include "views/moments.h"
#include "views/text.h"

#define SITES 20 /* default number */

static void write_site(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                       const struct vt_joined *group)
{
    const struct vt_site_row *site = &group->row;
    const struct vt_site *s = site->record;
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], own[VT_FORMAT_BYTES];
    int threads = __builtin_popcountll(group->threads);
    struct vt_trace trace;

    vt_view_trace(a, &trace, s->stack, s->python_stack);
    vt_out_format(out, "  #%-5u ", site->index);
    vt_out_colour(out, VT_BOLD);
    vt_out_format(out, "%12s", vt_format_bytes(live, site->live_bytes));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " in %llu, ", (unsigned long long)site->live_count);
    vt_view_place(out, vt_trace_user(&trace));
    vt_view_leaf(out, &trace);
    vt_out_format(out, "\n    %s%s on ", vt_kind_name(s->kind), s->level == VT_LEVEL_TENSOR ? " (tensor)" : "");
    vt_view_device(out, s->device);
    vt_out_text(out, " by ");
    vt_view_name(out, vt_reading_chars(a->model.reading, s->api), 64);
    vt_out_format(out, "; at the peak %s", vt_format_bytes(peak, site->at_peak_bytes));
    if (group->sites == 1)
        vt_out_format(out, ", own peak %s", vt_format_bytes(own, s->peak_bytes));
    vt_out_format(out, "; %llu allocated, %llu freed, %d%s thread%s", (unsigned long long)group->alloc_calls,
                  (unsigned long long)group->free_calls, threads, threads == 64 ? " or more" : "", /* bits of a set */
                  threads == 1 ? "" : "s");
    if (group->retired)
        vt_out_format(out, ", %llu ended with their context or graph", (unsigned long long)group->retired);
    if (group->sites > 1)
        vt_out_format(out, "; %u sites that look the same", group->sites);
    if (site->verdict)
        vt_out_format(out, " [%s]", site->verdict);
    vt_out_text(out, "\n");
    vt_view_frames(out, "      ", &trace, vt_reading_header(a->model.reading)->stack_depth, request->all_frames);
    vt_trace_free(&trace);
}

/* Groups that held something at the moment or at the peak; they come first. All, if none did. */
static uint32_t worth_showing(const struct vt_joined *groups, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count && (groups[i].row.live_bytes || groups[i].row.at_peak_bytes);)
        i++;
    return i ? i : count;
}

void vt_text_sites(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint32_t most = request->top ? request->top : SITES, shown = 0, looked = 0, all = 0, i, worth;
    struct vt_joined *groups;

    if (!m->site_count)
        return;
    vt_text_heading(out, "Places, with their stacks");
    for (i = 0; i < m->site_count; i++)
        all += vt_view_is_shown(a, &m->sites[i]);
    if (most > all)
        most = all;
    if ((groups = calloc(most ? most : 1, sizeof *groups)))
        shown = vt_view_join_sites(a, groups, most, &looked);
    worth = request->top ? shown : worth_showing(groups, shown);
    if (vt_view_is_earlier(m))
        vt_out_text(out, "  (own peak, allocated and freed: of the whole run; live and count: at the moment)\n");
    if (looked < all)
        vt_out_format(out, "  the largest %u of %u places (--top N shows more)\n", looked, all);
    for (i = 0; i < shown; i++) {
        if (i < worth)
            write_site(out, a, request, &groups[i]);
        free(groups[i].stack);
    }
    if (worth < shown)
        vt_out_text(out, "  (places that hold nothing, now or at the peak, are left out: --top N shows them)\n");
    free(groups);
}
