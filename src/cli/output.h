/*
 * The file that -o or --html names: written beside its place and given its name when it is complete, so that whoever
 * reads it meanwhile (a collector of metrics, a browser) has the old one or the new one, never half of one.
 */
#ifndef VT_CLI_OUTPUT_H
#define VT_CLI_OUTPUT_H

#include <stdbool.h>

struct vt_output {
    const char *verb;  /* whose error lines */
    const char *path;  /* NULL: standard output */
    const char *input; /* the recording that is read, which is never written over; NULL: nothing to protect */
    bool force;        /* a regular file that is there is replaced; a pipe or a device is written to in any case */
};

/*
 * Calls `write` with a descriptor, which stays the caller's, and `context`. `write` says itself what went wrong, and
 * returns an exit status. Returns the exit status; whatever it is, a file that was there is whole, and there is no half one;
 * nor if a signal that ends programs comes meanwhile, except SIGKILL. Not thread-safe.
 */
int vt_output_write(const struct vt_output *output, int (*write)(int fd, void *context), void *context);

#endif
