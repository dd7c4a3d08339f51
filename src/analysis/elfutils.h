/*
 * elfutils at run time: libelf and libdw are opened when symbols are first wanted, and called through this table. They
 * must not be linked: this code is part of the preload library, and every library that it depended on would be loaded
 * into every process.
 *
 * The headers of elfutils are needed to build, the libraries only to run.
 */
#ifndef VRAMTRACK_ELFUTILS_H
#define VRAMTRACK_ELFUTILS_H

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <lzma.h>
#include <zlib.h>

/* Every function used, once: X(name). libelf's first. */
/* clang-format off */
#define VT_ELF_FUNCTIONS(X) \
    X(elf_version) X(elf_begin) X(elf_memory) X(elf_end) X(elf_kind) X(elf_nextscn) \
    X(elf_getdata) X(elf_strptr) X(elf_getshdrstrndx) X(gelf_getshdr) X(gelf_getsym)
#define VT_DW_FUNCTIONS(X) \
    X(dwelf_elf_gnu_build_id) X(dwelf_elf_gnu_debuglink) X(dwelf_dwarf_gnu_debugaltlink) \
    X(dwarf_getalt) X(dwarf_setalt) X(dwarf_begin_elf) X(dwarf_end) \
    X(dwarf_new_oom_handler) X(dwarf_get_units) X(dwarf_ranges) X(dwarf_child) \
    X(dwarf_siblingof) X(dwarf_tag) X(dwarf_haspc) X(dwarf_attr) X(dwarf_attr_integrate) \
    X(dwarf_formstring) X(dwarf_formudata) X(dwarf_formref_die) X(dwarf_diename) \
    X(dwarf_srclang) X(dwarf_getscopes_die) X(dwarf_getsrc_die) X(dwarf_lineno) \
    X(dwarf_linesrc) X(dwarf_getsrcfiles) X(dwarf_filesrc)
/* Of the libraries that libdw itself needs; missing ones are NULL. */
#define VT_PACK_FUNCTIONS(X) X(crc32) X(lzma_stream_buffer_decode)
/* clang-format on */

struct vt_elfutils {
#define X(name) __typeof__(&name) name;
    VT_ELF_FUNCTIONS(X)
    VT_DW_FUNCTIONS(X)
    VT_PACK_FUNCTIONS(X)
#undef X
};

/*
 * The table, or NULL if the libraries (0.171 or newer) are not there. They are looked for in lib/ and vramtrack/ beside
 * the object that holds this code, in ../lib/vramtrack/lib/ (the installed command), then where the system keeps
 * libraries. The answer never changes; the libraries stay loaded. Thread-safe.
 */
const struct vt_elfutils *vt_elfutils(void);

#endif
