/*
 * When what is live was made, place by place, on a clock of the program's work. This is what growth is judged by
 * (findings_growth.c): what survives says more than how live bytes went up and down, as no temporary disturbs it.
 *
 * Clocks, the first that has enough ticks:
 *   steps     training steps (VT_STEPS)
 *   passes    backward passes, from the events as far as these reach back: loops without an optimizer
 *   time      nanoseconds
 * and, for those who ask (the verdict on a full card),
 *   rounds    memory was allocated and some was freed again, from the events: the turns of any loop
 *
 * Uses malloc; belongs to one model and lives no longer. Not thread-safe.
 */
#ifndef VRAMTRACK_BIRTHS_H
#define VRAMTRACK_BIRTHS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/model.h"

enum vt_clock { VT_CLOCK_STEPS, VT_CLOCK_PASSES, VT_CLOCK_TIME, VT_CLOCK_ROUNDS };

struct vt_birth {
    uint64_t time_ns, bytes;
};

struct vt_births {
    const struct vt_model *model;
    struct vt_birth *all;
    uint64_t *first; /* births of row i: all[first[i]] to all[first[i + 1] - 1], by time */
    uint32_t rows;
    enum vt_clock clock;
    uint64_t *passes; /* when each backward pass or round began */
    uint64_t pass_count;
};

/*
 * Collects the births of the model's first `rows` rows at its moment, and chooses the clock: one that has `ticks_min` ticks
 * by then. Returns 0 or -ENOMEM; vt_births_free() in either case.
 */
int vt_births_take(struct vt_births *births, const struct vt_model *model, uint32_t rows, uint64_t ticks_min);
void vt_births_free(struct vt_births *births);

/* Changes the clock from time to rounds, if there are `ticks_min` of these. Returns 0 or -ENOMEM. */
int vt_births_by_rounds(struct vt_births *births, uint64_t ticks_min);

/* Are the births of a row known? Not where the recording has no copy of the live allocations of that moment. */
bool vt_births_known(const struct vt_births *births, uint32_t row);

/* Births of a row: how many, and the first of them. */
uint64_t vt_births_count(const struct vt_births *births, uint32_t row);
const struct vt_birth *vt_births_of(const struct vt_births *births, uint32_t row);

/* For each row, how many allocations it has made since its oldest live one, that one counted; UINT64_MAX where the births are not
 * known or the events do not reach back that far. `made` has a place for every row. Returns 0 or -ENOMEM. */
int vt_births_made_since_oldest(const struct vt_births *births, uint64_t *made);

/* The clock's reading at a time, from 0; and at the model's moment. */
uint64_t vt_births_tick(const struct vt_births *births, uint64_t time_ns);
uint64_t vt_births_now(const struct vt_births *births);

/* Have a row's live allocations been made at a steady rate from tick `from` until the moment (trend.h)? False where they
 * are not known, or memory ran out. */
bool vt_births_are_steady(const struct vt_births *births, uint32_t row, uint64_t from);

/* Where births say nothing: does the curve of a row's live bytes rise steadily from its first allocation to the moment
 * (trend.h)? False with fewer points than can tell. */
bool vt_births_curve_rises(const struct vt_model *model, const struct vt_site_row *row);

#endif
