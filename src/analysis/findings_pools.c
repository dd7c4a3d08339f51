/*
 * Memory that is held on purpose: pools of frameworks and what is unused in them, private pools of CUDA graphs, rounding
 * of page-locked buffers, workspaces of libraries, and what the driver's stream-ordered pools keep.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/frameworks.h"
#include "analysis/modules.h"
#include "analysis/usage.h"

#define EVIDENCE_MAX 8
#define POOL_WORTH (2u << 20)        /* what a pool keeps below this is not worth a word */
#define OWNER_WORTH (1u << 20)       /* the same for what libraries keep, and frameworks beside their pools */
#define PRIVATE_WORTH (256ull << 20) /* unused memory of private pools that is worth a line on a terminal */
#define ROUNDING_WORTH (64ull << 20) /* page-locked memory whose rounding is worth a word */

/* Driver-level memory of an owner, apart from the pools that are shown by the tensors in them. */
static bool belongs_to(const struct vt_model *m, const struct vt_site_row *site, enum vt_owner owner)
{
    if (site->owner != owner || !vt_holds_memory(site))
        return false;
    return !site->pool || !vt_fragmentation_of(&m->fragmentation, site->record->device);
}

/* Live bytes of one owner's modules, module by module: one evidence line each. advice NULL: that of the frameworks. */
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
        if (belongs_to(m, &m->sites[i], owner) && m->sites[i].module < modules) {
            by_module[m->sites[i].module] += m->sites[i].live_bytes;
            bytes += m->sites[i].live_bytes;
        }
    if (bytes >= OWNER_WORTH)
        finding = vt_new_finding(b, family, VT_POSSIBLE, "%s %s", vt_format_bytes(text, bytes), title);
    for (i = 0; finding && i < modules; i++)
        if (by_module[i] && finding->evidence_count < EVIDENCE_MAX)
            vt_add_evidence(b, finding, "%s by %s.", vt_format_bytes(text, by_module[i]),
                            vt_basename(vt_reading_chars(m->reading, vt_reading_module(m->reading, i)->path)));
    for (i = 0; finding && i < m->site_count; i++)
        if (belongs_to(m, &m->sites[i], owner))
            vt_add_site(b, finding, m->sites[i].index);
    if (finding && advice)
        vt_add_advice(b, finding, 0, "%s", advice);
    else if (finding)
        vt_advise_pools(b, finding);
    free(by_module);
}

static void name_pool(struct vt_finding_builder *b, struct vt_finding *finding, int device)
{
    uint32_t i;

    for (i = 0; i < b->model->site_count; i++)
        if (b->model->sites[i].pool && b->model->sites[i].record->device == device &&
            vt_holds_memory(&b->model->sites[i]))
            vt_add_site(b, finding, b->model->sites[i].index);
}

static void show_arena(struct vt_finding_builder *b, const struct vt_device_row *device, uint64_t arena,
                       unsigned frameworks)
{
    char name[VT_FRAMEWORKS_NAME], bytes[VT_FORMAT_BYTES], used[VT_FORMAT_BYTES];
    struct vt_finding *finding = vt_new_finding(
        b, VT_FAMILY_CACHE, VT_POSSIBLE,
        "%s took one arena of %s on GPU %d: preallocation, not a leak; %s of it are in use by %s.",
        vt_frameworks_name(name, frameworks), vt_format_bytes(bytes, arena), device->record->ordinal,
        vt_format_bytes(used, device->tensors), vt_frameworks_tensors(frameworks));

    vt_add_advice(b, finding, 0, "%s",
                  frameworks & 1u << VT_FRAMEWORK_JAX
                      ? "If other programs need the card: XLA_PYTHON_CLIENT_PREALLOCATE=false, or a smaller "
                        "XLA_PYTHON_CLIENT_MEM_FRACTION, set before JAX is imported."
                      : "If other programs need the card: let memory grow (TF_FORCE_GPU_ALLOW_GROWTH=true, or "
                        "tf.config.experimental.set_memory_growth), set a limit "
                        "(tf.config.set_logical_device_configuration with memory_limit), or let the driver keep the "
                        "memory (TF_GPU_ALLOCATOR=cuda_malloc_async).");
    name_pool(b, finding, device->record->ordinal);
}

