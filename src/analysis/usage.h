/*
 * What is taken on a card beside what this process has allocated: by its CUDA context and code, by other processes, by
 * the driver; from the recording's readings (VT_USAGES, failures, devices). Part of the account.
 *
 * A reading belongs to its own instant, so it is always set against what this process held then. What follows from it, the
 * rest that is not this process's allocations, is taken to be the same at the moment shown.
 *
 * The recording is not trusted: lists have a limit, sums don't overflow. Uses malloc, never exits.
 */
#ifndef VRAMTRACK_USAGE_H
#define VRAMTRACK_USAGE_H

#include "analysis/model.h"

#define VT_OTHERS_MAX 256u
#define VT_USAGES_MAX 1024u /* looked at; the recorder writes fewer */

struct vt_card_usage {
    bool rest_known; /* some reading says how much is free */
    uint64_t rest;   /* of what CUDA offers: neither free nor allocated by this process; the parts below are in it */
    bool exact;      /* read at the moment itself: then free_bytes was free */
    uint64_t free_bytes; /* at the reading */

    bool context_known;
    uint64_t context;
    uint64_t pool_unused;            /* what stream-ordered pools kept beyond what was live in them */
    bool others_known;               /* the processes below are all there are */
    struct vt_other_process *others; /* largest first; to be freed */
    uint32_t other_count;
    uint64_t reserved; /* by the driver, of what CUDA offers */

    bool card_known;                    /* NVML's view of the card: */
    uint64_t card_bytes, card_reserved; /* its size, and what the driver keeps of that, offered by CUDA or not */
};

/*
 * Finds what is known of a device at the model's moment. The parts add up to `rest` at most, if that is known. Needs the
 * model's reading, moment and failures. Returns 0 or -ENOMEM; free(usage->others) releases what it took.
 */
int vt_usage_of(const struct vt_model *model, const struct vt_device *device, struct vt_card_usage *usage);

/* Cuts the rest and its parts to `most` bytes, which is what is left of the device: somebody has given memory back. */
void vt_usage_limit(struct vt_card_usage *usage, uint64_t most);

/* What of the rest belongs to none of the parts. */
uint64_t vt_usage_unaccounted(const struct vt_card_usage *usage);

/* A reading of free memory, and what this process held at that instant. */
struct vt_free_reading {
    uint64_t free_bytes, live_bytes, time_ns;
    bool known, own; /* own: taken at the moment itself */
};

/* The newest one that is not after the model's moment; a moment's own reading is part of it. */
struct vt_free_reading vt_usage_free(const struct vt_model *model, const struct vt_device *device);

/* Do a reading's free and total speak of what CUDA offers of the device? (Not of the card of which it is a part.) */
bool vt_usage_fits(const struct vt_usage *usage, const struct vt_device *device);

/* Was the reading taken at the model's moment? */
bool vt_usage_is_own(const struct vt_model *model, const struct vt_usage *usage);

#endif
