/*
 * Tensors that a larger one replaces in every round: results that are concatenated to what there was. Little is live at any
 * time, so births (findings_growth.c) say nothing; it shows in the sizes and in the curve of live bytes. Possible only: it
 * is mostly meant, but old and new one exist together, and the smaller ones stay behind in the framework's cache.
 */
#include "analysis/births.h"
#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define EVIDENCE_MAX 8
#define LIVE_MAX 3    /* more live ones are a list */
#define ROUNDS_MIN 16 /* fewer may be sizes that differ by chance */
#define LARGER 1.5    /* the last one, in sizes of the mean; 2 where they grow evenly */
#define WORTH (16u << 20)
#define LATE 8 /* it went on until the last part in so many of its time */

static bool is_replaced(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;
    double mean = site->alloc_calls ? (double)site->total_bytes / (double)site->alloc_calls : 0;
    uint64_t span = m->moment_ns > site->first_ns ? m->moment_ns - site->first_ns : 0;

    return site->level == VT_LEVEL_TENSOR && vt_kind_is_memory(site->kind) && row->live_count &&
           row->live_count <= LIVE_MAX && row->live_bytes >= WORTH && site->alloc_calls >= ROUNDS_MIN &&
           (double)row->live_bytes / (double)row->live_count >= mean * LARGER &&
           vt_model_last_ns(m, row) >= m->moment_ns - span / LATE && vt_births_curve_rises(m, row);
}

void vt_find_replaced(struct vt_finding_builder *b)
{
    struct vt_model *m = b->model;
    char bytes[VT_FORMAT_BYTES];
    struct vt_finding *finding = NULL;
    uint64_t sum = 0;
    uint32_t i, places = 0;

    if (!vt_is_final(m) && !m->recorded) /* at the peak all is at its height */
        return;
    for (i = 0; i < m->site_count; i++) {
        if (!is_replaced(m, &m->sites[i]) || vt_is_suppressed(b, &m->sites[i]))
            continue;
        if (!finding)
            finding = vt_new_finding(b, VT_FAMILY_GROWTH, VT_POSSIBLE, "%s", "");
        sum += m->sites[i].live_bytes;
        places++;
        vt_add_site(b, finding, m->sites[i].index);
    }
    if (!finding)
        return;
    vt_show_sites(b, finding, EVIDENCE_MAX);
    vt_retitle(b, finding, VT_POSSIBLE,
               "%s in tensors of %u place%s that larger ones replaced again and again: a result that is concatenated?",
               vt_format_bytes(bytes, sum), places, places == 1 ? "" : "s");
    vt_add_advice(
        b, finding, sum,
        "Old and new one are live together each time. Collect the parts on the host (.cpu()), or in one tensor of "
        "the final size.");
}
