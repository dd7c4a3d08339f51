/*
 * Which frameworks hand out tensors on a device, by name: from what their allocators said of themselves, else from the
 * libraries that took the segments.
 */
#ifndef VRAMTRACK_FRAMEWORKS_H
#define VRAMTRACK_FRAMEWORKS_H

#include "analysis/model.h"

/* Bits 1 << enum vt_framework; 0: not known. */
unsigned vt_frameworks_on(const struct vt_model *model, int device);

/* The same on all devices together. */
unsigned vt_frameworks_all(const struct vt_model *model);

/* "PyTorch", "JAX", "PyTorch and JAX", "the framework". Returns buffer (VT_FRAMEWORKS_NAME long). */
#define VT_FRAMEWORKS_NAME 48
const char *vt_frameworks_name(char *buffer, unsigned frameworks);

/* What a framework calls what it hands out: "tensors" or, for JAX alone, "arrays". */
const char *vt_frameworks_tensors(unsigned frameworks);

/*
 * The arena of a framework that takes one large piece of the card at its start and serves everything from it (XLA's and
 * TensorFlow's allocator): the bytes of the pool of `device`, if it consists of one allocation of the driver at most per
 * framework of that sort and of nothing else; 0: it is no arena.
 */
uint64_t vt_frameworks_arena(const struct vt_model *model, int device);

/* Did an allocator refuse that asks the driver until it has all that it may take (XLA's, TensorFlow's)? Then only what was free in
 * its memory counts. */
bool vt_frameworks_cannot_grow(const struct vt_model *model, const struct vt_failure *failure);

#endif
