/*
 * Leaks of the program: what driver calls of its own made and nobody had freed when the run ended. What frameworks hand on
 * as tensors is never one of them: the tensors in it may be (findings_growth.c).
 */
#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define EVIDENCE_MAX 8
#define LONG_RUN_NS 10000000000ull /* runs from here on show whether a site was active in their second half */

bool vt_holds_memory(const struct vt_site_row *site)
{
    return site->record->level == VT_LEVEL_DRIVER && site->live_count && vt_kind_is_memory(site->record->kind);
}

/* Does the model show the end of a Python program's own code, with the interpreter's shutdown still to come? */
static bool at_finalize(const struct vt_model *m)
{
    return m->recorded && m->recorded->kind == VT_MOMENT_FINALIZE;
}

/* Made once at the start of a long run and kept: that looks intended, freed or not. */
static bool looks_intended(const struct vt_model *m, const struct vt_site_row *site)
{
    return m->duration_ns >= LONG_RUN_NS && !site->record->free_calls && site->record->last_ns < m->duration_ns / 2;
}

/*
 * How sure a leak is. Twice from the same place and never given back is a pattern; once may be a buffer for the whole
 * run. A killed process had no chance to free anything. What the interpreter's shutdown gave back had an owner.
 */
static enum vt_confidence leak_confidence(const struct vt_model *m, const struct vt_site_row *site)
{
    if (at_finalize(m) && site->record->live_count < site->live_count)
        return VT_POSSIBLE;
    if (m->end == VT_PROCESS_KILLED || site->owner != VT_OWNER_APPLICATION || site->live_count < 2 ||
        looks_intended(m, site))
        return VT_POSSIBLE;
    return VT_LIKELY;
}

static bool may_leak(const struct vt_site_row *site)
{
    return vt_holds_memory(site) && !site->pool &&
           (site->owner == VT_OWNER_APPLICATION || site->owner == VT_OWNER_UNKNOWN);
}

void vt_show_site(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_site_row *site)
{
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES];
    uint64_t made = site->record->alloc_calls, freed = site->record->free_calls + site->record->retired;

    if (at_finalize(b->model) && made >= site->live_count)
        freed = made - site->live_count; /* by then */
    vt_place_of(b, place, site->record->stack, site->record->python_stack);
    vt_add_evidence(b, finding, "%s in %llu (%s) by %s: %llu allocated, %llu freed.",
                    vt_format_bytes(bytes, site->live_bytes), (unsigned long long)site->live_count,
                    vt_kind_name(site->record->kind), place, (unsigned long long)made, (unsigned long long)freed);
}

static bool is_reported(struct vt_finding_builder *b, struct vt_site_row *site, enum vt_confidence confidence)
{
    return may_leak(site) && leak_confidence(b->model, site) == confidence && !vt_is_suppressed(b, site);
}

/* One finding for all leaking sites of one confidence. */
static void find_leaks(struct vt_finding_builder *b, enum vt_confidence confidence)
{
    struct vt_model *m = b->model;
    struct vt_finding *finding = NULL;
    uint64_t bytes = 0, count = 0;
    uint32_t i, sites = 0;
    char text[VT_FORMAT_BYTES];

    for (i = 0; i < m->site_count; i++)
        if (is_reported(b, &m->sites[i], confidence)) {
            bytes += m->sites[i].live_bytes;
            count += m->sites[i].live_count;
            sites++;
        }
    if (!sites)
        return;
    finding = vt_new_finding(b, VT_FAMILY_LEAK, confidence, "%s from %u place%s: %llu allocation%s %s.",
                             vt_format_bytes(text, bytes), sites, sites == 1 ? "" : "s", (unsigned long long)count,
                             count == 1 ? "" : "s",
                             m->end == VT_PROCESS_KILLED ? "held when the process was killed"
                             : at_finalize(m)            ? "still held when the program's own code had ended"
                                                         : "never freed");
    for (i = 0; i < m->site_count; i++)
        if (is_reported(b, &m->sites[i], confidence)) {
            if (finding->evidence_count < EVIDENCE_MAX)
                vt_show_site(b, finding, &m->sites[i]);
            vt_add_site(b, finding, m->sites[i].index);
        }
    if (sites > EVIDENCE_MAX)
        vt_add_evidence(b, finding, "and %u more places.", sites - EVIDENCE_MAX);
    if (m->end != VT_PROCESS_KILLED) /* everything is held then: that calls for no advice */
        vt_add_advice(b, finding, bytes, "Free what these places allocate, on error paths too.");
}

void vt_find_leaks(struct vt_finding_builder *b)
{
    if (!vt_is_final(b->model) || (b->model->end == VT_PROCESS_RUNNING && !b->model->recorded))
        return;
    find_leaks(b, VT_LIKELY);
    find_leaks(b, VT_POSSIBLE);
}
