/*
 * What frameworks do with the memory that they took: the lines of a GPU's account, and why memory that is reserved and
 * unused can't be had.
 */
#include "analysis/format.h"
#include "analysis/frameworks.h"
#include "views/common.h"

#define UNUSED_WORTH (256ull << 20) /* unused memory in segments that is worth a section, */
#define UNUSED_SHARE 5              /* if it is this share of them and more */
#define PINNING_SHOWN 5

bool vt_view_is_shown(const struct vt_analysis *a, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;

    if (site->level == VT_LEVEL_TENSOR || site->kind == VT_KIND_IMPORTED)
        return true;
    return vt_kind_is_memory(site->kind) && !(row->pool && vt_fragmentation_of(&a->model.fragmentation, site->device));
}

static void line(struct vt_out *out, uint64_t bytes, const char *label)
{
    char text[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s  %s\n", vt_format_bytes(text, bytes), label);
}

/* "PyTorch: reserved 5.00 GiB, in tensors 3.10 GiB, cached but unused 1.90 GiB" */
static void write_reserved(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *d)
{
    unsigned frameworks = vt_frameworks_on(m, d->record->ordinal);
    uint64_t arena = vt_frameworks_arena(m, d->record->ordinal),
             unused = d->pool > d->tensors ? d->pool - d->tensors : 0;
    const char *tensors = vt_frameworks_tensors(frameworks);
    char name[VT_FRAMEWORKS_NAME], one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];

    vt_frameworks_name(name, frameworks);
    if (arena)
        vt_out_format(out, "  %s: one arena of %s taken at the start (preallocation), of which %s are in use by %s\n",
                      name, vt_format_bytes(one, arena), vt_format_bytes(two, d->tensors), tensors);
    else
        vt_out_format(out, "  %s: reserved %s, in %s %s, cached but unused %s\n", name, vt_format_bytes(one, d->pool),
                      tensors, vt_format_bytes(two, d->tensors), vt_format_bytes(three, unused));
}

static const char *const names[VT_PART_COUNT] = {"parameters",  "gradients", "optimizer state",
                                                 "activations", "inputs",    "other tensors"};

void vt_view_account(struct vt_out *out, const struct vt_device_row *d)
{
    bool pool = d->tensors_known && (d->pool || d->tensors);
    unsigned part;

    for (part = 0; pool && part < VT_PART_COUNT; part++)
        if (d->tensor_part[part])
            line(out, d->tensor_part[part], names[part]);
    if (d->cached_unused)
        line(out, d->cached_unused, "cached but unused");
    if (!pool)
        line(out, d->application, "application and frameworks");
    else if (d->application)
        line(out, d->application, "application");
}

unsigned vt_view_reserved(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *d)
{
    if (!d->tensors_known || !d->pool)
        return 0;
    write_reserved(out, m, d);
    return 1;
}

uint64_t vt_view_cached(struct vt_out *out, const struct vt_analysis *a)
{
    const struct vt_model *m = &a->model;
    unsigned frameworks = 0;
    uint64_t unused = 0;
    uint32_t i;
    char name[VT_FRAMEWORKS_NAME], bytes[VT_FORMAT_BYTES];

    for (i = 0; i < m->device_count; i++) {
        const struct vt_device_row *d = &m->devices[i];

        if (!d->tensors_known || d->pool <= d->tensors)
            continue;
        unused += d->pool - d->tensors;
        frameworks |= vt_frameworks_on(m, d->record->ordinal);
    }
    if (unused)
        vt_out_format(out, "  %12s cached but unused by %s\n", vt_format_bytes(bytes, unused),
                      vt_frameworks_name(name, frameworks));
    return unused;
}

static bool is_worth_a_section(const struct vt_model *m, const struct vt_pools *p, const struct vt_oom_fit *oom)
{
    if (!p->reserved && !p->allocated)
        return false;
    if (oom->failure)
        return true;
    return p->free >= UNUSED_WORTH && p->free >= p->reserved / UNUSED_SHARE && !vt_frameworks_arena(m, p->device);
}

/* What lies beside several places is in the figure of each. */
static uint64_t sum_of_pinnings(const struct vt_fragmentation *f, const struct vt_pools *p)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < f->pinning_count; i++)
        if (f->pinnings[i].device == p->device)
            sum += f->pinnings[i].pinned_bytes;
    return sum;
}

static void write_pinnings(struct vt_out *out, const struct vt_analysis *a, const struct vt_pools *p)
{
    const struct vt_fragmentation *f = &a->model.fragmentation;
    char pinned[VT_FORMAT_BYTES], bytes[VT_FORMAT_BYTES];
    unsigned shown = 0, left = 0;
    struct vt_trace trace;
    uint32_t i;

    if (!p->pinned_segments)
        return;
    vt_out_format(out, "    %llu segment%s kept by live tensors, with %s free between them%s:\n",
                  (unsigned long long)p->pinned_segments, p->pinned_segments == 1 ? " is" : "s are",
                  vt_format_bytes(pinned, p->pinned_bytes),
                  sum_of_pinnings(f, p) > p->pinned_bytes ? " (a segment with several neighbours counts for each)"
                                                          : "");
    for (i = 0; i < f->pinning_count; i++) {
        const struct vt_pinning *pinning = &f->pinnings[i];
        const struct vt_site *site = vt_reading_site(a->model.reading, pinning->site);

        if (pinning->device != p->device || !site)
            continue;
        if (shown++ >= PINNING_SHOWN) {
            left++;
            continue;
        }
        vt_view_trace(a, &trace, site->stack, site->python_stack);
        vt_out_format(out, "      %s free beside %llu block%s (%s) of ", vt_format_bytes(pinned, pinning->pinned_bytes),
                      (unsigned long long)pinning->blocks, pinning->blocks == 1 ? "" : "s",
                      vt_format_bytes(bytes, pinning->live_bytes));
        vt_view_place(out, vt_trace_user(&trace));
        vt_out_format(out, " #%u\n", pinning->site);
        vt_trace_free(&trace);
    }
    if (left)
        vt_out_format(out, "      and %u more places\n", left);
}

