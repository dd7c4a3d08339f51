/*
 * Failed allocations and failed frees: what they were, and whether an out-of-memory was one. With the state lock held.
 *
 * A refused allocation is not yet an out-of-memory: allocators probe, free their caches and try again. So the first
 * refusal of a thread is pending until the thread's next allocation says what it was:
 *   success, at least as large, or from the same place    -> retry
 *   success elsewhere, smaller                            -> out of memory: the program went on without it
 *   refusal of the same size, from nearly the same stack  -> the next rung of a retry ladder: one failure, still pending
 *   the same from exactly the same stack                  -> a rung too if the thread freed something in between
 *   refusal of less from nearly the same stack            -> probing downwards: retry; the new one is pending
 *   any other refusal                                     -> out of memory; the new one is pending
 *   end of the process, or two seconds without any of these  -> out of memory
 * "Nearly the same stack": equal but for one frame, which is how two calls in one function of an allocator look.
 *
 * Frameworks have allocators of their own, and some say what became of a request (PyTorch's): then no guess is needed. A
 * refusal inside such an allocator waits for its word: a tensor for the thread (vt_failure_served) makes it a retry, a
 * refusal (vt_failure_framework) makes it part of that, so that one request that failed is one failure. Where the framework's
 * request is the driver's (`direct`), another attempt is the same size from another line of the allocator; whatever else the
 * allocator asks for next shows that it had given up.
 */
#ifndef VT_PRELOAD_FAILURE_H
#define VT_PRELOAD_FAILURE_H

#include "preload/track.h"

struct vt_failing {
    int code;
    uint16_t api; /* enum vt_entry_id */
    uint8_t kind; /* enum vt_kind asked for */
    uint8_t level;
    int16_t device;
    uint64_t bytes;
    uint64_t free_bytes, total_bytes; /* 0: unknown */
    uint64_t pointer;
    enum vt_space space;
    bool told;                                /* inside a framework's allocator that will say what became of it */
    bool direct;                              /* a framework's request itself, of the allocator that `api` names */
    uint64_t allocated_bytes, reserved_bytes; /* vt_failure_framework: as the framework says; both 0: as recorded */
};

/* Each returns the index of a failure that is to be reported now, or VT_NONE. */
uint32_t vt_failure_alloc(const struct vt_failing *f, struct vt_taken_stack *t);
uint32_t vt_failure_resolve_by_success(uint64_t bytes, const struct vt_stack *stack);

/* A framework refuses a request: f->bytes is what it was asked for, f->api names its allocator. It holds a lock of its own
 * here, so the report of it waits for a better place: see vt_failure_due. */
void vt_failure_framework(const struct vt_failing *f, struct vt_taken_stack *t);

/* A framework's allocator has served the calling thread. */
void vt_failure_served(void);

/* An out-of-memory whose report has waited until now, or VT_NONE. For places where a report may take its time: no lock of
 * a framework is held. Where none comes by, vt_failure_expire and vt_failure_resolve_all return it. */
uint32_t vt_failure_due(void);

/* Is there one? Without the lock. */
bool vt_failure_is_due(void);

/* `slot`: the live allocation that the free was meant for (restored), or NULL. */
void vt_failure_free(const struct vt_failing *f, const struct vt_slot *slot, struct vt_taken_stack *t);

/* Settles what has been pending for too long, at the next event of any thread. O(1) while nothing is pending. */
uint32_t vt_failure_expire(uint64_t now);

/* At the end: what is still pending was an out-of-memory. Returns the newest one's index, or VT_NONE. */
uint32_t vt_failure_resolve_all(void);

#endif
