/*
 * Moments that somebody outside asks for (`vramtrack snapshot`): through words of the recording's header, because a signal
 * could be the program's own, and ptrace is forbidden in many places.
 */
#ifndef VT_PRELOAD_REQUEST_H
#define VT_PRELOAD_REQUEST_H

#include "preload/state.h"

/* Behind vt_request_look(). */
void vt_request_answer(void);

/* Takes the moment that is asked for, if one is. With the state lock just taken: the thread that books next takes it, before
 * it books, so the moment is what was live when it was asked for. Costs one load while nobody asks. */
static inline void vt_request_look(void)
{
    if (__builtin_expect(__atomic_load_n(&vt_header()->request, __ATOMIC_RELAXED) != 0, 0))
        vt_request_answer();
}

#endif
