/*
 * The reader of recordings: checks an image once on opening, then hands out records by index.
 *
 * Opening copies the header and repairs the copy: extents that are not aligned or outside the image are dropped, counts
 * are clipped to the records that are there, sections of an unknown shape become empty. After that every accessor needs
 * one comparison with the size of the image. What was repaired is said in notes.
 */
#include "recording/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTES_MAX 64

struct vt_reading {
    const uint8_t *image;
    uint64_t bytes;
    void *mapping; /* to unmap; NULL for images in memory */
    void *copy;    /* to free: an aligned copy of an image that was not aligned */
    char *name;
    struct vt_header header;
    uint64_t events; /* events ever written, before clipping */
    bool incomplete[VT_SECTION_COUNT];
    void *widened[VT_SECTION_COUNT]; /* records of an older minor version, extended with zeros */
    char *notes[NOTES_MAX];
    uint32_t note_count;
};

/* What this program knows about each section. */
static const struct {
    const char *name;
    uint32_t bytes, alignment;
} known[VT_SECTION_COUNT] = {
    [VT_STRINGS] = {"strings", 1, 1},
    [VT_MODULES] = {"modules", sizeof(struct vt_module), _Alignof(struct vt_module)},
    [VT_FRAMES] = {"stack frames", sizeof(struct vt_frame), _Alignof(struct vt_frame)},
    [VT_SITES] = {"sites", sizeof(struct vt_site), _Alignof(struct vt_site)},
    [VT_TOTALS] = {"totals", sizeof(struct vt_total), _Alignof(struct vt_total)},
    [VT_SCOPES] = {"scopes", sizeof(struct vt_scope), _Alignof(struct vt_scope)},
    [VT_TIMELINES] = {"timelines", sizeof(struct vt_timeline), _Alignof(struct vt_timeline)},
    [VT_LIVE] = {"live allocations", sizeof(struct vt_slot), _Alignof(struct vt_slot)},
    [VT_EVENTS] = {"events", sizeof(struct vt_event), _Alignof(struct vt_event)},
    [VT_MOMENTS] = {"moments", sizeof(struct vt_moment), _Alignof(struct vt_moment)},
    [VT_MOMENT_TOTALS] = {"totals of moments", sizeof(struct vt_moment_total), _Alignof(struct vt_moment_total)},
    [VT_MOMENT_SITES] = {"sites of moments", sizeof(struct vt_moment_site), _Alignof(struct vt_moment_site)},
    [VT_MOMENT_SLOTS] = {"allocations of moments", sizeof(struct vt_slot), _Alignof(struct vt_slot)},
    [VT_FAILURES] = {"failures", sizeof(struct vt_failure), _Alignof(struct vt_failure)},
    [VT_DEVICES] = {"devices", sizeof(struct vt_device), _Alignof(struct vt_device)},
    [VT_POOLS] = {"memory pools", sizeof(struct vt_pool), _Alignof(struct vt_pool)},
    [VT_THREADS] = {"threads", sizeof(struct vt_thread), _Alignof(struct vt_thread)},
    [VT_STREAMS] = {"streams", sizeof(struct vt_stream), _Alignof(struct vt_stream)},
    [VT_CODES] = {"Python code objects", sizeof(struct vt_code), _Alignof(struct vt_code)},
    [VT_NAMES] = {"names of frames", sizeof(struct vt_frame_name), _Alignof(struct vt_frame_name)},
    [VT_ALLOCATORS] = {"framework allocators", sizeof(struct vt_allocator), _Alignof(struct vt_allocator)},
    [VT_STEPS] = {"steps", sizeof(struct vt_step), _Alignof(struct vt_step)},
    [VT_USAGES] = {"readings of GPU memory", sizeof(struct vt_usage), _Alignof(struct vt_usage)},
    [VT_PROCESSES] = {"processes on GPUs", sizeof(struct vt_process_bytes), _Alignof(struct vt_process_bytes)},
    [VT_PROGRAMS] = {"compiled programs", sizeof(struct vt_program), _Alignof(struct vt_program)},
};

