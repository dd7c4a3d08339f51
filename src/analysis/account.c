/*
 * The account of each GPU. Driver-level bytes go to the library whose code allocated them, or to the application
 * (frameworks' pools count as the application's until tensors are told apart). The context's share was measured by the
 * recorder. The rest is unaccounted: other processes and the driver's own.
 *
 * The rest follows from a reading of free memory and from what this process held at that same instant; what is free at
 * the moment shown follows from the rest, because the reading may be old. So the account always adds up to the total.
 */
#include "analysis/account.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/modules.h"

#define EVENTS_MAX 100000 /* looked at for a device's first allocation */

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

/* Free memory as cuMemGetInfo said it, and the live bytes of this process that belong to it. */
struct free_reading {
    uint64_t free_bytes, live_bytes, time_ns;
    bool known, own; /* own: taken at the moment itself */
};

/* What the device's memory held at a recorded moment. */
static uint64_t live_at(const struct vt_model *m, const struct vt_moment *moment, int device)
{
    uint64_t sum = 0, i;

    for (i = 0; i < moment->totals; i++) {
        const struct vt_moment_total *entry = vt_reading_moment_total(m->reading, moment->first_total + i);
        const struct vt_total *total = entry ? vt_reading_total(m->reading, entry->total) : NULL;

        if (!entry)
            break;
        if (total && total->level == VT_LEVEL_DRIVER && total->device == device && vt_kind_is_memory(total->kind) &&
            vt_class_of(total->kind) == VT_CLASS_DEVICE)
            sum += entry->live_bytes;
    }
    return sum;
}

/* A failure's reading. Of equal failures the newest one left it, and the live bytes are in that one's moment. */
static struct free_reading reading_of(const struct vt_model *m, const struct vt_failure *failure)
{
    const struct vt_moment *moment = vt_reading_moment(m->reading, failure->moment);
    struct free_reading reading = {failure->free_bytes, failure->reserved_bytes, failure->last_ns, true, false};

    if (!failure->count || !failure->total_bytes || (failure->count > 1 && !moment))
        reading.known = false;
    else if (failure->count > 1)
        reading.live_bytes = live_at(m, moment, failure->device);
    return reading;
}

/* Size of a site's first allocation: from its event if that is still there, else the mean. */
static uint64_t first_bytes(const struct vt_model *m, uint64_t index, const struct vt_site *site)
{
    const struct vt_event *event;
    uint64_t i;

    for (i = 0; site->alloc_calls > 1 && i < EVENTS_MAX && (event = vt_reading_event(m->reading, i)); i++)
        if (event->type == VT_EVENT_ALLOC && event->site == index)
            return event->bytes;
    return site->alloc_calls ? site->total_bytes / site->alloc_calls : 0;
}

/*
 * What was live at the device's own reading. It is taken inside the call that uses the device first, when that has
 * succeeded but is not recorded yet: so the next thing that was recorded is in use already, if it is memory of the device.
 */
static uint64_t live_at_first_use(const struct vt_model *m, const struct vt_device *device)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SITES), index = 0;
    const struct vt_site *first = NULL;

    for (i = 0; i < count; i++) {
        const struct vt_site *site = vt_reading_site(m->reading, i);

        if (site && site->level == VT_LEVEL_DRIVER && site->first_ns >= device->free_ns &&
            (!first || site->first_ns < first->first_ns)) {
            first = site;
            index = i;
        }
    }
    for (i = 0; first && i < m->failure_count; i++)
        if (m->failures[i].record->first_ns >= device->free_ns && m->failures[i].record->first_ns < first->first_ns)
            return 0; /* the call failed */
    if (!first || first->device != device->ordinal || !vt_kind_is_memory(first->kind) ||
        vt_class_of(first->kind) != VT_CLASS_DEVICE)
        return 0;
    return first_bytes(m, index, first);
}

/* The newest reading that is not after the moment. The failure that a moment belongs to is part of it. */
static struct free_reading newest_reading(const struct vt_model *m, const struct vt_device *device)
{
    struct free_reading newest = {device->free_bytes, 0, device->free_ns, device->free_ns != 0, false};
    uint32_t i;

    if (newest.known)
        newest.live_bytes = live_at_first_use(m, device);
    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *failure = m->failures[i].record;
        struct free_reading reading = reading_of(m, failure);

        if (!reading.known || failure->device != device->ordinal)
            continue;
        reading.own = m->recorded && m->recorded->failure == m->failures[i].index;
        if (reading.own || (reading.time_ns <= m->moment_ns && (!newest.known || reading.time_ns >= newest.time_ns)))
            newest = reading;
        if (reading.own)
            break;
    }
    return newest;
}

static uint64_t less(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

static void close_account(const struct vt_model *m, struct vt_device_row *device)
{
    uint64_t total = device->record->total_bytes, live = device->application, left;
    struct free_reading reading = newest_reading(m, device->record);
    uint32_t i;

    device->context_known = device->record->context_bytes != 0;
    device->context = device->record->context_bytes;
    for (i = 0; i < device->library_count; i++)
        live += device->libraries[i].bytes;
    if (device->library_count)
        qsort(device->libraries, device->library_count, sizeof *device->libraries, larger_first);
    if (!reading.known || !total || live + device->context > total || reading.free_bytes > total)
        return;
    left = total - live - device->context;
    device->unaccounted = less(total - reading.free_bytes, reading.live_bytes + device->context);
    if (device->unaccounted > left) /* somebody else has given memory back since */
        device->unaccounted = left;
    device->free = left - device->unaccounted;
    device->unaccounted_known = device->free_known = true;
    device->free_computed = !reading.own || device->free != reading.free_bytes;
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
