/*
 * Looks into one loaded object's dynamic section, without the loader: no lock, no error state, no other objects. (dlsym
 * would need a handle from dlopen; the link map of an object that was loaded as a dependency is none.)
 */
#ifndef VT_PRELOAD_ELF_H
#define VT_PRELOAD_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* The address of a function that the object itself exports, or NULL. */
void *vt_elf_symbol(const struct link_map *map, const char *name);

/* The name of the function that the object itself exports and whose size covers a place (an address less map->l_addr), or
 * NULL. Only l_addr and l_ld of the map are looked at. */
const char *vt_elf_covering(const struct link_map *map, uintptr_t place);

/* Does the object name a library whose name begins with `prefix` among those it needs? */
bool vt_elf_needs(const struct link_map *map, const char *prefix);

#endif
