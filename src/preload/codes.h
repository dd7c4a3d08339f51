/* Python stacks and code objects in the recording. With the state lock held, unless said otherwise. */
#ifndef VT_PRELOAD_CODES_H
#define VT_PRELOAD_CODES_H

#include "preload/python/python.h"

/* Looks for an interpreter if Python stacks are wanted. Without the lock, from a place where dlsym is allowed; leaves no
 * error for the program's dlerror(). */
void vt_codes_prepare(void);

/* The frame id of a Python stack that was just taken (its code objects are still alive), added if it is new; 0: no room. */
uint32_t vt_codes_intern(const struct vt_python_stack *stack);

/* Notes in the header what takes the stacks of both languages, or why nothing does. */
void vt_codes_note_sources(void);

void vt_codes_forget(void);

#endif
