/*
 * Names of code in objects that are loaded in this process, whatever has become of their files (deleted, replaced by a
 * newer build while the process runs).
 */
#ifndef VT_PRELOAD_LOADED_H
#define VT_PRELOAD_LOADED_H

#include <stdint.h>

#include "vramtrack/recording.h"

/*
 * The name of the exported function that covers a place (an address less module->bias), malloc'ed, if the module is loaded
 * now, at the same address and of the same build; else NULL. Takes the loader's lock: not with the state lock held.
 */
char *vt_loaded_name(const struct vt_module *module, uint64_t place);

#endif
