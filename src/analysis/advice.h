/*
 * What would help against too little memory, measure by measure, each with the bytes that it would have saved at the failure.
 *
 * The bytes are what the measure can reach at best ("up to"): shares of what was live in that category at the failure. A
 * measure that the recording shows to be in use already, or that would save less than VT_WORTH, is not named.
 */
#ifndef VRAMTRACK_ADVICE_H
#define VRAMTRACK_ADVICE_H

#include "analysis/verdict.h"

#define VT_ADVICE_MAX 5 /* measures that a verdict names */

/* Adds the measures against what tensors hold, by category; for programs without known tensors, the largest holder. */
void vt_advise_measures(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r);

/* Adds what makes the libraries of the device hold less. */
void vt_advise_libraries(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r);

/* Orders advice by the bytes that it saves, keeps VT_ADVICE_MAX, and marks what would have been enough for `missing` bytes
 * (0: that makes no sense here). */
void vt_advice_order(struct vt_finding *finding, uint64_t missing);

#endif
