/*
 * The functions that a program calls; see include/vramtrack/vramtrack.h. None of them starts a recording: a program that
 * never uses a GPU leaves no file because it has marks.
 */
#define VRAMTRACK_IMPLEMENTATION
#include "vramtrack/vramtrack.h"

#include "preload/marks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "preload/ledger.h"
#include "preload/moment.h"
#include "preload/options.h"
#include "preload/phase.h"
#include "preload/range.h"
#include "preload/resolve.h"
#include "preload/state.h"

#define NAME_BYTES 64

/* Takes the lock if there is something to record to. */
static bool lock(void)
{
    return !vt_options()->off && !vt_tls.busy && vt_state_recording() && vt_state_lock(false);
}

void vt_mark(const char *name)
{
    char text[NAME_BYTES];
    int saved = errno;
    snprintf(text, sizeof text, "%s", name ? name : "");
    if (lock()) {
        vt_book_mark(VT_EVENT_MARK, vt_intern(text), 0);
        vt_state_unlock();
    }
    errno = saved;
}

VT_EXPORT void vramtrack_mark(const char *name)
{
    vt_mark(name);
}

VT_EXPORT void vramtrack_step(void)
{
    if (!vt_options()->off)
        vt_step_end(VT_STEP_MARK, NULL);
}

VT_EXPORT void vramtrack_range_push(const char *name)
{
    if (!vt_options()->off)
        vt_scope_enter(VT_SCOPE_MARK, 0, VT_PHASE_NONE, vt_range_number(name));
}

VT_EXPORT void vramtrack_range_pop(const char *name)
{
    (void)name;
    if (!vt_options()->off)
        vt_scope_leave(VT_SCOPE_MARK, 0);
}

/* Names that moments of the recorder's own have. */
static bool is_reserved(const char *name)
{
    return !strcmp(name, "end") || !strcmp(name, "peak") || !strcmp(name, "finalize") || !strncmp(name, "oom-", 4);
}

/* An older moment of this name makes room: a program that names one per epoch wants the newest. With the lock held. */
static void withdraw_older(const char *name)
{
    uint64_t count = vt_header()->section[VT_MOMENTS].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_moment *m = vt_writer_at(&vt_state.writer, VT_MOMENTS, i);
        if (m->kind == VT_MOMENT_NAMED && !strcmp(m->name, name))
            vt_moment_withdraw((uint32_t)i);
    }
}

VT_EXPORT void vramtrack_moment(const char *name)
{
    char text[sizeof((struct vt_moment *)NULL)->name];
    int saved = errno;
    if (!name || !*name)
        name = "moment";
    snprintf(text, sizeof text, "%s%s", is_reserved(name) ? "mark-" : "", name);
    if (lock()) {
        withdraw_older(text);
        uint32_t moment = vt_moment_take(VT_MOMENT_NAMED, VT_NONE);
        if (moment != VT_NONE)
            vt_moment_name(moment, text);
        vt_state_unlock();
    }
    errno = saved;
}
