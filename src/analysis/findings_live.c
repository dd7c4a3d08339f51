/*
 * Findings from what is still live when the run ends: leaks of the program, pools of frameworks, workspaces of
 * libraries, and memory that stream-ordered pools keep although nothing is allocated from them.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define EVIDENCE_MAX 8
#define POOL_WORTH (2u << 20)      /* what a pool keeps below this is not worth a word */
#define LONG_RUN_NS 10000000000ull /* runs from here on show whether a site was active in their second half */

/* May what this site holds be somebody's leak? Memory that a driver call made and nobody freed. */
static bool holds_memory(const struct vt_site_row *site)
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
    return holds_memory(site) && (site->owner == VT_OWNER_APPLICATION || site->owner == VT_OWNER_UNKNOWN);
}

static void show_site(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_site_row *site)
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

/* One finding for all leaking sites of one confidence. */
static void find_leaks(struct vt_finding_builder *b, enum vt_confidence confidence)
{
    struct vt_model *m = b->model;
    struct vt_finding *finding = NULL;
    uint64_t bytes = 0, count = 0;
    uint32_t i, sites = 0;
    char text[VT_FORMAT_BYTES];

    for (i = 0; i < m->site_count; i++)
        if (may_leak(&m->sites[i]) && leak_confidence(m, &m->sites[i]) == confidence) {
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
        if (may_leak(&m->sites[i]) && leak_confidence(m, &m->sites[i]) == confidence) {
            if (finding->evidence_count < EVIDENCE_MAX)
                show_site(b, finding, &m->sites[i]);
            vt_add_site(b, finding, m->sites[i].index);
        }
    if (sites > EVIDENCE_MAX)
        vt_add_evidence(b, finding, "and %u more places.", sites - EVIDENCE_MAX);
    if (m->end != VT_PROCESS_KILLED) /* everything is held then: that calls for no advice */
        vt_add_advice(b, finding, bytes, "Free what these places allocate, on error paths too.");
}

/* Live bytes of one owner's modules, module by module: one evidence line each. */
static void show_owner(struct vt_finding_builder *b, enum vt_owner owner, enum vt_family family, const char *title,
                       const char *advice)
{
    struct vt_model *m = b->model;
    struct vt_finding *finding = NULL;
    uint64_t modules = vt_reading_count(m->reading, VT_MODULES), bytes = 0, *by_module, i;
    char text[VT_FORMAT_BYTES];

    if (!(by_module = calloc(modules ? modules : 1, sizeof *by_module))) {
        b->no_memory = true;
        return;
    }
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].owner == owner && holds_memory(&m->sites[i]) && m->sites[i].module < modules) {
            by_module[m->sites[i].module] += m->sites[i].live_bytes;
            bytes += m->sites[i].live_bytes;
        }
    if (bytes)
        finding = vt_new_finding(b, family, VT_POSSIBLE, "%s %s", vt_format_bytes(text, bytes), title);
    for (i = 0; finding && i < modules; i++)
        if (by_module[i] && finding->evidence_count < EVIDENCE_MAX)
            vt_add_evidence(b, finding, "%s by %s.", vt_format_bytes(text, by_module[i]),
                            vt_basename(vt_reading_chars(m->reading, vt_reading_module(m->reading, i)->path)));
    for (i = 0; finding && i < m->site_count; i++)
        if (m->sites[i].owner == owner && holds_memory(&m->sites[i]))
            vt_add_site(b, finding, m->sites[i].index);
    if (finding)
        vt_add_advice(b, finding, 0, "%s", advice);
    free(by_module);
}

/* What a pool may still hold back: at a synchronization it releases what exceeds its threshold, and nothing else. */
static uint64_t pool_keeps(const struct vt_pool *pool)
{
    uint64_t most = pool->after_trim_peak < pool->release_threshold ? pool->after_trim_peak : pool->release_threshold;

    return most > pool->live_bytes ? most - pool->live_bytes : 0;
}

static void name_pool_sites(struct vt_finding_builder *b, struct vt_finding *finding, int device)
{
    uint32_t i;

    for (i = 0; i < b->model->site_count && finding->site_count < EVIDENCE_MAX; i++) {
        const struct vt_site_row *site = &b->model->sites[i];

        if (site->record->level == VT_LEVEL_DRIVER && site->record->kind == VT_KIND_ASYNC &&
            site->record->device == device && site->record->peak_bytes >= POOL_WORTH)
            vt_add_site(b, finding, site->index);
    }
}

static void find_pools(struct vt_finding_builder *b)
{
    uint64_t i, count = vt_reading_count(b->model->reading, VT_POOLS);

    for (i = 0; i < count; i++) {
        const struct vt_pool *pool = vt_reading_pool(b->model->reading, i);
        char kept[VT_FORMAT_BYTES], live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], threshold[VT_FORMAT_BYTES];
        struct vt_finding *finding;
        uint64_t keeps;

        if (!pool || pool->flags & (VT_POOL_DESTROYED | VT_POOL_IMPORTED))
            continue;
        keeps = pool_keeps(pool);
        if (keeps < POOL_WORTH || keeps < pool->live_bytes / 4)
            continue;
        finding = vt_new_finding(b, VT_FAMILY_CACHE, VT_LIKELY,
                                 "A stream-ordered pool of GPU %d may still hold %s that nobody uses.", pool->device,
                                 vt_format_bytes(kept, keeps));
        vt_add_evidence(b, finding, "Live in the pool: %s; highest since its last trim: %s; release threshold: %s.",
                        vt_format_bytes(live, pool->live_bytes), vt_format_bytes(peak, pool->after_trim_peak),
                        pool->release_threshold == UINT64_MAX ? "unlimited"
                                                              : vt_format_bytes(threshold, pool->release_threshold));
        vt_add_advice(b, finding, keeps, "Call cudaMemPoolTrimTo, or lower the pool's release threshold.");
        name_pool_sites(b, finding, pool->device);
    }
}

void vt_find_live(struct vt_finding_builder *b)
{
    if (!vt_is_final(b->model))
        return;
    find_pools(b);
    if (b->model->end != VT_PROCESS_RUNNING || b->model->recorded) {
        find_leaks(b, VT_LIKELY);
        find_leaks(b, VT_POSSIBLE);
    }
    show_owner(
        b, VT_OWNER_FRAMEWORK, VT_FAMILY_CACHE, "in the pools of frameworks: cached or in use, not leaked.",
        "If another program needs it: torch.cuda.empty_cache(), or the framework's option against preallocation.");
    show_owner(b, VT_OWNER_LIBRARY, VT_FAMILY_OVERHEAD, "in workspaces of libraries.",
               "Destroying handles, plans and communicators that are no longer used gives it back.");
}
