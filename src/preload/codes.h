/* Python stacks and code objects in the recording. With the state lock held. */
#ifndef VT_PRELOAD_CODES_H
#define VT_PRELOAD_CODES_H

#include "preload/python/python.h"

/* The frame id of a Python stack that was just taken (its code objects are still alive), added if it is new; 0: no room. */
uint32_t vt_codes_intern(const struct vt_python_stack *stack);

/* Notes in the header what takes the stacks of both languages, or why nothing does. */
void vt_codes_note_sources(void);

void vt_codes_forget(void);

#endif
