/*
 * The threads that are inside TFE_Execute, and their Python stacks; see caller.h.
 *
 * Each call has a place in a small table, where the thread that makes it puts its Python stack. Who adopts that stack pins
 * the place, and only then looks whether that thread is the only one inside: as long as the place is pinned its owner can't
 * return, so the code objects that the stack refers to are alive while their names are read. That is the one wait here: of a
 * caller that returns, for a thread that interns its stack just now. There is no lock; a call that finds no place is counted
 * but has no stack to give.
 */
#include "preload/tensorflow/caller.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "preload/codes.h"
#include "preload/state.h"
#include "preload/track.h"

#define PLACES 8u

/* Of struct place's word, an atomic: what it is in, and above that how many have pinned it. */
enum { FREE, FILLING, READY, IN = 3, PIN = 4 };

static struct place {
    uint32_t word;
    uint32_t depth;  /* of calls in its thread; atomic */
    uint32_t python; /* frame id of the stack; 0: not interned, or none; atomic */
    uint8_t outer;   /* place + 1 of the call around it in the same thread; 0: none */
    const void *frame;
    struct vt_python_stack stack;
} places[PLACES];

uint32_t vt_tensorflow_callers;

/* The calling thread's calls. */
static __thread struct {
    uint32_t depth;
    uint32_t beyond;   /* the innermost of them, which have no place */
    uint8_t innermost; /* place + 1 of the innermost that has one */
} mine;

/* --- who is inside --- */

static struct place *claim(void)
{
    for (unsigned i = 0; i < PLACES; i++) {
        uint32_t old = FREE;
        if (__atomic_load_n(&places[i].word, __ATOMIC_RELAXED) == FREE &&
            __atomic_compare_exchange_n(&places[i].word, &old, FILLING, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return &places[i];
    }
    return NULL;
}

static void give_up(struct place *p)
{
    uint32_t old = READY;
    while (!__atomic_compare_exchange_n(&p->word, &old, FREE, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
        old = READY;
        sched_yield();
    }
}

void vt_tensorflow_leave(void)
{
    int saved = errno;
    if (!mine.depth) /* a child of a fork, which knows of nothing that began before */
        return;
    if (mine.beyond)
        mine.beyond--;
    else if (mine.innermost) {
        struct place *p = &places[mine.innermost - 1];
        mine.innermost = p->outer;
        give_up(p);
    }
    if (!--mine.depth) /* after its places: as long as one of them is pinned, its thread counts */
        __atomic_sub_fetch(&vt_tensorflow_callers, 1, __ATOMIC_SEQ_CST);
    errno = saved;
}

/* Calls of this thread that were left by longjmp: their frames lay where the stack is free now. */
static void leave_ended(const void *frame)
{
    while (mine.innermost && (uintptr_t)places[mine.innermost - 1].frame <= (uintptr_t)frame)
        vt_tensorflow_leave();
}

void vt_tensorflow_enter(const void *frame)
{
    leave_ended(frame);
    if (!mine.depth++)
        __atomic_add_fetch(&vt_tensorflow_callers, 1, __ATOMIC_SEQ_CST);
    struct place *p = mine.beyond ? NULL : claim(); /* those with a place are the outer ones */
    if (!p) {
        mine.beyond++;
        return;
    }
    p->outer = mine.innermost;
    p->frame = frame;
    __atomic_store_n(&p->depth, mine.depth, __ATOMIC_RELAXED);
    __atomic_store_n(&p->python, 0, __ATOMIC_RELAXED);
    vt_python_take(&p->stack, vt_options()->depth);
    mine.innermost = (uint8_t)(p - places + 1);
    __atomic_store_n(&p->word, READY, __ATOMIC_SEQ_CST);
}

/* --- for whom a thread works --- */

/* The innermost call, pinned; NULL: there is none. With several threads inside, one of theirs. */
static struct place *pin(void)
{
    struct place *best = NULL;
    uint32_t deepest = 0, word;
    for (unsigned i = 0; i < PLACES; i++)
        if ((__atomic_load_n(&places[i].word, __ATOMIC_ACQUIRE) & IN) == READY) {
            uint32_t depth = __atomic_load_n(&places[i].depth, __ATOMIC_RELAXED);
            if (depth > deepest) {
                best = &places[i];
                deepest = depth;
            }
        }
    if (!best)
        return NULL;
    word = __atomic_load_n(&best->word, __ATOMIC_RELAXED);
    while ((word & IN) == READY)
        if (__atomic_compare_exchange_n(&best->word, &word, word + PIN, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return best;
    return NULL;
}

/* Once per call that somebody allocates for. */
static uint32_t interned(struct place *p)
{
    uint32_t id = __atomic_load_n(&p->python, __ATOMIC_RELAXED);
    if (!id && p->stack.count && vt_state_lock(true)) {
        id = vt_codes_intern(&p->stack);
        __atomic_store_n(&p->python, id, __ATOMIC_RELAXED);
        vt_state_unlock();
    }
    return id;
}

void vt_tensorflow_adopt(struct vt_taken_stack *t)
{
    if (t->python.count || t->adopted || __atomic_load_n(&vt_tensorflow_callers, __ATOMIC_SEQ_CST) != 1)
        return;
    int saved = errno;
    struct place *p = pin();
    if (p) {
        if (__atomic_load_n(&vt_tensorflow_callers, __ATOMIC_SEQ_CST) == 1)
            t->adopted = interned(p);
        __atomic_sub_fetch(&p->word, PIN, __ATOMIC_RELEASE);
    }
    errno = saved;
}

/* --- TensorFlow's code --- */

static struct {
    uintptr_t start, end; /* both atomic, of one library or of none (for an instant: of none) */
} code[2];

static void note(unsigned i, const void *function)
{
    struct vt_object o;
    if (!function || !vt_object_at(function, &o))
        return;
    __atomic_store_n(&code[i].end, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&code[i].start, o.start, __ATOMIC_RELEASE);
    __atomic_store_n(&code[i].end, o.end, __ATOMIC_RELEASE);
}

void vt_tensorflow_note_code(const void *first, const void *second)
{
    note(0, first);
    note(1, second);
}

static bool is_code(uintptr_t ip)
{
    for (unsigned i = 0; i < sizeof code / sizeof *code; i++)
        if (ip < __atomic_load_n(&code[i].end, __ATOMIC_ACQUIRE) &&
            ip >= __atomic_load_n(&code[i].start, __ATOMIC_RELAXED))
            return true;
    return false;
}

void vt_tensorflow_adopt_cuda(struct vt_taken_stack *t)
{
    if (t->python.count)
        return;
    for (unsigned i = t->stack.count; i-- > 0;) /* a thread of TensorFlow's begins in its library */
        if (is_code((uintptr_t)t->stack.ip[i])) {
            vt_tensorflow_adopt(t);
            return;
        }
}

void vt_tensorflow_forget(void)
{
    vt_tensorflow_callers = 0;
    for (unsigned i = 0; i < PLACES; i++)
        places[i].word = FREE;
    memset(&mine, 0, sizeof mine);
}
