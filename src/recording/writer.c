/*
 * The writer's side of include/vramtrack/recording.h: sections, records, strings, the event ring. Where extents come from
 * is writer_file.c's matter.
 */
#include "recording/writer_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "recording/utf8.h"

#define STRING_BYTES_MAX 65535u

/* Makes sure that record i has an extent. */
static bool ensure(struct vt_writer *w, struct vt_section_entry *s, uint64_t i)
{
    unsigned e = 63u - (unsigned)__builtin_clzll((i >> __builtin_ctz(s->first)) + 1);
    if (e >= VT_MAX_EXTENTS)
        return false;
    return s->extent[e] || vt_file_add_extent(w, s, e);
}

static void make_directory(struct vt_header *h, const struct vt_writer_options *o)
{
    for (int i = 0; i < VT_SECTION_COUNT; i++) {
        struct vt_section_entry *s = &h->section[i];
        s->record_bytes = vt_writer_shapes[i].record_bytes;
        s->first = vt_writer_shapes[i].first;
        if (vt_writer_shapes[i].share) {
            s->limit = o->limit_bytes / vt_writer_shapes[i].share / s->record_bytes;
            if (s->limit < s->first)
                s->limit = s->first;
        }
    }
    h->section[VT_LIVE].limit = UINT32_MAX - 1; /* totals must stay exact: live slots may spill into memory */
    uint64_t ring = h->section[VT_EVENTS].first, most = o->limit_bytes / 4 / sizeof(struct vt_event);
    while (ring < o->events && 2 * ring + h->section[VT_EVENTS].first <= most) /* whole extents: first * (2^n - 1) */
        ring = 2 * ring + h->section[VT_EVENTS].first;
    h->section[VT_EVENTS].limit = ring;
}

static void make_header(struct vt_writer *w, const struct vt_writer_options *o)
{
    struct vt_header *h = vt_writer_header(w);
    h->major = VT_MAJOR;
    h->minor = VT_MINOR;
    h->endian = VT_ENDIAN;
    h->header_bytes = VT_HEADER_BYTES;
    h->section_count = VT_SECTION_COUNT;
    h->limit_bytes = o->limit_bytes;
    h->used_bytes = w->file_bytes;
    h->pid = o->pid;
    h->rank = o->rank;
    h->start_unix_ns = o->start_unix_ns;
    snprintf(h->host, sizeof h->host, "%s", o->host);
    snprintf(h->program, sizeof h->program, "%s", o->program);
    vt_utf8_mend(h->program, sizeof h->program);
    make_directory(h, o);
    memcpy(h->magic, VT_MAGIC, sizeof h->magic); /* last: a reader that comes earlier sees no recording */
}

bool vt_writer_open(struct vt_writer *w, const struct vt_writer_options *asked)
{
    int saved = errno;
    struct vt_writer_options granted = *asked, *o = &granted;
    memset(w, 0, sizeof *w);
    granted.limit_bytes = vt_round_up(asked->limit_bytes, vt_page_bytes());
    if (!vt_file_reserve(w, &granted.limit_bytes)) {
        errno = saved;
        return false;
    }
    if (!vt_file_open(w, o)) {
        w->error = errno;
        w->path[0] = 0;
        if (!vt_file_open_in_memory(w)) {
            munmap(w->base, w->reserved_bytes);
            errno = saved;
            return false;
        }
    }
    make_header(w, o);
    vt_writer_string(w, "", 1); /* so that id 0 means "no string" */
    errno = saved;
    return true;
}

void vt_writer_abandon(struct vt_writer *w)
{
    int saved = errno;
    if (w->state != VT_WRITER_CLOSED)
        munmap(w->base, w->reserved_bytes);
    memset(w, 0, sizeof *w);
    errno = saved;
}

uint64_t vt_writer_append_many(struct vt_writer *w, enum vt_section section, uint64_t count)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[section];
    uint64_t first = s->count;
    bool ok = first + count <= s->limit;
    for (uint64_t i = first; ok && i < first + count;) { /* one step per extent */
        uint64_t e = 63u - (unsigned)__builtin_clzll((i >> __builtin_ctz(s->first)) + 1);
        ok = ensure(w, s, i);
        i = s->first * ((2ull << e) - 1);
    }
    if (ok)
        return first;
    s->lost += count;
    return UINT64_MAX;
}