static void write_free(struct vt_out *out, const struct vt_analysis *a, const struct vt_pools *p, unsigned frameworks)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES];
    uint64_t between = p->free - p->releasable - p->private_free;

    if (p->releasable)
        vt_out_format(out, "    %s could be given back at once%s\n", vt_format_bytes(one, p->releasable),
                      frameworks & 1u << VT_FRAMEWORK_TORCH ? " (torch.cuda.empty_cache())" : "");
    if (p->private_bytes)
        vt_out_format(out, "    %s in %llu private pool%s of CUDA graphs, %s of it unused\n",
                      vt_format_bytes(one, p->private_bytes), (unsigned long long)p->private_pools,
                      p->private_pools == 1 ? "" : "s", vt_format_bytes(two, p->private_free));
    if (between && p->free >= p->releasable + p->private_free)
        vt_out_format(out, "    %s between live %s, in pieces of at most %s\n", vt_format_bytes(one, between),
                      vt_frameworks_tensors(frameworks), vt_format_bytes(two, p->largest_between));
    if (p->outside)
        vt_out_format(out, "    %s of %s lie in no segment that was seen\n", vt_format_bytes(one, p->outside),
                      vt_frameworks_tensors(frameworks));
    write_pinnings(out, a, p);
}

static void write_oom(struct vt_out *out, const struct vt_oom_fit *oom)
{
    char asked[VT_FORMAT_BYTES], usable[VT_FORMAT_BYTES], largest[VT_FORMAT_BYTES];

    if (!oom->failure || !oom->known)
        return;
    vt_out_format(out,
                  "    the newest request that failed, %s, could have used %s in segments, the largest piece %s%s\n",
                  vt_format_bytes(asked, oom->failure->requested_bytes), vt_format_bytes(usable, oom->usable),
                  vt_format_bytes(largest, oom->largest),
                  oom->fit == VT_FIT_YES  ? ": in one piece, it would have fit"
                  : oom->fit == VT_FIT_NO ? ": not enough, even in one piece"
                                          : "");
}

static void write_pools(struct vt_out *out, const struct vt_analysis *a, const struct vt_pools *p,
                        const struct vt_oom_fit *oom)
{
    char name[VT_FRAMEWORKS_NAME], one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];
    unsigned frameworks = vt_frameworks_on(&a->model, p->device);

    vt_frameworks_name(name, frameworks);
    vt_out_format(out, "  GPU %d: %s has reserved %s, %s of it in %s, %s free", p->device, name,
                  vt_format_bytes(one, p->reserved), vt_format_bytes(two, p->allocated),
                  vt_frameworks_tensors(frameworks), vt_format_bytes(three, p->free));
    if (!p->known) {
        vt_out_text(out, "; what lies where is not known at this moment\n");
        write_oom(out, oom);
        return;
    }
    vt_out_format(out, " (%llu segment%s)\n", (unsigned long long)p->segments, p->segments == 1 ? "" : "s");
    write_free(out, a, p, frameworks);
    write_oom(out, oom);
}

void vt_view_fragmentation(struct vt_out *out, const struct vt_analysis *a)
{
    const struct vt_fragmentation *f = &a->model.fragmentation;
    struct vt_oom_fit oom;
    bool any = false;
    uint32_t i;

    for (i = 0; i < f->pool_count; i++) {
        if (vt_fragmentation_oom(&oom, &a->model, f->pools[i].device) ||
            !is_worth_a_section(&a->model, &f->pools[i], &oom))
            continue;
        if (!any) {
            vt_out_text(out, "\n");
            vt_out_colour(out, VT_BOLD);
            vt_out_text(out, "Fragmentation");
            vt_out_colour(out, VT_PLAIN);
            vt_out_text(out, "\n");
        }
        any = true;
        write_pools(out, a, &f->pools[i], &oom);
    }
}

void vt_view_tensors_at_peak(struct vt_out *out, const struct vt_device_row *d)
{
    char text[VT_FORMAT_BYTES];
    unsigned part, best;
    uint32_t shown = 0; /* a bit for each part */

    vt_out_format(out, "  tensors at their highest point: %s", vt_format_bytes(text, d->tensors));
    while (d->tensor_part[VT_PART_OTHER] < d->tensors) { /* else nothing is known of what they were */
        for (best = VT_PART_COUNT, part = 0; part < VT_PART_COUNT; part++)
            if (!(shown & 1u << part) && d->tensor_part[part] &&
                (best == VT_PART_COUNT || d->tensor_part[part] > d->tensor_part[best]))
                best = part;
        if (best == VT_PART_COUNT)
            break;
        vt_out_format(out, "%s%s %s", shown ? ", " : "; ", names[best], vt_format_bytes(text, d->tensor_part[best]));
        shown |= 1u << best;
    }
    vt_out_text(out, "\n");
}
