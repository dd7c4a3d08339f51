/*
 * Why an allocation failed for want of memory: capacity, a limit, or memory that is there but in pieces.
 *
 * Two sorts of refusals look alike to a user. The driver refuses when the card has no room. A framework refuses by itself,
 * without a call, when a limit that it was given is reached; nobody tells that limit, but it lies below what was reserved
 * plus what was requested.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/frameworks.h"
#include "analysis/modules.h"

#define VERDICTS_MAX 2 /* more than two explanations explain nothing */
#define HOLDERS_MAX 8  /* sites that a finding names */
#define SHOWN_MAX 3    /* of them in evidence */

/* A failure and how the device's segments looked at it. */
struct refusal {
    const struct vt_failure *failure;
    const struct vt_device_row *device; /* NULL: not known */
    struct vt_fragmentation built;      /* of the failure's own moment; all zero if the model shows that one */
    const struct vt_fragmentation *segments;
    const struct vt_pools *pools; /* NULL: no tensors on the device, or no moment */
    unsigned frameworks;
    char framework[VT_FRAMEWORKS_NAME];
    char asked[VT_FORMAT_BYTES];
};

static bool is_host_kind(unsigned kind)
{
    return kind == VT_KIND_PINNED || kind == VT_KIND_REGISTERED;
}

static const struct vt_device_row *device_of(const struct vt_model *m, const struct vt_failure *failure)
{
    uint32_t i;

    for (i = 0; i < m->device_count; i++)
        if (m->devices[i].record->ordinal == failure->device)
            return &m->devices[i];
    return NULL;
}

static void open_refusal(struct vt_finding_builder *b, struct refusal *r, const struct vt_failure *failure)
{
    const struct vt_model *m = b->model;
    const struct vt_moment *moment = vt_reading_moment(m->reading, failure->moment);

    memset(r, 0, sizeof *r);
    r->failure = failure;
    r->device = device_of(m, failure);
    r->segments = &r->built;
    if (moment && moment == m->recorded)
        r->segments = &m->fragmentation;
    else if (moment && vt_fragmentation_build(&r->built, m->reading, moment))
        b->no_memory = true;
    r->pools = vt_fragmentation_of(r->segments, failure->device);
    r->frameworks = vt_frameworks_on(m, failure->device);
    vt_frameworks_name(r->framework, r->frameworks);
    vt_format_bytes(r->asked, failure->requested_bytes);
}

static uint64_t total_of(const struct refusal *r)
{
    return r->failure->total_bytes ? r->failure->total_bytes : r->device ? r->device->record->total_bytes : 0;
}

/* Did something refuse although the card, as far as is known, had room? */
static bool is_by_limit(const struct vt_failure *f)
{
    return vt_refused_by_framework(f) || (f->total_bytes && f->free_bytes >= f->requested_bytes);
}

static void add_usage(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *failure)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    uint64_t used = failure->total_bytes - failure->free_bytes, own = failure->reserved_bytes;

    if (!failure->total_bytes || failure->free_bytes > failure->total_bytes)
        return;
    if (own <= used)
        vt_add_evidence(
            b, finding,
            "Of the %s in use, this process had allocated %s; %s is other processes, CUDA's context and code.",
            vt_format_bytes(one, used), vt_format_bytes(two, own), vt_format_bytes(three, used - own));
}

/* "PyTorch had reserved 5.00 GiB, 3.10 GiB of it in tensors; 1.90 GiB were cached but unused." */
static void add_pools(struct vt_finding_builder *b, struct vt_finding *finding, const struct refusal *r)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES], largest[VT_FORMAT_BYTES];
    const struct vt_pools *p = r->pools;

    if (!p || !p->reserved)
        return;
    if (p->known && p->free)
        vt_add_evidence(b, finding,
                        "%s had reserved %s, %s of it in %s; %s were cached but unused, the largest piece %s.",
                        r->framework, vt_format_bytes(one, p->reserved), vt_format_bytes(two, p->allocated),
                        vt_frameworks_tensors(r->frameworks), vt_format_bytes(three, p->free),
                        vt_format_bytes(largest, p->largest_free));
    else
        vt_add_evidence(b, finding, "%s had reserved %s, %s of it in %s.", r->framework,
                        vt_format_bytes(one, p->reserved), vt_format_bytes(two, p->allocated),
                        vt_frameworks_tensors(r->frameworks));
    if (p->private_bytes)
        vt_add_evidence(b, finding, "%s of it belong to CUDA graphs, %s of these unused.",
                        vt_format_bytes(one, p->private_bytes), vt_format_bytes(two, p->private_free));
}

