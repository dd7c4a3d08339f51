/*
 * What kind of retention makes a place of tensors grow, as far as its phase and its Python stack go, and what to do about
 * it. Evidence, not proof: which object holds a tensor is not in a recording.
 *
 * Pure functions over a model; usable from any thread that may use it.
 */
#ifndef VRAMTRACK_RETENTION_H
#define VRAMTRACK_RETENTION_H

#include <stdint.h>

#include "analysis/model.h"

enum vt_retention {
    VT_RETAINED_GRAPH,    /* made inside a module's forward and kept: saved for a backward that never freed it */
    VT_RETAINED_BACKWARD, /* made in backward and kept: a graph of gradients, or gradients that are stored */
    VT_RETAINED_HOOK,     /* made in a hook */
    VT_RETAINED_COPY,     /* a copy of parameters: deepcopy, a state that is kept */
    VT_RETAINED_DATA,     /* made while data was fetched */
    VT_RETAINED_RESULT,   /* made by the program's own line, or by a function that it called */
    VT_RETAINED_MEMORY,   /* no tensor: memory of the program's own calls */
    VT_RETENTION_COUNT
};

enum vt_retention vt_retention_of(const struct vt_model *model, const struct vt_site_row *row);

/* "made in a module's forward and kept ..." for evidence, and what helps, in the words of the frameworks (frameworks.h):
 * literals. */
const char *vt_retention_words(enum vt_retention retention);
const char *vt_retention_advice(enum vt_retention retention, unsigned frameworks);

#endif
