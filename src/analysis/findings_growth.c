/*
 * Tensors that become more and more.
 *
 * Live at the end is no leak: parameters, an optimizer's state and caches are. So growth is judged against training steps
 * where there are some, else against what else the program did. Likely is what grew in both halves of the steps and until
 * the end (or so over minutes without steps); possible is what a place allocated again and again until the end, and nothing
 * of it was ever freed.
 */
#include <string.h>

#include "analysis/category.h"
#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define EVIDENCE_MAX 8
#define CANDIDATES_MAX 256            /* places looked at, largest first */
#define COUNT_MIN 4                   /* live allocations: fewer show nothing */
#define STEPS_MIN 8                   /* steps from which growth against them is likely */
#define LONG_NS (300ull * 1000000000) /* time from which steady growth is likely without steps */
#define RISES_MIN 3                   /* intervals in a row in which a place with frees must have grown */

static bool is_workspace(const struct vt_model *m, const struct vt_site *site)
{
    return !strcmp(vt_reading_chars(m->reading, site->api), "torch.cublas_workspace");
}

/* What by its nature is made once and stays. */
static bool is_meant_to_stay(const struct vt_finding_builder *b, const struct vt_site_row *row, bool steps)
{
    enum vt_category category = vt_category_of(b->model, row, b->symbols).main;

    return category == VT_CATEGORY_PARAMETERS || category == VT_CATEGORY_OPTIMIZER ||
           (category == VT_CATEGORY_GRADIENTS && !steps) || is_workspace(b->model, row->record);
}

/* The part of [from, to] that lies in [first, last], as a share. */
static double share(uint64_t from, uint64_t to, uint64_t first, uint64_t last)
{
    uint64_t low = from > first ? from : first, high = to < last ? to : last;

    if (low > high)
        return 0;
    return to > from ? (double)(high - low) / (double)(to - from) : 1;
}

/*
 * Was the place still at it when the moment came, by what the program allocated elsewhere meanwhile and since? In time that
 * could not be told: loading a kernel takes as long as a hundred steps.
 */
static bool is_active(const struct vt_model *m, const struct vt_site_row *row)
{
    uint64_t first = row->record->first_ns, last = vt_model_last_ns(m, row);
    double during = 0, since = 0;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site *other = m->sites[i].record;
        uint64_t other_last = vt_model_last_ns(m, &m->sites[i]);

        if (other->level != VT_LEVEL_TENSOR || other->first_ns > m->moment_ns)
            continue;
        during += (double)other->alloc_calls * share(other->first_ns, other_last, first, last);
        since += (double)other->alloc_calls * share(other->first_ns, other_last, last + 1, m->moment_ns);
    }
    return since <= during / 2;
}

/* Did it grow in both halves of the time since `from`, in the second until its last part? */
static bool grew_throughout(const struct vt_model *m, const struct vt_site_row *row, uint64_t half_ns, uint64_t late_ns)
{
    uint64_t end, before = vt_model_live_at(row->record, half_ns, m->moment_ns, row->live_bytes, &end);

    return vt_model_last_ns(m, row) > late_ns && end < m->moment_ns && before >= row->live_bytes / 8 &&
           row->live_bytes - before >= row->live_bytes / 4;
}

/* In how many intervals of its history since `from` the place grew; 0 if it fell in one of them. */
static unsigned rises(const struct vt_model *m, const struct vt_site_row *row, uint64_t from)
{
    uint64_t at = from, end, bytes, before = 0;
    unsigned count = 0;
    bool first = true;

    while (at < m->moment_ns) {
        bytes = vt_model_live_at(row->record, at, m->moment_ns, row->live_bytes, &end);
        if (!first && bytes < before)
            return 0;
        count += !first && bytes > before;
        first = false;
        before = bytes;
        at = end + 1;
    }
    return count;
}

/* Against steps. */
static bool grows_with_steps(const struct vt_model *m, const struct vt_site_row *row, uint64_t steps)
{
    uint64_t half_ns = vt_model_step_end(m->reading, steps / 2 - 1), late = steps - 1 - (steps / 8 > 2 ? steps / 8 : 2);

    if (row->growth.bytes <= 0 || row->growth.allocs < COUNT_MIN || row->growth.steps < COUNT_MIN)
        return false;
    if (!vt_model_never_freed(row))
        return rises(m, row, half_ns) >= RISES_MIN;
    if (grew_throughout(m, row, half_ns, vt_model_step_end(m->reading, late)))
        return true;
    /* Too fast for the history: then as many as there were steps. */
    return vt_model_last_ns(m, row) > vt_model_step_end(m->reading, late) &&
           row->live_count >= row->growth.steps * 3 / 4 && row->growth.steps > steps / 2;
}

