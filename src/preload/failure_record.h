/*
 * Records of failures: the same failure at the same place is one record with a count. With the state lock held; memory comes
 * from the arena, and nothing here calls CUDA.
 */
#ifndef VT_PRELOAD_FAILURE_RECORD_H
#define VT_PRELOAD_FAILURE_RECORD_H

#include "preload/track.h"

/* The record with an index that one of these functions has returned. */
struct vt_failure *vt_failure_record(uint32_t index);

/* A record of its own, or one that was withdrawn and is used again. Returns its index; VT_NONE: there is no room. */
uint32_t vt_failure_record_add(const struct vt_failure *content);

/* Adds to the record with the same key, or makes one. Returns its index, or VT_NONE. */
uint32_t vt_failure_record_count(const struct vt_failure *failure);

/* Gives a record its kind; it is merged with earlier ones of the same key, and its moment gets its name or goes. Returns the
 * index of what it is in then. */
uint32_t vt_failure_record_conclude(uint32_t index, uint32_t kind);

/* In the child of a fork, which has a recording of its own: there are none yet. */
void vt_failure_record_forget(void);

#endif
