/*
 * One module's file on disk: opened, checked against the recorded build-id, joined with its separate debug file, and
 * searched for symbols and DWARF. The part of the symbolizer that talks to elfutils.
 *
 * Nothing here is thread-safe; everything stays mapped until vt_object_close().
 */
#ifndef VRAMTRACK_OBJFILE_H
#define VRAMTRACK_OBJFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/elfutils.h"

struct vt_object_symbol {
    uint64_t start, size;
    const char *name; /* in the mapped string table */
};

struct vt_object_range {
    uint64_t start, end;
    uint32_t unit; /* index in units */
};

struct vt_object {
    const struct vt_elfutils *elf;
    int fd, debug_fd;
    Elf *main, *debug;   /* debug: the separate debug file; NULL: none */
    Dwarf *dwarf;        /* of either; NULL: none */
    const char *problem; /* why there are no symbols: the end of a sentence; NULL: there may be some */

    bool symbols_read, units_read;
    struct vt_object_symbol *symbols;
    uint32_t symbol_count;
    Dwarf_Die *units;
    uint32_t unit_count;
    struct vt_object_range *ranges;
    uint32_t range_count;
};

/* One frame of an answer: function is malloc'ed, file belongs to the object. */
struct vt_object_frame {
    char *function;
    const char *file;
    uint32_t line;
};

#define VT_OBJECT_FRAMES 32 /* inlining deeper than this is cut at its outer end */

/* Opens a file. Never fails: object->problem says why nothing will be found. build_id_bytes 0: not compared. */
void vt_object_open(struct vt_object *object, const char *path, const uint8_t *build_id, unsigned build_id_bytes);
void vt_object_close(struct vt_object *object);

/*
 * The frames at an address of the file, innermost first; their number (0: nothing known). The caller frees the
 * functions' names.
 */
uint32_t vt_object_find(struct vt_object *object, uint64_t address, struct vt_object_frame *frames);

/* The symbol whose size covers the address, or NULL. Reads and sorts the symbol table on first use. */
const char *vt_object_symbol(struct vt_object *object, uint64_t address);

/* Opens the DWARF of a file of the object, if it has any. */
void vt_object_open_dwarf(struct vt_object *object, Elf *file);

/* The DWARF part: as vt_object_find(), 0 if there is no DWARF for the address. When libdw runs out of memory, the
 * object's DWARF is given up (and not freed). */
uint32_t vt_object_dwarf(struct vt_object *object, uint64_t address, struct vt_object_frame *frames);

#endif
