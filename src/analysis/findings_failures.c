/*
 * Findings from failed calls: why an allocation failed (capacity, limit), and frees that were wrong (misuse).
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define VERDICTS_MAX 2 /* more than two explanations explain nothing */
#define SITES_MAX 64
#define HOLDERS_MAX 8 /* sites that a capacity finding names */

static bool is_host_kind(unsigned kind)
{
    return kind == VT_KIND_PINNED || kind == VT_KIND_REGISTERED;
}

/* The device of a failure, or NULL. */
static const struct vt_device_row *device_of(const struct vt_model *m, const struct vt_failure *failure)
{
    uint32_t i;

    for (i = 0; i < m->device_count; i++)
        if (m->devices[i].record->ordinal == failure->device)
            return &m->devices[i];
    return NULL;
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

/* Device memory of somebody in particular: a framework's driver calls are its pool, which its tensors are in. */
static bool is_holder(const struct vt_reading *r, const struct vt_site *site, const struct vt_failure *failure)
{
    if (site->device != failure->device || !vt_kind_is_memory(site->kind) ||
        vt_class_of((enum vt_kind)site->kind) != VT_CLASS_DEVICE)
        return false;
    return site->level == VT_LEVEL_TENSOR ||
           vt_module_class_at(r, vt_owner_module(r, site->stack)) != VT_MODULE_FRAMEWORK;
}

/* The largest sites at the moment that was taken at the failure; returns how many. */
static uint32_t largest_at_failure(const struct vt_reading *r, const struct vt_failure *failure,
                                   struct vt_moment_site *largest)
{
    const struct vt_moment *moment = vt_reading_moment(r, failure->moment);
    const struct vt_moment_site *entry;
    const struct vt_site *site;
    uint32_t count = 0, at;
    uint64_t i;

    for (i = 0; moment && i < moment->sites; i++) {
        if (!(entry = vt_reading_moment_site(r, moment->first_site + i)))
            break;
        if (!entry->live_bytes || (count == HOLDERS_MAX && entry->live_bytes <= largest[count - 1].live_bytes) ||
            !(site = vt_reading_site(r, entry->site)) || !is_holder(r, site, failure))
            continue;
        count += count < HOLDERS_MAX;
        for (at = count - 1; at && largest[at - 1].live_bytes < entry->live_bytes; at--)
            largest[at] = largest[at - 1];
        largest[at] = *entry;
    }
    return count;
}

/* Names who held the memory when the request failed. */
static void add_largest(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *failure)
{
    struct vt_moment_site largest[HOLDERS_MAX];
    uint32_t count = largest_at_failure(b->model->reading, failure, largest), i;
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES];

    for (i = 0; i < count; i++) {
        const struct vt_site *site = vt_reading_site(b->model->reading, largest[i].site);

        if (i < 3)
            vt_add_evidence(b, finding, "%s in %llu held by %s.", vt_format_bytes(bytes, largest[i].live_bytes),
                            (unsigned long long)largest[i].live_count,
                            vt_place_of(b, place, site->stack, site->python_stack));
        vt_add_site(b, finding, largest[i].site);
    }
}

/* An out-of-memory failure, the first of its group, becomes one finding. */
static void explain_oom(struct vt_finding_builder *b, const struct vt_failure *f, const struct vt_oom_group *group)
{
    const struct vt_device_row *device = device_of(b->model, f);
    uint64_t total = f->total_bytes ? f->total_bytes : device ? device->record->total_bytes : 0;
    char place[VT_PLACE_BYTES], asked[VT_FORMAT_BYTES], free_text[VT_FORMAT_BYTES], total_text[VT_FORMAT_BYTES];
    char range[VT_FORMAT_RANGE];
    struct vt_finding *finding;

    vt_format_bytes(asked, f->requested_bytes);
    vt_format_bytes(free_text, f->free_bytes);
    vt_format_bytes(total_text, total);
    vt_place_of(b, place, f->stack, f->python_stack);
    if (is_host_kind(f->memory_kind)) {
        finding = vt_new_finding(
            b, VT_FAMILY_LIMIT, VT_LIKELY,
            "%s of page-locked host memory were refused: the host's memory or a limit, not the GPU's.", asked);
        vt_add_advice(b, finding, 0, "Check the host's free memory, the container's memory limit and ulimit -l.");
    } else if (total && f->requested_bytes > total) {
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_CERTAIN,
                                 "A request of %s can never fit: GPU %d has %s in total.", asked, f->device,
                                 total_text);
        vt_add_advice(b, finding, 0, "Check the computed size (a wrong shape or an overflow?), or split the work.");
    } else if (f->total_bytes && f->free_bytes >= f->requested_bytes) {
        finding = vt_new_finding(b, VT_FAMILY_LIMIT, VT_POSSIBLE,
                                 "%s were refused although %s were free: something other than capacity set a limit.",
                                 asked, free_text);
        vt_add_advice(b, finding, 0,
                      "Look for a memory fraction set by the framework, MPS or MIG limits, and fragmentation.");
    } else {
        finding = vt_new_finding(b, VT_FAMILY_CAPACITY, VT_LIKELY, "GPU %d was full: %s did not fit.", f->device,
                                 asked);
        if (f->total_bytes) {
            vt_add_evidence(b, finding, "%s were free of %s.", free_text, total_text);
            vt_format_bytes(free_text, f->requested_bytes - f->free_bytes);
            vt_add_advice(b, finding, 0, "At least %s more must be free; the largest holders are listed below.",
                          free_text);
        }
    }
    vt_add_evidence(b, finding, "%s were requested by %s, %llu time%s.",
                    vt_format_range(range, group->low, group->high), place, (unsigned long long)group->times,
                    group->times == 1 ? "" : "s");
    if (is_host_kind(f->memory_kind))
        return;
    add_usage(b, finding, f);
    add_largest(b, finding, f);
}

