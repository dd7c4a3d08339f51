/*
 * Writes a recording: creates the file, grows it extent by extent, hands out records inside the mapping.
 *
 * All functions are for one thread at a time (the caller holds its own lock), never call malloc or stdio, and keep
 * errno. They make system calls only when the recording is created or needs another extent. None of them can fail in
 * a way that stops the caller: when the file can't be made or grow, extents continue in anonymous memory at the same
 * offsets, so that everything that reads the mapping (the library's own report) still sees the whole recording.
 */
#ifndef VT_RECORDING_WRITER_H
#define VT_RECORDING_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "vramtrack/recording.h"

/* On the path of every tensor. The linker puts these functions side by side: spread over the library, they were on a dozen pages
 * and as many entries of the processor's tables, which the program needs itself. */
#define VT_HOT __attribute__((hot))

#define VT_PATH_MAX 4096

/* How the recording left the disk, or never reached it. */
enum vt_writer_state {
    VT_WRITER_CLOSED,
    VT_WRITER_FILE,    /* everything so far is in the file */
    VT_WRITER_PARTIAL, /* the file exists, but some extents are in memory only */
    VT_WRITER_MEMORY   /* there is no file */
};

/* Records in a row, where those of a section were used last: extents never move, so what is here stays true. */
struct vt_writer_run {
    uint64_t first, count;
    unsigned char *at;
    uint64_t record_bytes;
};

struct vt_writer {
    unsigned char *base;     /* the mapping: header at 0, record offsets count from here */
    uint64_t reserved_bytes; /* address space behind base */
    uint64_t file_bytes;     /* end of the last extent that is in the file */
    uint64_t memory_bytes;   /* end of the last extent that is in memory only; starts at the file's limit */
    uint64_t events_ready;   /* events up to this number of the first round have their pages */
    uint64_t events_next;    /* place of the next event, if the ring is full */
    uint64_t device, inode;  /* identity of the file: a path can come to name another one */
    int error;               /* errno of the call that took the disk away; 0: none */
    enum vt_writer_state state;
    struct vt_writer_run recent[VT_SECTION_COUNT];
    char path[VT_PATH_MAX]; /* absolute; empty: no file */
};

struct vt_writer_options {
    const char *directory; /* where the file goes; NULL: working directory */
    const char *program;   /* for the name; unsafe characters are replaced */
    const char *host;
    int32_t pid, rank;      /* rank -1: not part of the name */
    uint64_t start_unix_ns; /* its milliseconds are part of the name */
    uint64_t limit_bytes;   /* bound of the file */
    uint64_t events;        /* records of the event ring; rounded up to what extents give */
};

/*
 * Creates the file (0600, never through a symbolic link, never over an existing one) and maps it. False only when not
 * even memory can be had; then the writer stays VT_WRITER_CLOSED. w->error tells why there is no file.
 */
bool vt_writer_open(struct vt_writer *w, const struct vt_writer_options *options);

/* Forgets the mapping without touching the file: for the child of a fork, whose parent goes on writing. */
void vt_writer_abandon(struct vt_writer *w);

static inline struct vt_header *vt_writer_header(const struct vt_writer *w)
{
    return (struct vt_header *)w->base;
}

/* Behind vt_writer_at. */
void *vt_writer_find(struct vt_writer *w, enum vt_section section, uint64_t i);

/* Record i, which must have been appended before. */
static inline void *vt_writer_at(const struct vt_writer *w, enum vt_section section, uint64_t i)
{
    const struct vt_writer_run *run = &w->recent[section];
    uint64_t k = i - run->first;
    if (__builtin_expect(k < run->count, 1))
        return run->at + k * run->record_bytes;
    return vt_writer_find((struct vt_writer *)w, section, i);
}

/*
 * Room for one more record: zeroed, not yet counted; *index gets its number. The caller fills it and calls
 * vt_writer_publish. NULL if the section is full; its `lost` counts up.
 */
void *vt_writer_append(struct vt_writer *w, enum vt_section section, uint64_t *index);
static inline void vt_writer_publish(struct vt_writer *w, enum vt_section section)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[section];
    __atomic_store_n(&s->count, s->count + 1, __ATOMIC_RELEASE);
}

/* As vt_writer_append for `count` records in a row that the caller addresses one by one with vt_writer_at; the first
 * one's number, or UINT64_MAX. vt_writer_publish_many counts them. */
uint64_t vt_writer_append_many(struct vt_writer *w, enum vt_section section, uint64_t count);
void vt_writer_publish_many(struct vt_writer *w, enum vt_section section, uint64_t count);

/*
 * Makes room in the file for `count` more records (of VT_STRINGS: bytes; twice what a string takes is always enough). False
 * if the file cannot take them; then nothing is counted as lost, and neither bound nor disk counts as reached. For what is
 * good to have, but must not cost the recording anything.
 */
bool vt_writer_reserve(struct vt_writer *w, enum vt_section section, uint64_t count);

/* The next place of the event ring; publish as usual. NULL if there is no room at all. */
VT_HOT struct vt_event *vt_writer_next_event(struct vt_writer *w);

/* Stores a string (no interning) and returns its id; 0 for NULL, the empty string or lack of room. At most 65,535
 * bytes are kept. */
uint32_t vt_writer_string(struct vt_writer *w, const char *text, size_t length);

/*
 * A private copy of the mapping as one image that a reader can open: the header and all records, but of events the newest
 * 65,536, and no slots if there are more than 65,536 (of moments: 131,072).
 * Returns its size and sets *image (to be given back with vt_writer_free_image), or 0.
 */
uint64_t vt_writer_image(const struct vt_writer *w, void **image);
void vt_writer_free_image(void *image, uint64_t bytes);

#endif
