/*
 * Verdicts on requests that failed although memory was there: in pieces between live blocks, in a block that could not be
 * given away yet, or in the private pools of CUDA graphs.
 */
#include "analysis/frameworks.h"
#include "analysis/verdict.h"

/* Private pools from this share of the card on are worth a verdict; a few captured graphs hold less. */
#define PRIVATE_DIVISOR 10

/* Blocks above this size are then never cut up: tensors of training programs are rarely larger, so most still fit. */
#define SPLIT_MIB 512

/*
 * Requests of sizes that vary (sequences, batches that are not full) each get a segment that fits none of the others. It
 * shows in segments that live blocks keep: SIZES_MIN sizes and more, which would be half as many and less if PyTorch rounded
 * requests up to one of ROUNDING_DIVISIONS sizes between two powers of two. Its segments up to SHARED_SEGMENT are of one size
 * whatever was asked for (c10/cuda/CUDACachingAllocator.cpp: kLargeBuffer).
 */
#define SIZES_MIN 8
#define SIZES_MAX 64 /* more sizes say no more */
#define ROUNDING_DIVISIONS 8
#define SHARED_SEGMENT (20ull << 20)

/* The sites whose tensors keep free memory of the device in pieces, most bytes first. */
static uint32_t pinning_sites(const struct vt_finding_builder *b, const struct vt_refusal *r,
                              struct vt_pinning *pinnings, const struct vt_site **sites)
{
    uint32_t count = 0, i;

    for (i = 0; i < r->segments->pinning_count && count < VT_HOLDERS_MAX; i++) {
        sites[count] = vt_reading_site(b->model->reading, r->segments->pinnings[i].site);
        if (r->segments->pinnings[i].device == r->failure->device && sites[count])
            pinnings[count++] = r->segments->pinnings[i];
    }
    return count;
}

/* Names of places whose tensors keep free memory in pieces. The free bytes between tensors of two sites count for both, so
 * of sites that read alike the largest figure is told and not a sum. */
static void show_pinnings(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    struct vt_pinning pinnings[VT_HOLDERS_MAX];
    const struct vt_site *sites[VT_HOLDERS_MAX] = {NULL};
    uint32_t count = pinning_sites(b, r, pinnings, sites), i, shown = 0;
    char name[VT_PLACE_NAME], pinned[VT_FORMAT_BYTES], bytes[VT_FORMAT_BYTES];
    struct vt_places places;

    if (vt_places_build(&places, b->model->reading, b->symbols, b->style, sites, count))
        b->no_memory = true; /* what is shown then is thrown away */
    for (i = 0; i < count && !b->no_memory; i++) {
        struct vt_pinning *first = &pinnings[places.list[i].name];

        first->blocks += &pinnings[i] == first ? 0 : pinnings[i].blocks;
        first->live_bytes += &pinnings[i] == first ? 0 : pinnings[i].live_bytes;
    }
    for (i = 0; i < count && !b->no_memory; i++) {
        vt_add_site(b, finding, pinnings[i].site);
        if (places.list[i].name != i || shown++ >= VT_SHOWN_MAX)
            continue;
        vt_add_evidence(b, finding, "%s of free memory lie between %llu block%s (%s) of %s.",
                        vt_format_bytes(pinned, pinnings[i].pinned_bytes), (unsigned long long)pinnings[i].blocks,
                        pinnings[i].blocks == 1 ? "" : "s", vt_format_bytes(bytes, pinnings[i].live_bytes),
                        vt_place_name(name, &places.list[i]));
    }
    vt_places_free(&places);
}

static void show_room(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    char bytes[VT_FORMAT_BYTES];

    if (!vt_refused_by_limit(r)) {
        vt_add_evidence(b, finding, "The card had another %s free.", vt_format_bytes(bytes, r->failure->free_bytes));
        return;
    }
    if (r->failure->total_bytes)
        vt_add_evidence(b, finding, "The card itself had %s free.", vt_format_bytes(bytes, r->failure->free_bytes));
    if (r->pools->reserved && r->by_framework)
        vt_add_evidence(b, finding, "%s did not ask the driver: a limit of its own lies below %s.", r->framework,
                        vt_format_bytes(bytes, r->pools->reserved + r->failure->requested_bytes));
}

