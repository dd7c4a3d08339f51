/* The recording's module list and its stack tree; used by stack interning only. With the state lock held. */
#ifndef VT_PRELOAD_MODULES_H
#define VT_PRELOAD_MODULES_H

#include "preload/stack.h"

/* Index of a loaded object in VT_MODULES, added at its first use; VT_NONE if the list is full. */
uint32_t vt_module_index(const struct vt_object *object);

void vt_module_forget(void);

#endif
