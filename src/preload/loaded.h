/*
 * Objects that are loaded in this process, whatever has become of their files (deleted, replaced by a newer build while the
 * process runs): functions by name, names by place.
 */
#ifndef VT_PRELOAD_LOADED_H
#define VT_PRELOAD_LOADED_H

#include <stdint.h>

#include "preload/stack.h"
#include "vramtrack/recording.h"

/*
 * The name of the exported function that covers a place (an address less module->bias), malloc'ed, if the module is loaded
 * now, at the same address and of the same build; else NULL. Takes the loader's lock: not with the state lock held.
 */
char *vt_loaded_name(const struct vt_module *module, uint64_t place);

/* A function of the first loaded library whose file name begins with `library` that exports it ("": of any object but this
 * library); NULL if there is none. A walk over all loaded objects: not for hot paths. */
void *vt_loaded_symbol(const char *library, const char *symbol);

/* A function that was found, and what vt_stack_salt() was then. Zero: not looked for yet. */
struct vt_loaded_function {
    void *function;
    uint64_t salt;
};

/* vt_loaded_symbol() behind it: in that library, else in any (one that goes by an unusual name, or holds it statically). */
void *vt_loaded_look_up(struct vt_loaded_function *known, const char *library, const char *symbol);

/* The same in two loads once it was found; it is looked for again after a dlclose. NULL: nobody has it. */
static inline void *vt_loaded_function(struct vt_loaded_function *known, const char *library, const char *symbol)
{
    if (__atomic_load_n(&known->salt, __ATOMIC_ACQUIRE) == vt_stack_salt()) {
        void *function = __atomic_load_n(&known->function, __ATOMIC_RELAXED);
        if (function)
            return function;
    }
    return vt_loaded_look_up(known, library, symbol);
}

/* The path of the first loaded library whose file name begins with `library`, the loader's own string; "" if there is none. */
const char *vt_loaded_path(const char *library);

#endif
