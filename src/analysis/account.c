/*
 * The account of each GPU. Driver-level bytes go to the library whose code allocated them, or to the application
 * (frameworks' pools count as the application's until tensors are told apart). The context's share was measured by the
 * recorder; free memory is what cuMemGetInfo last said, or at the failure that the moment belongs to. The rest is
 * unaccounted: other processes and the driver's own.
 */
#include "analysis/account.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/modules.h"

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

        if (site->record->level != VT_LEVEL_DRIVER || !site->live_bytes || !vt_kind_is_memory(site->record->kind) ||
            vt_class_of(site->record->kind) != VT_CLASS_DEVICE || !(device = device_at(m, site->record->device)))
            continue;
        if (site->owner != VT_OWNER_LIBRARY)
            device->application += site->live_bytes;
        else if (add_library(device, site->module, site->live_bytes))
            return -ENOMEM;
    }
    return 0;
}

/* Free memory: as seen by the failure that the moment is of, else as last seen. */
static void set_free(const struct vt_model *m, struct vt_device_row *device)
{
    const struct vt_failure *failure = m->recorded ? vt_reading_failure(m->reading, m->recorded->failure) : NULL;

    if (failure && failure->total_bytes && failure->device == device->record->ordinal) {
        device->free = failure->free_bytes;
        device->free_ns = m->moment_ns;
        device->free_known = true;
    } else if (device->record->free_ns) {
        device->free = device->record->free_bytes;
        device->free_ns = device->record->free_ns;
        device->free_known = true;
    }
}

static void close_account(const struct vt_model *m, struct vt_device_row *device)
{
    uint64_t used;
    uint32_t i;

    device->context_known = device->record->context_bytes != 0;
    device->context = device->record->context_bytes;
    set_free(m, device);
    used = device->application + device->context;
    for (i = 0; i < device->library_count; i++)
        used += device->libraries[i].bytes;
    if (device->library_count)
        qsort(device->libraries, device->library_count, sizeof *device->libraries, larger_first);
    /* An old reading of free memory may contradict what is live now: then nothing is said about the rest. */
    if (device->free_known && device->record->total_bytes >= device->free &&
        device->record->total_bytes - device->free >= used) {
        device->unaccounted = device->record->total_bytes - device->free - used;
        device->unaccounted_known = true;
    }
}

int vt_account_build(struct vt_model *m)
{
    uint32_t i;
    int error;

    if ((error = take_devices(m)) || (error = add_sites(m)))
        return error;
    for (i = 0; i < m->device_count; i++)
        close_account(m, &m->devices[i]);
    return 0;
}