/* Without steps, but for minutes. */
static bool grows_with_time(const struct vt_model *m, const struct vt_site_row *row)
{
    uint64_t first = row->record->first_ns, span = m->moment_ns > first ? m->moment_ns - first : 0;

    return span >= LONG_NS && row->live_count >= COUNT_MIN && rises(m, row, first + span / 2) >= RISES_MIN &&
           grew_throughout(m, row, first + span / 2, m->moment_ns - span / 8);
}

/* VT_LIKELY, VT_POSSIBLE, or VT_CERTAIN for no growth at all, which is never certain. */
static enum vt_confidence judge(const struct vt_finding_builder *b, const struct vt_site_row *row)
{
    const struct vt_model *m = b->model;
    uint64_t steps = vt_model_steps_until(m->reading, m->moment_ns);

    if (row->record->level != VT_LEVEL_TENSOR || row->live_count < COUNT_MIN || !vt_kind_is_memory(row->record->kind) ||
        is_meant_to_stay(b, row, steps >= STEPS_MIN))
        return VT_CERTAIN;
    if (steps >= STEPS_MIN ? grows_with_steps(m, row, steps) : grows_with_time(m, row))
        return VT_LIKELY;
    if (!vt_is_final(m) || m->end == VT_PROCESS_RUNNING || row->growth.bytes <= 0 || !vt_model_never_freed(row))
        return VT_CERTAIN;
    return is_active(m, row) ? VT_POSSIBLE : VT_CERTAIN;
}

static void show(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_site_row *row)
{
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES], step[VT_FORMAT_BYTES];

    if (!row->growth.steps || row->growth.bytes_per_step < 1) {
        vt_show_site(b, finding, row);
        return;
    }
    vt_add_evidence(b, finding, "%s in %llu by %s: %s more per step over %llu steps.",
                    vt_format_bytes(bytes, row->live_bytes), (unsigned long long)row->live_count,
                    vt_place_of(b, place, row->record->stack, row->record->python_stack),
                    vt_format_bytes(step, (uint64_t)row->growth.bytes_per_step), (unsigned long long)row->growth.steps);
}

/* One finding for all places of one confidence. */
static void report(struct vt_finding_builder *b, const enum vt_confidence *verdicts, uint32_t count,
                   enum vt_confidence confidence)
{
    const struct vt_model *m = b->model;
    uint64_t bytes = 0;
    double per_step = 0;
    uint32_t i, places = 0;
    char live[VT_FORMAT_BYTES], step[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    for (i = 0; i < count; i++)
        if (verdicts[i] == confidence) {
            places++;
            bytes += m->sites[i].live_bytes;
            per_step += m->sites[i].growth.bytes_per_step;
        }
    if (!places)
        return;
    vt_format_bytes(live, bytes);
    if (confidence == VT_LIKELY && per_step >= 1)
        finding = vt_new_finding(b, VT_FAMILY_GROWTH, confidence,
                                 "Tensors grow with every step: by %s a step at %u place%s, to %s.",
                                 vt_format_bytes(step, (uint64_t)per_step), places, places == 1 ? "" : "s", live);
    else
        finding = vt_new_finding(
            b, VT_FAMILY_GROWTH, confidence, "%s in tensors of %u place%s that allocated again and again %s.", live,
            places, places == 1 ? "" : "s", confidence == VT_LIKELY ? "and kept growing" : "and never freed any");
    for (i = 0; i < count; i++)
        if (verdicts[i] == confidence) {
            if (finding->evidence_count < EVIDENCE_MAX)
                show(b, finding, &m->sites[i]);
            vt_add_site(b, finding, m->sites[i].index);
        }
    if (places > EVIDENCE_MAX)
        vt_add_evidence(b, finding, "and %u more places.", places - EVIDENCE_MAX);
    vt_add_advice(b, finding, bytes,
                  "Look for what keeps them: a list or dict that grows, losses summed up as tensors (.item() gives the "
                  "number), a state that is not detached (.detach()), validation without torch.no_grad(), a view of a "
                  "large result (.clone() keeps the part alone).");
}

void vt_find_growth(struct vt_finding_builder *b)
{
    enum vt_confidence verdicts[CANDIDATES_MAX];
    uint32_t count = b->model->site_count < CANDIDATES_MAX ? b->model->site_count : CANDIDATES_MAX, i;

    if (!b->model->recorded && !vt_is_final(b->model)) /* at the peak all is at its height */
        return;
    for (i = 0; i < count; i++)
        verdicts[i] = judge(b, &b->model->sites[i]);
    report(b, verdicts, count, VT_LIKELY);
    report(b, verdicts, count, VT_POSSIBLE);
}
