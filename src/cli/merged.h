/*
 * The short report of several processes at once (the ranks of a job, the workers of a server): each process with its end
 * and its first finding, and the places that hold the memory. Places are added up over the processes that held it at the
 * same time on the same GPU; of others the largest one is shown.
 */
#ifndef VT_MERGED_H
#define VT_MERGED_H

#include <stddef.h>

#include "cli/child.h"

struct vt_reading;

/* Writes at most 25 lines to standard error. `directory` is for the line that says how to go on, `child` knows how
 * processes ended. 0 or -ENOMEM. */
int vt_merged_write(struct vt_reading *const *readings, size_t count, const char *directory,
                    const struct vt_child *child);

#endif
