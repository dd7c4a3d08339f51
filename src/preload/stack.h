/*
 * Native stacks: taking them, and interning them in the recording's stack tree.
 *
 * Taking (vt_stack_take, vt_stack_locate) happens without any lock of ours, because unwinding and module lookup may
 * take the loader's lock. Interning happens with the state lock held and does neither.
 */
#ifndef VT_PRELOAD_STACK_H
#define VT_PRELOAD_STACK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "preload/options.h"

struct vt_object { /* a loaded object, as the loader describes it now */
    uintptr_t start, end;
    uintptr_t bias;
    const char *name; /* the loader's string; "" is the executable */
    void *link_map;
};

#define VT_OWN_FRAMES 8 /* of this library, at the inner end, at most */

struct vt_stack {
    unsigned count;   /* frames, innermost first, our own left out */
    uint32_t objects; /* entries of object[]; 0 until vt_stack_locate */
    uint64_t hash;    /* of the addresses; 64 bits, so that equal hashes are taken for equal stacks: with 100,000
                              stacks the chance of one mix-up is 3e-10 */
    void *ip[VT_DEPTH_MAX + VT_OWN_FRAMES];
};

struct vt_stack_objects {
    unsigned count;
    struct vt_object object[64];
    uint8_t of[VT_DEPTH_MAX]; /* frame -> object + 1; 0: none */
};

/* Loads and warms up the unwinder. From a place where dlopen is allowed (the cuInit wrapper), once; without it the
 * first capture does it. */
void vt_stack_prepare(void);

/* The unwinder, once it is there: fills `buffer` with at most `size` return addresses, innermost first. */
typedef int vt_unwind_fn(void **buffer, int size);
extern vt_unwind_fn *vt_unwind;

/* Takes our own frames off the front of the n addresses in s->ip, cuts to the depth wanted and makes the hash. */
void vt_stack_finish(struct vt_stack *s, int n);

/* The calling thread's stack from outside this library outwards. Inline, so that a wrapper's own frame is the only one of
 * ours that is walked: each costs as much as one of the program's. Keeps errno. */
static inline __attribute__((always_inline)) void vt_stack_take(struct vt_stack *s)
{
    int saved = errno, n = 0;
    if (vt_options()->native) {
        if (!__atomic_load_n(&vt_unwind, __ATOMIC_ACQUIRE))
            vt_stack_prepare();
        if (__atomic_load_n(&vt_unwind, __ATOMIC_ACQUIRE))
            n = vt_unwind(s->ip, (int)vt_options()->depth + VT_OWN_FRAMES);
    }
    vt_stack_finish(s, n);
    errno = saved;
}

/* Finds the object of every frame. */
void vt_stack_locate(const struct vt_stack *s, struct vt_stack_objects *objects);

/* An address means another function once its library was closed and another lies there. So the hash under which a stack
 * is known is mixed with a salt, which vt_stack_check_objects changes if libraries were closed since its last call. That
 * takes the loader's lock; it is called after dlclose and for stacks that were never seen. */
extern uint64_t vt_stack_salt_now;
static inline uint64_t vt_stack_salt(void)
{
    return __atomic_load_n(&vt_stack_salt_now, __ATOMIC_RELAXED);
}
void vt_stack_check_objects(void);

/* The frame id of a stack that was interned under this hash; 0: none. With the lock held. */
uint32_t vt_stack_find(uint64_t hash);

/* The frame id of the stack in the recording's tree, remembered under `hash`; 0 if it is empty or the tree is full.
 * With the lock held. */
uint32_t vt_stack_intern(const struct vt_stack *s, const struct vt_stack_objects *objects, uint64_t hash);

/* Which unwinder is in use, for the recording. */
const char *vt_stack_unwinder(void);

#endif
