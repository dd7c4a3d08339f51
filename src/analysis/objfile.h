/*
 * One module's file on disk: opened, checked against what was recorded, joined with its separate debug files, and
 * searched for symbols and DWARF. The part of the symbolizer that talks to elfutils.
 *
 * objfile.c opens it, objfile_debug.c finds its debug files, objfile_symbols.c and dwarf.c search it. Files are hostile
 * input: elfutils checks them, and what it hands out is checked here. Nothing is thread-safe; everything stays mapped
 * until vt_object_close().
 */
#ifndef VRAMTRACK_OBJFILE_H
#define VRAMTRACK_OBJFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/dwarf_units.h"
#include "analysis/elfutils.h"

struct vt_object_symbol {
    uint64_t start;
    const char *name; /* in the mapped string table */
    uint32_t size;    /* 0: not known (code written in assembly) */
    uint32_t rank;    /* of several names for one address the one with the highest is shown */
};

/* Where code is: a section of the file that is loaded to be run. */
struct vt_object_section {
    uint64_t start, end;
};

struct vt_object {
    const struct vt_elfutils *elf;
    int fd, debug_fd;
    Elf *main, *debug;   /* NULL: none. debug: the separate debug file, which may be there without the file itself */
    Dwarf *dwarf;        /* of either; NULL: none */
    const char *problem; /* why there are no symbols: the end of a sentence; NULL: there may be some */
    uint64_t changed_ns; /* the file's last change, CLOCK_REALTIME; 0: not known, or the build-id tells more */

    Elf *mini; /* the symbols of .gnu_debugdata, unpacked; NULL: none */
    void *mini_image;
    size_t mini_bytes;
    Elf *alt_elf; /* what dwz took out of the DWARF, if libdw did not find it by itself; NULL: none */
    Dwarf *alt;
    int alt_fd;

    bool symbols_read;
    bool symbols_complete; /* local functions are among them */
    struct vt_object_symbol *symbols;
    uint32_t symbol_count, symbol_room;
    struct vt_object_section *sections;
    uint32_t section_count;
    struct vt_units units;
};

/* One frame of an answer: function is malloc'ed, file belongs to the object. */
struct vt_object_frame {
    char *function;
    const char *file;
    uint32_t line;
    bool nearest; /* no symbol covers the address: function is the nearest one before it */
};

#define VT_OBJECT_FRAMES 32 /* inlining deeper than this is cut at its outer end */

/* Opens a file. Never fails: object->problem says why nothing will be found. build_id_bytes 0: none was recorded. */
void vt_object_open(struct vt_object *object, const char *path, const uint8_t *build_id, unsigned build_id_bytes);
void vt_object_close(struct vt_object *object);

/*
 * The frames at an address of the file, innermost first; their number (0: nothing known). The caller frees the
 * functions' names.
 */
uint32_t vt_object_find(struct vt_object *object, uint64_t address, struct vt_object_frame *frames);

/*
 * The symbol that covers the address. If none does, *nearest is set and the answer is the last symbol before it, if that
 * is in the same section and not farther than VT_OBJECT_NEAREST; else NULL. Reads and sorts the symbols on first use.
 */
#define VT_OBJECT_NEAREST \
    0x4000 /* farther away is no neighbour: a page or four is what the functions of one source take */
const char *vt_object_symbol(struct vt_object *object, uint64_t address, bool *nearest);

/* Where most of Python's evaluation loop is, if the file has it without a symbol (objfile_loop.c): a symbol to be added to
 * the exported ones, which have been read. */
bool vt_object_loop(const struct vt_object *object, struct vt_object_symbol *loop);

/* Opens a regular ELF file; *fd becomes its descriptor. NULL (and *fd -1) if it cannot be. */
Elf *vt_object_open_elf(const struct vt_elfutils *elf, const char *path, int *fd);

/* The section with this name, whose data is in this file, or NULL. */
Elf_Scn *vt_object_section(const struct vt_elfutils *elf, Elf *file, const char *name);

/*
 * Looks for debug files: /usr/lib/debug and the directories of VRAMTRACK_DEBUG_DIRS, by build-id; then the file's
 * .gnu_debuglink (objcopy), accepted by the build-id, or where one of the two has none, by the checksum in the link.
 * Sets object->debug. by_link false: by build-id alone.
 */
bool vt_object_find_debug(struct vt_object *object, const char *path, const void *id, ssize_t id_bytes, bool by_link);

/* Unpacks the symbols that .gnu_debugdata holds (Fedora and relatives); sets object->mini. */
void vt_object_unpack_mini(struct vt_object *object);

/* Looks for what dwz took out of the DWARF, by the build-id in its link: opens object->alt_elf. */
bool vt_object_find_alt(struct vt_object *object);

/* Opens the DWARF of a file of the object, if it has any; with its dwz file, where libdw does not find that by itself. */
void vt_object_open_dwarf(struct vt_object *object, Elf *file);

/* The DWARF part: as vt_object_find(), 0 if there is no DWARF for the address. When libdw runs out of memory, the
 * object's DWARF is given up (and not freed). */
uint32_t vt_object_dwarf(struct vt_object *object, uint64_t address, struct vt_object_frame *frames);

#endif
