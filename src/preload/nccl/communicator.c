/*
 * The table of communicators and the one call that others may work for; see communicator.h.
 */
#include "preload/nccl/communicator.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#include "preload/codes.h"
#include "preload/phase.h"
#include "preload/range.h"
#include "preload/state.h"
#include "preload/track.h"

#define COMMUNICATORS 1024 /* beyond, they have no number */
#define TRACED_CALLS 64    /* a communicator connects in its first calls: later ones need no Python stack */

uint32_t vt_nccl_callers;

static struct communicator {
    const void *handle;
    uint16_t range;
    uint16_t calls;
} table[COMMUNICATORS];
static uint32_t made;

/* The group that this thread collects calls in: they are carried out when it ends. */
static __thread struct {
    uint16_t depth, number; /* the communicator of its calls */
    bool several;
} group;

/*
 * The thread that is inside, while it is the only one. It can't leave while `changing` is held, so what its stack refers to
 * is there: the stack is interned for the first that adopts it, since there may be no recording yet when it is taken.
 * Whoever holds `changing` may take the state lock; nobody does it the other way round.
 */
static struct {
    struct vt_python_stack stack;
    uint32_t python; /* frame id of the stack; 0: not interned, or none */
    uint32_t generation;
    uint16_t range;
} caller;
static int changing;

/* This thread has `changing`, or is about to. False from lock(): this is a signal handler that interrupted it there, and would
 * wait for itself. */
static __thread volatile bool inside;

static bool lock(void)
{
    if (inside)
        return false;
    inside = true;
    while (__atomic_exchange_n(&changing, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    return true;
}

static void unlock(void)
{
    __atomic_store_n(&changing, 0, __ATOMIC_RELEASE);
    inside = false;
}

/* The newest with this handle: NCCL gives handles out again. 0: not known. */
static uint16_t number_of(const void *handle)
{
    uint32_t n = __atomic_load_n(&made, __ATOMIC_ACQUIRE);
    for (n = n < COMMUNICATORS ? n : COMMUNICATORS; handle && n > 0; n--)
        if (__atomic_load_n(&table[n - 1].handle, __ATOMIC_RELAXED) == handle)
            return (uint16_t)n;
    return 0;
}

/* Others may work for this call from now on. */
static void begin(struct vt_nccl_call *call, bool traced)
{
    int saved = errno;
    uint16_t range = call->number ? table[call->number - 1].range : 0;
    vt_scope_enter(VT_SCOPE_NCCL, 0, VT_PHASE_NONE, range);
    if (lock()) {
        caller.stack.count = 0;
        caller.python = 0;
        caller.range = range;
        caller.generation = vt_state.generation;
        if (!vt_nccl_callers && traced && vt_options()->python)
            vt_python_take(&caller.stack, vt_options()->depth);
        __atomic_store_n(&vt_nccl_callers, vt_nccl_callers + 1, __ATOMIC_RELEASE);
        unlock();
    }
    errno = saved;
}

static void end(void)
{
    int saved = errno;
    if (lock()) {
        caller.stack.count = 0; /* if another one is inside still, it is not known which of them this was */
        caller.python = 0;
        caller.range = 0;
        /* 0 after a fork */
        __atomic_store_n(&vt_nccl_callers, vt_nccl_callers - (vt_nccl_callers > 0), __ATOMIC_RELEASE);
        unlock();
    }
    vt_scope_leave(VT_SCOPE_NCCL, 0);
    errno = saved;
}

void vt_nccl_making(struct vt_nccl_call *call, int ranks)
{
    int saved = errno;
    char name[64];
    uint32_t n = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    call->number = n <= COMMUNICATORS ? (uint16_t)n : 0;
    if (call->number) {
        if (ranks > 0)
            snprintf(name, sizeof name, "NCCL communicator %u, %d ranks", n, ranks);
        else
            snprintf(name, sizeof name, "NCCL communicator %u", n);
        table[n - 1].range = vt_range_exact(name);
    }
    vt_codes_prepare(); /* this may be the first that is seen of CUDA */
    errno = saved;
    begin(call, true);
}

/* A call of this thread's for a communicator; true: it is put off to the end of the group. */
static bool put_off(uint16_t number)
{
    if (!group.depth)
        return false;
    group.several |= group.number && group.number != number;
    group.number = number;
    return true;
}

void vt_nccl_made(struct vt_nccl_call *call, const void *communicator)
{
    if (call->number)
        __atomic_store_n(&table[call->number - 1].handle, communicator, __ATOMIC_RELEASE);
    put_off(call->number);
    end();
}

/* The first calls of a communicator, and of groups that have several. */
static bool is_traced(uint16_t number)
{
    static uint16_t others;
    uint16_t *calls = number ? &table[number - 1].calls : &others;
    return __atomic_load_n(calls, __ATOMIC_RELAXED) < TRACED_CALLS &&
           __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) <= TRACED_CALLS;
}

void vt_nccl_enter(struct vt_nccl_call *call, const void *communicator)
{
    call->number = number_of(communicator);
    call->put_off = put_off(call->number);
    if (!call->put_off)
        begin(call, is_traced(call->number));
}

void vt_nccl_group_start(void)
{
    if (!group.depth++) {
        group.number = 0;
        group.several = false;
    }
}

void vt_nccl_group_end(struct vt_nccl_call *call)
{
    group.depth -= group.depth > 0;
    call->put_off = group.depth > 0;
    call->number = group.several ? 0 : group.number;
    if (!call->put_off)
        begin(call, is_traced(call->number));
}

void vt_nccl_leave(struct vt_nccl_call *call)
{
    if (!call->put_off)
        end();
}

uint16_t vt_nccl_adopt(struct vt_taken_stack *stack)
{
    uint16_t before = vt_phase_tls.range;
    if (stack->python.count || before)
        return before; /* it can speak for itself */
    if (!lock())
        return before;
    if (vt_nccl_callers == 1 && caller.generation == vt_state.generation) {
        if (!caller.python && caller.stack.count && vt_state_lock(true)) {
            caller.python = vt_codes_intern(&caller.stack);
            vt_state_unlock();
        }
        stack->adopted = caller.python;
        vt_phase_tls.range = caller.range;
    }
    unlock();
    return before;
}

void vt_nccl_adopted(uint16_t before)
{
    vt_phase_tls.range = before;
}

void vt_nccl_forget(void)
{
    changing = 0; /* another thread may have held it at the fork */
    inside = false;
    vt_nccl_callers = 0;
}
