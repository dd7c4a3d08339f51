/*
 * Verdicts that name who holds the memory that was missing: other processes, libraries beside the framework, an arena that
 * was taken in advance; and if nobody stands out, what tensors are most.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/advice.h"
#include "analysis/category.h"
#include "analysis/modules.h"
#include "analysis/verdict.h"

/* Others that hold less than this share of the card are a desktop or a second context: the last straw perhaps, but not the
 * cause; then capacity is named beside them. */
#define OTHERS_DIVISOR 20

/* Without a list of processes, what nobody accounts for must be this share of the card: contexts and code are less. */
#define UNLISTED_DIVISOR 4

/* Memory beside the framework's from which it is a cause: max(1 GiB, 5 % of the card). A context with NCCL and cuBLAS takes
 * some hundred MiB in a healthy program. */
#define BESIDE_LEAST (1ull << 30)
#define BESIDE_DIVISOR 20

/* A category is the cause from 40 % of the tensors on if it is the largest: two equal ones are then both below. */
#define CATEGORY_PERCENT 40

static struct vt_finding *listed_others(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    const struct vt_device_row *d = r->device;
    char bytes[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES];
    struct vt_finding *finding;
    const char *name = "";
    uint64_t sum = 0, contexts;
    uint32_t i, same = vt_same_executable(b->model->reading, d, &name, &contexts);

    for (i = 0; i < d->other_count; i++)
        sum += d->others[i].bytes;
    if (!sum || sum < r->missing)
        return NULL;
    finding = vt_new_finding(
        b, VT_FAMILY_OTHER_PROCESS,
        sum >= r->total / OTHERS_DIVISOR || sum >= r->failure->reserved_bytes ? VT_LIKELY : VT_POSSIBLE,
        "%u other process%s held %s of the %s of GPU %d: without %s %s would have fit.", d->other_count,
        d->other_count == 1 ? "" : "es", vt_format_bytes(bytes, sum), vt_format_bytes(total, r->total),
        r->failure->device, d->other_count == 1 ? "it" : "them", r->asked);
    for (i = 0; i < d->other_count && i < VT_SHOWN_MAX; i++)
        vt_add_evidence(b, finding, "%s (pid %u) held %s.", d->others[i].name[0] ? d->others[i].name : "A process",
                        d->others[i].pid, vt_format_bytes(bytes, d->others[i].bytes));
    if (same && d->context_known && d->context)
        vt_add_evidence(b, finding, "%u of them run%s %s too, each with a CUDA context of its own: at most %s of it.",
                        same, same == 1 ? "s" : "", name, vt_format_bytes(bytes, contexts));
    vt_add_advice(b, finding, sum,
                  d->other_count == 1 ? "End it, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES)."
                                      : "End them, wait for them, or use another GPU (CUDA_VISIBLE_DEVICES).");
    if (same)
        vt_add_advice(b, finding, d->others[0].bytes,
                      "%u of them run%s %s, as this process does: give each rank or worker its own GPU "
                      "(torch.cuda.set_device) before its first use of CUDA, and end workers that were left over.",
                      same, same == 1 ? "s" : "", name);
    return finding;
}

/* Managed memory may lie on the card, and is not part of what the device is known to hold. */
static uint64_t managed_bytes(const struct vt_model *m)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == VT_LEVEL_DRIVER && m->totals[i].record->kind == VT_KIND_MANAGED)
            bytes += m->totals[i].live_bytes;
    return bytes;
}

