/*
 * Code outside all loaded objects: what a JIT compiler, libffi or the program itself put into memory. It is recorded as
 * what the kernel calls that memory, and by whose compilers there are.
 */
#ifndef VT_PRELOAD_MAPPINGS_H
#define VT_PRELOAD_MAPPINGS_H

#include "preload/stack.h"

struct vt_mapping {
    uint32_t
        module; /* index in VT_MODULES of a record with VT_MODULE_MAPPING: one for all anonymous memory, one for each
                        named mapping; VT_NONE: not known */
    uintptr_t bias;
    bool no_code; /* what is there can't be executed: it is no return address, and the unwinder has lost its way */
};

/* What is at an address that no loaded object has. With the state lock held. */
struct vt_mapping vt_mapping_at(uintptr_t address);

/* Adds the loaded compilers to the objects of a stack that has frames outside all objects, so that they are in the
 * recording's list of modules. Asks the loader: without the lock. */
void vt_mapping_note_compilers(struct vt_stack_objects *objects);

void vt_mapping_forget(void);

#endif
