/*
 * What the parts of the symbolizer share: symbols.c looks into files, symbols_frame.c knows recordings. Internal to these.
 */
#ifndef VRAMTRACK_SYMBOLS_PARTS_H
#define VRAMTRACK_SYMBOLS_PARTS_H

#include "analysis/objfile.h"
#include "analysis/symbols.h"

struct vt_recorded_names;
struct vt_perf_map;

struct vt_symbols_module {
    char *path;
    uint8_t build_id[20];
    unsigned build_id_bytes;
    struct vt_object object;
    bool told; /* a note says what is wrong with it */
};

/* What a file said about an address; frames NULL and count 0: nothing. */
struct vt_symbols_answer {
    struct vt_symbols_module *module; /* NULL: a free place of the table */
    uint64_t address, hash;
    struct vt_symbol_frame *frames;
    uint32_t count;
    bool asked_memory;
    struct vt_symbol_frame
        *memory; /* what the process itself has there, where the file is of no use; NULL: not known */
};

/* A recording that was asked about. */
struct vt_symbols_reading {
    const struct vt_reading *reading;
    struct vt_recorded_names *names; /* that it brings along; NULL: none */
};

#define VT_SYMBOLS_NOTES 32

struct vt_symbols {
    struct vt_symbols_module **modules;
    uint32_t module_count;
    struct vt_symbols_answer *answers; /* open addressing, a power of two */
    uint64_t room, used;
    bool no_memory; /* no more questions to elfutils */
    char *notes[VT_SYMBOLS_NOTES];
    uint32_t note_count;
    struct vt_symbols_watch *watch; /* NULL: nobody looks */

    struct vt_symbols_reading *readings;
    uint32_t reading_count;
    vt_symbols_memory *memory; /* NULL: not in the recorded process */
    struct vt_perf_map *perf_map;
    bool perf_map_read;
    struct vt_symbol_frame generated; /* the answer for generated code */
};

/* The answer for an address of a file, asked for if it is not at hand. NULL: it cannot be asked (lack of memory). */
struct vt_symbols_answer *vt_symbols_answer(struct vt_symbols *symbols, const char *path, const uint8_t *build_id,
                                            unsigned build_id_bytes, uint64_t address);

/* The same if it is at hand, else NULL. */
struct vt_symbols_answer *vt_symbols_answer_at_hand(struct vt_symbols *symbols, const char *path,
                                                    const uint8_t *build_id, unsigned build_id_bytes, uint64_t address);

/* Why the file of an answer's module is of no use for code that was in use at used_ns; NULL: it was asked. */
const char *vt_symbols_problem(const struct vt_symbols_answer *answer, uint64_t used_ns);

/* Notes, once, why a module's file is of no use. */
void vt_symbols_tell(struct vt_symbols *symbols, struct vt_symbols_module *module, const char *problem);

#endif