__attribute__((format(printf, 2, 3))) static void note(struct vt_reading *r, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (r->note_count == NOTES_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if ((r->notes[r->note_count] = strdup(text)))
        r->note_count++;
}

/* Writes "<name>: <reason>" and returns NULL, so that callers can return it. */
__attribute__((format(printf, 4, 5))) static void *fail(char *error, size_t bytes, const char *name, const char *format,
                                                        ...)
{
    va_list arguments;
    int used;

    if (!error || !bytes)
        return NULL;
    used = snprintf(error, bytes, "%s: ", name && *name ? name : "recording");
    if (used < 0 || (size_t)used >= bytes)
        return NULL;
    va_start(arguments, format);
    vsnprintf(error + used, bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return NULL;
}

/* The reason why an image is no recording that this program reads, or NULL. text is room for a reason with numbers. */
static const char *unreadable(const uint8_t *image, uint64_t bytes, char *text, size_t text_bytes)
{
    struct vt_header h;

    if (bytes < sizeof h.magic || memcmp(image, VT_MAGIC, sizeof h.magic))
        return "not a vramtrack recording (bad magic)";
    if (bytes < sizeof h)
        return "not a whole vramtrack recording (shorter than its header)";
    memcpy(&h, image, sizeof h);
    if (h.endian != VT_ENDIAN)
        return h.endian == __builtin_bswap32(VT_ENDIAN) ? "written on a machine with another byte order"
                                                        : "damaged (bad byte order mark)";
    if (h.major != VT_MAJOR) {
        snprintf(text, text_bytes, "written by format version %u, this program reads %u", h.major, VT_MAJOR);
        return text;
    }
    if (h.header_bytes < offsetof(struct vt_header, section) || h.header_bytes > bytes)
        return "damaged (bad header size)";
    return NULL;
}

/* Keeps the extents that may be used: aligned, behind the header, starting inside the image. Cuts at the first other.
 */
static void check_extents(struct vt_reading *r, enum vt_section section, uint64_t *available)
{
    struct vt_section_entry *s = &r->header.section[section];
    uint64_t records = 0;
    unsigned e = 0;

    for (; e < VT_MAX_EXTENTS; e++) {
        uint64_t offset = s->extent[e], capacity = (uint64_t)s->first << e, fit;

        if (!offset || offset % VT_PAGE || offset < r->header.header_bytes || offset >= r->bytes)
            break;
        fit = (r->bytes - offset) / s->record_bytes;
        records += fit < capacity ? fit : capacity;
        if (fit < capacity) { /* the image ends inside this extent */
            e++;
            break;
        }
    }
    for (; e < VT_MAX_EXTENTS; e++)
        s->extent[e] = 0;
    *available = records;
}

/* Copies records of an older, shorter shape to full ones. */
static bool widen(struct vt_reading *r, enum vt_section section)
{
    struct vt_section_entry *s = &r->header.section[section];
    uint8_t *wide = calloc(s->count ? s->count : 1, known[section].bytes);
    uint64_t i, offset;

    if (!wide)
        return false;
    for (i = 0; i < s->count; i++)
        if ((offset = vt_record_offset(s, i)) && offset + s->record_bytes <= r->bytes)
            memcpy(wide + i * known[section].bytes, r->image + offset, s->record_bytes);
    r->widened[section] = wide;
    return true;
}

/* The reason why a section's entry can't be used, or NULL. */
static const char *bad_shape(const struct vt_section_entry *s, enum vt_section section)
{
    if (!s->first || (s->first & (s->first - 1)) || s->first > 1u << 31)
        return "has a bad first extent";
    if (section == VT_STRINGS) /* bytes; whole words, so that ids that are multiples of 4 are aligned in every extent */
        return s->record_bytes == 1 && s->first >= 4 ? NULL : "has records of an unknown size";
    if (s->record_bytes % known[section].alignment || s->record_bytes > 1u << 20 ||
        s->record_bytes < known[section].bytes / 2) /* no version had records that short */
        return "has records of an unknown size";
    return NULL;
}

static void check_section(struct vt_reading *r, enum vt_section section)
{
    struct vt_section_entry *s = &r->header.section[section];
    uint64_t available, wanted;
    const char *reason;

    if (!s->count && !s->lost && !s->record_bytes) { /* never used */
        memset(s, 0, sizeof *s);
        return;
    }
    if ((reason = bad_shape(s, section))) {
        note(r, "The section \"%s\" %s and was skipped.", known[section].name, reason);
        memset(s, 0, sizeof *s);
        r->incomplete[section] = true;
        return;
    }
    check_extents(r, section, &available);
    wanted = s->count;
    if (section == VT_EVENTS) {
        r->events = s->count;
        if (wanted > s->limit)
            wanted = s->limit;
    }
    s->count = wanted < available ? wanted : available;
    if (s->count < wanted)
        r->incomplete[section] = true;
    if (s->count < wanted && (section != VT_EVENTS || available)) /* images in memory come without events */
        note(r, "%s: %llu of %llu are missing from the file%s.", known[section].name,
             (unsigned long long)(wanted - s->count), (unsigned long long)wanted,
             r->header.flags & VT_FLAG_NO_SPACE ? " (the disk was full)" : "");
    if (s->lost) {
        r->incomplete[section] = true;
        if (section == VT_SITES) /* each allocation of a place without room comes anew */
            note(r, "sites: %llu allocations came from places that found no room within the size limit.",
                 (unsigned long long)s->lost);
        else
            note(r, "%s: %llu found no room within the size limit and were not recorded.", known[section].name,
                 (unsigned long long)s->lost);
    }
    if (section != VT_STRINGS && s->record_bytes < known[section].bytes && !widen(r, section)) {
        note(r, "%s: skipped, out of memory.", known[section].name);
        s->count = 0;
        r->incomplete[section] = true;
    }
}

/* Notes that follow from the header's flags; needs the strings. */
static void note_flags(struct vt_reading *r)
{
    const struct vt_header *h = &r->header;
    const char *reason;

    if (h->used_bytes > r->bytes)
        note(r, "The file is truncated: %llu of %llu bytes are there.", (unsigned long long)r->bytes,
             (unsigned long long)h->used_bytes);
    if (h->flags & VT_FLAG_NO_SPACE)
        note(r, "The disk was full while recording: what came later is missing from the file.");
    if (h->flags & VT_FLAG_STOPPED) {
        reason = vt_reading_chars(r, h->stop_reason);
        note(r, "Recording stopped early%s%.200s.", *reason ? ": " : "", reason);
    }
    if (h->flags & VT_FLAG_MISSED && h->missed_events)
        note(r, "%llu calls could not be recorded (inside signal handlers or nested calls).",
             (unsigned long long)h->missed_events);
    if (h->minor > VT_MINOR)
        note(r, "The recording is of format %u.%u, newer than this program (%u.%u): some of it is not shown.", h->major,
             h->minor, VT_MAJOR, VT_MINOR);
}

static void check_header(struct vt_reading *r)
{
    struct vt_header *h = &r->header;
    uint32_t fit, s;

    memcpy(h, r->image, sizeof *h);
    h->host[sizeof h->host - 1] = h->program[sizeof h->program - 1] = '\0';
    fit = (uint32_t)((h->header_bytes - offsetof(struct vt_header, section)) / sizeof h->section[0]);
    if (h->section_count > fit) {
        note(r, "The header has no room for the %u sections that it names.", h->section_count);
        h->section_count = fit;
    }
    for (s = h->section_count; s < VT_SECTION_COUNT; s++) /* an older writer did not know them */
        memset(&h->section[s], 0, sizeof h->section[s]);
    for (s = 0; s < VT_SECTION_COUNT; s++)
        check_section(r, (enum vt_section)s);
    note_flags(r);
}

struct vt_reading *vt_reading_from_image(const void *image, uint64_t bytes, const char *name, char *error,
                                         size_t error_bytes)
{
    struct vt_reading *r;
    char text[96];
    const char *reason;

    if (!image)
        bytes = 0;
    if ((reason = unreadable(image, bytes, text, sizeof text)))
        return fail(error, error_bytes, name, "%s", reason);
    if (!(r = calloc(1, sizeof *r)) || !(r->name = strdup(name ? name : "")))
        goto no_memory;
    r->image = image;
    r->bytes = bytes;
    if ((uintptr_t)image % 8) { /* records hold 8-byte fields */
        if (!(r->copy = malloc(bytes)))
            goto no_memory;
        r->image = memcpy(r->copy, image, bytes);
    }
    check_header(r);
    return r;
no_memory:
    vt_reading_close(r);
    return fail(error, error_bytes, name, "out of memory");
}

struct vt_reading *vt_reading_from_memory(const void *image, uint64_t bytes)
{
    return vt_reading_from_image(image, bytes, NULL, NULL, 0);
}

struct vt_reading *vt_reading_open(const char *path, char *error, size_t error_bytes)
{
    struct vt_reading *r;
    struct stat status;
    void *mapping;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocking: the path may be a FIFO */

    if (fd < 0)
        return fail(error, error_bytes, path, "%s", strerror(errno));
    if (fstat(fd, &status)) {
        fail(error, error_bytes, path, "%s", strerror(errno));
        close(fd);
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
        close(fd);
        return fail(error, error_bytes, path,
                    S_ISREG(status.st_mode) ? "not a vramtrack recording (empty file)" : "not a regular file");
    }
    mapping = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED)
        fail(error, error_bytes, path, "%s", strerror(errno));
    close(fd);
    if (mapping == MAP_FAILED)
        return NULL;
    r = vt_reading_from_image(mapping, (uint64_t)status.st_size, path, error, error_bytes);
    if (r)
        r->mapping = mapping;
    else
        munmap(mapping, (size_t)status.st_size);
    return r;
}

void vt_reading_close(struct vt_reading *r)
{
    unsigned i;

    if (!r)
        return;
    for (i = 0; i < r->note_count; i++)
        free(r->notes[i]);
    for (i = 0; i < VT_SECTION_COUNT; i++)
        free(r->widened[i]);
    if (r->mapping)
        munmap(r->mapping, (size_t)r->bytes);
    free(r->copy);
    free(r->name);
    free(r);
}

const struct vt_header *vt_reading_header(const struct vt_reading *r)
{
    return &r->header;
}

const char *vt_reading_name(const struct vt_reading *r)
{
    return r->name;
}

uint64_t vt_reading_count(const struct vt_reading *r, enum vt_section section)
{
    return r->header.section[section].count;
}

bool vt_reading_truncated(const struct vt_reading *r)
{
    return r->header.used_bytes > r->bytes;
}

bool vt_reading_incomplete(const struct vt_reading *r, enum vt_section section)
{
    return r->incomplete[section];
}

const void *vt_reading_record(const struct vt_reading *r, enum vt_section section, uint64_t index)
{
    const struct vt_section_entry *s = &r->header.section[section];
    uint64_t offset;

    if (index >= s->count)
        return NULL;
    if (r->widened[section])
        return (const uint8_t *)r->widened[section] + index * known[section].bytes;
    offset = vt_record_offset(s, index);
    if (!offset || offset > r->bytes || r->bytes - offset < s->record_bytes)
        return NULL;
    return r->image + offset;
}

/* Bytes from string offset `id` to the end of its extent or of what was written; 0 if it is outside. */
static uint64_t string_room(const struct vt_reading *r, uint64_t id)
{
    const struct vt_section_entry *s = &r->header.section[VT_STRINGS];
    uint64_t extent_end, end = s->count;
    unsigned e;

    if (id >= end)
        return 0;
    e = 63u - (unsigned)__builtin_clzll(id / s->first + 1);
    extent_end = (uint64_t)s->first * ((2ull << e) - 1);
    return (extent_end < end ? extent_end : end) - id;
}

struct vt_text vt_reading_string(const struct vt_reading *r, uint32_t id)
{
    const struct vt_text none = {"", 0};
    const struct vt_string *string;
    uint64_t room = string_room(r, id);
    uint32_t length;

    if (!id || id % 4 || room < sizeof *string + 1)
        return none;
    string = vt_reading_record(r, VT_STRINGS, id);
    if (!string)
        return none;
    length = string->length; /* once: a live process may write next to it */
    if (length > room - sizeof *string - 1 || string->text[length])
        return none;
    return (struct vt_text){string->text, length};
}

const char *vt_reading_chars(const struct vt_reading *r, uint32_t id)
{
    return vt_reading_string(r, id).text; /* it ends with a NUL: checked above */
}

uint64_t vt_reading_events(const struct vt_reading *r)
{
    return r->events;
}

const struct vt_event *vt_reading_event(const struct vt_reading *r, uint64_t sequence)
{
    uint64_t limit = r->header.section[VT_EVENTS].limit;

    if (sequence >= r->events || !limit || r->events - sequence > limit)
        return NULL;
    return vt_reading_record(r, VT_EVENTS, sequence % limit);
}

uint32_t vt_reading_stack(const struct vt_reading *r, uint32_t id, uint32_t *frames, uint32_t most)
{
    const struct vt_frame *frame;
    uint32_t count = 0, parent;

    while (count < most && (frame = vt_reading_frame(r, id))) {
        frames[count++] = id;
        parent = frame->parent;
        if (parent >= id) /* parents are interned before their children */
            break;
        id = parent;
    }
    return count;
}

uint32_t vt_reading_notes(const struct vt_reading *r)
{
    return r->note_count;
}

const char *vt_reading_note(const struct vt_reading *r, uint32_t index)
{
    return index < r->note_count ? r->notes[index] : "";
}
