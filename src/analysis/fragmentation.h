/*
 * Fragmentation: what lies where in the memory that frameworks hand on.
 *
 * A caching allocator takes segments from the driver and hands out blocks of them. The recording has both sides: live
 * allocations of level driver, and live tensors. Joined by address, they show what the driver cannot know (which part of
 * a segment is free) and the framework does not tell (who keeps the rest from being given back).
 *
 * A segment is an allocation of the driver that holds a live tensor, or whose place in the code, or library, is known to
 * be an allocator's: because another one of it holds tensors, or because the recording names the library as one. Mapped
 * ranges that touch each other inside one reservation are one segment. Its blocks are the live tensors in it and the gaps
 * between them. docs/fragmentation.md defines the figures and says what they can't know.
 *
 * Uses malloc, no stdio streams, never exits. Not thread-safe per object; pure apart from that.
 */
#ifndef VRAMTRACK_FRAGMENTATION_H
#define VRAMTRACK_FRAGMENTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "recording/reader.h"

struct vt_block {
    uint64_t address, bytes;
    uint32_t site; /* index of the tensor's site; VT_NONE: free */
};

struct vt_segment {
    uint64_t address, bytes;
    uint64_t live_bytes, largest_gap;
    uint64_t releasable;          /* what the allocator could give back to the driver */
    uint32_t site;                /* index of the driver-level site; of the first part of several */
    uint32_t first_block, blocks; /* in vt_fragmentation.blocks: they tile the segment */
    uint16_t capture;             /* number of the stream capture that it was made in; 0: none */
    int16_t device;
    uint8_t kind; /* enum vt_kind: device, vmm_mapped, ... */
    bool small;   /* for requests up to VT_SMALL_REQUEST only */
    bool pinned;  /* live blocks keep much free memory in it */
};

/* PyTorch serves requests up to this size from segments of their own, of VT_SMALL_SEGMENT each
 * (c10/cuda/CUDACachingAllocator.cpp: kSmallSize, kSmallBuffer). */
#define VT_SMALL_REQUEST (1u << 20)
#define VT_SMALL_SEGMENT (2u << 20)

/* A place whose tensors lie in pinned segments. */
struct vt_pinning {
    uint32_t site; /* index */
    int16_t device;
    uint64_t pinned_bytes;       /* free bytes in the pinned segments that its tensors lie in */
    uint64_t live_bytes, blocks; /* its tensors there */
};

/* The segments of one device added up. If not `known`, the live allocations were not copied one by one (or no tensor
 * lies in a segment): then reserved and allocated alone mean something, as sums over the places. */
struct vt_pools {
    int16_t device;
    bool known;
    uint64_t reserved, allocated;           /* bytes of segments; of tensors in them */
    uint64_t outside;                       /* bytes of tensors that lie in no segment */
    uint64_t segments, free, largest_free;  /* free: reserved - allocated */
    uint64_t releasable;                    /* bytes that the framework could give back to the driver now */
    uint64_t split_free;                    /* free bytes in segments that hold tensors; expandable ones do not count */
    uint64_t largest_between;               /* the largest free block in a segment that holds tensors */
    uint64_t free_small, free_large;        /* free for small requests and for others, private pools left out */
    uint64_t largest_small, largest_large;  /* the largest block of each */
    uint64_t pinned_segments, pinned_bytes; /* pinned_bytes: free in them */
    bool private_known;                     /* the recording says what was made during stream captures */
    uint64_t private_bytes, private_free, private_segments, private_pools;
    bool expandable;    /* mapped ranges among the segments */
    bool small_pool;    /* small requests have segments of their own */
    bool rounded;       /* `rounding` is known */
    uint64_t rounding;  /* bytes of tensors beyond what was asked for */
    double gap_squares; /* sum of squares of the gaps over the square of reserved */
};

struct vt_fragmentation {
    struct vt_pools *pools; /* one per device that has tensors, by device */
    uint32_t pool_count;
    struct vt_segment *segments; /* by address */
    uint32_t segment_count;
    struct vt_block *blocks;
    uint32_t block_count;
    struct vt_pinning *pinnings; /* by pinned_bytes, largest first */
    uint32_t pinning_count;
    uint8_t *pool_sites; /* per site index: 1 if it is driver-level memory that a framework hands on as tensors */
    uint64_t site_count;
};

/* Builds it for a recorded moment (NULL: as the file is now). Returns 0 or -ENOMEM, which leaves nothing to release. */
int vt_fragmentation_build(struct vt_fragmentation *fragmentation, const struct vt_reading *reading,
                           const struct vt_moment *moment);
void vt_fragmentation_free(struct vt_fragmentation *fragmentation);

/* Is this site (index) driver-level memory that tensors are made of? */
bool vt_fragmentation_is_pool(const struct vt_fragmentation *fragmentation, uint32_t site);

/* The pools of a device, or NULL. */
const struct vt_pools *vt_fragmentation_of(const struct vt_fragmentation *fragmentation, int device);

/* Did a framework refuse by itself, without asking the driver? */
static inline bool vt_refused_by_framework(const struct vt_failure *failure)
{
    return failure->kind == VT_FAILURE_FRAMEWORK_OOM && !failure->driver_visible;
}

enum vt_fit { VT_FIT_UNKNOWN, VT_FIT_NO, VT_FIT_YES };

/*
 * Would a request that was refused have fit, had the free memory been in one piece? `pools`: as it was at the failure.
 *   The driver refused: yes if what was free in segments for it and on the card together reaches its size.
 *   The framework refused by a limit of its own, whose value nobody tells: it lies below reserved + requested. So no if
 *   nothing was free in segments, yes if that alone suffices or is a quarter of the request and more, else unknown.
 */
enum vt_fit vt_fragmentation_fit(const struct vt_pools *pools, const struct vt_failure *failure);

/* Free bytes, and the largest block, in segments that serve requests of this size. */
uint64_t vt_fragmentation_usable(const struct vt_pools *pools, uint64_t request, uint64_t *largest);

/* The newest out-of-memory of a device that is no later than the model's moment, or the one that the moment was taken at. */
struct vt_oom_fit {
    const struct vt_failure *failure; /* NULL: there is none */
    bool known;                       /* it was known then what lay where: */
    enum vt_fit fit;
    uint64_t usable, largest; /* as of vt_fragmentation_usable(), then */
};
struct vt_model;
int vt_fragmentation_oom(struct vt_oom_fit *oom, const struct vt_model *model, int device); /* 0 or -ENOMEM */

/* Internal to fragmentation*.c: fills everything that follows from segments and blocks. Returns 0 or -ENOMEM. */
int vt_fragmentation_add_up(struct vt_fragmentation *fragmentation, const struct vt_reading *reading,
                            const struct vt_moment *moment);

#endif
