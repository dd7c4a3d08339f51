/*
 * The comparison as text: the sides, what they hold in all, by kind and by category, then place by place.
 */
#include "views/diff.h"

#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define SITES 20       /* places shown by default */
#define SHOWN_RANKS 16 /* ranks of a job, those that changed most */

const char *vt_diff_format(char *buffer, const uint64_t bytes[2])
{
    char text[VT_FORMAT_BYTES];
    uint64_t by = bytes[1] > bytes[0] ? bytes[1] - bytes[0] : bytes[0] - bytes[1];

    snprintf(buffer, VT_DIFF_CHANGE, "%s%s",
             bytes[1] > bytes[0]   ? "+"
             : bytes[1] < bytes[0] ? "-"
                                   : "",
             vt_format_bytes(text, by));
    return buffer;
}

static void heading(struct vt_out *out, const char *text)
{
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, text);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

static enum vt_colour colour_of(const uint64_t bytes[2])
{
    return bytes[1] > bytes[0] ? VT_RED : bytes[1] < bytes[0] ? VT_GREEN : VT_PLAIN;
}

/* "    256.00 MiB      1.25 GiB    +1.00 GiB", with the share where there was something before. */
static void write_bytes(struct vt_out *out, const uint64_t bytes[2])
{
    char before[VT_FORMAT_BYTES], after[VT_FORMAT_BYTES], change[VT_DIFF_CHANGE];

    vt_out_format(out, "%12s %12s ", vt_format_bytes(before, bytes[0]), vt_format_bytes(after, bytes[1]));
    vt_out_colour(out, colour_of(bytes));
    vt_out_format(out, "%13s", vt_diff_format(change, bytes));
    vt_out_colour(out, VT_PLAIN);
    if (bytes[0] && bytes[0] != bytes[1])
        vt_out_format(out, " (%+.1f %%)", ((double)bytes[1] - (double)bytes[0]) / (double)bytes[0] * 100);
    vt_out_text(out, "\n");
}

/* What is not in a recording would read as memory that is gone. */
static void write_gaps(struct vt_out *out, const char *label, const struct vt_diff_side *side)
{
    if (side->incomplete) {
        vt_out_colour(out, VT_RED);
        vt_out_format(out, "  %s is incomplete", label);
        vt_out_colour(out, VT_PLAIN);
        if (side->recordings > 1)
            vt_out_format(out, " (%u of its recordings)", side->incomplete);
        vt_out_format(out, ": %s are missing, its figures may be too low\n", side->missing);
    }
    if (side->unreadable)
        vt_out_format(out, "  %s may be incomplete: %u file%s there can not be read\n", label, side->unreadable,
                      side->unreadable == 1 ? "" : "s");
}

static void write_side(struct vt_out *out, const char *label, const struct vt_diff_side *side, const struct vt_diff *d)
{
    vt_out_format(out, "  %-7s ", label);
    vt_view_name(out, side->path, 0);
    vt_out_text(out, ": ");
    vt_view_name(out, side->program, 64);
    if (side->recordings > 1) {
        vt_out_format(out, ", %u recordings", side->recordings);
    } else {
        vt_out_format(out, " (pid %d on ", side->pid);
        vt_view_name(out, side->host, 64);
        if (side->rank >= 0)
            vt_out_format(out, ", rank %d", side->rank);
        vt_out_text(out, ")");
    }
    if (d->by == VT_DIFF_LIVE) {
        vt_out_text(out, ", moment ");
        vt_view_name(out, side->moment, 0);
    }
    if (side->steps)
        vt_out_format(out, ", %llu step%s", (unsigned long long)side->steps, side->steps == 1 ? "" : "s");
    vt_out_text(out, "\n");
    write_gaps(out, label, side);
}

