/*
 * Internal to the writer: address space, the file, extents. For one thread at a time, like writer.h. errno is the reason
 * of a failure where a function says so.
 */
#ifndef VT_RECORDING_WRITER_FILE_H
#define VT_RECORDING_WRITER_FILE_H

#include "recording/writer.h"

/* The page size, at least VT_PAGE: what extents are aligned to. */
uint64_t vt_page_bytes(void);

static inline uint64_t vt_round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* Reserves address space for a recording of *limit bytes and what does not fit into its file. Where that is short
 * (ulimit -v), *limit comes back smaller. Sets base, reserved_bytes and memory_bytes. */
bool vt_file_reserve(struct vt_writer *w, uint64_t *limit);

/* Creates the file and maps room for the header; false with errno if there can be none. Sets path and state. */
bool vt_file_open(struct vt_writer *w, const struct vt_writer_options *options);

/* Maps room for the header in memory. */
bool vt_file_open_in_memory(struct vt_writer *w);

/* Gives extent e of a section its place, in the file if possible, else in memory (and w->state may change). */
bool vt_file_add_extent(struct vt_writer *w, struct vt_section_entry *section, unsigned e);

/* The same in the file or not at all: then nothing has changed. */
bool vt_file_try_extent(struct vt_writer *w, struct vt_section_entry *section, unsigned e);

#endif
