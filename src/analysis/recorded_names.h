/*
 * The names of native frames that a recording brings along (VT_NAMES): what the recorded process found out about them
 * itself, for reading the recording where its files are not.
 *
 * All records are looked at once, when the index is made; what is damaged in them is left out. Strings belong to the
 * reading. Not thread-safe; no output.
 */
#ifndef VRAMTRACK_RECORDED_NAMES_H
#define VRAMTRACK_RECORDED_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/symbols.h"
#include "recording/reader.h"

struct vt_recorded_names;

/* Returns the index, or NULL if the recording has no names or memory ran out. The reading must outlive it. */
struct vt_recorded_names *vt_recorded_names_open(const struct vt_reading *reading);
void vt_recorded_names_close(struct vt_recorded_names *names);

/*
 * What the process found out about a frame (module and where as in struct vt_frame). False: it did not look it up.
 * *symbol has count 0 if it did and there was nothing to know. names may be NULL.
 */
bool vt_recorded_names_find(const struct vt_recorded_names *names, uint32_t module, uint64_t where,
                            struct vt_symbol *symbol);

#endif
