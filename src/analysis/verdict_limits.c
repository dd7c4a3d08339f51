/*
 * Verdicts on requests that the card's memory has nothing to do with: page-locked host memory, requests beyond any card's
 * size, and limits that somebody has set.
 */
#include <string.h>

#include "analysis/advice.h"
#include "analysis/modules.h"
#include "analysis/verdict.h"

/* A card hands memory out in pages of 2 MiB and is used by others meanwhile, so a little more than was asked for may be free
 * and still not do; from an eighth of the request on, that is no explanation. */
#define ROOM_DIVISOR 8

/* XLA leaves this share of the card to others at most; what CUDA's context and code need. */
#define ARENA_PERCENT 95

/* The program reaches the GPU through Windows. */
static bool is_wsl(const struct vt_reading *reading)
{
    return strstr(vt_reading_chars(reading, vt_reading_header(reading)->driver), "/wsl/") != NULL;
}

static uint64_t host_bytes(const struct vt_model *m)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == VT_LEVEL_DRIVER && vt_class_of(m->totals[i].record->kind) == VT_CLASS_HOST)
            bytes += m->totals[i].live_bytes;
    return bytes;
}

/* What the host could give then, if that was looked at. A group's use has caches in it that could be dropped. */
static void show_host(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    const struct vt_header *h = vt_reading_header(b->model->reading);
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES];

    if (!h->host_failure || vt_reading_failure(b->model->reading, h->host_failure - 1) != r->failure)
        return;
    if (h->host_available_bytes)
        vt_add_evidence(b, finding, "The host had %s available%s.", vt_format_bytes(one, h->host_available_bytes),
                        h->host_available_bytes < r->failure->requested_bytes ? ", less than was asked for" : "");
    if (h->host_limit_bytes)
        vt_add_evidence(b, finding, "The memory limit of its control group is %s; %s were in use, caches included.",
                        vt_format_bytes(one, h->host_limit_bytes), vt_format_bytes(two, h->host_used_bytes));
    if (h->lockable_bytes && h->lockable_bytes != VT_UNKNOWN_BYTES)
        vt_add_evidence(b, finding, "ulimit -l allows %s of locked memory.", vt_format_bytes(one, h->lockable_bytes));
}

