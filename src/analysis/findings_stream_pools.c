/*
 * What the driver's stream-ordered pools keep of freed memory, as far as their settings and the card's own reading allow it;
 * and, for all findings about memory that is kept, which moment their figures are of.
 */
#include <stdlib.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/usage.h"

#define EVIDENCE_MAX 8
#define POOL_WORTH (2u << 20) /* what a pool keeps below this is not worth a word */

bool vt_ran_out(const struct vt_model *m, int device)
{
    uint32_t i;

    for (i = 0; i < m->failure_count; i++)
        if (vt_failure_is_oom(m->failures[i].record->kind) &&
            (device == VT_ANY_DEVICE || m->failures[i].record->device == device))
            return true;
    return false;
}

bool vt_is_at_finalize(const struct vt_model *m)
{
    return m->recorded && m->recorded->kind == VT_MOMENT_FINALIZE;
}

const char *vt_moment_before(const struct vt_model *m)
{
    if (!vt_ran_out(m, VT_ANY_DEVICE))
        return "";
    return vt_is_at_finalize(m) ? "When the program's own code had ended, " : "At the end, ";
}

static bool is_gone(const struct vt_pool *pool)
{
    return pool->flags & (VT_POOL_DESTROYED | VT_POOL_IMPORTED);
}

/* What is live in a pool at the model's moment: its record is of the file's end, after an interpreter's shutdown. Of several
 * pools of a device, which one an allocation is from is not in a moment. */
static uint64_t live_in(const struct vt_model *m, const struct vt_pool *pool)
{
    uint64_t count = vt_reading_count(m->reading, VT_POOLS), sum = 0, i;
    const struct vt_pool *other;

    for (i = 0; i < count && (other = vt_reading_pool(m->reading, i)); i++)
        if (other != pool && other->device == pool->device && !is_gone(other))
            return pool->live_bytes;
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].record->level == VT_LEVEL_DRIVER && m->sites[i].record->kind == VT_KIND_ASYNC &&
            m->sites[i].record->device == pool->device)
            sum += m->sites[i].live_bytes;
    return m->recorded && sum > pool->live_bytes ? sum : pool->live_bytes;
}

/* The most that the pools of a device can hold beyond what is live: if the card was read at the moment itself, no more than
 * was taken then and is neither this process's nor another one's. */
static uint64_t most_unused(struct vt_finding_builder *b, int device)
{
    const struct vt_model *m = b->model;
    struct vt_card_usage card;
    uint64_t most = UINT64_MAX;
    uint32_t i;

    for (i = 0; i < m->device_count; i++) {
        if (m->devices[i].record->ordinal != device)
            continue;
        b->no_memory |= vt_usage_of(m, m->devices[i].record, &card) != 0;
        if (card.rest_known && card.exact)
            most = card.pool_unused + vt_usage_unaccounted(&card);
        free(card.others);
    }
    return most;
}

/* What a pool may still hold back: at a synchronization it releases what exceeds its threshold, and nothing else. */
static uint64_t pool_keeps(struct vt_finding_builder *b, const struct vt_pool *pool, uint64_t live)
{
    uint64_t most = pool->after_trim_peak < pool->release_threshold ? pool->after_trim_peak : pool->release_threshold,
             allowed = most_unused(b, pool->device), keeps = most > live ? most - live : 0;

    return keeps < allowed ? keeps : allowed;
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

void vt_find_stream_pools(struct vt_finding_builder *b)
{
    uint64_t i, count = vt_reading_count(b->model->reading, VT_POOLS);

    for (i = 0; i < count; i++) {
        const struct vt_pool *pool = vt_reading_pool(b->model->reading, i);
        char kept[VT_FORMAT_BYTES], live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], threshold[VT_FORMAT_BYTES];
        struct vt_finding *finding;
        uint64_t keeps, in_use;

        if (!pool || is_gone(pool))
            continue;
        in_use = live_in(b->model, pool);
        keeps = pool_keeps(b, pool, in_use);
        if (keeps < POOL_WORTH || keeps < in_use / 4)
            continue;
        finding = vt_new_finding(b, VT_FAMILY_CACHE, vt_ran_out(b->model, pool->device) ? VT_LIKELY : VT_POSSIBLE,
                                 "%s%s stream-ordered pool of GPU %d may still hold %s that nobody uses.",
                                 vt_moment_before(b->model), *vt_moment_before(b->model) ? "a" : "A", pool->device,
                                 vt_format_bytes(kept, keeps));
        vt_add_evidence(b, finding, "Live in the pool: %s; highest since its last trim: %s; release threshold: %s.",
                        vt_format_bytes(live, in_use), vt_format_bytes(peak, pool->after_trim_peak),
                        pool->release_threshold == UINT64_MAX ? "unlimited"
                                                              : vt_format_bytes(threshold, pool->release_threshold));
        name_pool_sites(b, finding, pool->device);
        vt_advise_stream_pool(b, finding, keeps);
    }
}
