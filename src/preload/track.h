/*
 * From a CUDA call to the books: what wrappers call after (allocation) and around (free) the real function.
 *
 * None of these is called with a lock held. Each keeps errno, does nothing if the call is not to be recorded
 * (call->record), and can't fail visibly.
 */
#ifndef VT_PRELOAD_TRACK_H
#define VT_PRELOAD_TRACK_H

#include "preload/call.h"
#include "preload/hot.h"
#include "preload/ledger.h"
#include "preload/live.h"
#include "preload/nccl/communicator.h"
#include "preload/python/python.h"
#include "preload/stack.h"
#include "preload/tensorflow/caller.h"

struct vt_alloc {
    enum vt_kind kind;
    enum vt_space space;
    uint8_t level;    /* enum vt_level */
    int16_t device;   /* -1: host */
    uint16_t owner;   /* as struct vt_node's */
    uint16_t stream;  /* index + 1 */
    uint64_t key;     /* under which it is found */
    uint64_t address; /* what the recording shows; mostly the key */
    uint64_t bytes, requested;
    uint8_t flags; /* VT_SLOT_* */
};

/* The stack of a call in both languages. */
struct vt_taken_stack {
    struct vt_stack stack;
    struct vt_stack_objects objects;
    bool located;     /* objects is filled */
    uint32_t adopted; /* frame id of the Python stack of the thread this one works for (nccl/, tensorflow/); 0: none */
    struct vt_python_stack python;
};

static inline __attribute__((always_inline)) void vt_take(struct vt_taken_stack *t)
{
    t->located = false;
    t->adopted = 0;
    t->python.count = 0;
    vt_stack_take(&t->stack);
    if (vt_options()->python)
        vt_python_take(&t->python, vt_options()->depth);
}

/* The same for a tensor: there are many, and a Python stack says more for less. So the native one is taken only where the
 * thread has no Python frames, or where the user asks for both. */
static inline __attribute__((always_inline)) void vt_take_tensor(struct vt_taken_stack *t)
{
    const struct vt_options *o = vt_options();
    t->located = false;
    t->adopted = 0;
    t->python.count = 0;
    if (o->python)
        vt_python_take(&t->python, o->depth);
    if (o->native && (o->both || !t->python.count)) {
        vt_stack_take(&t->stack);
        return;
    }
    t->stack.count = 0;
    t->stack.hash = 0;
}

/* An allocation succeeded; `t` is the stack of the call. */
void vt_record_alloc_at(const struct vt_call *call, const struct vt_alloc *a, struct vt_taken_stack *t);

/* The same from the calling stack. */
static inline __attribute__((always_inline)) void vt_record_alloc(const struct vt_call *call, const struct vt_alloc *a)
{
    struct vt_taken_stack t;
    if (!call->record || vt_tls.busy)
        return;
    vt_take(&t);
    uint32_t nccl = __atomic_load_n(&vt_nccl_callers, __ATOMIC_RELAXED);
    uint32_t tensorflow = __atomic_load_n(&vt_tensorflow_callers, __ATOMIC_RELAXED);
    if (__builtin_expect(!(nccl | tensorflow), 1)) {
        vt_record_alloc_at(call, a, &t);
        return;
    }
    uint16_t before = nccl ? vt_nccl_adopt(&t) : 0;
    if (tensorflow)
        vt_tensorflow_adopt_cuda(&t);
    vt_record_alloc_at(call, a, &t);
    if (nccl)
        vt_nccl_adopted(before);
}

/* An allocation was refused with `code`. */
void vt_record_failed_alloc(const struct vt_call *call, const struct vt_alloc *a, int code);

#define VT_KINDS(kind) (1u << (kind))

struct vt_freeing {
    bool removed;  /* a live allocation was taken off the books; node data below */
    bool recorded; /* vt_free_end has something to do */
    uint16_t owner;
    uint32_t free_stack, free_python;
    enum vt_space space;
    uint64_t key;
    uint64_t freed_ns;
    struct vt_slot slot;
    struct vt_slot tensor; /* what a framework had handed out as it got it; kind NONE: it didn't */
};

/* About to free `key`: takes it off the books first, because another thread may be given the same address before the
 * real call returns. Only kinds in the mask are taken. `stack`: take the stack of the free (for double frees). */
void vt_free_begin(const struct vt_call *call, struct vt_freeing *f, enum vt_space space, uint64_t key, unsigned kinds,
                   bool stack);

/* The real free returned `code`: 0 closes the matter, anything else restores the books and records the failure. */
void vt_free_end(const struct vt_call *call, struct vt_freeing *f, int code);

/* Ends allocations without a free call: those for which `leaves` returns true (called with the lock held). */
typedef bool vt_leaves_fn(const struct vt_node *node, const struct vt_slot *slot, void *argument);
void vt_retire(vt_leaves_fn *leaves, void *argument);

/* With the lock held: the same for one known node. */
void vt_retire_node(struct vt_node *node, uint64_t now);

/* The parts of vt_record_alloc_at and of vt_free_begin, for those who keep books of their own along with these.
 *
 * vt_lock_with_site takes the state lock with the site of a stack known; false: not recording, and no lock. With the lock
 * held, vt_book makes an allocation live and returns the bytes of what was live under its key before (its end was not
 * seen; 0 mostly), and vt_take_off ends the one under f->key in f->space, if it is of one of these kinds. */
VT_HOT bool vt_lock_with_site(const struct vt_site_key *key, struct vt_taken_stack *t, uint32_t *site);
VT_HOT uint64_t vt_book(const struct vt_alloc *a, uint32_t site);
VT_HOT bool vt_take_off(struct vt_freeing *f, unsigned kinds);

/* The objects of the frames, for a stack that is taken seldom. Without the lock. */
void vt_locate(struct vt_taken_stack *t);

/* Behind vt_watch_finalizing. */
void vt_finalizing(void);

/* Before a free, without the lock: takes the moment `finalize` at the first one of an interpreter that shuts down. */
static inline void vt_watch_finalizing(void)
{
    if (__builtin_expect(vt_python_finalizing(), 0))
        vt_finalizing();
}

/* A tensor that is the driver's allocation itself (VT_SLOT_DIRECT) ends although that does not: its free is captured. */
void vt_free_direct(const struct vt_call *call, uint64_t key);

/* With the lock held: the frame ids of the two stacks; 0 if there is none, and for a native one that is not in the tree
 * and was not located. */
uint32_t vt_stack_id(struct vt_taken_stack *t);
uint32_t vt_python_id(struct vt_taken_stack *t);

#endif
