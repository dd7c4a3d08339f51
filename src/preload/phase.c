/*
 * Scopes and phases; see phase.h. What a thread has open is its own; what all threads share is the count of backwards, and
 * the stretch, which is part of the recording.
 */
#include "preload/phase.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "preload/hot.h"
#include "preload/ledger.h"
#include "preload/range.h"
#include "preload/state.h"

#define DEPTH 16u

struct scope {
    uintptr_t id;
    uint16_t range;
    uint8_t kind, phase;
};

static __thread struct {
    uint32_t count, beyond; /* beyond: opened when there was no room */
    struct scope s[DEPTH];
} scopes;

__thread struct vt_phase_tls vt_phase_tls;
VT_HOT_DATA uint32_t vt_phase_backward;
VT_HOT_DATA struct vt_phase_times vt_phase_times;

static const void *trainer;     /* the thread whose changes of phase begin stretches; NULL: any */
static bool framework_is_named; /* its threads have been seen to carry its names */

/* What the open scopes amount to. */
static void settle(void)
{
    struct vt_phase_tls *t = &vt_phase_tls;
    t->phase = VT_PHASE_NONE;
    t->range = 0;
    for (unsigned i = 0; i < scopes.count; i++) {
        const struct scope *s = &scopes.s[i];
        if (s->phase)
            t->phase = s->phase;
        if (s->range)
            t->range = s->range;
    }
}

/* A new stretch, if the phase of the thread that trains is another one now. */
static void announce(void)
{
    const void *who = __atomic_load_n(&trainer, __ATOMIC_RELAXED);
    if ((who && who != &vt_phase_tls) || vt_tls.busy || !vt_state_recording())
        return;
    int saved = errno;
    enum vt_phase now = vt_phase_now();
    if (vt_state_lock(false)) {
        struct vt_header *h = vt_header();
        if (h->phase != (uint32_t)now) {
            h->phase = now;
            h->stretch_ns = vt_phase_times.stretch_ns = vt_now();
            vt_book_mark(VT_EVENT_PHASE, now, 0);
        }
        vt_state_unlock();
    }
    errno = saved;
}

static struct scope take_out(unsigned i)
{
    struct scope s = scopes.s[i];
    scopes.count--;
    memmove(&scopes.s[i], &scopes.s[i + 1], (scopes.count - i) * sizeof *scopes.s);
    return s;
}

/* A scope has been taken out. */
static void after_leaving(const struct scope *s)
{
    bool last = s->kind == VT_SCOPE_BACKWARD && __atomic_sub_fetch(&vt_phase_backward, 1, __ATOMIC_ACQ_REL) == 0;
    settle();
    if (s->phase)
        announce();
    if (last)
        vt_step_backward_ended();
}

/* While somebody's backward runs: is this one of the threads that do the work? PyTorch names them since 2.4 or so; where no
 * such name was ever seen, a thread that never trained is taken for one. */
enum vt_phase vt_phase_of_helper(void)
{
    char name[16] = "";
    if (!vt_phase_tls.worker) {
        int saved = errno;
        prctl(PR_GET_NAME, name);
        errno = saved;
        bool worker = !strncmp(name, "pt_autograd", 11);
        if (worker)
            __atomic_store_n(&framework_is_named, true, __ATOMIC_RELAXED);
        else if (!__atomic_load_n(&framework_is_named, __ATOMIC_RELAXED))
            return VT_PHASE_BACKWARD;
        vt_phase_tls.worker = worker ? 2 : 1;
    }
    return vt_phase_tls.worker == 2 ? VT_PHASE_BACKWARD : VT_PHASE_NONE;
}

/* Who begins a phase of training while no backward runs is a thread of the program; and the one that trains, if it is more
 * than fetching data. */
static void note_thread(enum vt_phase phase)
{
    if (!phase || __atomic_load_n(&vt_phase_backward, __ATOMIC_ACQUIRE))
        return;
    vt_phase_tls.own = 1;
    if (phase == VT_PHASE_BACKWARD || phase == VT_PHASE_OPTIMIZER)
        __atomic_store_n(&trainer, &vt_phase_tls, __ATOMIC_RELAXED);
}

void vt_scope_enter(enum vt_scope_kind kind, uintptr_t id, enum vt_phase phase, uint16_t range)
{
    note_thread(phase);
    if (scopes.count == DEPTH) {
        scopes.beyond++;
        return;
    }
    scopes.s[scopes.count++] = (struct scope){id, range, (uint8_t)kind, (uint8_t)phase};
    if (kind == VT_SCOPE_BACKWARD)
        __atomic_add_fetch(&vt_phase_backward, 1, __ATOMIC_ACQ_REL);
    settle();
    if (phase)
        announce();
}

enum vt_phase vt_scope_leave(enum vt_scope_kind kind, uintptr_t id)
{
    for (unsigned i = scopes.count; i-- > 0;)
        if (scopes.s[i].kind == kind && scopes.s[i].id == id) {
            struct scope s = take_out(i);
            after_leaving(&s);
            return (enum vt_phase)s.phase;
        }
    if (scopes.beyond)
        scopes.beyond--;
    return VT_PHASE_NONE;
}

bool vt_scope_inside(enum vt_phase phase)
{
    for (unsigned i = 0; i < scopes.count; i++)
        if (scopes.s[i].phase == phase)
            return true;
    return false;
}

unsigned vt_scope_depth(enum vt_scope_kind kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < scopes.count; i++)
        n += scopes.s[i].kind == kind;
    return n;
}

void vt_phase_forget(void)
{
    memset(&scopes, 0, sizeof scopes);
    memset(&vt_phase_tls, 0, sizeof vt_phase_tls);
    memset(&vt_phase_times, 0, sizeof vt_phase_times);
    vt_phase_backward = 0;
    trainer = NULL;
    vt_range_forget();
    vt_step_forget();
}
