/* Copies totals, sites and slots; see moment.h. */
#include "preload/moment.h"

#include <stdio.h>
#include <string.h>

#include "preload/ledger.h"
#include "preload/live.h"
#include "preload/state.h"
#include "recording/utf8.h"

#define SLOTS_COPIED_MAX 65536u
#define MOMENTS_MAX 128u /* a program that runs out of memory for hours must not fill the recording with it */

/* Room of a withdrawn moment, to be used again. */
static struct {
    uint32_t moment;               /* index + 1; 0: none */
    uint64_t totals, sites, slots; /* how much fits */
} spare;

/* `count` records in a row of a section: the spare room if they fit into it, else new ones. */
static uint64_t room(enum vt_section section, uint64_t count, uint64_t spare_first, uint64_t spare_count,
                     uint64_t *published)
{
    *published = 0;
    if (count <= spare_count)
        return spare_first;
    *published = count;
    return vt_writer_append_many(&vt_state.writer, section, count);
}

static void copy_totals(uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_total *t = vt_writer_at(&vt_state.writer, VT_TOTALS, i);
        struct vt_moment_total *m = vt_writer_at(&vt_state.writer, VT_MOMENT_TOTALS, first + i);
        *m = (struct vt_moment_total){(uint32_t)i, 0, t->live_bytes, t->live_count, t->requested_bytes};
    }
}

static uint64_t live_sites(void)
{
    uint64_t count = vt_header()->section[VT_SITES].count, live = 0;
    for (uint64_t i = 0; i < count; i++)
        live += ((const struct vt_site *)vt_writer_at(&vt_state.writer, VT_SITES, i))->live_count != 0;
    return live;
}

static void copy_sites(uint64_t first)
{
    uint64_t count = vt_header()->section[VT_SITES].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_site *s = vt_writer_at(&vt_state.writer, VT_SITES, i);
        if (!s->live_count)
            continue;
        struct vt_moment_site *m = vt_writer_at(&vt_state.writer, VT_MOMENT_SITES, first++);
        *m = (struct vt_moment_site){(uint32_t)i, 0, s->live_bytes, s->live_count};
    }
}

static void copy_slots(uint64_t first)
{
    uint64_t count = vt_header()->section[VT_LIVE].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_slot *s = vt_writer_at(&vt_state.writer, VT_LIVE, i);
        if (s->kind != VT_KIND_NONE)
            *(struct vt_slot *)vt_writer_at(&vt_state.writer, VT_MOMENT_SLOTS, first++) = *s;
    }
}

static struct vt_moment *new_moment(uint32_t *index, bool *fresh)
{
    uint64_t i = spare.moment ? spare.moment - 1 : 0;
    *fresh = !spare.moment;
    if (!*fresh) {
        *index = (uint32_t)i;
        return vt_writer_at(&vt_state.writer, VT_MOMENTS, i);
    }
    if (vt_header()->section[VT_MOMENTS].count >= MOMENTS_MAX)
        return NULL;
    struct vt_moment *m = vt_writer_append(&vt_state.writer, VT_MOMENTS, &i);
    *index = (uint32_t)i;
    return m;
}

uint32_t vt_moment_take(enum vt_moment_kind kind, uint32_t failure)
{
    struct vt_writer *w = &vt_state.writer;
    uint32_t index;
    bool fresh;
    struct vt_moment *m = new_moment(&index, &fresh);
    if (!m)
        return VT_NONE;
    struct vt_moment old = *m;
    uint64_t totals = vt_header()->section[VT_TOTALS].count, sites = live_sites(), slots = vt_live_count(), new_totals,
             new_sites, new_slots = 0;
    if (slots > SLOTS_COPIED_MAX)
        slots = 0;
    uint64_t first_total = room(VT_MOMENT_TOTALS, totals, old.first_total, spare.totals, &new_totals);
    uint64_t first_site = room(VT_MOMENT_SITES, sites, old.first_site, spare.sites, &new_sites);
    uint64_t first_slot = slots ? room(VT_MOMENT_SLOTS, slots, old.first_slot, spare.slots, &new_slots) : 0;
    if (first_total == UINT64_MAX || first_site == UINT64_MAX)
        return VT_NONE;
    if (first_slot == UINT64_MAX)
        first_slot = slots = new_slots = 0;
    copy_totals(first_total, totals);
    copy_sites(first_site);
    if (slots)
        copy_slots(first_slot);
    vt_writer_publish_many(w, VT_MOMENT_TOTALS, new_totals);
    vt_writer_publish_many(w, VT_MOMENT_SITES, new_sites);
    vt_writer_publish_many(w, VT_MOMENT_SLOTS, new_slots);
    *m = (struct vt_moment){.time_ns = vt_now(),
                            .kind = kind,
                            .failure = failure,
                            .first_total = first_total,
                            .totals = totals,
                            .first_site = first_site,
                            .sites = sites,
                            .first_slot = first_slot,
                            .slots = slots,
                            .steps = vt_header()->steps,
                            .step_ns = vt_header()->step_ns,
                            .stretch_ns = vt_header()->stretch_ns,
                            .phase = vt_header()->phase};
    spare.moment = 0;
    spare.totals = spare.sites = spare.slots = 0;
    if (fresh)
        vt_writer_publish(w, VT_MOMENTS);
    vt_book_mark(VT_EVENT_MOMENT, index, 0);
    return index;
}

void vt_moment_name_oom(uint32_t moment, uint32_t number)
{
    if (moment == VT_NONE)
        return;
    struct vt_moment *m = vt_writer_at(&vt_state.writer, VT_MOMENTS, moment);
    snprintf(m->name, sizeof m->name, "oom-%u", number);
}

void vt_moment_name(uint32_t moment, const char *name)
{
    struct vt_moment *m = vt_writer_at(&vt_state.writer, VT_MOMENTS, moment);
    snprintf(m->name, sizeof m->name, "%s", name);
    vt_utf8_mend(m->name, sizeof m->name);
}

void vt_moment_withdraw(uint32_t moment)
{
    if (moment == VT_NONE)
        return;
    struct vt_moment *m = vt_writer_at(&vt_state.writer, VT_MOMENTS, moment);
    m->name[0] = 0;
    spare.moment = moment + 1;
    spare.totals = m->totals;
    spare.sites = m->sites;
    spare.slots = m->slots;
}

/* Names that moments of the recorder's own have. */
static bool is_reserved(const char *name)
{
    return !strcmp(name, "end") || !strcmp(name, "peak") || !strcmp(name, "finalize") || !strncmp(name, "oom-", 4);
}

/* A program that names one per epoch wants the newest. */
static void withdraw_older(const char *name)
{
    uint64_t count = vt_header()->section[VT_MOMENTS].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_moment *m = vt_writer_at(&vt_state.writer, VT_MOMENTS, i);
        if (m->kind == VT_MOMENT_NAMED && !strcmp(m->name, name))
            vt_moment_withdraw((uint32_t)i);
    }
}

uint32_t vt_moment_take_named(const char *name)
{
    char text[sizeof((struct vt_moment *)NULL)->name];
    if (!name || !*name)
        name = "moment";
    snprintf(text, sizeof text, "%s%s", is_reserved(name) ? "mark-" : "", name);
    vt_utf8_mend(text, sizeof text);
    withdraw_older(text);
    uint32_t moment = vt_moment_take(VT_MOMENT_NAMED, VT_NONE);
    if (moment != VT_NONE)
        vt_moment_name(moment, text);
    return moment;
}

void vt_moment_forget(void)
{
    spare.moment = 0;
    spare.totals = spare.sites = spare.slots = 0;
}