bool vt_writer_reserve(struct vt_writer *w, enum vt_section section, uint64_t count)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[section];
    uint64_t end = s->count + count;
    if (w->state != VT_WRITER_FILE || end > s->limit)
        return false;
    for (uint64_t i = s->count; i < end;) { /* one step per extent */
        unsigned e = 63u - (unsigned)__builtin_clzll((i >> __builtin_ctz(s->first)) + 1);
        if (e >= VT_MAX_EXTENTS || (!s->extent[e] && !vt_file_try_extent(w, s, e)) ||
            s->extent[e] >= vt_writer_header(w)->limit_bytes) /* in memory only */
            return false;
        i = s->first * ((2ull << e) - 1);
    }
    return true;
}

void vt_writer_publish_many(struct vt_writer *w, enum vt_section section, uint64_t count)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[section];
    __atomic_store_n(&s->count, s->count + count, __ATOMIC_RELEASE);
}

void *vt_writer_append(struct vt_writer *w, enum vt_section section, uint64_t *index)
{
    uint64_t i = vt_writer_append_many(w, section, 1);
    if (i == UINT64_MAX)
        return NULL;
    *index = i;
    return vt_writer_at(w, section, i);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it, and pages come one fault at a time */
#endif
#define EVENTS_AHEAD 2048u /* 80 KiB */

/* Has the pages of events made ready in one go: a page fault for every hundred events would be a third of what writing them
 * costs. */
static void prepare_events(struct vt_writer *w, const struct vt_section_entry *s, uint64_t i, uint64_t end)
{
    uint64_t page = vt_page_bytes();
    int saved = errno;
    uint64_t from = vt_record_offset(s, i) / page * page, to = vt_record_offset(s, end - 1) + s->record_bytes;
    madvise(w->base + from, to - from, MADV_POPULATE_WRITE);
    errno = saved;
}

static bool has_extent(const struct vt_section_entry *s, uint64_t i)
{
    return vt_record_offset(s, i) != 0;
}

/* The ring must not spill into memory while there is a file: what comes newest would be lost with the process. */
static bool may_grow(const struct vt_writer *w, const struct vt_section_entry *s, uint64_t i)
{
    uint64_t bytes = vt_round_up((i + s->first) * s->record_bytes,
                                 vt_page_bytes()); /* extent e starts at first * (2^e - 1) */
    return w->state == VT_WRITER_MEMORY ||
           (w->state == VT_WRITER_FILE && w->file_bytes + bytes <= vt_writer_header(w)->limit_bytes);
}

/* The events that are ready are used up: the next ones of the extent, or the first of the next extent, or of the ring. */
struct vt_event *vt_writer_more_events(struct vt_writer *w)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[VT_EVENTS];
    uint64_t i = w->events_end < s->limit ? w->events_end : 0;
    if (!s->limit)
        return NULL;
    if (!has_extent(s, i) && (!may_grow(w, s, i) || !ensure(w, s, i))) { /* wrap at what there is */
        s->limit = i;
        if (!i)
            return NULL;
        i = 0;
    }
    uint64_t end = s->first;
    while (end <= i)
        end = 2 * end + s->first;
    if (end > s->limit)
        end = s->limit;
    if (s->count == i) { /* the first round */
        if (end > i + EVENTS_AHEAD)
            end = i + EVENTS_AHEAD;
        prepare_events(w, s, i, end);
    }
    w->events_end = end;
    w->event = vt_writer_at(w, VT_EVENTS, i);
    w->event_end = w->event + (end - i);
    return w->event++;
}

/* Strings lie in one section of bytes. One that does not fit into the rest of an extent starts in the next. */
uint32_t vt_writer_string(struct vt_writer *w, const char *text, size_t length)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[VT_STRINGS];
    if (!text || !length)
        return 0;
    if (length > STRING_BYTES_MAX - 8)
        length = STRING_BYTES_MAX - 8;
    uint64_t need = vt_round_up(sizeof(struct vt_string) + length + 1, 4);
    unsigned e = 63u - (unsigned)__builtin_clzll((s->count >> __builtin_ctz(s->first)) + 1);
    uint64_t extent_end = s->first * ((2ull << e) - 1);
    if (s->count + need > extent_end)
        vt_writer_publish_many(w, VT_STRINGS, extent_end - s->count);
    uint64_t at = vt_writer_append_many(w, VT_STRINGS, need);
    if (at == UINT64_MAX)
        return 0;
    struct vt_string *string = vt_writer_at(w, VT_STRINGS, at);
    string->length = (uint32_t)length;
    memcpy(string->text, text, length);
    string->text[length] = 0;
    vt_writer_publish_many(w, VT_STRINGS, need);
    return (uint32_t)at;
}

