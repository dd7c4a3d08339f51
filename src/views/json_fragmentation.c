/*
 * The JSON of what frameworks do with memory: tensors in the account, the figures of their segments, the segments and
 * blocks themselves, and what their allocators say. docs/fragmentation.md explains the keys.
 */
#include "analysis/frameworks.h"
#include "analysis/modules.h"
#include "views/json.h"

#define PINNING_SITES 256 /* the rest pins little */

/* The parts of a GPU's account that tensors hold. */
json_t *vt_json_tensors(const struct vt_device_row *d)
{
    static const char *const names[VT_PART_COUNT] = {"parameters",  "gradients", "optimizer",
                                                     "activations", "inputs",    "other"};
    json_t *object = json_object();
    unsigned part;

    for (part = 0; part < VT_PART_COUNT; part++)
        set(object, names[part], number_if(d->tensors_known, d->tensor_part[part]));
    return object;
}

static json_t *fit(enum vt_fit fit)
{
    return fit == VT_FIT_UNKNOWN ? json_null() : json_boolean(fit == VT_FIT_YES);
}

static json_t *share(bool known, double part, double whole)
{
    return known && whole > 0 ? json_real(part / whole) : json_null();
}

/* Five definitions that tools use, side by side. */
static json_t *measures(const struct vt_pools *p)
{
    json_t *object = json_object();

    set(object, "rounding_bytes", number_if(p->rounded, p->rounding));
    set(object, "gap_bytes", number_if(p->known, p->free));
    set(object, "gap_squares", p->known && p->reserved ? json_real(p->gap_squares) : json_null());
    set(object, "beyond_largest", share(p->known, (double)(p->free - p->largest_free), (double)p->free));
    set(object, "unused_share", share(p->reserved >= p->allocated, (double)p->free, (double)p->reserved));
    set(object, "inactive_split_bytes", number_if(p->known, p->split_free));
    return object;
}

static json_t *pinning_sites(const struct vt_fragmentation *f, const struct vt_pools *p)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; p->known && i < f->pinning_count && json_array_size(list) < PINNING_SITES; i++)
        if (f->pinnings[i].device == p->device)
            json_array_append_new(list, json_integer(f->pinnings[i].site));
    return list;
}

static json_t *newest_oom(const struct vt_oom_fit *oom)
{
    json_t *object;

    if (!oom->failure)
        return json_null();
    object = json_object();
    set(object, "time_s", seconds(oom->failure->last_ns));
    set(object, "requested_bytes", number(oom->failure->requested_bytes));
    set(object, "free_in_segments", number_if(oom->known, oom->usable));
    set(object, "largest_free_block", number_if(oom->known, oom->largest));
    return object;
}

json_t *vt_json_fragmentation(const struct vt_analysis *a, uint32_t index)
{
    const struct vt_pools *p = &a->model.fragmentation.pools[index];
    bool sums = p->reserved || p->allocated || p->known, apart = p->known && p->private_known;
    json_t *object = json_object();
    char name[VT_FRAMEWORKS_NAME];
    unsigned frameworks = vt_frameworks_on(&a->model, p->device);
    struct vt_oom_fit oom;

    if (vt_fragmentation_oom(&oom, &a->model, p->device))
        return NULL;
    set(object, "device", json_integer(p->device));
    set(object, "framework", frameworks ? json_string(vt_frameworks_name(name, frameworks)) : json_null());
    set(object, "reserved_bytes", number_if(sums, p->reserved));
    set(object, "allocated_bytes", number_if(sums, p->allocated));
    set(object, "free_in_segments", number_if(sums, p->free));
    set(object, "largest_free_block", number_if(p->known, p->largest_free));
    set(object, "segments", number_if(p->known, p->segments));
    set(object, "releasable_bytes", number_if(p->known, p->releasable));
    set(object, "pinned_segments", number_if(p->known, p->pinned_segments));
    set(object, "pinned_bytes", number_if(p->known, p->pinned_bytes));
    set(object, "pinning_sites", pinning_sites(&a->model.fragmentation, p));
    set(object, "private_pool_bytes", number_if(apart, p->private_bytes));
    set(object, "private_pool_free_bytes", number_if(apart, p->private_free));
    set(object, "private_pools", number_if(apart, p->private_pools));
    set(object, "outside_bytes", number_if(p->known, p->outside));
    set(object, "would_fit_if_contiguous", fit(oom.failure ? oom.fit : VT_FIT_UNKNOWN));
    set(object, "oom", newest_oom(&oom));
    set(object, "measures", measures(p));
    return object;
}

