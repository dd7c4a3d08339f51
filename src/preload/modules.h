/* The recording's module list and its stack tree; used by stack interning only. With the state lock held. */
#ifndef VT_PRELOAD_MODULES_H
#define VT_PRELOAD_MODULES_H

#include "preload/stack.h"

/* Index of a loaded object in VT_MODULES, added at its first use; VT_NONE if the list is full. */
uint32_t vt_module_index(const struct vt_object *object);

/* The id of a node of the stack tree, made at its first use; 0: the tree is full. */
uint32_t vt_frame_id(uint32_t parent, uint32_t module, uint64_t where);

/* Remembers a whole stack's id under its hash, for vt_stack_find. */
void vt_stack_remember(uint64_t hash, uint32_t id);

void vt_module_forget(void);

#endif
