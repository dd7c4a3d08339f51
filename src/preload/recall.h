/*
 * Native stacks that were taken before, recognised by their return addresses where they lie, for a tenth of what unwinding
 * costs in a program whose caches are full of other things: a thread that does PyTorch's backward has no Python frames, and
 * allocates from the same few hundred stacks at every step.
 *
 * A stack is known by the place of its innermost frame. From there every return address is looked for where it lay the last
 * time, inwards to outwards: as long as all before it are the same functions, stopped at the same places, the next one lies
 * as far away as it did then. (A function whose frame is as large as its data, by alloca, can break that. Then something else
 * lies there, and the stack is unwound; unless a return address of an older call has been left exactly there.)
 *
 * Only on x86-64, where a return address lies right below the frame that it leads to, and with libunwind.
 */
#ifndef VT_PRELOAD_RECALL_H
#define VT_PRELOAD_RECALL_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/stack.h"

/* Where the calling wrapper was called: its frame address (__builtin_dwarf_cfa) and return address. */
struct vt_call_place {
    const void *cfa, *ip;
};

/* Where the return addresses of a stack lie, in bytes from the innermost one. */
struct vt_stack_places {
    unsigned count; /* 0: not found out */
    uint32_t offset[VT_DEPTH_MAX];
};

/* Functions of libunwind, by name (stack.c); NULL: not there, and nothing is ever recognised. */
extern struct vt_unwind_steps {
    int (*context)(void *context);
    int (*begin)(void *cursor, void *context);
    int (*step)(void *cursor);
    int (*get)(void *cursor, int number, uint64_t *value);
} vt_unwind_steps;

/* With the state lock held: *hash becomes that of the stack (struct vt_stack) of a call from this place by the calling
 * thread. False: it has to be taken. Makes no call. */
bool vt_recall(const struct vt_call_place *at, uint64_t *hash);

/* Finds out where the frames of a stack lie that was just taken by the calling thread. Without the lock: it may take the
 * loader's. Costs several times what taking it does, so it refuses where that was often in vain. Keeps errno. */
void vt_recall_measure(const struct vt_call_place *at, const struct vt_stack *s, struct vt_stack_places *places);

/* With the lock held: from now on it is recognised. Does nothing if the places were not found out. */
void vt_recall_learn(const struct vt_call_place *at, const struct vt_stack *s, const struct vt_stack_places *places);

#endif
