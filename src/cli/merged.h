/*
 * The short report of several processes at once (the ranks of a job, the workers of a server): what is wrong with them as a
 * whole, each process with its end and its first finding, and the places that hold the memory. Places are added up over
 * the processes that held it at the same time on the same GPU; of others the largest one is shown.
 */
#ifndef VT_MERGED_H
#define VT_MERGED_H

#include "cli/child.h"

struct vt_reading;
struct vt_symbols;
struct vt_merged;

/* `child` knows how processes ended, and must outlive it. NULL: out of memory. */
struct vt_merged *vt_merged_open(const struct vt_child *child);
void vt_merged_close(struct vt_merged *merged);

/* Takes a process over; the recording may be closed afterwards. 0 or a negative errno. */
int vt_merged_add(struct vt_merged *merged, struct vt_reading *reading);

/* What names are looked up with. */
struct vt_symbols *vt_merged_symbols(const struct vt_merged *merged);

/* Writes at most 25 lines to standard error. `directory` is for the line that says how to go on. 0 or a negative errno. */
int vt_merged_write(struct vt_merged *merged, const char *directory);

#endif
