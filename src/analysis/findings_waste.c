/*
 * Memory that nobody asked for: rows that are padded to the pitch, tiny allocations that are rounded up, and workspaces that
 * libraries keep for each thread and stream. Possible findings, but for padding that is large: the figures are exact, but
 * whether it matters is the program's to say.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define EVIDENCE_MAX 8

#define PADDING_WORTH (1ull << 20)   /* bytes of padding that are worth a word */
#define PADDING_SHARE 10             /* and at least one in so many */
#define PADDING_LIKELY (64ull << 20) /* worth a line on a terminal, if it is half of the memory */

/* CUDA promises that addresses are multiples of 256, so no allocation takes less; the driver may take more. */
#define ALIGNMENT 256
#define TINY_COUNT 4096 /* live allocations of a place: fewer waste less than a MiB */

#define SHARED_MIN 4 /* threads or streams that have a workspace each */

/* What was asked for is known at the end of the recording only, not in moments. */
static uint64_t padding(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;

    if (m->recorded || site->level != VT_LEVEL_DRIVER || !vt_kind_is_memory(site->kind) || row->pool ||
        row->owner != VT_OWNER_APPLICATION || row->requested_bytes >= row->live_bytes || !row->requested_bytes)
        return 0;
    return row->live_bytes - row->requested_bytes;
}

static void show_padding(struct vt_finding_builder *b, struct vt_finding *finding)
{
    char asked[VT_FORMAT_BYTES], took[VT_FORMAT_BYTES], name[VT_PLACE_NAME];
    struct vt_row_places places;
    uint32_t count, i;
    struct vt_place_sum *list = vt_sum_sites(b, finding, &places, &count);

    for (i = 0; i < count && i < EVIDENCE_MAX; i++)
        vt_add_evidence(b, finding, "%s asked for, %s taken (%.0f %% more) in %llu by %s.",
                        vt_format_bytes(asked, list[i].requested), vt_format_bytes(took, list[i].bytes),
                        100.0 * (double)(list[i].bytes - list[i].requested) / (double)list[i].requested,
                        (unsigned long long)list[i].count, vt_place_name(name, list[i].place));
    free(list);
    vt_row_places_free(&places);
}

static void find_padding(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    char waste[VT_FORMAT_BYTES], took[VT_FORMAT_BYTES];
    uint64_t all = 0, live = 0;
    struct vt_finding *finding;
    uint32_t i;

    for (i = 0; i < m->site_count; i++)
        if (padding(m, &m->sites[i])) {
            all += padding(m, &m->sites[i]);
            live += m->sites[i].live_bytes;
        }
    if (all < PADDING_WORTH || all < live / PADDING_SHARE)
        return;
    finding = vt_new_finding(b, VT_FAMILY_WASTE, all >= PADDING_LIKELY && all >= live / 2 ? VT_LIKELY : VT_POSSIBLE,
                             "%s of %s are padding: rows are rounded up to the pitch.", vt_format_bytes(waste, all),
                             vt_format_bytes(took, live));
    for (i = 0; i < m->site_count; i++)
        if (padding(m, &m->sites[i]))
            vt_add_site(b, finding, m->sites[i].index);
    show_padding(b, finding);
    vt_add_advice(
        b, finding, all,
        "Put several narrow rows into one, or use linear memory: the pitch only pays for rows that are longer "
        "than it.");
}

static uint64_t rounding(const struct vt_site_row *row)
{
    uint64_t mean = row->live_count ? row->live_bytes / row->live_count : 0;

    if (row->record->level != VT_LEVEL_DRIVER || row->record->kind != VT_KIND_DEVICE || row->pool ||
        row->owner != VT_OWNER_APPLICATION || row->live_count < TINY_COUNT || mean >= ALIGNMENT)
        return 0;
    return row->live_count * ALIGNMENT - row->live_bytes;
}

static void show_tiny(struct vt_finding_builder *b, struct vt_finding *finding)
{
    char bytes[VT_FORMAT_BYTES], name[VT_PLACE_NAME];
    struct vt_row_places places;
    uint32_t count, i;
    struct vt_place_sum *list = vt_sum_sites(b, finding, &places, &count);

    for (i = 0; i < count && i < EVIDENCE_MAX; i++)
        vt_add_evidence(b, finding, "%llu of %s on average by %s.", (unsigned long long)list[i].count,
                        vt_format_bytes(bytes, list[i].bytes / list[i].count), vt_place_name(name, list[i].place));
    free(list);
    vt_row_places_free(&places);
}

static void find_tiny(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    char waste[VT_FORMAT_BYTES];
    struct vt_finding *finding = NULL;
    uint64_t all = 0, count = 0;
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (!rounding(row))
            continue;
        if (!finding)
            finding = vt_new_finding(b, VT_FAMILY_WASTE, VT_POSSIBLE, "%s", "");
        all += rounding(row);
        count += row->live_count;
        vt_add_site(b, finding, row->index);
    }
    if (!finding)
        return;
    show_tiny(b, finding);
    vt_retitle(b, finding, VT_POSSIBLE,
               "%llu tiny allocations take %d bytes each at least: %s or more of that nobody asked for.",
               (unsigned long long)count, ALIGNMENT, vt_format_bytes(waste, all));
    vt_add_advice(b, finding, all, "Allocate one block for many of them, or take them from a pool.");
}

static bool is_workspace(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;

    if (!row->live_count)
        return false;
    if (site->level == VT_LEVEL_TENSOR)
        return !strcmp(vt_reading_chars(m->reading, site->api), "torch.cublas_workspace");
    return row->owner == VT_OWNER_LIBRARY && vt_kind_is_memory(site->kind);
}

/* Workspaces of one library, as many as there are threads or streams that use it. */
static void find_workspaces(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    char bytes[VT_FORMAT_BYTES], place[VT_PLACE_BYTES];
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];
        unsigned threads = (unsigned)__builtin_popcountll(row->record->threads),
                 streams = (unsigned)__builtin_popcountll(row->record->streams),
                 users = threads > streams ? threads : streams;
        struct vt_finding *finding;

        if (!is_workspace(m, row) || users < SHARED_MIN || row->live_count < users)
            continue;
        finding = vt_new_finding(b, VT_FAMILY_OVERHEAD, VT_POSSIBLE, "%llu workspaces of a library for %u %s: %s.",
                                 (unsigned long long)row->live_count, users, threads >= streams ? "threads" : "streams",
                                 vt_format_bytes(bytes, row->live_bytes));
        vt_add_evidence(b, finding, "%s each, by %s.", vt_format_bytes(bytes, row->live_bytes / row->live_count),
                        vt_place_of(b, place, row->record->stack, row->record->python_stack));
        vt_add_site(b, finding, row->index);
        vt_add_advice(b, finding, row->live_bytes - row->live_bytes / row->live_count,
                      "Use fewer threads and streams for it, share handles, or bound the workspace "
                      "(CUBLAS_WORKSPACE_CONFIG for cuBLAS).");
    }
}

void vt_find_waste(struct vt_finding_builder *b)
{
    if (!vt_is_final(b->model))
        return;
    find_padding(b);
    find_tiny(b);
    find_workspaces(b);
}
