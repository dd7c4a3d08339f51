/*
 * Memory that is held on purpose: pools of frameworks and what is unused in them, private pools of CUDA graphs, rounding
 * of page-locked buffers, workspaces of libraries. What the driver's stream-ordered pools keep is in findings_stream_pools.c.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/frameworks.h"
#include "analysis/modules.h"

#define EVIDENCE_MAX 8
#define POOL_WORTH (2u << 20)        /* what a pool keeps below this is not worth a word */
#define OWNER_WORTH (1u << 20)       /* the same for what libraries keep, and frameworks beside their pools */
#define PRIVATE_WORTH (256ull << 20) /* unused memory of private pools that is worth a line on a terminal */
#define ROUNDING_WORTH (64ull << 20) /* page-locked memory whose rounding is worth a word */

static bool is_torch(const struct vt_reading *r, uint32_t module)
{
    const struct vt_module *record = vt_reading_module(r, module);
    const char *name = record ? vt_basename(vt_reading_chars(r, record->path)) : "";

    return !strncmp(name, "libtorch", 8) || !strncmp(name, "libc10", 6);
}

/* Memory that an owner keeps: device memory and what may be there, or page-locked memory of the host. */
struct keeping {
    enum vt_owner owner;
    bool host;
    enum vt_family family;
    const char *title;
};

/* Driver-level memory of an owner, apart from the pools that are shown by the tensors in them. */
static bool belongs_to(const struct vt_model *m, const struct vt_site_row *site, const struct keeping *k)
{
    if (site->owner != k->owner || !vt_holds_memory(site) ||
        (vt_class_of(site->record->kind) == VT_CLASS_HOST) != k->host)
        return false;
    return !site->pool || !vt_fragmentation_of(&m->fragmentation, site->record->device);
}

/*
 * Was the library called by the program, so that its user can destroy what it made? Not if a framework stands on the stack; nor,
 * in a program with a framework, if nobody does: on a thread of the library's own.
 */
static bool is_called_by_program(const struct vt_model *m, uint32_t stack)
{
    const struct vt_frame *frame;
    uint32_t id = stack, steps;
    bool own = !vt_frameworks_all(m);

    for (steps = 0; steps < VT_STACK_FRAMES_MAX && (frame = vt_reading_frame(m->reading, id)); steps++) {
        enum vt_module_class class_ = vt_module_class_at(m->reading, frame->module);

        if (class_ == VT_MODULE_FRAMEWORK)
            return false;
        own |= class_ == VT_MODULE_APPLICATION;
        if (frame->parent >= id)
            break;
        id = frame->parent;
    }
    return own;
}

static void advise_library(struct vt_finding_builder *b, struct vt_finding *finding)
{
    const struct vt_model *m = b->model;
    uint64_t own = 0;
    uint32_t i;

    for (i = 0; i < finding->site_count; i++) {
        const struct vt_site_row *row = vt_model_site(m, finding->sites[i]);

        own += row && is_called_by_program(m, row->record->stack) ? row->live_bytes : 0;
    }
    if (own >= OWNER_WORTH)
        vt_add_advice(b, finding, 0,
                      "Destroying handles, plans and communicators that are no longer used gives it back.");
}

/* Live bytes of one owner's modules, module by module: one evidence line each. */
static void show_owner(struct vt_finding_builder *b, const struct keeping *k)
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
        if (belongs_to(m, &m->sites[i], k) && m->sites[i].module < modules) {
            by_module[m->sites[i].module] += m->sites[i].live_bytes;
            bytes += m->sites[i].live_bytes;
        }
    if (bytes >= OWNER_WORTH)
        finding = vt_new_finding(b, k->family, VT_POSSIBLE, "%s%s %s", vt_moment_before(m),
                                 vt_format_bytes(text, bytes), k->title);
    for (i = 0; finding && i < modules; i++)
        if (by_module[i] && finding->evidence_count < EVIDENCE_MAX)
            vt_add_evidence(b, finding, "%s by %s.", vt_format_bytes(text, by_module[i]),
                            vt_basename(vt_reading_chars(m->reading, vt_reading_module(m->reading, i)->path)));
    for (i = 0; finding && i < m->site_count; i++)
        if (belongs_to(m, &m->sites[i], k))
            vt_add_site(b, finding, m->sites[i].index);
    if (finding && k->owner == VT_OWNER_LIBRARY)
        advise_library(b, finding);
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
    bool past = vt_ran_out(b->model, VT_ANY_DEVICE);
    struct vt_finding *finding = vt_new_finding(
        b, VT_FAMILY_CACHE, VT_POSSIBLE,
        "%s took one arena of %s on GPU %d: preallocation, not a leak; %s of it %s in use by %s%s.",
        vt_frameworks_name(name, frameworks), vt_format_bytes(bytes, arena), device->record->ordinal,
        vt_format_bytes(used, device->tensors), past ? "were" : "are", vt_frameworks_tensors(frameworks),
        !past                         ? ""
        : vt_is_at_finalize(b->model) ? " when the program's own code had ended"
                                      : " at the end");

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

