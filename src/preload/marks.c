/*
 * The functions that a program calls; see include/vramtrack/vramtrack.h. None of them starts a recording: a program that
 * never uses a GPU leaves no file because it has marks.
 */
#define VRAMTRACK_IMPLEMENTATION
#include "vramtrack/vramtrack.h"

#include "preload/marks.h"

#include <errno.h>
#include <stdio.h>

#include "preload/ledger.h"
#include "preload/moment.h"
#include "preload/options.h"
#include "preload/phase.h"
#include "preload/range.h"
#include "preload/resolve.h"
#include "preload/state.h"
#include "recording/utf8.h"

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
    vt_utf8_mend(text, sizeof text);
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

VT_EXPORT void vramtrack_moment(const char *name)
{
    int saved = errno;
    if (lock()) {
        vt_moment_take_named(name);
        vt_state_unlock();
    }
    errno = saved;
}
