/*
 * What of an image can be relied on. A recording is hostile input: its process may have been killed in the middle of a write, or
 * the file may be anything.
 *
 * Opening copies the header and repairs the copy: extents that are not aligned or outside the image are dropped, counts
 * are clipped to the records that are there, sections of an unknown shape become empty. After that every accessor needs
 * one comparison with the size of the image. What was repaired is said in notes.
 */
#include "recording/reader_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

uint32_t vt_section_bytes(enum vt_section section)
{
    return known[section].bytes;
}

__attribute__((format(printf, 2, 3))) static void note(struct vt_reading *r, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (r->note_count == VT_NOTES_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if ((r->notes[r->note_count] = strdup(text)))
        r->note_count++;
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
    if (s->count < wanted && (section != VT_EVENTS || available)) /* or none was ever kept */
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

void vt_reading_check(struct vt_reading *r)
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