/* Device memory of somebody in particular: a framework's driver calls are its pool, which its tensors are in. */
static bool is_holder(const struct vt_reading *reading, const struct refusal *r, uint32_t index,
                      const struct vt_site *site)
{
    if (site->device != r->failure->device || !vt_kind_is_memory(site->kind) ||
        vt_class_of((enum vt_kind)site->kind) != VT_CLASS_DEVICE)
        return false;
    if (site->level == VT_LEVEL_TENSOR)
        return true;
    if (r->pools && vt_fragmentation_is_pool(r->segments, index))
        return false;
    return r->pools || vt_module_class_at(reading, vt_owner_module(reading, site->stack)) != VT_MODULE_FRAMEWORK;
}

/* The largest sites at the moment that was taken at the failure; returns how many. */
static uint32_t largest_at_failure(const struct vt_reading *reading, const struct refusal *r,
                                   struct vt_moment_site *largest)
{
    const struct vt_moment *moment = vt_reading_moment(reading, r->failure->moment);
    const struct vt_moment_site *entry;
    const struct vt_site *site;
    uint32_t count = 0, at;
    uint64_t i;

    for (i = 0; moment && i < moment->sites; i++) {
        if (!(entry = vt_reading_moment_site(reading, moment->first_site + i)))
            break;
        if (!entry->live_bytes || (count == HOLDERS_MAX && entry->live_bytes <= largest[count - 1].live_bytes) ||
            !(site = vt_reading_site(reading, entry->site)) || !is_holder(reading, r, entry->site, site))
            continue;
        count += count < HOLDERS_MAX;
        for (at = count - 1; at && largest[at - 1].live_bytes < entry->live_bytes; at--)
            largest[at] = largest[at - 1];
        largest[at] = *entry;
    }
    return count;
}

/* Names who held the memory when the request failed. */
static void add_largest(struct vt_finding_builder *b, struct vt_finding *finding, const struct refusal *r)
{
    struct vt_moment_site largest[HOLDERS_MAX];
    uint32_t count = largest_at_failure(b->model->reading, r, largest), i;
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES];

    for (i = 0; i < count; i++) {
        const struct vt_site *site = vt_reading_site(b->model->reading, largest[i].site);

        if (i < SHOWN_MAX)
            vt_add_evidence(b, finding, "%s in %llu held by %s.", vt_format_bytes(bytes, largest[i].live_bytes),
                            (unsigned long long)largest[i].live_count,
                            vt_place_of(b, place, site->stack, site->python_stack));
        vt_add_site(b, finding, largest[i].site);
    }
}

/* Names whose tensors keep free memory in pieces. */
static void add_pinnings(struct vt_finding_builder *b, struct vt_finding *finding, const struct refusal *r)
{
    char place[VT_PLACE_BYTES], pinned[VT_FORMAT_BYTES], bytes[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < r->segments->pinning_count && finding->site_count < HOLDERS_MAX; i++) {
        const struct vt_pinning *pinning = &r->segments->pinnings[i];
        const struct vt_site *site = vt_reading_site(b->model->reading, pinning->site);

        if (pinning->device != r->failure->device || !site)
            continue;
        if (finding->site_count < SHOWN_MAX)
            vt_add_evidence(b, finding, "%s of free memory lie between %llu block%s (%s) of %s.",
                            vt_format_bytes(pinned, pinning->pinned_bytes), (unsigned long long)pinning->blocks,
                            pinning->blocks == 1 ? "" : "s", vt_format_bytes(bytes, pinning->live_bytes),
                            vt_place_of(b, place, site->stack, site->python_stack));
        vt_add_site(b, finding, pinning->site);
    }
}

