/*
 * The ends of training steps; see phase.h.
 *
 * Which end counts: the program's own mark before an optimizer's step, that before the profiler's step, that before
 * zero_grad. zero_grad comes before the first step in most programs, so it counts only when it has come three times
 * without an optimizer's step; the profiler's step is told at the end of each step, behind the optimizer's, and counts from
 * its second time on.
 *
 * Several optimizers: only the names of their classes are known. The class that was seen first makes the steps; another one
 * takes over when it has ended a step OTHERS times in a row. So two optimizers of one class make two steps per round, and of
 * two classes the first one counts: either way figures per step are figures per round times a constant.
 */
#include "preload/phase.h"

#include <errno.h>
#include <string.h>

#include "preload/ledger.h"
#include "preload/state.h"

#define RECORDS 8192u
#define OTHERS 64u

static struct {
    uint32_t seen[VT_STEP_SOURCE_COUNT];
    enum vt_step_source leader;
    uint64_t leader_name; /* hash */
    uint32_t others;      /* steps in a row of other names */
    bool in_backward;     /* an optimizer's step ended inside the backward that runs */
} steps;

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; text && *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return h;
}

/* With the lock held. */
static bool counts(enum vt_step_source source, uint64_t name)
{
    static const uint8_t from[VT_STEP_SOURCE_COUNT] = {[VT_STEP_ZERO_GRAD] = 3, [VT_STEP_PROFILER] = 2};
    if (source < steps.leader || ++steps.seen[source] < from[source])
        return false;
    if (source > steps.leader) {
        steps.leader = source;
        steps.leader_name = name;
        steps.others = 0;
        return true;
    }
    if (name != steps.leader_name && ++steps.others <= OTHERS)
        return false;
    steps.leader_name = name;
    steps.others = 0;
    return true;
}

static uint64_t live(uint8_t level)
{
    uint64_t sum = 0, count = vt_header()->section[VT_SCOPES].count;
    for (uint64_t i = 0; i < count; i++) {
        const struct vt_scope *s = vt_writer_at(&vt_state.writer, VT_SCOPES, i);
        if (s->level == level && s->class_ == VT_CLASS_DEVICE)
            sum += s->live_bytes;
    }
    return sum;
}

/* Keeps every second record. */
static void thin_out(struct vt_header *h)
{
    uint64_t kept = (h->section[VT_STEPS].count + 1) / 2;
    for (uint64_t i = 1; i < kept; i++)
        *(struct vt_step *)vt_writer_at(&vt_state.writer, VT_STEPS,
                                        i) = *(struct vt_step *)vt_writer_at(&vt_state.writer, VT_STEPS, 2 * i);
    __atomic_store_n(&h->section[VT_STEPS].count, kept, __ATOMIC_RELEASE);
    h->step_shift++;
}

static void keep(struct vt_header *h, uint64_t number, uint64_t now)
{
    uint64_t i, most = h->section[VT_STEPS].limit < RECORDS ? h->section[VT_STEPS].limit : RECORDS;
    if (number & ((1ull << h->step_shift) - 1))
        return;
    if (h->section[VT_STEPS].count >= most) {
        thin_out(h);
        if (number & ((1ull << h->step_shift) - 1))
            return;
    }
    if (h->section[VT_STEPS].count != number >> h->step_shift) /* one found no room: the index would lie */
        return;
    struct vt_step *s = vt_writer_append(&vt_state.writer, VT_STEPS, &i);
    if (!s)
        return;
    *s = (struct vt_step){now, live(VT_LEVEL_TENSOR), live(VT_LEVEL_DRIVER)};
    vt_writer_publish(&vt_state.writer, VT_STEPS);
}

/* With the lock held. */
static void end_step(void)
{
    struct vt_header *h = vt_header();
    uint64_t now = vt_now(), number = h->steps;
    h->step_source = steps.leader;
    keep(h, number, now);
    h->steps = number + 1;
    h->step_ns = vt_phase_times.step_ns = now;
    h->stretch_ns = vt_phase_times.stretch_ns = now;
    vt_book_mark(VT_EVENT_STEP, number, 0);
}

void vt_step_end(enum vt_step_source source, const char *name)
{
    if (vt_tls.busy || !vt_state_recording())
        return;
    int saved = errno;
    uint64_t hash = source == VT_STEP_OPTIMIZER ? hash_of(name) : 0;
    bool inside = source != VT_STEP_MARK && __atomic_load_n(&vt_phase_backward, __ATOMIC_ACQUIRE);
    if (vt_state_lock(false)) {
        if (inside && source == VT_STEP_OPTIMIZER)
            __atomic_store_n(&steps.in_backward, true, __ATOMIC_RELAXED);
        else if (!inside && counts(source, hash))
            end_step();
        vt_state_unlock();
    }
    errno = saved;
}

void vt_step_backward_ended(void)
{
    if (!__atomic_load_n(&steps.in_backward, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&steps.in_backward, false, __ATOMIC_RELAXED);
    vt_step_end(VT_STEP_OPTIMIZER, "in backward");
}

void vt_step_forget(void)
{
    memset(&steps, 0, sizeof steps);
}