static json_t *segment(const struct vt_fragmentation *f, const struct vt_segment *s)
{
    json_t *object = json_object(), *blocks = json_array(), *block;
    uint32_t i;

    for (i = 0; i < s->blocks; i++) {
        const struct vt_block *b = &f->blocks[s->first_block + i];

        block = json_array();
        json_array_append_new(block, number(b->address));
        json_array_append_new(block, number(b->bytes));
        json_array_append_new(block, number_if(b->site != VT_NONE, b->site));
        json_array_append_new(blocks, block);
    }
    set(object, "address", number(s->address));
    set(object, "bytes", number(s->bytes));
    set(object, "kind", json_string(vt_kind_name(s->kind)));
    set(object, "site", json_integer(s->site));
    set(object, "expandable", json_boolean(s->kind == VT_KIND_VMM_MAPPED));
    set(object, "private", json_boolean(s->capture != 0));
    set(object, "pinned", json_boolean(s->pinned));
    set(object, "releasable_bytes", number(s->releasable));
    set(object, "blocks", blocks);
    return object;
}

json_t *vt_json_fragmentation_with_blocks(const struct vt_analysis *a, uint32_t index)
{
    const struct vt_fragmentation *f = &a->model.fragmentation;
    json_t *object = vt_json_fragmentation(a, index), *list = json_array();
    uint32_t i;

    for (i = 0; f->pools[index].known && i < f->segment_count; i++)
        if (f->segments[i].device == f->pools[index].device)
            json_array_append_new(list, segment(f, &f->segments[i]));
    set(object, "map", f->pools[index].known ? list : json_null());
    if (!f->pools[index].known)
        json_decref(list);
    return object;
}

json_t *vt_json_allocator(const struct vt_analysis *a, uint32_t index)
{
    const struct vt_allocator *allocator = vt_reading_allocator(a->model.reading, index);
    json_t *object = json_object();
    char name[VT_FRAMEWORKS_NAME];

    if (!allocator) { /* outside of a damaged file */
        json_decref(object);
        return json_null();
    }
    set(object, "library", vt_json_chars(vt_basename(vt_reading_chars(a->model.reading, allocator->name))));
    set(object, "framework",
        json_string(vt_frameworks_name(name, allocator->framework < 8 ? 1u << allocator->framework : 0)));
    set(object, "device", json_integer(allocator->device));
    set(object, "reports", number(allocator->reports));
    set(object, "allocated_bytes", number(allocator->allocated_bytes));
    set(object, "reserved_bytes", number(allocator->reserved_bytes));
    set(object, "reserved_peak_bytes", number(allocator->reserved_peak_bytes));
    set(object, "sum_bytes", number(allocator->sum_bytes));
    set(object, "base_bytes", number(allocator->base_bytes));
    set(object, "mismatches", number(allocator->mismatches));
    set(object, "worst_mismatch_bytes", number(allocator->worst_bytes));
    set(object, "unknown_frees", number(allocator->unknown_frees));
    set(object, "unknown_bytes", number(allocator->unknown_bytes));
    set(object, "ooms", number(allocator->ooms));
    set(object, "limit_bytes", number_if(allocator->limit_bytes, allocator->limit_bytes));
    set(object, "largest_free_bytes", number_if(allocator->largest_free_bytes, allocator->largest_free_bytes));
    set(object, "limit_bytes", number_if(allocator->limit_bytes, allocator->limit_bytes));
    set(object, "largest_free_bytes", number_if(allocator->largest_free_bytes, allocator->largest_free_bytes));
    set(object, "seen", json_boolean(!(allocator->flags & VT_ALLOCATOR_UNSEEN)));
    return object;
}
