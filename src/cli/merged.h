/*
 * The short report of several processes at once (the ranks of a job, the workers of a server): one line per process, and
 * the places that hold the memory, added up over all of them.
 */
#ifndef VT_MERGED_H
#define VT_MERGED_H

#include <stddef.h>

struct vt_reading;

/* Writes at most 25 lines to standard error. `directory` is for the line that says how to go on. 0 or -ENOMEM. */
int vt_merged_write(struct vt_reading *const *readings, size_t count, const char *directory);

#endif
