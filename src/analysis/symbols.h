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

struct vt_reading;
struct vt_frame;
struct vt_symbols;

/* One frame. Strings are owned by the symbolizer. */
struct vt_symbol_frame {
    const char *function; /* qualified C++ name without arguments, or the plain name; NULL: unknown */
    const char *file;     /* NULL: unknown */
    uint32_t line;        /* 0: unknown */
    bool nearest;         /* no symbol covers the address: function is the nearest one before it */
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

/*
 * The same for a module that was in use at used_ns (nanoseconds of CLOCK_REALTIME): a file that was changed after that,
 * and has no build-id to tell by, is taken for another one.
 */
struct vt_symbol vt_symbols_find_used(struct vt_symbols *symbols, const char *path, const uint8_t *build_id,
                                      unsigned build_id_bytes, uint64_t used_ns, uint64_t address);

/*
 * What is known of a native frame of a recording: what the module's file says if it is there and of the same build, else
 * what the recording itself brings along (recorded_names.h). That comes first as well where it says more, because the
 * debug file was there when the process looked; where the file has no build-id to tell by; and for generated code. For
 * code without a module, the names of a JIT compiler, as vt_symbols_generated().
 * *known (may be NULL): false if nobody could be asked; then a note says why, for code of a file. The frames of the answer
 * are valid until the next call, their strings as long as symbolizer and reading, which must stay open as long.
 */
struct vt_symbol vt_symbols_frame(struct vt_symbols *symbols, const struct vt_reading *reading,
                                  const struct vt_frame *frame, bool *known);

/*
 * For the recorded process itself: where a module's file is of no use (deleted, replaced), `memory` is asked for the name
 * of the code at an address of the file (as vt_symbols_find()'s) of a module that may be loaded still. It returns a malloc'ed
 * name as in a symbol table, or NULL.
 */
struct vt_module;
typedef char *vt_symbols_memory(const struct vt_module *module, uint64_t address);
void vt_symbols_use_memory(struct vt_symbols *symbols, vt_symbols_memory *memory);

/* Drops what is kept of a recording, whose reading is about to be closed while the symbolizer stays open: another one may come
 * to lie at the same address. What was asked of files stays. */
void vt_symbols_forget(struct vt_symbols *symbols, const struct vt_reading *reading);

/* True if the process looked this frame up itself, and the recording has the answer. */
bool vt_symbols_recorded(struct vt_symbols *symbols, const struct vt_reading *reading, const struct vt_frame *frame);

/* True if vt_symbols_frame() has the answer at hand, because it was asked before. */
bool vt_symbols_asked(struct vt_symbols *symbols, const struct vt_reading *reading, const struct vt_frame *frame);

/* The name that a JIT compiler gave to the code at an absolute address of a process (perf_map.h), or NULL: always, where
 * that process is not this one. It lives as long as the symbolizer. */
const char *vt_symbols_generated(struct vt_symbols *symbols, int32_t pid, uint64_t start_ticks, uint64_t address);

/* What is being looked up, for a signal handler of the same thread to show. */
struct vt_symbols_watch {
    volatile uint64_t asked;   /* addresses so far */
    const char *volatile path; /* the module that the newest is in; NULL: none yet */
};

/* Keeps `watch` up to date from now on; NULL: no more. */
void vt_symbols_watch(struct vt_symbols *symbols, struct vt_symbols_watch *watch);

/* Why something was not symbolized: sentences owned by the symbolizer. */
uint32_t vt_symbols_notes(const struct vt_symbols *symbols);
const char *vt_symbols_note(const struct vt_symbols *symbols, uint32_t index);

#endif
