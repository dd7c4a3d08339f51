/*
 * Looks into one loaded object's dynamic section, without the loader: no lock, no error state, no other objects. (dlsym
 * would need a handle from dlopen; the link map of an object that was loaded as a dependency is none.)
 */
#ifndef VT_PRELOAD_ELF_H
#define VT_PRELOAD_ELF_H

#include <link.h>
#include <stdbool.h>

/* The address of a function that the object itself exports, or NULL. */
void *vt_elf_symbol(const struct link_map *map, const char *name);

/* Does the object name a library whose name begins with `prefix` among those it needs? */
bool vt_elf_needs(const struct link_map *map, const char *prefix);

#endif
