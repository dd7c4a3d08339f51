/*
 * What `vramtrack run` does when its program has ended: finds the recordings of this run, writes the text reports that
 * are not there yet, and a short summary on standard error.
 */
#ifndef VT_AFTER_H
#define VT_AFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/child.h"
#include "cli/recordings.h"

struct vt_after {
    const char *directory;
    struct vt_found_list before; /* what was there when the program started */
    const struct vt_child *child;
    int run_pid;   /* what VRAMTRACK_RUN was set to */
    bool quiet;    /* text reports only, nothing on standard error */
    bool oom_only; /* nothing about processes that did not run out of memory */
};

/* Never fails loudly: what can't be reported is one line on standard error. */
void vt_after_report(const struct vt_after *after);

#endif
