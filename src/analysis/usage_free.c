/*
 * Which reading of free memory tells most about the moment shown, and what this process held when it was taken. There are
 * three sources: the call that used a device first, failures, and what NVML or the program's own question said.
 */
#include "analysis/usage.h"

#include <string.h>

#define EVENTS_MAX 100000 /* looked at for a device's first allocation */

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

/* A failure's reading. Of equal failures the newest one left it, and the live bytes are in that one's moment; those of a
 * framework's own refusal as well: what it has reserved is not all that the process holds. */
static struct vt_free_reading reading_of(const struct vt_model *m, const struct vt_failure *failure)
{
    const struct vt_moment *moment = vt_reading_moment(m->reading, failure->moment);
    struct vt_free_reading reading = {failure->free_bytes, failure->reserved_bytes, failure->last_ns, true, false};
    bool elsewhere = failure->count > 1 || failure->kind == VT_FAILURE_FRAMEWORK_OOM;

    if (!failure->count || !failure->total_bytes || (elsewhere && !moment))
        reading.known = false;
    else if (elsewhere)
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

bool vt_usage_fits(const struct vt_usage *u, const struct vt_device *device)
{
    uint64_t total = device->total_bytes, offered = u->total_bytes, tolerance = total / 16;

    if (u->total_bytes == VT_UNKNOWN_BYTES || u->free_bytes == VT_UNKNOWN_BYTES || u->free_bytes > total)
        return false;
    if (u->reserved_bytes != VT_UNKNOWN_BYTES && u->reserved_bytes < offered && offered > total)
        offered -= u->reserved_bytes;
    return offered >= total ? offered - total <= tolerance : total - offered <= tolerance;
}

bool vt_usage_is_own(const struct vt_model *m, const struct vt_usage *u)
{
    if (u->moment != VT_NONE)
        return m->recorded && m->recorded == vt_reading_moment(m->reading, u->moment);
    return u->cause == VT_USAGE_END && !m->recorded && !strcmp(m->moment, "end");
}

/* Takes the other reading if it says more about the moment. */
static void prefer(struct vt_free_reading *newest, struct vt_free_reading other, const struct vt_model *m)
{
    if (!other.known || newest->own)
        return;
    if (other.own || (other.time_ns <= m->moment_ns && (!newest->known || other.time_ns >= newest->time_ns)))
        *newest = other;
}

struct vt_free_reading vt_usage_free(const struct vt_model *m, const struct vt_device *device)
{
    struct vt_free_reading newest = {device->free_bytes, 0, device->free_ns, device->free_ns != 0, false}, other;
    const struct vt_usage *u;
    uint64_t k;
    uint32_t i;

    if (newest.known)
        newest.live_bytes = live_at_first_use(m, device);
    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *failure = m->failures[i].record;

        other = reading_of(m, failure);
        other.known = other.known && failure->device == device->ordinal;
        other.own = m->recorded && m->recorded->failure == m->failures[i].index;
        prefer(&newest, other, m);
    }
    for (k = 0; k < VT_USAGES_MAX && (u = vt_reading_usage(m->reading, k)); k++) {
        if (u->device != device->ordinal || u->cause == VT_USAGE_BEFORE_CONTEXT || !vt_usage_fits(u, device))
            continue;
        /* An out-of-memory is read some time after its moment, whose own reading is the failure's. */
        other = (struct vt_free_reading){u->free_bytes, u->live_bytes, u->time_ns, true,
                                         u->cause != VT_USAGE_OOM && vt_usage_is_own(m, u)};
        prefer(&newest, other, m);
    }
    return newest;
}
