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

#define VT_PATH_MAX 4096

/* How the recording left the disk, or never reached it. */
enum vt_writer_state {
    VT_WRITER_CLOSED,
    VT_WRITER_FILE,    /* everything so far is in the file */
    VT_WRITER_PARTIAL, /* the file exists, but some extents are in memory only */
    VT_WRITER_MEMORY   /* there is no file */
};

/* Each section's records: their size, how many the first extent holds (a power of two), and the share of the file that they may
 * take: at most limit_bytes / share; 0: vt_writer_open says. Here, because where a record lies is worked out from constants. */
static const struct vt_writer_shape {
    uint32_t record_bytes, first;
    unsigned share;
} vt_writer_shapes[VT_SECTION_COUNT] = {
    [VT_STRINGS] = {1, 65536, 16},
    [VT_MODULES] = {sizeof(struct vt_module), 64, 64},
    [VT_FRAMES] = {sizeof(struct vt_frame), 4096, 8},
    [VT_SITES] = {sizeof(struct vt_site), 128, 8},
    [VT_TOTALS] = {sizeof(struct vt_total), 64, 64},
    [VT_SCOPES] = {sizeof(struct vt_scope), 64, 64},
    [VT_TIMELINES] = {sizeof(struct vt_timeline), 2, 32},
    [VT_LIVE] = {sizeof(struct vt_slot), 1024, 0},
    [VT_EVENTS] = {sizeof(struct vt_event), 4096, 0},
    [VT_MOMENTS] = {sizeof(struct vt_moment), 32, 64},
    [VT_MOMENT_TOTALS] = {sizeof(struct vt_moment_total), 128, 64},
    [VT_MOMENT_SITES] = {sizeof(struct vt_moment_site), 1024, 16},
    [VT_MOMENT_SLOTS] = {sizeof(struct vt_slot), 1024, 16},
    [VT_FAILURES] = {sizeof(struct vt_failure), 32, 64},
    [VT_DEVICES] = {sizeof(struct vt_device), 16, 64},
    [VT_POOLS] = {sizeof(struct vt_pool), 64, 64},
    [VT_THREADS] = {sizeof(struct vt_thread), 128, 64},
    [VT_STREAMS] = {sizeof(struct vt_stream), 128, 64},
    [VT_CODES] = {sizeof(struct vt_code), 256, 32},
    [VT_NAMES] = {sizeof(struct vt_frame_name), 1024, 16},
    [VT_ALLOCATORS] = {sizeof(struct vt_allocator), 16, 64},
    [VT_STEPS] = {sizeof(struct vt_step), 256, 64},
    [VT_USAGES] = {sizeof(struct vt_usage), 16, 64},
    [VT_PROCESSES] = {sizeof(struct vt_process_bytes), 64, 64},
    [VT_PROGRAMS] = {sizeof(struct vt_program), 64, 64},
};

struct vt_writer {
    unsigned char *base;        /* the mapping: header at 0, record offsets count from here */
    uint64_t reserved_bytes;    /* address space behind base */
    uint64_t file_bytes;        /* end of the last extent that is in the file */
    uint64_t memory_bytes;      /* end of the last extent that is in memory only; starts at the file's limit */
    struct vt_event *event;     /* the next place of the event ring */
    struct vt_event *event_end; /* the first one behind it that is not ready to be written */
    uint64_t events_end;        /* its index */
    uint64_t device, inode;     /* identity of the file: a path can come to name another one */
    int error;                  /* errno of the call that took the disk away; 0: none */
    enum vt_writer_state state;
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

/* Record i, which must have been appended before. vt_record_offset in constants, and without its checks. */
static inline void *vt_writer_at(const struct vt_writer *w, enum vt_section section, uint64_t i)
{
    const struct vt_writer_shape *shape = &vt_writer_shapes[section];
    uint64_t block = (i >> __builtin_ctz(shape->first)) + 1;
    unsigned e = 63u - (unsigned)__builtin_clzll(block);
    uint64_t before = ((uint64_t)shape->first << e) - shape->first;
    return w->base + vt_writer_header(w)->section[section].extent[e] + (i - before) * shape->record_bytes;
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

/* Behind vt_writer_next_event. */
struct vt_event *vt_writer_more_events(struct vt_writer *w);

/* The next place of the event ring, to be published as usual before the next call. NULL if there is no room at all. */
static inline struct vt_event *vt_writer_next_event(struct vt_writer *w)
{
    if (__builtin_expect(w->event < w->event_end, 1))
        return w->event++;
    return vt_writer_more_events(w);
}

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