/* What a caching allocator has reserved, and what of it nothing uses. */
static void show_cache(struct vt_finding_builder *b, const struct vt_device_row *device, unsigned frameworks)
{
    const struct vt_pools *p = vt_fragmentation_of(&b->model->fragmentation, device->record->ordinal);
    char name[VT_FRAMEWORKS_NAME], one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    struct vt_finding *finding = vt_new_finding(
        b, VT_FAMILY_CACHE, VT_POSSIBLE, "%s has reserved %s on GPU %d: %s in %s, %s cached but unused, not leaked.",
        vt_frameworks_name(name, frameworks), vt_format_bytes(one, device->pool), device->record->ordinal,
        vt_format_bytes(two, device->tensors), vt_frameworks_tensors(frameworks),
        vt_format_bytes(three, device->cached_unused));

    if (p && p->known && p->free)
        vt_add_evidence(b, finding, "%s could be given back at once; %s could not: it lies between live %s%s.",
                        vt_format_bytes(one, p->releasable), vt_format_bytes(two, p->free - p->releasable),
                        vt_frameworks_tensors(frameworks), p->private_free ? " or belongs to CUDA graphs" : "");
    if (frameworks & 1u << VT_FRAMEWORK_TORCH && (!p || !p->known || p->releasable >= POOL_WORTH))
        vt_add_advice(b, finding, p && p->known ? p->releasable : 0,
                      "If another program needs it: torch.cuda.empty_cache().");
    name_pool(b, finding, device->record->ordinal);
}

/* Captured CUDA graphs keep the segments that were made for them, used or not. */
static void show_private_pools(struct vt_finding_builder *b, const struct vt_pools *p)
{
    const struct vt_fragmentation *f = &b->model->fragmentation;
    char bytes[VT_FORMAT_BYTES], unused[VT_FORMAT_BYTES];
    struct vt_finding *finding;
    uint32_t i, j;

    if (!p->known || p->private_free < POOL_WORTH)
        return;
    finding = vt_new_finding(
        b, VT_FAMILY_CACHE, p->private_free >= PRIVATE_WORTH ? VT_LIKELY : VT_POSSIBLE,
        "%llu private pool%s of CUDA graphs hold%s %s on GPU %d, %s of it unused: nothing else can have that while the "
        "graphs live.",
        (unsigned long long)p->private_pools, p->private_pools == 1 ? "" : "s", p->private_pools == 1 ? "s" : "",
        vt_format_bytes(bytes, p->private_bytes), p->device, vt_format_bytes(unused, p->private_free));
    vt_add_evidence(b, finding, "%llu segments were made while graphs were captured.",
                    (unsigned long long)p->private_segments);
    vt_add_advice(b, finding, p->private_free,
                  "Capture fewer shapes, or let graphs that never run at the same time share one pool (pool= of "
                  "torch.cuda.graph).");
    for (i = 0; i < f->segment_count; i++) {
        if (f->segments[i].device != p->device || !f->segments[i].capture)
            continue;
        for (j = 0; j < finding->site_count && finding->sites[j] != f->segments[i].site;)
            j++;
        if (j == finding->site_count && j < EVIDENCE_MAX)
            vt_add_site(b, finding, f->segments[i].site);
    }
}

static void show_frameworks(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    uint32_t i;

    for (i = 0; i < m->device_count; i++) {
        const struct vt_device_row *device = &m->devices[i];
        const struct vt_pools *pools = vt_fragmentation_of(&m->fragmentation, device->record->ordinal);
        unsigned frameworks = vt_frameworks_on(m, device->record->ordinal);
        uint64_t arena = vt_frameworks_arena(m, device->record->ordinal);

        if (!device->tensors_known || !device->pool)
            continue;
        if (arena)
            show_arena(b, device, arena, frameworks);
        else
            show_cache(b, device, frameworks);
        if (pools)
            show_private_pools(b, pools);
    }
    show_owner(b, VT_OWNER_FRAMEWORK, VT_FAMILY_CACHE, "in the pools of frameworks: cached or in use, not leaked.",
               NULL);
}