#define IMAGE_SLOTS_MAX 65536u         /* 2.5 MiB */
#define IMAGE_MOMENT_SLOTS_MAX 131072u /* 5 MiB */
#define IMAGE_EVENTS_MAX 65536u        /* 2.5 MiB; a power of two */

/* What the image does without: slots if there are many. With a million live allocations the copy would double what the process
 * uses; with few of them, they show what lies where in a framework's memory. Of the events it has the newest, in a ring of
 * its own: they show the turns of the program's loop, which the diagnosis of a full card goes by. */
static bool is_left_out(const struct vt_section_entry *s, int section)
{
    return section == VT_EVENTS || (section == VT_LIVE && s->count > IMAGE_SLOTS_MAX) ||
           (section == VT_MOMENT_SLOTS && s->count > IMAGE_MOMENT_SLOTS_MAX);
}

/* How many events there are for the image. */
static uint64_t image_events(const struct vt_header *h)
{
    const struct vt_section_entry *s = &h->section[VT_EVENTS];
    uint64_t held = s->count < s->limit ? s->count : s->limit;
    return held < IMAGE_EVENTS_MAX ? held : IMAGE_EVENTS_MAX;
}

/* Copies the newest events to `at` of the image, as a ring of one extent. */
static void copy_events(const struct vt_writer *w, struct vt_header *to, uint64_t at)
{
    const struct vt_section_entry *s = &vt_writer_header(w)->section[VT_EVENTS];
    struct vt_section_entry *ring = &to->section[VT_EVENTS];
    uint64_t held = image_events(to), count = ring->count, limit = ring->limit, i, offset;
    ring->first = IMAGE_EVENTS_MAX;
    ring->limit = held < count ? held : IMAGE_EVENTS_MAX;
    ring->extent[0] = held ? at : 0;
    for (i = count - held; i < count; i++)
        if ((offset = vt_record_offset(s, i % limit)))
            memcpy((unsigned char *)to + at + i % ring->limit * s->record_bytes, w->base + offset, s->record_bytes);
}

/* Bytes of an extent that hold records. */
static uint64_t image_bytes(const struct vt_header *h, int section, unsigned e)
{
    const struct vt_section_entry *s = &h->section[section];
    uint64_t before = s->first * ((1ull << e) - 1), records = (uint64_t)s->first << e;
    if (is_left_out(s, section) || !s->extent[e] || s->count <= before)
        return 0;
    return (s->count - before < records ? s->count - before : records) * s->record_bytes;
}

uint64_t vt_writer_image(const struct vt_writer *w, void **image)
{
    const struct vt_header *h = vt_writer_header(w);
    uint64_t page = vt_page_bytes(), bytes = vt_round_up(VT_HEADER_BYTES, page), at = bytes;
    for (int i = 0; i < VT_SECTION_COUNT; i++)
        for (unsigned e = 0; e < VT_MAX_EXTENTS; e++)
            bytes += vt_round_up(image_bytes(h, i, e), page);
    bytes += vt_round_up(image_events(h) * sizeof(struct vt_event), page);
    unsigned char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return 0;
    memcpy(copy, h, VT_HEADER_BYTES);
    struct vt_header *to = (struct vt_header *)copy;
    for (int i = 0; i < VT_SECTION_COUNT; i++)
        for (unsigned e = 0; e < VT_MAX_EXTENTS; e++) {
            uint64_t size = image_bytes(h, i, e);
            to->section[i].extent[e] = size ? at : 0;
            if (size)
                memcpy(copy + at, w->base + h->section[i].extent[e], size);
            at += vt_round_up(size, page);
        }
    copy_events(w, to, at);
    for (int i = 0; i < VT_SECTION_COUNT; i++)
        if (i != VT_EVENTS && is_left_out(&to->section[i], i))
            to->section[i].count = 0;
    to->used_bytes = bytes;
    *image = copy;
    return bytes;
}

void vt_writer_free_image(void *image, uint64_t bytes)
{
    if (bytes)
        munmap(image, bytes);
}