static void write_header(struct vt_out *out, const struct vt_diff *d)
{
    static const char *const what[VT_DIFF_BY_COUNT] = {"what was live", "what was held at the peak",
                                                       "what was allocated in all"};
    const uint64_t device[2] = {d->side[0].device_bytes, d->side[1].device_bytes};
    const uint64_t tensor[2] = {d->side[0].tensor_bytes, d->side[1].tensor_bytes};

    vt_out_colour(out, VT_BOLD);
    vt_out_format(out, "GPU memory compared: %s%s", what[d->by], d->per_step ? ", per step" : "");
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
    write_side(out, "before", &d->side[0], d);
    write_side(out, "after", &d->side[1], d);
    vt_out_format(out, "\n  %-30s %12s %12s %13s\n", "", "before", "after", "change");
    vt_out_format(out, "  %-30s ", "GPU memory");
    write_bytes(out, device);
    if (tensor[0] || tensor[1]) {
        vt_out_format(out, "  %-30s ", "tensors");
        write_bytes(out, tensor);
    }
}

static void write_parts(struct vt_out *out, const struct vt_diff *d)
{
    static const char *const words[VT_DIFF_PARTS] = {
        [VT_PART_PARAMETERS] = "parameters",
        [VT_PART_GRADIENTS] = "gradients",
        [VT_PART_OPTIMIZER] = "optimizer state",
        [VT_PART_ACTIVATIONS] = "activations",
        [VT_PART_INPUTS] = "inputs",
        [VT_PART_OTHER] = "other tensors",
        [VT_DIFF_CACHED] = "cached but unused",
        [VT_DIFF_LIBRARIES] = "libraries",
        [VT_DIFF_APPLICATION] = "application",
    };
    unsigned i;

    if (!d->side[0].parts_known || !d->side[1].parts_known)
        return;
    heading(out, "What it is used for");
    for (i = 0; i < VT_DIFF_PARTS; i++) {
        const uint64_t bytes[2] = {d->side[0].part[i], d->side[1].part[i]};

        if (!bytes[0] && !bytes[1])
            continue;
        vt_out_format(out, "  %-30s ", words[i]);
        write_bytes(out, bytes);
    }
}

static void write_where(struct vt_out *out, int device)
{
    if (device == VT_SPOT_ANY)
        vt_out_text(out, "GPUs");
    else
        vt_view_device(out, device);
}

static void write_totals(struct vt_out *out, const struct vt_diff *d)
{
    char label[32];
    uint32_t i;

    heading(out, "Totals");
    for (i = 0; i < d->total_count; i++) {
        const struct vt_diff_total *t = &d->totals[i];

        snprintf(label, sizeof label,
                 t->device == VT_SPOT_ANY    ? "GPUs"
                 : t->device == VT_SPOT_HOST ? "host"
                                             : "GPU %d",
                 t->device);
        vt_out_format(out, "  %-6s %-15s %-7s ", vt_level_name(t->level), vt_kind_name(t->kind), label);
        write_bytes(out, t->bytes);
    }
    if (!d->total_count)
        vt_out_text(out, "  nothing was allocated\n");
}

static void write_ranks(struct vt_out *out, const struct vt_diff *d)
{
    uint32_t i, shown = 0, changed = 0;

    if (!d->rank_count)
        return;
    heading(out, "Ranks");
    for (i = 0; i < d->rank_count; i++) {
        const struct vt_diff_rank *r = &d->ranks[i];
        bool same = r->present[0] && r->present[1] && r->bytes[0] == r->bytes[1];

        changed += !same;
        if (same || shown == SHOWN_RANKS)
            continue;
        shown++;
        vt_out_format(out, "  rank %-25d ", r->rank);
        write_bytes(out, r->bytes);
        if (!r->present[0] || !r->present[1])
            vt_out_format(out, "      only %s\n", r->present[0] ? "before" : "after");
    }
    if (changed > shown)
        vt_out_format(out, "  %u more ranks changed\n", changed - shown);
    if (changed < d->rank_count)
        vt_out_format(out, "  %u rank%s held the same\n", d->rank_count - changed,
                      d->rank_count - changed == 1 ? "" : "s");
}

static const struct vt_spot *place_of(const struct vt_diff *d, const struct vt_diff_site *site, unsigned side)
{
    return site->place[side] == VT_NONE ? NULL : vt_spots_at(d->places, site->place[side]);
}

static void write_moved(struct vt_out *out, const struct vt_spot *before)
{
    char text[512];

    vt_out_text(out, "; moved, was ");
    vt_view_name(out, vt_format_place(text, sizeof text, vt_trace_user(&before->trace)), 120);
}

