/*
 * Functions of frameworks' libraries that this library exports as well (torch/, tensorflow/, nccl/): what dlsym says of
 * their names.
 *
 * Part of dlsym's path: no lock, no malloc, no CUDA call, and built without a sanitizer.
 */
#ifndef VT_PRELOAD_FOREIGN_H
#define VT_PRELOAD_FOREIGN_H

#include <stdbool.h>

/* Is `name` one of them? Then *answer is what `caller` would find without this library; NULL: nothing. Nothing is
 * substituted: who asks a library for its function gets that. */
bool vt_foreign(void *handle, const char *name, const void *caller, void **answer);

#endif
