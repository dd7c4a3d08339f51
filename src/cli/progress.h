/*
 * A line on the terminal while the command works for longer than a second: "vramtrack: making the report, 3 s: 20134
 * addresses looked up, now in libtorch_cpu.so". It is gone when the work is done.
 *
 * Only if standard error is a terminal that knows how to erase a line, this is its foreground job, and standard output is
 * no pipe (what reads it may be a pager, which has the terminal for itself). Drawn by a timer's signal handler, so that
 * it comes even while a library works without a pause. One at a time; not thread-safe.
 */
#ifndef VT_PROGRESS_H
#define VT_PROGRESS_H

#include "analysis/symbols.h"

/* The work begins. Nothing if it has already. */
void vt_progress_begin(void);

/* The work is done by this symbolizer; NULL: by none any more, to be said before it is closed. */
void vt_progress_watch(struct vt_symbols *symbols);

/* Erases the line if it is there: to be called before anything is written to the terminal. Nothing if no work goes on. */
void vt_progress_end(void);

#endif