static bool is_torch(const struct vt_reading *r, uint32_t module)
{
    const struct vt_module *record = vt_reading_module(r, module);
    const char *name = record ? vt_basename(vt_reading_chars(r, record->path)) : "";

    return !strncmp(name, "libtorch", 8) || !strncmp(name, "libc10", 6);
}

/*
 * PyTorch's page-locked buffers have sizes that are powers of two, whatever was asked for (CachingHostAllocator). What was
 * asked for is not in the recording; more than half of each is in use, else it would be the next smaller size.
 */
static void show_rounding(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    char bytes[VT_FORMAT_BYTES], half[VT_FORMAT_BYTES];
    uint64_t sum = 0, count = 0;
    struct vt_finding *finding;
    uint32_t i;
    bool *takes = calloc(m->site_count ? m->site_count : 1, sizeof *takes);

    if (!takes) {
        b->no_memory = true;
        return;
    }
    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *site = &m->sites[i];
        uint64_t each = site->live_count ? site->live_bytes / site->live_count : 0;

        takes[i] = site->record->kind == VT_KIND_PINNED && vt_holds_memory(site) &&
                   is_torch(m->reading, site->module) && !(each & (each - 1)) &&
                   each * site->live_count == site->live_bytes;
        sum += takes[i] ? site->live_bytes : 0;
        count += takes[i] ? site->live_count : 0;
    }
    if (sum >= ROUNDING_WORTH) {
        finding = vt_new_finding(b, VT_FAMILY_WASTE, VT_POSSIBLE,
                                 "PyTorch keeps %s of page-locked host memory, and rounds each buffer up to a power of "
                                 "two: up to %s of it may never be used.",
                                 vt_format_bytes(bytes, sum), vt_format_bytes(half, sum / 2));
        vt_add_evidence(b, finding,
                        "%llu buffers, each of a size that is a power of two; freed ones stay in its cache.",
                        (unsigned long long)count);
        vt_add_advice(b, finding, 0,
                      "Pin buffers of just below a power of two, or one large buffer instead of many; "
                      "torch._C._host_emptyCache() gives back those that are not in use.");
        for (i = 0; i < m->site_count; i++)
            if (takes[i])
                vt_add_site(b, finding, m->sites[i].index);
    }
    free(takes);
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

static void show_stream_pools(struct vt_finding_builder *b)
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
        finding = vt_new_finding(b, VT_FAMILY_CACHE, VT_LIKELY,
                                 "A stream-ordered pool of GPU %d may still hold %s that nobody uses.", pool->device,
                                 vt_format_bytes(kept, keeps));
        vt_add_evidence(b, finding, "Live in the pool: %s; highest since its last trim: %s; release threshold: %s.",
                        vt_format_bytes(live, in_use), vt_format_bytes(peak, pool->after_trim_peak),
                        pool->release_threshold == UINT64_MAX ? "unlimited"
                                                              : vt_format_bytes(threshold, pool->release_threshold));
        vt_add_advice(b, finding, keeps, "Call cudaMemPoolTrimTo, or lower the pool's release threshold.");
        name_pool_sites(b, finding, pool->device);
    }
}

void vt_find_pools(struct vt_finding_builder *b)
{
    if (!vt_is_final(b->model))
        return;
    show_stream_pools(b);
    show_frameworks(b);
    show_rounding(b);
    show_owner(b, VT_OWNER_LIBRARY, VT_FAMILY_OVERHEAD, "in workspaces of libraries.",
               "Destroying handles, plans and communicators that are no longer used gives it back.");
}