/* Adds a size to those that are known; returns their number. */
static uint32_t add_size(uint64_t *sizes, uint32_t count, uint64_t bytes)
{
    uint32_t i;

    for (i = 0; i < count; i++)
        if (sizes[i] == bytes)
            return count;
    sizes[count] = bytes;
    return count + 1;
}

/* As PyTorch rounds a request with roundup_power2_divisions. */
static uint64_t rounded_up(uint64_t bytes)
{
    uint64_t step = (1ull << (63 - __builtin_clzll(bytes))) / ROUNDING_DIVISIONS, beyond = bytes % step;

    return beyond ? bytes - beyond + step : bytes;
}

/* The number of sizes of segments that live blocks keep, if rounding would make them few; else 0. */
static uint32_t sizes_that_vary(const struct vt_refusal *r)
{
    uint64_t sizes[SIZES_MAX], rounded[SIZES_MAX];
    uint32_t count = 0, after = 0, i;

    for (i = 0; i < r->segments->segment_count && count < SIZES_MAX; i++) {
        const struct vt_segment *segment = &r->segments->segments[i];

        if (segment->device != r->failure->device || !segment->pinned || segment->capture ||
            segment->bytes <= SHARED_SEGMENT)
            continue;
        count = add_size(sizes, count, segment->bytes);
        after = add_size(rounded, after, rounded_up(segment->bytes));
    }
    return count >= SIZES_MIN && after <= count / 2 ? count : 0;
}

static bool is_set_for_torch(const struct vt_finding_builder *b, const char *option)
{
    return vt_setting_has(b->model->reading, "PYTORCH_CUDA_ALLOC_CONF", option) ||
           vt_setting_has(b->model->reading, "PYTORCH_ALLOC_CONF", option);
}

static void advise_torch(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r,
                         uint64_t usable)
{
    uint64_t split = r->pools->split_free < usable ? r->pools->split_free : usable;
    uint32_t sizes = sizes_that_vary(r);

    if (r->pools->expandable) { /* they give pieces back by themselves, but only to their own stream and pool */
        vt_add_advice(b, finding, 0,
                      "Expandable segments are on: look for side streams (record_stream) and pools that hold what is "
                      "free, and try again after torch.cuda.synchronize().");
        return;
    }
    vt_add_advice(b, finding, usable,
                  "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: free pieces are then given back and used "
                  "together. (Some versions ignore its newer name, PYTORCH_ALLOC_CONF.)");
    if (split >= VT_WORTH && !is_set_for_torch(b, "max_split_size_mb"))
        vt_add_advice(b, finding, split,
                      "Where those can't be had: PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:%u, so that larger segments "
                      "are not cut up for small tensors.",
                      SPLIT_MIB);
    if (sizes && !is_set_for_torch(b, "roundup_power2_divisions"))
        vt_add_advice(b, finding, 0,
                      "Live tensors keep segments of %u sizes: what is asked for varies. "
                      "PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:%d lets near sizes share (and takes up to an "
                      "eighth more for each), or pad batches to a few sizes.",
                      sizes, ROUNDING_DIVISIONS);
}

