/*
 * The account of each GPU. Driver-level bytes go to the library whose code allocated them, to the pools of frameworks whose
 * tensors are known, or to the application. Pools are shown by what is in them: the tensors, and what is cached but
 * unused. What the context, other processes and the driver hold is in usage.h. The rest is unaccounted.
 *
 * All of that follows from a reading of free memory and from what this process held at that same instant; what is free at
 * the moment shown follows from it, because the reading may be old. So the account always adds up to the total.
 */
#include "analysis/account.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/category.h"
#include "analysis/modules.h"
#include "analysis/usage.h"

static int add_library(struct vt_device_row *device, uint32_t module, uint64_t bytes)
{
    struct vt_library_row *grown;
    uint32_t i;

    for (i = 0; i < device->library_count; i++)
        if (device->libraries[i].module == module) {
            device->libraries[i].bytes += bytes;
            return 0;
        }
    if (!(grown = realloc(device->libraries, (device->library_count + 1) * sizeof *grown)))
        return -ENOMEM;
    device->libraries = grown;
    device->libraries[device->library_count++] = (struct vt_library_row){module, bytes};
    return 0;
}

static int larger_first(const void *left, const void *right)
{
    const struct vt_library_row *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->module < b->module ? -1 : a->module > b->module;
}

static struct vt_device_row *device_at(struct vt_model *m, int ordinal)
{
    uint32_t i;

    for (i = 0; i < m->device_count; i++)
        if (m->devices[i].record->ordinal == ordinal)
            return &m->devices[i];
    return NULL;
}

static int take_devices(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_DEVICES);
    const struct vt_device *device;

    m->device_count = 0;
    if (!(m->devices = calloc(count ? count : 1, sizeof *m->devices)))
        return -ENOMEM;
    for (i = 0; i < count; i++)
        if ((device = vt_reading_device(m->reading, i)) && device->ordinal >= 0)
            m->devices[m->device_count++].record = device;
    return 0;
}

static int add_sites(struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *site = &m->sites[i];
        struct vt_device_row *device;

        if (!site->live_bytes || vt_class_of(site->record->kind) != VT_CLASS_DEVICE ||
            !vt_kind_is_memory(site->record->kind) || !(device = device_at(m, site->record->device)))
            continue;
        if (site->record->level == VT_LEVEL_TENSOR)
            device->tensors += site->live_bytes;
        else if (site->pool && device->tensors_known)
            device->pool += site->live_bytes;
        else if (site->owner != VT_OWNER_LIBRARY)
            device->application += site->live_bytes;
        else if (add_library(device, site->module, site->live_bytes))
            return -ENOMEM;
    }
    return 0;
}

/* What is in the pools. Tensors that lie elsewhere are in memory that would else be the application's. */
static void fill_pool(struct vt_device_row *device)
{
    uint64_t elsewhere = device->tensors > device->pool ? device->tensors - device->pool : 0;

    device->cached_unused = device->tensors < device->pool ? device->pool - device->tensors : 0;
    device->application -= elsewhere < device->application ? elsewhere : device->application;
    device->tensor_part[VT_PART_OTHER] = device->tensors;
}

/* Places peak at different times: the figures of "peak" are not of one instant, so what lies where can't be said. */
static void forget_pools(struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->fragmentation.pool_count; i++) {
        struct vt_pools *pools = &m->fragmentation.pools[i];

        *pools = (struct vt_pools){.device = pools->device};
    }
}

void vt_account_add_parts(struct vt_model *m, struct vt_symbols *symbols)
{
    static const enum vt_tensor_part part_of[VT_CATEGORY_COUNT] = {[VT_CATEGORY_UNKNOWN] = VT_PART_OTHER,
                                                                   [VT_CATEGORY_PARAMETERS] = VT_PART_PARAMETERS,
                                                                   [VT_CATEGORY_GRADIENTS] = VT_PART_GRADIENTS,
                                                                   [VT_CATEGORY_OPTIMIZER] = VT_PART_OPTIMIZER,
                                                                   [VT_CATEGORY_ACTIVATIONS] = VT_PART_ACTIVATIONS,
                                                                   [VT_CATEGORY_INPUTS] = VT_PART_INPUTS,
                                                                   [VT_CATEGORY_OTHER] = VT_PART_OTHER};
    uint64_t bytes[VT_CATEGORY_COUNT], left;
    uint32_t i;
    size_t c;

    for (i = 0; i < m->device_count; i++) {
        struct vt_device_row *device = &m->devices[i];

        if (!device->tensors_known)
            continue;
        vt_category_sums(m, device->record->ordinal, symbols, bytes);
        memset(device->tensor_part, 0, sizeof device->tensor_part);
        for (left = device->tensors, c = 0; c < VT_CATEGORY_COUNT; c++) {
            uint64_t part = bytes[c] < left ? bytes[c] : left;

            device->tensor_part[part_of[c]] += part;
            left -= part;
        }
        device->tensor_part[VT_PART_OTHER] += left;
    }
}

static void take_card(struct vt_device_row *device, const struct vt_card_usage *card)
{
    device->context_known = card->context_known;
    device->context = card->context;
    device->others_known = card->others_known;
    device->others = card->others;
    device->other_count = card->other_count;
    device->reserved = card->reserved;
    device->card_known = card->card_known;
    device->card_bytes = card->card_bytes;
    device->card_reserved = card->card_reserved;
}

static int close_account(const struct vt_model *m, struct vt_device_row *device)
{
    uint64_t total = device->record->total_bytes, live = device->application + device->tensors + device->cached_unused;
    struct vt_card_usage card;
    uint32_t i;
    int error;

    if ((error = vt_usage_of(m, device->record, &card)))
        return error;
    for (i = 0; i < device->library_count; i++)
        live += device->libraries[i].bytes;
    if (device->library_count)
        qsort(device->libraries, device->library_count, sizeof *device->libraries, larger_first);
    if (total && live <= total)
        vt_usage_limit(&card, total - live);
    take_card(device, &card);
    if (!card.rest_known || live > total)
        return 0;
    device->cached_unused += card.pool_unused;
    device->unaccounted = vt_usage_unaccounted(&card);
    device->free = total - live - card.rest;
    device->unaccounted_known = device->free_known = true;
    device->free_computed = !card.exact || device->free != card.free_bytes;
    return 0;
}

int vt_account_build(struct vt_model *m)
{
    uint32_t i;
    int error;

    if ((error = take_devices(m)))
        return error;
    for (i = 0; i < m->device_count; i++)
        m->devices[i].tensors_known = vt_fragmentation_of(&m->fragmentation, m->devices[i].record->ordinal) != NULL;
    if ((error = add_sites(m)))
        return error;
    if (!strcmp(m->moment, "peak") && !m->recorded)
        forget_pools(m);
    for (i = 0; i < m->device_count; i++) {
        fill_pool(&m->devices[i]);
        if ((error = close_account(m, &m->devices[i])))
            return error;
    }
    return 0;
}
