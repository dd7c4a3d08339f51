/*
 * Memory that was not given back by the call that is meant for it: contexts that were reset or destroyed with memory in
 * them, handles of physical memory and registrations of host memory that outlived their use. Possible findings only: a
 * reset at the end of a program is a common way to give everything back at once. What is still held is a leak besides
 * (findings_live.c); these say by which call it would go.
 */
#include <stdio.h>
#include <stdlib.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define EVIDENCE_MAX 8
#define SITES_MAX 64 /* the largest ones: each goes through all slots */

static bool is_own(const struct vt_site_row *row)
{
    return row->record->level == VT_LEVEL_DRIVER && row->owner == VT_OWNER_APPLICATION && !row->pool;
}

/* Kinds that end with their context although the program should free them: graphs and mappings end with other objects. */
static bool goes_with_context(const struct vt_site_row *row)
{
    switch (row->record->kind) {
    case VT_KIND_DEVICE:
    case VT_KIND_PINNED:
    case VT_KIND_REGISTERED:
    case VT_KIND_MANAGED:
    case VT_KIND_ARRAY:
        return is_own(row) && row->record->retired;
    default:
        return false;
    }
}

/* Sizes of what was retired are not on record: as the site's mean. */
static uint64_t retired_bytes(const struct vt_site *site)
{
    double bytes = site->alloc_calls ? (double)site->total_bytes / (double)site->alloc_calls * (double)site->retired
                                     : 0;

    return bytes < 9e18 ? (uint64_t)bytes : 0; /* more only in a damaged file */
}

static void show_resets(struct vt_finding_builder *b, struct vt_finding *finding)
{
    char name[VT_PLACE_NAME];
    struct vt_row_places places;
    uint32_t count, i;
    struct vt_place_sum *list = vt_sum_sites(b, finding, &places, &count);

    for (i = 0; i < count && i < EVIDENCE_MAX; i++)
        vt_add_evidence(b, finding, "%llu of %llu (%s) by %s.", (unsigned long long)list[i].retired,
                        (unsigned long long)list[i].made, vt_kind_name(list[i].place->site->kind),
                        vt_place_name(name, list[i].place));
    free(list);
    vt_row_places_free(&places);
}

static void find_resets(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    char bytes[VT_FORMAT_BYTES];
    struct vt_finding *finding;
    uint64_t count = 0, sum = 0;
    uint32_t i;

    for (i = 0; i < m->site_count; i++)
        if (goes_with_context(&m->sites[i])) {
            count += m->sites[i].record->retired;
            sum += retired_bytes(m->sites[i].record);
        }
    if (!count)
        return;
    finding = vt_new_finding(b, VT_FAMILY_MISUSE, VT_POSSIBLE,
                             "%llu allocation%s (about %s) %s live when the context was reset or destroyed.",
                             (unsigned long long)count, count == 1 ? "" : "s", vt_format_bytes(bytes, sum),
                             count == 1 ? "was" : "were");
    for (i = 0; i < m->site_count; i++)
        if (goes_with_context(&m->sites[i]))
            vt_add_site(b, finding, m->sites[i].index);
    show_resets(b, finding);
    vt_add_advice(b, finding, 0,
                  "Free them first: pointers into a context that is gone are invalid, and freeing them later fails, or "
                  "frees what has the address by then.");
}

static const struct {
    unsigned kind;
    bool released; /* vmm_physical: the handle is gone, a mapping is not */
    const char *what, *advice;
} forgotten[] = {
    {VT_KIND_VMM_PHYSICAL, false, "physical allocation%s hold%s %s by a handle that was never released",
     "Call cuMemRelease, right after cuMemMap if the handle is not needed: the mapping keeps the memory until "
     "cuMemUnmap."},
    {VT_KIND_VMM_PHYSICAL, true, "physical allocation%s hold%s %s by a mapping that was never undone",
     "Call cuMemUnmap: the handles are released already."},
    {VT_KIND_REGISTERED, false, "registration%s of host memory keep%s %s page-locked",
     "Call cudaHostUnregister before the memory is freed: its pages stay locked until then, and the address can't be "
     "registered again."},
};
#define FORGOTTEN (sizeof forgotten / sizeof forgotten[0])