struct vt_finding *vt_verdict_host(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    const struct vt_reading *reading = b->model->reading;
    uint64_t held = r->then ? host_bytes(r->then) : 0, asked = r->failure->requested_bytes;
    char bytes[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (!r->host)
        return NULL;
    finding = vt_new_finding(b, VT_FAMILY_LIMIT, VT_LIKELY,
                             "%s of page-locked host memory were refused: the host's memory or a limit, not the GPU's.",
                             r->asked);
    if (held)
        vt_add_evidence(b, finding, "This process had page-locked %s already.", vt_format_bytes(bytes, held));
    if (is_wsl(reading))
        vt_add_evidence(b, finding, "It runs under WSL, where Windows limits page-locked memory.");
    if (asked >= VT_WORTH && !(asked & (asked - 1)) && vt_asked_by_framework(b->model, r))
        vt_add_evidence(b, finding, "A framework rounds such requests up to a power of two: up to %s may be rounding.",
                        vt_format_bytes(bytes, asked / 2));
    show_host(b, finding, r);
    vt_show_largest(b, finding, r);
    if (held >= VT_WORTH)
        vt_add_advice(b, finding, held,
                      "Page-lock less: fewer loader workers and prefetched batches, pin_memory=False, smaller buffers "
                      "(bytes of host memory).");
    vt_add_advice(b, finding, 0, "Check the host's free memory, the container's memory limit and ulimit -l.");
    return finding;
}

struct vt_finding *vt_verdict_huge(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    char total[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (!r->total || r->failure->requested_bytes <= r->total)
        return NULL;
    finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_CERTAIN,
                             "A request of %s can never fit: GPU %d has %s in total.", r->asked, r->failure->device,
                             vt_format_bytes(total, r->total));
    if (r->failure->requested_bytes > INT64_MAX)
        vt_add_evidence(b, finding, "As a signed number it is -%s: a size that was computed as negative.",
                        vt_format_bytes(total, -r->failure->requested_bytes));
    vt_add_advice(b, finding, 0, "Check the computed size (a wrong shape or an overflow?), or split the work.");
    return finding;
}

/* What else may have refused, as far as the recording tells. */
static void show_suspects(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    const struct vt_reading *reading = b->model->reading;
    uint32_t i;

    if (r->device && r->device->record->flags & VT_DEVICE_MIG)
        vt_add_evidence(b, finding, "The device is a MIG instance: only its share of the card counts.");
    if (is_wsl(reading))
        vt_add_evidence(b, finding, "It runs under WSL, where Windows limits what one process may have.");
    if (vt_setting_has(reading, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
        vt_add_evidence(b, finding, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT is set.");
    for (i = 0; i < b->model->failure_count; i++) {
        const struct vt_failure *f = b->model->failures[i].record;
        char bytes[VT_FORMAT_BYTES];

        if (f == r->failure || f->first_ns >= r->failure->first_ns || !f->driver_visible ||
            (f->memory_kind != VT_KIND_PINNED && f->memory_kind != VT_KIND_REGISTERED))
            continue;
        vt_add_evidence(b, finding,
                        "An earlier %s of %s of host memory had failed; later calls may only repeat that error.",
                        vt_reading_chars(reading, f->api), vt_format_bytes(bytes, f->requested_bytes));
        break;
    }
}

/* The driver refused although more was free than was asked for. */
static struct vt_finding *driver_limit(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    const struct vt_failure *f = r->failure;
    bool plenty = f->free_bytes - f->requested_bytes >= f->requested_bytes / ROOM_DIVISOR;
    char free_text[VT_FORMAT_BYTES];
    struct vt_finding *finding = vt_new_finding(
        b, VT_FAMILY_LIMIT, plenty ? VT_LIKELY : VT_POSSIBLE,
        "%s were refused although %s were free: something other than capacity set a limit.", r->asked,
        vt_format_bytes(free_text, f->free_bytes));

    show_suspects(b, finding, r);
    vt_add_advice(b, finding, 0,
                  "Look for a memory fraction set by the framework, the host's free memory, its container's limit and "
                  "ulimit -v, MPS or MIG limits, and an earlier call that failed.");
    return finding;
}

/* The arena that a framework took at its start is full. */
static struct vt_finding *full_arena(struct vt_finding_builder *b, const struct vt_refusal *r, uint64_t arena)
{
    uint64_t most = r->total / 100 * ARENA_PERCENT, more = most > arena ? most - arena : 0,
             missing = r->failure->requested_bytes;
    char bytes[VT_FORMAT_BYTES];
    struct vt_finding *finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY,
                                                "The arena of %s that %s took had no room for %s.",
                                                vt_format_bytes(bytes, arena), r->framework, r->asked);

    if (r->failure->total_bytes && more > r->failure->free_bytes)
        more = r->failure->free_bytes;
    if (r->pools && r->pools->known)
        missing -= r->pools->largest_free < missing ? r->pools->largest_free : missing;
    if (more < VT_WORTH || more < missing)
        vt_advise_measures(b, finding, r); /* a larger arena could not be had, or would not do */
    else if (r->frameworks & 1u << VT_FRAMEWORK_JAX)
        vt_add_advice(b, finding, more,
                      "XLA_PYTHON_CLIENT_MEM_FRACTION sets the arena's share of the card; programs need room for "
                      "temporary memory beside the arrays.");
    else
        vt_add_advice(b, finding, more,
                      "Give TensorFlow more of the card: a larger memory_limit, if "
                      "tf.config.set_logical_device_configuration sets one, or a larger "
                      "per_process_gpu_memory_fraction.");
    return finding;
}

static void show_limit(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    char bytes[VT_FORMAT_BYTES];

    if (r->failure->total_bytes)
        vt_add_evidence(b, finding, "The card itself had %s free.", vt_format_bytes(bytes, r->failure->free_bytes));
    if (r->pools && r->pools->reserved)
        vt_add_evidence(b, finding, "%s did not ask the driver: a limit of its own lies below %s.", r->framework,
                        vt_format_bytes(bytes, r->pools->reserved + r->failure->requested_bytes));
}

/* A framework that knows what it may take does not ask for more: TensorFlow on a card that it has nearly filled. */
static bool card_was_full(const struct vt_refusal *r)
{
    uint64_t largest, usable = r->pools ? vt_fragmentation_usable(r->pools, r->failure->requested_bytes, &largest) : 0;

    return r->failure->total_bytes && r->failure->free_bytes < r->failure->requested_bytes &&
           usable < r->failure->requested_bytes - r->failure->free_bytes;
}

struct vt_finding *vt_verdict_limit(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    const struct vt_failure *f = r->failure;
    uint64_t arena = vt_frameworks_arena(r->then ? r->then : b->model, f->device);
    struct vt_finding *finding;

    if (arena && vt_takes_as_needed(b->model->reading, r->frameworks))
        arena = 0; /* one region of those that may come */
    if (!vt_refused_by_limit(r) || (r->by_framework && !arena && card_was_full(r)))
        return NULL;
    if (!r->by_framework) {
        finding = driver_limit(b, r);
    } else if (arena) {
        finding = full_arena(b, r, arena);
    } else {
        finding = vt_new_finding(b, VT_FAMILY_LIMIT, VT_LIKELY,
                                 "%s refused %s on GPU %d by a limit of its own, not for want of memory on the card.",
                                 r->framework, r->asked, f->device);
        show_limit(b, finding, r);
        vt_add_advice(b, finding, f->total_bytes ? f->free_bytes : 0,
                      r->frameworks & 1u << VT_FRAMEWORK_TORCH
                          ? "Raise torch.cuda.set_per_process_memory_fraction, or need less."
                      : r->frameworks == 1u << VT_FRAMEWORK_TENSORFLOW
                          ? "Raise the memory_limit of tf.config.set_logical_device_configuration, if it is set, or "
                            "need less; without it TensorFlow leaves a part of the card to the driver."
                          : "Raise the limit, or need less.");
        vt_advise_measures(b, finding, r);
    }
    vt_show_pools(b, finding, r);
    return finding;
}
