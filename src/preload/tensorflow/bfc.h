/*
 * TensorFlow's allocator for a GPU, BFCAllocator: what is known of each one.
 *
 * A program has one per GPU (or per logical device), and others for the host's memory; ours is told of each request and of
 * each return with the allocator's address. What that means is found out when an address is seen first: the library of its
 * virtual table has the real functions, its name says whether it is a GPU's, and where it extends its arena from tells which
 * one's (the number in the name is TensorFlow's own, and two logical devices may share a card).
 *
 * Its own sums are compared with ours: at its requests number 1, 2, 4, ... 1024 and every 1024th then, and when it refuses. It
 * is asked (GetStats) between its calls, so no lock of its own is held. Whether the answer is laid out as expected is
 * proved by the first two between which it did nothing but serve one request: the count of allocations must have grown by one,
 * the bytes by what that one took. If not, it is not asked again and nothing is compared.
 */
#ifndef VT_PRELOAD_TENSORFLOW_BFC_H
#define VT_PRELOAD_TENSORFLOW_BFC_H

#include <stdbool.h>
#include <stdint.h>

enum vt_bfc_namespace { VT_BFC_TSL, VT_BFC_TENSORFLOW, VT_BFC_NAMESPACES };

typedef void *vt_bfc_allocate_fn(void *self, uint64_t alignment, uint64_t bytes, const void *attributes);
typedef void vt_bfc_deallocate_fn(void *self, void *memory);
typedef void vt_bfc_destroy_fn(void *self);
typedef uint64_t vt_bfc_size_fn(const void *self, const void *memory);

/* The real functions, of the library that has the object's virtual table. The first two are never NULL in an entry. */
struct vt_bfc_functions {
    vt_bfc_allocate_fn *allocate;
    vt_bfc_deallocate_fn *deallocate;
    vt_bfc_destroy_fn *destroy; /* may be NULL */
    vt_bfc_size_fn *size;       /* AllocatedSize; may be NULL */
    void *stats, *name;         /* GetStats, Name; may be NULL */
};

/* What it says of itself, and what we know of it at that instant. */
struct vt_bfc_stats {
    uint64_t allocations, bytes; /* ever; in use now */
    uint64_t sum, turns;         /* struct vt_bfc's */
};

struct vt_bfc {
    const void *self;
    struct vt_bfc_functions real;
    const char *library; /* its path: the loader's string */
    bool gpu;
    uint8_t number;  /* its place in the table */
    int16_t device;  /* CUDA's ordinal once it has extended its arena, the name's until then; atomic */
    uint32_t inside; /* threads in its real functions; atomic */
    uint64_t turns;  /* how often one went in; atomic */
    uint64_t sum;    /* bytes that we know of, by its own sizes; atomic */
    uint64_t base;   /* what it had more at the first comparison */
    uint64_t served; /* requests; atomic */
    int8_t stats;    /* 0: not proved yet, 1: they can be read, -1: not; atomic */
};

/* The entry of an allocator, made at first sight. NULL: the table is full, or its library has no real functions; then
 * vt_bfc_functions_of is what is left. Lock-free but at first sight, when the allocator is asked for its name. */
struct vt_bfc *vt_bfc_of(const void *self, enum vt_bfc_namespace n);

/* The real functions for an allocator without an entry. A walk over the loaded libraries at worst. */
struct vt_bfc_functions vt_bfc_functions_of(const void *self, enum vt_bfc_namespace n);

/* An allocator is about to be destroyed: its address may be another one's soon. */
void vt_bfc_forget(struct vt_bfc *b);

/* Around each call of its real functions that changes what it holds: the sum changes by `change` inside. */
void vt_bfc_enter(struct vt_bfc *b);
void vt_bfc_leave(struct vt_bfc *b, int64_t change);

/* Asks it. False: it can't be asked, or a thread was inside meanwhile, so that its figures and ours are of different
 * instants. Without a lock. */
bool vt_bfc_ask(const struct vt_bfc *b, struct vt_bfc_stats *s);

#endif