struct vt_finding *vt_verdict_pieces(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    char pieces[VT_FORMAT_BYTES], piece[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    uint64_t largest = 0, usable;
    struct vt_finding *finding;

    if (!r->pools || vt_fragmentation_fit(r->pools, f) != VT_FIT_YES)
        return NULL;
    usable = vt_fragmentation_usable(r->pools, f->requested_bytes, &largest);
    if (!usable || largest >= f->requested_bytes)
        return NULL;
    if (usable < f->requested_bytes && vt_frameworks_cannot_grow(r->then ? r->then : b->model, f))
        return NULL;
    finding = vt_new_finding(
        b, VT_FAMILY_FRAGMENTATION, VT_LIKELY,
        "%s did not fit although %s of %s's memory on GPU %d were unused: the largest piece has %s.", r->asked,
        vt_format_bytes(pieces, usable), r->framework, f->device, vt_format_bytes(piece, largest));
    show_pinnings(b, finding, r);
    vt_show_pools(b, finding, r);
    show_room(b, finding, r);
    if (r->frameworks & 1u << VT_FRAMEWORK_TORCH)
        advise_torch(b, finding, r, usable);
    if (r->frameworks & 1u << VT_FRAMEWORK_TORCH && r->by_framework && f->total_bytes &&
        f->free_bytes >= f->requested_bytes)
        vt_add_advice(b, finding, f->free_bytes,
                      "Raise torch.cuda.set_per_process_memory_fraction: the limit is PyTorch's own, and the card had "
                      "room.");
    if (r->frameworks == 1u << VT_FRAMEWORK_TENSORFLOW)
        vt_add_advice(b, finding, usable, "Set TF_GPU_ALLOCATOR=cuda_malloc_async.");
    else if (r->frameworks == 1u << VT_FRAMEWORK_JAX)
        vt_add_advice(b, finding, usable, "Set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async, before JAX is imported.");
    vt_add_advice(b, finding, 0, "Make what lives long before what is freed soon, or free the places above first.");
    return finding;
}

/*
 * A free block would have done, and was not given: it waits for another stream (record_stream), or belongs to one. Only
 * PyTorch's allocator is known to do that; in XLA's arena, memory that looks free may be a running program's.
 */
struct vt_finding *vt_verdict_pending(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    char free_text[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    uint64_t largest = 0;
    struct vt_finding *finding;

    if (!r->pools || !r->pools->known || r->frameworks != 1u << VT_FRAMEWORK_TORCH ||
        !vt_asked_by_framework(b->model, r))
        return NULL;
    vt_fragmentation_usable(r->pools, f->requested_bytes, &largest);
    if (!f->requested_bytes || largest < f->requested_bytes)
        return NULL;
    finding = vt_new_finding(
        b, VT_FAMILY_PENDING, r->pools->releasable >= f->requested_bytes ? VT_POSSIBLE : VT_LIKELY,
        "%s did not fit although a free block of %s was there: it waits for a stream, or belongs to another one.",
        r->asked, vt_format_bytes(free_text, largest));
    vt_show_pools(b, finding, r);
    vt_add_advice(b, finding, largest,
                  "Synchronize before the request (torch.cuda.synchronize()) or try it again, and keep tensors on the "
                  "stream that made them (record_stream delays what it is used on).");
    return finding;
}

/* Captured graphs keep their segments whether they use them or not. */
struct vt_finding *vt_verdict_private(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    char bytes[VT_FORMAT_BYTES], unused[VT_FORMAT_BYTES];
    const struct vt_pools *p = r->pools;
    struct vt_finding *finding;
    uint32_t i, j;

    if (!p || !p->known || !p->private_known || !r->total || p->private_bytes < r->total / PRIVATE_DIVISOR ||
        p->private_bytes < r->missing)
        return NULL;
    finding = vt_new_finding(b, VT_FAMILY_CACHE, p->private_free >= r->missing ? VT_LIKELY : VT_POSSIBLE,
                             "Private pools of CUDA graphs held %s of GPU %d, %s of it unused: %s could not have that.",
                             vt_format_bytes(bytes, p->private_bytes), r->failure->device,
                             vt_format_bytes(unused, p->private_free), r->asked);
    vt_add_evidence(b, finding, "%llu private pool%s in %llu segments.", (unsigned long long)p->private_pools,
                    p->private_pools == 1 ? "" : "s", (unsigned long long)p->private_segments);
    vt_add_advice(b, finding, p->private_free,
                  "Capture fewer shapes, or let graphs that never run at the same time share one pool (pool= of "
                  "torch.cuda.graph).");
    for (i = 0; i < r->segments->segment_count; i++) {
        const struct vt_segment *segment = &r->segments->segments[i];

        if (segment->device != p->device || !segment->capture)
            continue;
        for (j = 0; j < finding->site_count && finding->sites[j] != segment->site;)
            j++;
        if (j == finding->site_count && j < VT_HOLDERS_MAX)
            vt_add_site(b, finding, segment->site);
    }
    return finding;
}
