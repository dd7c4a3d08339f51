/*
 * Moments of a recording as the text report and the page tell of them: when one was, and which one comes first. Internal to
 * src/views. No function allocates; all may be called from any thread as long as the model stays as it is.
 */
#ifndef VRAMTRACK_VIEWS_MOMENTS_H
#define VRAMTRACK_VIEWS_MOMENTS_H

#include "analysis/model.h"

/* When the model's moment was, in words: "when memory ran out", "at the end". A constant. */
const char *vt_view_when(const struct vt_model *model);

/* Is it before the end of the process, so that calls were made after it which the figures of the whole run count? */
bool vt_view_is_earlier(const struct vt_model *model);

/* The moment of the first out-of-memory that was not helped, of which reports tell first: when a program ends, the exception
 * has let go of what filled the card. NULL: there is none, it was not recorded, or the model's own moment is an
 * out-of-memory. Belongs to the reading. */
const struct vt_moment *vt_view_oom_moment(const struct vt_model *model);

/* Does this process hold the same at both moments of one recording? Then one account says it. */
bool vt_view_holds_the_same(const struct vt_model *a, const struct vt_model *b);

#endif
