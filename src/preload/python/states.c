/*
 * Which of several thread states a thread runs, up to CPython 3.11: PyGILState_GetThisThreadState gives the first that it
 * had, and code of a sub-interpreter runs with another one, often one that another thread made
 * (_xxsubinterpreters.run_string takes the interpreter's newest). So the id in a state does not tell who runs it; and the
 * state that has the GIL is another thread's while this one is in a call that released it.
 *
 * The lists of interpreters and of states are behind a lock that is not taken here. They are read through the kernel, and a
 * list that does not hang together is not believed. The states that this thread runs do not go away meanwhile.
 */
#include <pthread.h>
#include <stdint.h>

#include "preload/python/interpreter.h"
#include "preload/python/reader.h"

#define MOST_INTERPRETERS 256
#define MOST_STATES 4096

/* Include/cpython/pystate.h and Include/internal/pycore_interp.h (3.8: pycore_pystate.h), 3.8 to 3.11: in a thread state
 * prev, next, interp; in an interpreter next, and the newest thread state. The _PyCFrame is there since 3.10. */
#define STATE_PREV 0
#define STATE_NEXT 8
#define INTERP_NEXT 0
#define INTERP_STATES(minor) ((minor) >= 11 ? 16u : 8u)
#define STATE_CFRAME(minor) ((minor) >= 11 ? 56u : 48u)

struct state {
    const void *address, *prev, *next, *interp, *frame;
    uintptr_t cframe;
    unsigned long id;
};

struct survey {
    const struct vt_py *py;
    const void *own, *main_interp;
    unsigned long self;
    uintptr_t here, top; /* this thread's C stack, from the callers of this to its beginning */
    const void *innermost;
    uintptr_t innermost_cframe;
    const void *candidate;
    unsigned candidates;
    bool own_has_frames, suspects, others;
    unsigned states;
};

static bool read_state(const struct vt_py_layout *at, const void *address, struct state *s)
{
    struct reader r = {0};
    *s = (struct state){.address = address};
    want(&r, address, STATE_PREV, &s->prev, sizeof s->prev);
    want(&r, address, STATE_NEXT, &s->next, sizeof s->next);
    want(&r, address, at->thread_interp, &s->interp, sizeof s->interp);
    want(&r, address, at->thread_frame, &s->frame, sizeof s->frame);
    want(&r, address, at->thread_id, &s->id, sizeof s->id);
    if (at->minor >= 10)
        want(&r, address, STATE_CFRAME(at->minor), &s->cframe, sizeof s->cframe);
    return fetch(&r);
}

/* Since 3.10: each running state points into the C stack of the thread that runs it, at the innermost evaluation's variable.
 * Of those in this thread's stack the innermost runs; that is exact, with and without the GIL. */
static void look_at_stack(struct survey *v, const struct state *s)
{
    if (s->cframe > v->here && s->cframe < v->top && (!v->innermost || s->cframe < v->innermost_cframe))
        v->innermost = s->address, v->innermost_cframe = s->cframe;
}

/* Before 3.10 nothing in a state tells who runs it: candidates are those that this thread may run inside its own, suspects
 * those that it or another may, others belong to threads that could run a candidate. */
static void look_at_owner(struct survey *v, const struct state *s)
{
    bool mine = s->id == v->self;
    v->others |= !mine;
    if (s->address == v->own) {
        v->own_has_frames = s->frame;
    } else if (s->frame && mine) {
        v->candidate = s->address;
        v->candidates++;
    }
}

/* Another thread's state in a sub-interpreter may be run by this thread, unless this thread began in there itself. */
static void look_for_suspects(struct survey *v, const struct state *s)
{
    if (s->frame && s->id != v->self && s->interp != v->main_interp && s->address != v->own)
        v->suspects = true;
}

static bool survey_interpreter(struct survey *v, const void *interp, const void **next)
{
    const struct vt_py_layout *at = &v->py->at;
    const void *address = NULL, *prev = NULL;
    struct reader r = {0};
    want(&r, interp, INTERP_NEXT, next, sizeof *next);
    want(&r, interp, INTERP_STATES(at->minor), &address, sizeof address);
    if (!fetch(&r))
        return false;
    while (address) {
        struct state s;
        if (v->states++ >= MOST_STATES || !read_state(at, address, &s) || s.prev != prev || s.interp != interp)
            return false;
        if (at->minor >= 10) {
            look_at_stack(v, &s);
        } else {
            look_at_owner(v, &s);
            look_for_suspects(v, &s);
        }
        prev = address;
        address = s.next;
    }
    return true;
}

static bool survey_all(struct survey *v)
{
    const void *interp = v->py->head_interp();
    for (unsigned n = 0; interp; n++) {
        const void *next = NULL;
        if (n >= MOST_INTERPRETERS || !survey_interpreter(v, interp, &next))
            return false;
        interp = next;
    }
    return true;
}

/* The main thread's stack begins at __libc_stack_end; another's lies below its thread control block, which is pthread_self().
 * The main thread's control block lies below its stack. */
extern void *__libc_stack_end __attribute__((weak));

static uintptr_t top_of_stack(uintptr_t here)
{
    uintptr_t block = (uintptr_t)pthread_self();
    if (block > here)
        return block;
    return &__libc_stack_end ? (uintptr_t)__libc_stack_end : 0;
}

const void *vt_py_running_state(const struct vt_py *py, const void *own)
{
    if (py->gil_holder && py->gil_holder() == own)
        return own;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    struct survey v = {.py = py, .own = own, .main_interp = py->main_interp(), .here = here, .top = top_of_stack(here)};
    v.self = (unsigned long)pthread_self();
    if (!survey_all(&v))
        return NULL;
    if (py->at.minor >= 10)
        return v.innermost;
    if (v.suspects || v.candidates > 1)
        return NULL;
    if (!v.candidates)
        return own;
    return v.own_has_frames && !v.others ? v.candidate : NULL;
}
