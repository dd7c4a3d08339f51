/*
 * The reader of recordings: checks an image once on opening (reader_check.c), then hands out records by index.
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

#include "recording/reader_check.h"

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
    vt_reading_check(r);
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
        return (const uint8_t *)r->widened[section] + index * vt_section_bytes(section);
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
