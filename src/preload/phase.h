/*
 * What the program is doing: the phases of a training step, named ranges, and the ends of steps. Frameworks' hooks and the
 * program's own marks tell it; track.c asks at every allocation and free.
 *
 * A thread has a stack of scopes (a phase, a named range, or both); the innermost counts. Backward is special: the
 * thread that asked for it waits while threads of the framework do the work, so it holds for those as well. A stretch is the
 * time between two changes of phase of the thread that trains; with the ends of steps it tells how long an allocation
 * lived in terms of the program (enum vt_fate) from its birth time alone.
 *
 * Nothing here is called with the state lock held unless said. All of it keeps errno, may be called from any thread and
 * does nothing inside a signal handler that interrupted our own work.
 */
#ifndef VT_PRELOAD_PHASE_H
#define VT_PRELOAD_PHASE_H

#include <stdbool.h>
#include <stdint.h>

#include "vramtrack/recording.h"

/* Per thread, read at every allocation. */
struct vt_phase_tls {
    uint8_t phase;     /* of the innermost scope that has one */
    uint8_t own;       /* a thread of the program: the backward of another thread is none of its business */
    uint8_t worker;    /* 0: not looked at; else 1 + whether it is one of the framework's threads */
    uint8_t workspace; /* what is allocated next is a workspace of cuBLAS (torch/workspace.c) */
    uint16_t range;    /* number of the innermost named range; 0: none */
};
extern __thread struct vt_phase_tls vt_phase_tls;

extern uint32_t vt_phase_backward; /* scopes of phase backward in all threads */

/* As in the header; with the state lock. */
struct vt_phase_times {
    uint64_t stretch_ns, step_ns;
};
extern struct vt_phase_times vt_phase_times;

/* Internal to vt_phase_now(). */
enum vt_phase vt_phase_of_helper(void);

/* The phase of the calling thread. Lock-free; with or without the state lock. */
static inline enum vt_phase vt_phase_now(void)
{
    if (vt_phase_tls.phase)
        return (enum vt_phase)vt_phase_tls.phase;
    if (__builtin_expect(__atomic_load_n(&vt_phase_backward, __ATOMIC_RELAXED) == 0, 1) || vt_phase_tls.own)
        return VT_PHASE_NONE;
    return vt_phase_of_helper();
}

/* What a free by the calling thread makes of an allocation that was born at `born`. With the state lock held. */
static inline enum vt_fate vt_phase_fate(uint64_t born)
{
    if (born < vt_phase_times.step_ns)
        return VT_FATE_LATER;
    if (born >= vt_phase_times.stretch_ns)
        return VT_FATE_STRETCH;
    return vt_phase_now() == VT_PHASE_BACKWARD ? VT_FATE_BACKWARD : VT_FATE_STEP;
}

/* Who opened a scope: each closes its own, whatever others left open in between. */
enum vt_scope_kind {
    VT_SCOPE_FRAMEWORK, /* id: the framework's object */
    VT_SCOPE_BACKWARD,  /* id 0 */
    VT_SCOPE_MARK,      /* vramtrack_range_push; id 0 */
    VT_SCOPE_NVTX,      /* id: the domain */
    VT_SCOPE_NCCL       /* a call of NCCL's; id 0 */
};

/* Opens a scope in the calling thread. phase VT_PHASE_NONE, range 0: as outside of it. */
void vt_scope_enter(enum vt_scope_kind kind, uintptr_t id, enum vt_phase phase, uint16_t range);

/* Closes the innermost scope of this kind and id. Returns its phase; VT_PHASE_NONE if there is none. */
enum vt_phase vt_scope_leave(enum vt_scope_kind kind, uintptr_t id);

/* Is a scope of this phase open in the calling thread? */
bool vt_scope_inside(enum vt_phase phase);

/* How many scopes of this kind are open in the calling thread. */
unsigned vt_scope_depth(enum vt_scope_kind kind);

/* A step ended, says `source`. name: what of it, where that tells one optimizer from another; may be NULL. */
void vt_step_end(enum vt_step_source source, const char *name);

/* Optimizers that work inside backward end no step each: the outermost backward's end does. Called by vt_scope_leave. */
void vt_step_backward_ended(void);

/* A child of a fork: nothing is known. */
void vt_phase_forget(void);
void vt_step_forget(void);

#endif