struct held {
    uint64_t count, bytes;
    uint32_t site; /* index */
};

/* What a place holds of one line of the table: by its slots, which say what keeps physical memory. */
static struct held held_by(const struct vt_model *m, uint32_t index, size_t line)
{
    enum vt_section section = m->recorded ? VT_MOMENT_SLOTS : VT_LIVE;
    uint64_t first = m->recorded ? m->recorded->first_slot : 0,
             count = m->recorded ? m->recorded->slots : vt_reading_count(m->reading, section), i;
    const struct vt_slot *slot;
    struct held held = {.site = index};

    for (i = 0; i < count && (slot = vt_reading_record(m->reading, section, first + i)); i++)
        if (slot->kind == forgotten[line].kind && slot->site == index &&
            forgotten[line].released == !!(slot->flags & VT_SLOT_RELEASED)) {
            held.count++;
            held.bytes += slot->bytes;
        }
    return held;
}

/* One line per name; held: one per site of the finding. */
static void show_forgotten(struct vt_finding_builder *b, struct vt_finding *finding, const struct held *held,
                           size_t sites)
{
    char bytes[VT_FORMAT_BYTES], name[VT_PLACE_NAME];
    struct vt_row_places places;
    uint32_t count, k;
    size_t i;
    struct vt_place_sum *list = vt_sum_sites(b, finding, &places, &count);

    for (k = 0; k < count && k < EVIDENCE_MAX; k++) {
        struct held all = {0};

        for (i = 0; i < sites; i++) {
            const struct vt_site_row *row = vt_model_site(b->model, held[i].site);
            const struct vt_place *place = row ? vt_row_place(&places, (uint32_t)(row - b->model->sites)) : NULL;

            if (place && place->name == list[k].place->name) {
                all.count += held[i].count;
                all.bytes += held[i].bytes;
            }
        }
        vt_add_evidence(b, finding, "%s in %llu by %s.", vt_format_bytes(bytes, all.bytes),
                        (unsigned long long)all.count, vt_place_name(name, list[k].place));
    }
    free(list);
    vt_row_places_free(&places);
}

static void find_forgotten(struct vt_finding_builder *b, size_t line)
{
    const struct vt_model *m = b->model;
    char title[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES];
    struct vt_finding *finding = NULL;
    struct held all = {0}, held[SITES_MAX], *each = held;
    uint32_t i, looked = 0;

    for (i = 0; i < m->site_count && looked < SITES_MAX; i++) {
        if (!is_own(&m->sites[i]) || m->sites[i].record->kind != forgotten[line].kind || !m->sites[i].live_count)
            continue;
        looked++;
        *each = held_by(m, m->sites[i].index, line);
        if (!each->count || vt_is_suppressed(b, &m->sites[i]))
            continue;
        if (!finding)
            finding = vt_new_finding(b, VT_FAMILY_MISUSE, VT_POSSIBLE, "%s", "");
        all.count += each->count;
        all.bytes += each->bytes;
        each++;
        vt_add_site(b, finding, m->sites[i].index);
    }
    if (!finding)
        return;
    show_forgotten(b, finding, held, (size_t)(each - held));
    snprintf(title, sizeof title, forgotten[line].what, all.count == 1 ? "" : "s", all.count == 1 ? "s" : "",
             vt_format_bytes(bytes, all.bytes));
    vt_retitle(b, finding, VT_POSSIBLE, "%llu %s.", (unsigned long long)all.count, title);
    vt_add_advice(b, finding, all.bytes, "%s", forgotten[line].advice);
}

void vt_find_unreleased(struct vt_finding_builder *b)
{
    size_t line;

    if (!vt_is_final(b->model) || b->model->end != VT_PROCESS_EXIT)
        return;
    find_resets(b);
    for (line = 0; line < FORGOTTEN; line++)
        find_forgotten(b, line);
}
