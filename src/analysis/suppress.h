/*
 * Suppressions: a file that names what is not to be reported as a leak or as growth, in the form of LeakSanitizer's:
 *
 *   # a comment
 *   leak:load_weights
 *   leak:libvendor*.so
 *
 * A pattern is looked for in the function, file and module names of every frame of a place, anywhere in the name; `*`
 * stands for any characters, `^` at the start and `$` at the end bind it to the name's. Lines that are not understood are
 * told with their number. The file is what the environment variable VRAMTRACK_SUPPRESSIONS says.
 *
 * Uses malloc, no stdio streams, never exits. Not thread-safe per object.
 */
#ifndef VRAMTRACK_SUPPRESS_H
#define VRAMTRACK_SUPPRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/stack.h"

struct vt_suppressions {
    char *text;      /* the file; patterns point into it */
    char **patterns; /* NUL-terminated */
    uint32_t count;
    uint64_t bytes, places; /* what was suppressed: the caller adds it up */
};

/* Called with a sentence for people about what is wrong with the file. */
typedef void vt_suppress_warn(void *context, const char *sentence);

/* Reads a file; NULL or "": none. What can't be read or understood is told to `warn` and passed over. 0 or -ENOMEM. */
int vt_suppressions_load(struct vt_suppressions *suppressions, const char *path, vt_suppress_warn *warn, void *context);
void vt_suppressions_free(struct vt_suppressions *suppressions);

/* Does a pattern fit any frame? */
bool vt_suppressions_match(const struct vt_suppressions *suppressions, const struct vt_trace *trace);

/* Does a pattern fit a name, as above? name may be NULL. For tests. */
bool vt_suppressions_fits(const char *pattern, const char *name);

#endif