static void write_other_callers(struct vt_out *out, const struct vt_diff *d, const struct vt_diff_site *site)
{
    char name[VT_SPOT_NAME];

    vt_out_text(out, "; called from elsewhere, was ");
    vt_view_name(out, vt_spot_name(name, d->places, site->place[0]), 0);
}

static void write_site(struct vt_out *out, const struct vt_diff *d, const struct vt_diff_view *view,
                       const struct vt_diff_site *site)
{
    const struct vt_spot *before = place_of(d, site, 0), *after = place_of(d, site, 1), *p = after ? after : before;
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], change[VT_DIFF_CHANGE], name[VT_SPOT_NAME];

    vt_out_text(out, "  ");
    vt_out_colour(out, colour_of(site->bytes));
    vt_out_format(out, "%13s", vt_diff_format(change, site->bytes));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, "  %-9s ", vt_diff_word(site->bytes));
    vt_view_name(out, vt_spot_name(name, d->places, site->place[after != NULL]), 0);
    vt_view_leaf(out, &p->trace);
    vt_out_format(out, "\n      %s in %llu -> %s in %llu; %s%s on ", vt_format_bytes(one, site->bytes[0]),
                  (unsigned long long)site->count[0], vt_format_bytes(two, site->bytes[1]),
                  (unsigned long long)site->count[1], vt_kind_name(p->kind),
                  p->level == VT_LEVEL_TENSOR ? " (tensor)" : "");
    write_where(out, p->device);
    vt_out_text(out, " by ");
    vt_view_name(out, *p->api ? p->api : "?", 64);
    if (site->moved)
        write_moved(out, before);
    if (site->other_callers)
        write_other_callers(out, d, site);
    vt_out_text(out, "\n");
    if (view->stacks)
        vt_view_frames(out, "        ", &p->trace, p->depth, view->all_frames);
}

static void write_counts(struct vt_out *out, const struct vt_diff *d)
{
    static const char *const words[] = {"grew", "shrank", "appeared", "vanished", "unchanged"};
    uint32_t counts[5] = {0}, moved = 0, called = 0, i;
    unsigned w;

    for (i = 0; i < d->site_count; i++) {
        if (!d->sites[i].bytes[0] && !d->sites[i].bytes[1])
            continue; /* of neither side */
        for (w = 0; strcmp(words[w], vt_diff_word(d->sites[i].bytes)) != 0; w++)
            ;
        counts[w]++;
        moved += d->sites[i].moved;
        called += d->sites[i].other_callers;
    }
    vt_out_text(out, "  ");
    for (w = 0; w < 5; w++)
        vt_out_format(out, "%s%u %s", w ? ", " : "", counts[w], words[w]);
    if (moved)
        vt_out_format(out, "; %u moved to other lines", moved);
    if (called)
        vt_out_format(out, "; %u called from elsewhere", called);
    vt_out_text(out, "\n");
}

static void write_sites(struct vt_out *out, const struct vt_diff *d, const struct vt_diff_view *view)
{
    const uint64_t rest[2] = {d->side[0].rest, d->side[1].rest};
    uint32_t most = view->top ? view->top : SITES, i, changed = 0;
    char text[VT_DIFF_CHANGE];

    heading(out, "Places");
    write_counts(out, d);
    for (i = 0; i < d->site_count; i++)
        changed += d->sites[i].bytes[0] != d->sites[i].bytes[1];
    for (i = 0; i < changed && i < most; i++)
        write_site(out, d, view, &d->sites[i]);
    if (changed > most)
        vt_out_format(out, "  and %u more that changed (--top N shows more)\n", changed - most);
    if (rest[0] || rest[1])
        vt_out_format(out, "  %13s  in smaller places, which were not compared one by one\n",
                      vt_diff_format(text, rest));
}

int vt_diff_text_write(const struct vt_diff *d, const struct vt_diff_view *view)
{
    struct vt_out out;

    vt_out_open(&out, view->fd, view->colour);
    write_header(&out, d);
    write_parts(&out, d);
    write_totals(&out, d);
    write_ranks(&out, d);
    write_sites(&out, d, view);
    return vt_out_close(&out);
}