/* Nobody said which processes there are; so who it is stays open. */
static struct vt_finding *unlisted_others(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    uint64_t used = r->failure->total_bytes - r->failure->free_bytes, own = r->failure->reserved_bytes, rest, managed;
    char bytes[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES], mine[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (!r->failure->total_bytes || r->failure->free_bytes > r->failure->total_bytes || used <= own)
        return NULL;
    rest = used - own;
    managed = r->then ? managed_bytes(r->then) : 0;
    rest -= managed < rest ? managed : rest;
    rest -= r->device && r->device->context < rest ? r->device->context : 0;
    if (rest < r->missing || rest <= own || rest < r->total / UNLISTED_DIVISOR)
        return NULL;
    finding = vt_new_finding(b, VT_FAMILY_OTHER_PROCESS, VT_LIKELY,
                             "%s of the %s of GPU %d were held by something else than this process's allocations (%s): "
                             "other processes, as far as is known.",
                             vt_format_bytes(bytes, rest), vt_format_bytes(total, r->total), r->failure->device,
                             vt_format_bytes(mine, own));
    vt_add_evidence(b, finding, "Which processes is unknown: NVML gave no list of them.");
    vt_add_advice(b, finding, rest, "See nvidia-smi for who it is; end or move it, or use another GPU.");
    return finding;
}

struct vt_finding *vt_verdict_others(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    if (!r->total || r->by_framework || r->failure->total_bytes == 0)
        return NULL;
    return r->device && r->device->others_known ? listed_others(b, r) : unlisted_others(b, r);
}

/* Memory of libraries, of code beside the framework, and of what nobody accounts for where others are known. */
struct vt_finding *vt_verdict_libraries(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    const struct vt_device_row *d = r->device;
    uint64_t beside = 0, least = r->total / BESIDE_DIVISOR > BESIDE_LEAST ? r->total / BESIDE_DIVISOR : BESIDE_LEAST;
    char bytes[VT_FORMAT_BYTES], one[VT_FORMAT_BYTES];
    struct vt_finding *finding;
    uint32_t i;

    if (!r->then || !d || !r->frameworks || !d->pool)
        return NULL;
    for (i = 0; i < d->library_count; i++)
        beside += d->libraries[i].bytes;
    beside += d->application;
    if (d->unaccounted_known && d->others_known)
        beside += d->unaccounted;
    if (beside < least || beside < r->missing)
        return NULL;
    finding = vt_new_finding(b, VT_FAMILY_OVERHEAD, VT_LIKELY, "%s of GPU %d were held beside %s's own memory.",
                             vt_format_bytes(bytes, beside), r->failure->device, r->framework);
    for (i = 0; i < d->library_count && i < VT_SHOWN_MAX; i++) {
        const struct vt_module *module = vt_reading_module(r->then->reading, d->libraries[i].module);

        vt_add_evidence(b, finding, "%s by %s.", vt_format_bytes(one, d->libraries[i].bytes),
                        module ? vt_basename(vt_reading_chars(r->then->reading, module->path)) : "a library");
    }
    if (d->application)
        vt_add_evidence(b, finding, "%s by code of the program and its extensions, through the driver.",
                        vt_format_bytes(one, d->application));
    if (d->unaccounted_known && d->others_known && d->unaccounted)
        vt_add_evidence(b, finding, "%s that no call of this process explains (driver, code, communicators).",
                        vt_format_bytes(one, d->unaccounted));
    for (i = 0; i < r->then->site_count && finding->site_count < VT_HOLDERS_MAX; i++) {
        const struct vt_site_row *row = &r->then->sites[i];

        if (vt_holds_memory(row) && !row->pool && row->record->device == r->failure->device &&
            vt_class_of(row->record->kind) == VT_CLASS_DEVICE)
            vt_add_site(b, finding, row->index);
    }
    vt_advise_libraries(b, finding, r);
    return finding;
}

/* The driver had no room left because a framework had taken its arena, and did not use it. */
struct vt_finding *vt_verdict_arena(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    uint64_t arena = r->then && !r->by_framework ? vt_frameworks_arena(r->then, r->failure->device) : 0, unused;
    char bytes[VT_FORMAT_BYTES], used[VT_FORMAT_BYTES];
    struct vt_finding *finding;

    if (!arena || !r->device || r->device->tensors >= arena || vt_takes_as_needed(b->model->reading, r->frameworks))
        return NULL;
    unused = arena - r->device->tensors;
    if (unused < r->missing)
        return NULL;
    finding = vt_new_finding(
        b, VT_FAMILY_CACHE, VT_LIKELY,
        "%s had taken an arena of %s of GPU %d in advance, with %s of %s in it: too little was left "
        "for %s.",
        r->framework, vt_format_bytes(bytes, arena), r->failure->device, vt_format_bytes(used, r->device->tensors),
        vt_frameworks_tensors(r->frameworks), r->asked);
    vt_add_advice(b, finding, unused, "%s",
                  r->frameworks & 1u << VT_FRAMEWORK_JAX
                      ? "Set XLA_PYTHON_CLIENT_PREALLOCATE=false, or a smaller XLA_PYTHON_CLIENT_MEM_FRACTION, before "
                        "JAX is imported."
                      : "Let memory grow (TF_FORCE_GPU_ALLOW_GROWTH=true), or set TF_GPU_ALLOCATOR=cuda_malloc_async.");
    return finding;
}

/* "activations hold most of it" where one category does; NULL: none, or it is not known. */
static const char *largest_part(const struct vt_device_row *d)
{
    static const char *const names[VT_PART_COUNT] = {[VT_PART_PARAMETERS] = "weights",
                                                     [VT_PART_GRADIENTS] = "gradients",
                                                     [VT_PART_OPTIMIZER] = "optimizer state",
                                                     [VT_PART_ACTIVATIONS] = "activations",
                                                     [VT_PART_INPUTS] = "inputs",
                                                     [VT_PART_OTHER] = NULL};
    unsigned part, best = 0;

    for (part = 1; part < VT_PART_COUNT; part++)
        if (d->tensor_part[part] > d->tensor_part[best])
            best = part;
    if (!d->tensors || d->tensor_part[best] < d->tensors / 100 * CATEGORY_PERCENT)
        return NULL;
    return names[best];
}

static uint64_t largest_bytes(const struct vt_device_row *d)
{
    uint64_t bytes = 0;
    unsigned part;

    for (part = 0; part < VT_PART_COUNT; part++)
        bytes = d->tensor_part[part] > bytes ? d->tensor_part[part] : bytes;
    return bytes;
}

/* "Of 10.00 GiB in tensors: 1.00 GiB parameters, 8.00 GiB activations." */
static void show_parts(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_device_row *d)
{
    static const char *const names[VT_PART_COUNT] = {"parameters",  "gradients", "optimizer state",
                                                     "activations", "inputs",    "others"};
    char text[VT_PART_COUNT * 48], bytes[VT_FORMAT_BYTES];
    size_t used = 0;
    unsigned part;

    for (part = 0; part < VT_PART_COUNT; part++)
        if (d->tensor_part[part])
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "",
                                     vt_format_bytes(bytes, d->tensor_part[part]), names[part]);
    if (used)
        vt_add_evidence(b, finding, "Of %s in tensors: %s.", vt_format_bytes(bytes, d->tensors), text);
}

struct vt_finding *vt_verdict_capacity(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    const struct vt_failure *f = r->failure;
    const char *part = r->then && r->device ? largest_part(r->device) : NULL;
    struct vt_finding *finding;

    if (part)
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY,
                                 "GPU %d was full: %s did not fit. Most of it were %s: %s of %s in tensors.", f->device,
                                 r->asked, part, vt_format_bytes(one, largest_bytes(r->device)),
                                 vt_format_bytes(two, r->device->tensors));
    else
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY, "GPU %d was full: %s did not fit.", f->device,
                                 r->asked);
    if (f->total_bytes && f->requested_bytes > f->free_bytes)
        vt_add_evidence(b, finding, "%s were free of %s: %s more were needed.", vt_format_bytes(one, f->free_bytes),
                        vt_format_bytes(two, r->total), vt_format_bytes(three, f->requested_bytes - f->free_bytes));
    if (part)
        show_parts(b, finding, r->device);
    vt_show_pools(b, finding, r);
    vt_advise_measures(b, finding, r);
    return finding;
}
