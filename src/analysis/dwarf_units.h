/*
 * Where in the DWARF of a file something is: the unit that an address belongs to, the function of the unit that holds
 * it, and the namespaces and classes around an entry.
 *
 * All are indices that are made once, when they are first needed: of all units, of a unit's functions, of a unit's scopes.
 * Without them each look-up would walk over all that a unit declares, which in a debug build of a large program takes a
 * millisecond.
 *
 * Internal to the DWARF part of the symbolizer. libdw is called: only where its out-of-memory handler is set. Lack of
 * memory of our own makes an index shorter. Not thread-safe.
 */
#ifndef VRAMTRACK_DWARF_UNITS_H
#define VRAMTRACK_DWARF_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/elfutils.h"

struct vt_function_range {
    uint64_t start, end;
    Dwarf_Die die;
};

/* An entry with children, in the order of the file. Entries are told apart by where they lie. */
struct vt_scope_entry {
    uintptr_t start, end; /* end UINTPTR_MAX: as far as its parent */
    uint32_t parent;      /* index + 1; 0: the unit itself */
    Dwarf_Die die;
};

struct vt_unit {
    Dwarf_Die die;
    bool functions_read, inner_read, scopes_read; /* inner: functions in functions as well */
    struct vt_function_range *functions;          /* by start */
    uint32_t function_count;
    struct vt_scope_entry *scopes; /* by start */
    uint32_t scope_count;
};

struct vt_unit_range {
    uint64_t start, end;
    uint32_t unit; /* index in units */
};

/* Zeroed: nothing is known yet. */
struct vt_units {
    bool read;
    struct vt_unit *units;
    uint32_t count;
    struct vt_unit_range *ranges; /* by start */
    uint32_t range_count;
};

/* The unit whose code holds the address, or NULL. */
struct vt_unit *vt_units_find(struct vt_units *units, const struct vt_elfutils *elf, Dwarf *dwarf, uint64_t address);

/* The innermost function entry of the unit whose code holds the address, or NULL. */
Dwarf_Die *vt_unit_function(struct vt_unit *unit, const struct vt_elfutils *elf, uint64_t address);

#define VT_SCOPES_MAX 64 /* scopes in each other; deeper ones are not looked at */

/* The entries of the unit around one of its entries, outermost first, without the unit and the entry itself; returns how
 * many (at most VT_SCOPES_MAX). */
uint32_t vt_unit_scopes(struct vt_unit *unit, const struct vt_elfutils *elf, const Dwarf_Die *die, Dwarf_Die *scopes);

void vt_units_free(struct vt_units *units);

#endif