/* What PyTorch can give back of a device's segments, which may be those of several frameworks. */
static uint64_t releasable_by_torch(const struct vt_model *m, int device)
{
    const struct vt_fragmentation *f = &m->fragmentation;
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < f->segment_count; i++) {
        const struct vt_site_row *row = f->segments[i].device == device ? vt_model_site(m, f->segments[i].site) : NULL;

        bytes += row && is_torch(m->reading, row->module) ? f->segments[i].releasable : 0;
    }
    return bytes;
}

/* What of the unused memory could be given back, and what could not; a part that is nothing is not named. */
static void show_releasable(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_pools *p,
                            uint64_t releasable, const char *tensors)
{
    const char *graphs = p->private_free ? " or belongs to CUDA graphs" : "";
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES];

    if (releasable && releasable < p->free)
        vt_add_evidence(b, finding, "%s could be given back at once; %s could not: it lies between live %s%s.",
                        vt_format_bytes(one, releasable), vt_format_bytes(two, p->free - releasable), tensors, graphs);
    else if (releasable)
        vt_add_evidence(b, finding, "All of it could be given back at once.");
    else
        vt_add_evidence(b, finding, "Nothing of it could be given back: it lies between live %s%s.", tensors, graphs);
}

/* What a caching allocator has reserved, and what of it nothing uses; only PyTorch's gives something back when it is told. */
static void show_cache(struct vt_finding_builder *b, const struct vt_device_row *device, unsigned frameworks)
{
    const struct vt_pools *p = vt_fragmentation_of(&b->model->fragmentation, device->record->ordinal);
    bool torch = frameworks & 1u << VT_FRAMEWORK_TORCH, alone = frameworks == 1u << VT_FRAMEWORK_TORCH,
         known = p && p->known, several = (frameworks & (frameworks - 1)) != 0,
         past = *vt_moment_before(b->model) != '\0';
    uint64_t releasable = !known ? 0 : several ? releasable_by_torch(b->model, device->record->ordinal) : p->releasable;
    char name[VT_FRAMEWORKS_NAME], one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (device->cached_unused < OWNER_WORTH)
        return;
    finding = vt_new_finding(
        b, VT_FAMILY_CACHE, VT_POSSIBLE, "%s%s %s reserved %s on GPU %d: %s in %s, %s cached but unused, not leaked.",
        vt_moment_before(b->model), vt_frameworks_name(name, frameworks),
        past      ? "had"
        : several ? "have"
                  : "has",
        vt_format_bytes(one, device->pool), device->record->ordinal, vt_format_bytes(two, device->tensors),
        vt_frameworks_tensors(frameworks), vt_format_bytes(three, device->cached_unused));
    if (known && p->free && alone)
        show_releasable(b, finding, p, releasable, vt_frameworks_tensors(frameworks));
    if (torch && (!known || releasable >= POOL_WORTH))
        vt_add_advice(b, finding, releasable, "If another program needs it: torch.cuda.empty_cache()%s.",
                      several ? ", which gives back PyTorch's part" : "");
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
    finding = vt_new_finding(b, VT_FAMILY_CACHE, p->private_free >= PRIVATE_WORTH ? VT_LIKELY : VT_POSSIBLE,
                             "%s%llu private pool%s of CUDA graphs hold%s %s on GPU %d, %s of it unused: nothing else "
                             "can have that while the "
                             "graphs live.",
                             vt_moment_before(b->model), (unsigned long long)p->private_pools,
                             p->private_pools == 1 ? "" : "s", p->private_pools == 1 ? "s" : "",
                             vt_format_bytes(bytes, p->private_bytes), p->device,
                             vt_format_bytes(unused, p->private_free));
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
        if (arena && !vt_takes_as_needed(m->reading, frameworks)) /* else the only region of those that may come */
            show_arena(b, device, arena, frameworks);
        else
            show_cache(b, device, frameworks);
        if (pools)
            show_private_pools(b, pools);
    }
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

void vt_find_pools(struct vt_finding_builder *b)
{
    static const struct keeping keepings[] = {
        {VT_OWNER_FRAMEWORK, false, VT_FAMILY_CACHE, "in the pools of frameworks: cached or in use, not leaked."},
        {VT_OWNER_FRAMEWORK, true, VT_FAMILY_CACHE,
         "of page-locked host memory in the pools of frameworks: cached or in use, not leaked."},
        {VT_OWNER_LIBRARY, false, VT_FAMILY_OVERHEAD, "in workspaces of libraries."},
        {VT_OWNER_LIBRARY, true, VT_FAMILY_OVERHEAD, "of page-locked host memory in buffers of libraries."}};
    size_t i;

    if (!vt_is_final(b->model))
        return;
    vt_find_stream_pools(b);
    show_frameworks(b);
    for (i = 0; i < 2; i++)
        show_owner(b, &keepings[i]);
    show_rounding(b);
    for (i = 2; i < sizeof keepings / sizeof keepings[0]; i++)
        show_owner(b, &keepings[i]);
}
