/*
 * Symbols: from (module file, build-id, address) to function, file and line, with the inlined frames.
 *
 * elfutils (libelf, libdw) does the work. It is loaded with dlopen when first needed, never linked: this code is part
 * of the preload library, which depends on nothing but libc. Without elfutils, for files that are gone and for files
 * whose build-id differs from the recorded one, there are no symbols: a frame stays "module+offset", and a note says
 * why.
 *
 * Files are mapped, not read; symbol tables are sorted once per module; answers are kept per (module, address).
 * Not thread-safe per object. No output, no exit. Files stay mapped until vt_symbols_close().
 */
#ifndef VRAMTRACK_SYMBOLS_H
#define VRAMTRACK_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct vt_symbols;

/* One frame. Strings are owned by the symbolizer. */
struct vt_symbol_frame {
    const char *function; /* qualified C++ name without arguments, or the plain name; NULL: unknown */
    const char *file;     /* NULL: unknown */
    uint32_t line;        /* 0: unknown */
};

/* The frames of one address, innermost first: inlined ones, then the function itself. count 0: nothing is known. */
struct vt_symbol {
    const struct vt_symbol_frame *frames;
    uint32_t count;
};

/* Returns a symbolizer, or NULL when memory ran out. Works (with empty answers) if elfutils cannot be loaded. */
struct vt_symbols *vt_symbols_open(void);
void vt_symbols_close(struct vt_symbols *symbols);

/* False if elfutils could not be loaded. */
bool vt_symbols_available(const struct vt_symbols *symbols);

/*
 * Looks an address up. path: the module's file. build_id, build_id_bytes: as recorded; 0 bytes: unknown, not compared.
 * address: as in the file (virtual address minus load bias); for a return address, pass it minus 1.
 * Never fails: what is not known has count 0. The answer lives as long as the symbolizer.
 */
struct vt_symbol vt_symbols_find(struct vt_symbols *symbols, const char *path, const uint8_t *build_id,
                                 unsigned build_id_bytes, uint64_t address);

/* Why something was not symbolized: sentences owned by the symbolizer. */
uint32_t vt_symbols_notes(const struct vt_symbols *symbols);
const char *vt_symbols_note(const struct vt_symbols *symbols, uint32_t index);

#endif
