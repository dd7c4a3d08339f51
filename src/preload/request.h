/*
 * Moments that somebody outside asks for (`vramtrack snapshot`): through words of the recording's header, because a signal
 * could be the program's own, and ptrace is forbidden in many places.
 */
#ifndef VT_PRELOAD_REQUEST_H
#define VT_PRELOAD_REQUEST_H

/* Takes the moment that is asked for (header.request is not 0). With the state lock just taken: the thread that books next
 * takes it, before it books, so the moment is what was live when it was asked for. */
void vt_request_answer(void);

#endif
