/*
 * Reading a recording: opens the file (or an image of it in memory) and hands out its records.
 *
 * A reader trusts nothing. Every accessor checks what it touches against the size of the image and returns NULL (or an
 * empty string) for what is not there, so a truncated or damaged recording is read as far as it is sound. What was
 * missing is said in notes, one English sentence each.
 *
 * The file of a live process changes while it is read: the header, and with it every offset and count, is a private
 * copy taken on opening; values inside records are as of the moment they are looked at.
 *
 * No function here prints, exits, or uses stdio streams: this is linked into the preload library as well. Functions are
 * not async-signal-safe (they may call malloc). One reading may be used by several threads at once after opening.
 */
#ifndef VRAMTRACK_READER_H
#define VRAMTRACK_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vramtrack/recording.h"

/* The longest stack that anything here hands out; longer ones are cut at their outer end. */
#define VT_STACK_FRAMES_MAX 512u

struct vt_reading;

/* A string of the recording: not necessarily NUL-terminated text, may hold NULs. text is never NULL. */
struct vt_text {
    const char *text;
    uint32_t length;
};

/*
 * Opens and maps a recording, read-only.
 * path: the file; copied. error, error_bytes: room for one line without a newline, which names the path.
 * Returns the reading (vt_reading_close() releases it), or NULL after filling `error`.
 */
struct vt_reading *vt_reading_open(const char *path, char *error, size_t error_bytes);

/*
 * The same for an image in memory, which must stay unchanged and alive until vt_reading_close(). Extents may be absent
 * (offset 0) or lie outside `bytes`. Returns NULL if it is no recording of this version or memory ran out.
 */
struct vt_reading *vt_reading_from_memory(const void *image, uint64_t bytes);

/* As vt_reading_from_memory(), with a name for messages (may be NULL) and the reason of a failure. */
struct vt_reading *vt_reading_from_image(const void *image, uint64_t bytes, const char *name, char *error,
                                         size_t error_bytes);

/* Releases a reading and everything it handed out. NULL is allowed. */
void vt_reading_close(struct vt_reading *reading);

/* The header: a private copy whose host and program end with a NUL. Never NULL. */
const struct vt_header *vt_reading_header(const struct vt_reading *reading);

/* The path it was opened by, or the name given, or "". Owned by the reading. */
const char *vt_reading_name(const struct vt_reading *reading);

/* Records that can be read from a section: at most what the header says, clipped to what is in the image.
 * For VT_EVENTS: slots of the ring in use. For VT_STRINGS: bytes. */
uint64_t vt_reading_count(const struct vt_reading *reading, enum vt_section section);

/* True if records of the section are missing: lost for lack of room, or outside the image. */
bool vt_reading_incomplete(const struct vt_reading *reading, enum vt_section section);

/* True if the file is shorter than its header says. */
bool vt_reading_truncated(const struct vt_reading *reading);

/* Record `index` of any section but VT_STRINGS, or NULL. It is at least as long as this version's struct. */
const void *vt_reading_record(const struct vt_reading *reading, enum vt_section section, uint64_t index);

/* A string by its id; the empty string for 0 and for ids that lead nowhere. */
struct vt_text vt_reading_string(const struct vt_reading *reading, uint32_t id);

/* As vt_reading_string(), as C text: cut at its first NUL. Always NUL-terminated, never NULL. */
const char *vt_reading_chars(const struct vt_reading *reading, uint32_t id);

/* Events ever written, those that were overwritten among them: the number of the next one. */
uint64_t vt_reading_events(const struct vt_reading *reading);

/* Event number `sequence` (0 is the first ever written), or NULL if it was overwritten or is not in the image. */
const struct vt_event *vt_reading_event(const struct vt_reading *reading, uint64_t sequence);

/*
 * The frames of stack `id` (index + 1; 0 is the empty stack), innermost first.
 * Writes at most `most` ids (again index + 1) to `frames` and returns how many. Damaged links end the walk: a parent is
 * always older than its child, so the walk ends even in a damaged file.
 */
uint32_t vt_reading_stack(const struct vt_reading *reading, uint32_t id, uint32_t *frames, uint32_t most);

/* What was missing or damaged: notes 0 .. count - 1, sentences owned by the reading. */
uint32_t vt_reading_notes(const struct vt_reading *reading);
const char *vt_reading_note(const struct vt_reading *reading, uint32_t index);

/* Typed accessors, index as in the section; NULL if there is no such record. */
#define VT_ACCESSOR(name, section)                                                                            \
    static inline const struct vt_##name *vt_reading_##name(const struct vt_reading *reading, uint64_t index) \
    {                                                                                                         \
        return vt_reading_record(reading, section, index);                                                    \
    }
VT_ACCESSOR(module, VT_MODULES)
VT_ACCESSOR(site, VT_SITES)
VT_ACCESSOR(total, VT_TOTALS)
VT_ACCESSOR(scope, VT_SCOPES)
VT_ACCESSOR(timeline, VT_TIMELINES)
VT_ACCESSOR(moment, VT_MOMENTS)
VT_ACCESSOR(moment_total, VT_MOMENT_TOTALS)
VT_ACCESSOR(moment_site, VT_MOMENT_SITES)
VT_ACCESSOR(failure, VT_FAILURES)
VT_ACCESSOR(device, VT_DEVICES)
VT_ACCESSOR(pool, VT_POOLS)
VT_ACCESSOR(thread, VT_THREADS)
VT_ACCESSOR(stream, VT_STREAMS)
VT_ACCESSOR(code, VT_CODES)
VT_ACCESSOR(frame_name, VT_NAMES)
VT_ACCESSOR(allocator, VT_ALLOCATORS)
VT_ACCESSOR(step, VT_STEPS)
VT_ACCESSOR(usage, VT_USAGES)
VT_ACCESSOR(process_bytes, VT_PROCESSES)
VT_ACCESSOR(program, VT_PROGRAMS)
#undef VT_ACCESSOR

/* A live slot; VT_KIND_NONE ones are handed out as well. */
static inline const struct vt_slot *vt_reading_slot(const struct vt_reading *reading, uint64_t index)
{
    return vt_reading_record(reading, VT_LIVE, index);
}

/* A frame by its id (index + 1); NULL for 0. */
static inline const struct vt_frame *vt_reading_frame(const struct vt_reading *reading, uint32_t id)
{
    return id ? vt_reading_record(reading, VT_FRAMES, id - 1) : NULL;
}

/* The code object of a Python frame; NULL for other frames and for one that is not in the file. */
static inline const struct vt_code *vt_reading_frame_code(const struct vt_reading *reading,
                                                          const struct vt_frame *frame)
{
    return frame->module == VT_PYTHON ? vt_reading_code(reading, frame->where >> 32) : NULL;
}

/* The line of a Python frame; 0: not known. */
static inline uint32_t vt_frame_python_line(const struct vt_frame *frame)
{
    return (uint32_t)frame->where & VT_PYTHON_LINE;
}

#endif