static void find_ooms(struct vt_finding_builder *b)
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

/* A free that came after the driver or the runtime had shut down is harmless: everything was given back already. */
static bool is_late_at_exit(const struct vt_failure *f)
{
    return f->kind == VT_FAILURE_FAILED_FREE && f->code == 4;
}

static const struct {
    uint32_t kind;
    const char *what, *advice;
} misuses[] = {
    {VT_FAILURE_DOUBLE_FREE, "memory that had been freed already",
     "Let one owner free it: copies of a handle class need a copy constructor, or must be forbidden."},
    {VT_FAILURE_INTERIOR_POINTER, "a pointer into the middle of an allocation",
     "Keep the pointer that the allocation returned, and free that."},
    {VT_FAILURE_WRONG_API, "memory of another kind than the function is for",
     "Use the free function that belongs to the allocating one (cudaFreeHost for cudaMallocHost, ...)."},
    {VT_FAILURE_UNKNOWN_POINTER, "a pointer that CUDA did not allocate",
     "Check where the pointer comes from: host memory, an uninitialized variable, or another process's."},
    {VT_FAILURE_FAILED_FREE, "memory that was gone already, or could not be freed",
     "Free before the context is reset or destroyed, and check the result of cudaFree."},
};

/* Sites that allocated what was freed wrongly. */
static void name_sites(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *f)
{
    uint32_t i;

    if (!f->allocated_at && !f->allocated_python)
        return;
    for (i = 0; i < b->model->site_count && finding->site_count < SITES_MAX; i++) {
        const struct vt_site *site = b->model->sites[i].record;

        if (site->stack == f->allocated_at && (!f->allocated_python || site->python_stack == f->allocated_python))
            vt_add_site(b, finding, b->model->sites[i].index);
    }
}

static void describe_misuse(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *f)
{
    char where[VT_PLACE_BYTES], made[VT_PLACE_BYTES], freed[VT_PLACE_BYTES];
    const char *code = vt_code_name(f->code, vt_reading_chars(b->model->reading, f->api));

    vt_place_of(b, where, f->stack, f->python_stack);
    made[0] = freed[0] = '\0';
    if (f->allocated_at || f->allocated_python)
        vt_place_of(b, made, f->allocated_at, f->allocated_python);
    if (f->freed_at || f->freed_python)
        vt_place_of(b, freed, f->freed_at, f->freed_python);
    vt_add_evidence(b, finding, "%llu time%s in %s: pointer 0x%llx, result %d%s%s%s%s%s%s.",
                    (unsigned long long)f->count, f->count == 1 ? "" : "s", where, (unsigned long long)f->pointer,
                    f->code, code ? " " : "", code ? code : "", *made ? ", allocated by " : "", made,
                    *freed ? ", freed before by " : "", freed);
    name_sites(b, finding, f);
}

static void find_misuses(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    size_t k;
    uint32_t i;

    for (k = 0; k < sizeof misuses / sizeof misuses[0]; k++) {
        struct vt_finding *finding = NULL;
        uint64_t times = 0;
        bool harmless = true;

        for (i = 0; i < m->failure_count; i++)
            if (m->failures[i].record->kind == misuses[k].kind) {
                times += m->failures[i].record->count;
                harmless &= is_late_at_exit(m->failures[i].record);
            }
        if (!times)
            continue;
        finding = vt_new_finding(b, VT_FAMILY_MISUSE, harmless ? VT_POSSIBLE : VT_CERTAIN, "%llu free%s of %s.",
                                 (unsigned long long)times, times == 1 ? "" : "s", misuses[k].what);
        for (i = 0; i < m->failure_count && finding->evidence_count < 8; i++)
            if (m->failures[i].record->kind == misuses[k].kind)
                describe_misuse(b, finding, m->failures[i].record);
        vt_add_advice(b, finding, 0, "%s", misuses[k].advice);
    }
}

void vt_find_failures(struct vt_finding_builder *b)
{
    find_ooms(b);
    find_misuses(b);
}
