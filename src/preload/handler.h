/* Whether the calling thread is inside a signal handler. Async-signal-safe. */
#ifndef VT_PRELOAD_HANDLER_H
#define VT_PRELOAD_HANDLER_H

#include <stdbool.h>

/*
 * _exit and abort may be called from a handler, and what the signal interrupted may be malloc or the loader: then nothing
 * that uses these may run. True if a signal frame lies on the stack (or did, in what looks like a live frame), or if the
 * stack can't be looked at. Costs some hundred system calls: for the end of a process.
 */
bool vt_in_signal_handler(void);

#endif