static void add_limit(struct vt_finding_builder *b, struct vt_finding *finding, const struct refusal *r)
{
    char free_text[VT_FORMAT_BYTES], below[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;

    if (f->total_bytes)
        vt_add_evidence(b, finding, "The card itself had %s free.", vt_format_bytes(free_text, f->free_bytes));
    if (r->pools && r->pools->reserved && vt_refused_by_framework(f))
        vt_add_evidence(b, finding, "%s did not ask the driver: a limit of its own lies below %s.", r->framework,
                        vt_format_bytes(below, r->pools->reserved + f->requested_bytes));
}

/* NULL: memory in pieces does not explain it. */
static struct vt_finding *explain_pieces(struct vt_finding_builder *b, const struct refusal *r)
{
    uint64_t largest = 0, usable;
    char pieces[VT_FORMAT_BYTES], piece[VT_FORMAT_BYTES], room[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    struct vt_finding *finding;

    if (!r->pools || vt_fragmentation_fit(r->pools, f) != VT_FIT_YES)
        return NULL;
    usable = vt_fragmentation_usable(r->pools, f->requested_bytes, &largest);
    if (!usable || largest >= f->requested_bytes)
        return NULL;
    finding = vt_new_finding(
        b, VT_FAMILY_FRAGMENTATION, VT_LIKELY,
        "%s did not fit although %s of %s's memory on GPU %d were unused: the largest piece has %s.", r->asked,
        vt_format_bytes(pieces, usable), r->framework, f->device, vt_format_bytes(piece, largest));
    add_pinnings(b, finding, r);
    add_pools(b, finding, r);
    if (is_by_limit(f))
        add_limit(b, finding, r);
    else
        vt_add_evidence(b, finding, "The card had another %s free.", vt_format_bytes(room, f->free_bytes));
    if (r->frameworks & 1u << VT_FRAMEWORK_TORCH && !r->pools->expandable)
        vt_add_advice(b, finding, usable,
                      "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: free pieces are then given back and used "
                      "together. (Some versions ignore its newer name, PYTORCH_ALLOC_CONF.)");
    else if (r->frameworks == 1u << VT_FRAMEWORK_TENSORFLOW)
        vt_add_advice(b, finding, usable, "Set TF_GPU_ALLOCATOR=cuda_malloc_async.");
    vt_add_advice(b, finding, 0, "Make what lives long before what is freed soon, or free the places above first.");
    return finding;
}

/* A framework's arena, or a limit that it was given. NULL: the driver refused. */
static struct vt_finding *explain_limit(struct vt_finding_builder *b, const struct refusal *r)
{
    char bytes[VT_FORMAT_BYTES], free_text[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    uint64_t arena = vt_frameworks_arena(b->model, f->device);
    struct vt_finding *finding;

    if (!is_by_limit(f))
        return NULL;
    if (!vt_refused_by_framework(f)) {
        finding = vt_new_finding(b, VT_FAMILY_LIMIT, VT_POSSIBLE,
                                 "%s were refused although %s were free: something other than capacity set a limit.",
                                 r->asked, vt_format_bytes(free_text, f->free_bytes));
        vt_add_advice(b, finding, 0,
                      "Look for a memory fraction set by the framework, MPS or MIG limits, and fragmentation.");
    } else if (arena) {
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY, "The arena of %s that %s took had no room for %s.",
                                 vt_format_bytes(bytes, arena), r->framework, r->asked);
        vt_add_advice(b, finding, 0, "%s",
                      r->frameworks & 1u << VT_FRAMEWORK_JAX
                          ? "XLA_PYTHON_CLIENT_MEM_FRACTION sets the arena's share of the card; programs need room for "
                            "temporary memory beside the arrays."
                          : "Raise the framework's share of the card.");
    } else {
        finding = vt_new_finding(b, VT_FAMILY_LIMIT, VT_LIKELY,
                                 "%s refused %s on GPU %d by a limit of its own, not for want of memory on the card.",
                                 r->framework, r->asked, f->device);
        add_limit(b, finding, r);
        vt_add_advice(b, finding, 0,
                      r->frameworks & 1u << VT_FRAMEWORK_TORCH
                          ? "Raise torch.cuda.set_per_process_memory_fraction, or need less."
                          : "Raise the limit, or need less.");
    }
    add_pools(b, finding, r);
    return finding;
}

static struct vt_finding *explain_capacity(struct vt_finding_builder *b, const struct refusal *r)
{
    char free_text[VT_FORMAT_BYTES], total_text[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    struct vt_finding *finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY, "GPU %d was full: %s did not fit.",
                                                f->device, r->asked);

    if (f->total_bytes) {
        vt_add_evidence(b, finding, "%s were free of %s.", vt_format_bytes(free_text, f->free_bytes),
                        vt_format_bytes(total_text, total_of(r)));
        vt_add_advice(b, finding, 0, "At least %s more must be free; the largest holders are listed below.",
                      vt_format_bytes(free_text, f->requested_bytes - f->free_bytes));
    }
    add_pools(b, finding, r);
    return finding;
}

static struct vt_finding *explain(struct vt_finding_builder *b, const struct refusal *r)
{
    char total_text[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (is_host_kind(r->failure->memory_kind)) {
        finding = vt_new_finding(
            b, VT_FAMILY_LIMIT, VT_LIKELY,
            "%s of page-locked host memory were refused: the host's memory or a limit, not the GPU's.", r->asked);
        vt_add_advice(b, finding, 0, "Check the host's free memory, the container's memory limit and ulimit -l.");
        return finding;
    }
    if (total_of(r) && r->failure->requested_bytes > total_of(r)) {
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_CERTAIN,
                                 "A request of %s can never fit: GPU %d has %s in total.", r->asked, r->failure->device,
                                 vt_format_bytes(total_text, total_of(r)));
        vt_add_advice(b, finding, 0, "Check the computed size (a wrong shape or an overflow?), or split the work.");
        return finding;
    }
    if ((finding = explain_pieces(b, r)) || (finding = explain_limit(b, r)))
        return finding;
    return explain_capacity(b, r);
}

/* An out-of-memory failure, the first of its group, becomes one finding. */
static void explain_oom(struct vt_finding_builder *b, const struct vt_failure *f, const struct vt_oom_group *group)
{
    char place[VT_PLACE_BYTES], range[VT_FORMAT_RANGE];
    struct vt_finding *finding;
    struct refusal r;

    open_refusal(b, &r, f);
    finding = explain(b, &r);
    vt_add_evidence(b, finding, "%s were requested by %s, %llu time%s.",
                    vt_format_range(range, group->low, group->high), vt_place_of(b, place, f->stack, f->python_stack),
                    (unsigned long long)group->times, group->times == 1 ? "" : "s");
    if (!is_host_kind(f->memory_kind)) {
        add_usage(b, finding, f);
        if (finding->family != VT_FAMILY_FRAGMENTATION)
            add_largest(b, finding, &r);
    }
    vt_fragmentation_free(&r.built);
}

void vt_find_ooms(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    bool at_oom = m->recorded && m->recorded->kind == VT_MOMENT_OOM;
    unsigned explained = 0;
    uint32_t i;

    for (i = 0; i < m->failure_count && explained < VERDICTS_MAX; i++) {
        const struct vt_failure *f = m->failures[i].record;
        struct vt_oom_group group = {f->count, f->requested_bytes, f->requested_bytes, true};

        if (!vt_failure_is_oom(f->kind) || (at_oom && m->recorded->failure != m->failures[i].index))
            continue;
        if (!at_oom)
            group = vt_model_oom_group(m, i);
        if (!group.first)
            continue;
        explain_oom(b, f, &group);
        explained++;
    }
}
