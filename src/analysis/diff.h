/*
 * What changed between two runs, two ranks or two moments of one run: totals, what tensors are to the program, and places.
 *
 * A side is one recording at one moment, or all recordings of a job added up. Places are matched first exactly, then, among
 * those that are in one side only, by the functions of their frames: a place whose lines have changed "moved". What is left
 * and has the same line, the same calls inside of it and nearly the same bytes is one place that other code calls now.
 * Three measures: what was live at the moment; what each place held at the highest point (the moment "peak"); what was ever
 * allocated, of the whole run. With `per_step` each side's figures are divided by its training steps.
 *
 * Uses malloc, no output, never exits. Text belongs to the diff; recordings may be closed when they have been added.
 */
#ifndef VRAMTRACK_DIFF_H
#define VRAMTRACK_DIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "analysis/site_match.h"

enum vt_diff_by { VT_DIFF_LIVE, VT_DIFF_AT_PEAK, VT_DIFF_ALLOCATED, VT_DIFF_BY_COUNT };

/* "live", "at-peak", "allocated". */
const char *vt_diff_by_name(enum vt_diff_by by);

/* What device memory is used for; the first VT_PART_COUNT are those of tensors. */
enum {
    VT_DIFF_CACHED = VT_PART_COUNT, /* by a framework, and unused */
    VT_DIFF_LIBRARIES,
    VT_DIFF_APPLICATION,
    VT_DIFF_PARTS
};

/* "parameters", ..., "cached_unused", "libraries", "application". */
const char *vt_diff_part_name(unsigned part);

struct vt_diff_side {
    const char *path; /* the caller's: what the side is called */
    char moment[33];  /* of the (last) recording */
    char program[64], host[64];
    int32_t pid, rank; /* of the (last) recording */
    uint32_t recordings;
    uint64_t steps;        /* the most of a recording, at the moment; of the whole run for VT_DIFF_ALLOCATED */
    uint64_t device_bytes; /* all that the cards held for it: level driver */
    uint64_t tensor_bytes; /* of it or in other memory of a card: level tensor */
    uint64_t part[VT_DIFF_PARTS];
    bool parts_known;    /* not of VT_DIFF_ALLOCATED */
    uint64_t rest;       /* of places that found no room to be compared one by one */
    char missing[96];    /* what the first incomplete recording lacks (as in the model); empty: all are whole */
    uint32_t incomplete; /* recordings */
    uint32_t unreadable; /* files that may belong to it and can't be read; the caller's */
};

struct vt_diff_total {
    uint8_t level, kind;
    int device; /* VT_SPOT_HOST, VT_SPOT_ANY or an ordinal */
    uint64_t bytes[2], count[2];
};

struct vt_diff_site {
    uint32_t place[2]; /* index in places, before and after; VT_NONE: there is none */
    uint64_t bytes[2], count[2];
    bool moved;         /* matched by its functions, not by its lines */
    bool other_callers; /* matched by its line, what that calls and its bytes, not by who calls it */
};

struct vt_diff_rank {
    int32_t rank;
    bool present[2];
    uint64_t bytes[2]; /* as device_bytes */
};

struct vt_diff {
    enum vt_diff_by by;
    bool per_step;
    struct vt_spots *places;
    struct vt_diff_side side[2]; /* before, after */
    struct vt_diff_total *totals;
    uint32_t total_count;
    struct vt_diff_site *sites; /* largest change first */
    uint32_t site_count;
    struct vt_diff_rank *ranks; /* by rank; those of jobs only */
    uint32_t rank_count;
    struct vt_diff_site *values; /* by place, until vt_diff_finish() */
    uint32_t value_count;
};

/* Returns 0 or -ENOMEM (then there is nothing to free). */
int vt_diff_open(struct vt_diff *diff, enum vt_diff_by by, bool per_step, bool all_frames);

/* The moment at which a recording is to be analysed for this measure: `moment`, or "peak". */
const char *vt_diff_moment(const struct vt_diff *diff, const char *moment);

/*
 * Adds a recording to side 0 (before) or 1 (after). any_device: GPUs are not told apart (the recordings of
 * a job; or the one GPU of a rank, set against that of another rank). is_rank: it gets a row in `ranks`.
 * Returns 0 or -ENOMEM.
 */
int vt_diff_add(struct vt_diff *diff, unsigned side, const struct vt_analysis *analysis, bool any_device, bool is_rank);

/* Matches, divides and sorts. Returns 0 or -ENOMEM. With per_step, each side needs steps. */
int vt_diff_finish(struct vt_diff *diff);

void vt_diff_free(struct vt_diff *diff);

/* After minus before, as far as an int64_t goes. */
int64_t vt_diff_change(const uint64_t bytes[2]);

/* "grew", "shrank", "appeared", "vanished" or "unchanged". */
const char *vt_diff_word(const uint64_t bytes[2]);

/* By how much device memory or tensors grew, whichever is more; 0: neither did. *before: what that was. */
uint64_t vt_diff_growth(const struct vt_diff *diff, uint64_t *before);

/* How many GPUs the recording had memory on, and the number of (the last) one. */
unsigned vt_diff_gpus(const struct vt_model *model, int *ordinal);

#endif
