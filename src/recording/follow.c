/*
 * The copy of a recording that is being written; see follow.h.
 *
 * The reader checks the header first and says where each section's records are; then these are read. What the copy has is
 * at least what that header says, because a count is stored after the records that it counts. If events were booked in the
 * meantime, figures of one site may be newer than another's: then it is read again, a few times at most.
 */
#include "recording/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ATTEMPTS 3                /* to read all of it between two events */
#define RESERVED_MAX (1ull << 36) /* address space for a file that says it may grow without end */
#define COPIED_MAX (1ull << 30)   /* a made-up file must not fill the memory */
#define FIRST_EVENTS 4096
#define HEADER_BYTES VT_HEADER_BYTES

struct vt_follow {
    int fd;
    int32_t pid;
    char *path;
    unsigned char *copy;
    uint64_t room;                   /* bytes of address space behind copy */
    uint64_t done[VT_SECTION_COUNT]; /* records that are there for good */
    uint64_t events, torn;
    bool brief;
    struct vt_reading *reading;
};

/* Says why, and is false. */
__attribute__((format(printf, 4, 5))) static bool fail(const struct vt_follow *f, char *error, size_t bytes,
                                                       const char *format, ...)
{
    va_list arguments;
    int used = snprintf(error, bytes, "%s: ", f->path);

    if (used < 0 || (size_t)used >= bytes)
        return false;
    va_start(arguments, format);
    vsnprintf(error + used, bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

/* Reads as much as there is. False: an error of the disk. */
static bool read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
    ssize_t got;

    for (uint64_t done = 0; done < bytes; done += (uint64_t)got) {
        got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got < 0)
            return false;
        else if (!got) /* somebody has made the file shorter: what was there last stays */
            break;
    }
    return true;
}

/* Records of this section never change once they are counted. */
static bool only_grows(enum vt_section section)
{
    return section == VT_STRINGS || section == VT_FRAMES || section == VT_CODES || section == VT_NAMES ||
           section == VT_EVENTS;
}

static bool is_left_out(const struct vt_follow *f, enum vt_section section, bool ended)
{
    switch (section) {
    case VT_MOMENT_SITES:
    case VT_MOMENT_SLOTS:
        return f->brief || !ended;
    case VT_STRINGS:
    case VT_TOTALS:
    case VT_SCOPES:
    case VT_DEVICES:
        return false;
    default:
        return f->brief;
    }
}

/* Copies records first .. count - 1, extent by extent. Returns 0 or an errno. */
static int copy_records(struct vt_follow *f, const struct vt_section_entry *s, uint64_t first, uint64_t *left)
{
    for (unsigned e = 0; e < VT_MAX_EXTENTS && s->extent[e]; e++) {
        uint64_t begin = (uint64_t)s->first * ((1ull << e) - 1), end = begin + ((uint64_t)s->first << e), at, bytes;

        if (end > s->count)
            end = s->count;
        if (begin < first)
            begin = first;
        if (begin >= end)
            continue;
        at = vt_record_offset(s, begin);
        bytes = (end - begin) * s->record_bytes;
        if (at + bytes > f->room || bytes > *left)
            return EFBIG;
        *left -= bytes;
        if (!read_at(f->fd, f->copy + at, bytes, at))
            return errno;
    }
    return 0;
}

static uint64_t events_now(const struct vt_follow *f)
{
    uint64_t count = 0;

    read_at(f->fd, &count, sizeof count,
            offsetof(struct vt_header, section[VT_EVENTS]) + offsetof(struct vt_section_entry, count));
    return count;
}

/* The reader's checks of the header that is in the copy. */
static struct vt_reading *check(struct vt_follow *f, uint64_t bytes, char *error, size_t error_bytes)
{
    vt_reading_close(f->reading);
    return f->reading = vt_reading_from_image(f->copy, bytes < f->room ? bytes : f->room, f->path, error, error_bytes);
}

static void change_header(struct vt_follow *f, bool ended)
{
    struct vt_header *h = (struct vt_header *)f->copy;

    for (unsigned s = 0; s < VT_SECTION_COUNT && s < h->section_count; s++)
        if (is_left_out(f, (enum vt_section)s, ended))
            h->section[s].count = h->section[s].lost = 0;
    if (h->section_count > VT_EVENTS)
        h->section[VT_EVENTS].count = f->done[VT_EVENTS];
    if (f->pid)
        h->pid = f->pid;
}

/* A section as it is to be copied. Of the ring the first events are wanted, as long as they are there: the size of the first
 * allocation says what was in use when free memory was first asked for. */
static struct vt_section_entry wanted(const struct vt_follow *f, const struct vt_header *h, enum vt_section section,
                                      bool ended)
{
    struct vt_section_entry s = h->section[section];

    if (is_left_out(f, section, ended))
        s.count = 0;
    if (section == VT_EVENTS && s.count > FIRST_EVENTS)
        s.count = FIRST_EVENTS;
    if (section == VT_EVENTS && f->events > s.limit)
        s.count = f->done[section];
    return s;
}

static int copy_sections(struct vt_follow *f, const struct vt_header *h, bool ended)
{
    uint64_t left = COPIED_MAX;
    int error = 0;

    for (unsigned i = 0; i < VT_SECTION_COUNT && !error; i++) {
        struct vt_section_entry s = wanted(f, h, (enum vt_section)i, ended);
        bool grows = only_grows((enum vt_section)i);

        error = s.count ? copy_records(f, &s, grows ? f->done[i] : 0, &left) : 0;
        if (error || !grows || s.count <= f->done[i])
            continue;
        if (i != VT_EVENTS || events_now(f) <= s.limit) /* else they were overwritten meanwhile */
            f->done[i] = s.count;
    }
    return error;
}

/* One attempt. Returns 0, an errno, or -1 after filling `error`. */
static int copy_all(struct vt_follow *f, bool ended, char *error, size_t error_bytes)
{
    struct stat status;
    int failed;

    if (fstat(f->fd, &status))
        return errno;
    if (status.st_size < HEADER_BYTES)
        return fail(f, error, error_bytes, "not a whole vramtrack recording (shorter than its header)"), -1;
    f->events = events_now(f);
    if (!read_at(f->fd, f->copy, HEADER_BYTES, 0))
        return errno;
    if (!check(f, (uint64_t)status.st_size, error, error_bytes))
        return -1;
    if ((failed = copy_sections(f, vt_reading_header(f->reading), ended)))
        return failed;
    f->torn = events_now(f) - f->events;
    change_header(f, ended);
    return check(f, (uint64_t)status.st_size, error, error_bytes) ? 0 : -1;
}

struct vt_reading *vt_follow_refresh(struct vt_follow *f, bool ended, char *error, size_t error_bytes)
{
    int failed = 0;

    for (int i = 0; i < ATTEMPTS && !failed; i++) {
        failed = copy_all(f, ended, error, error_bytes);
        if (!failed && !f->torn)
            break;
    }
    if (failed > 0)
        fail(f, error, error_bytes, "%s", failed == EFBIG ? "too large to be followed" : strerror(failed));
    return failed ? NULL : f->reading;
}

uint64_t vt_follow_torn(const struct vt_follow *f)
{
    return f->torn;
}

uint64_t vt_follow_events(const struct vt_follow *f)
{
    return f->events;
}

/* Address space for the file as it is and as it may become; where that is short (ulimit -v), as it is. */
static bool reserve(struct vt_follow *f, uint64_t size, uint64_t limit)
{
    uint64_t most = limit > RESERVED_MAX ? RESERVED_MAX : limit, wanted = size > most ? size : most;
    void *copy = MAP_FAILED;

    if (size > RESERVED_MAX)
        return false;
    wanted = (wanted + VT_PAGE - 1) / VT_PAGE * VT_PAGE + HEADER_BYTES;
    size = (size + VT_PAGE - 1) / VT_PAGE * VT_PAGE + HEADER_BYTES;
    for (; copy == MAP_FAILED && wanted >= size; wanted = wanted == size ? 0 : size) {
        copy = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        f->room = wanted;
    }
    f->copy = copy == MAP_FAILED ? NULL : copy;
    return f->copy != NULL;
}

static bool open_file(struct vt_follow *f, char *error, size_t error_bytes)
{
    struct vt_header h = {.limit_bytes = 0};
    struct stat status;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocking: the path may be a FIFO */
    if (f->fd < 0 || fstat(f->fd, &status))
        return fail(f, error, error_bytes, "%s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fail(f, error, error_bytes, "not a regular file");
    if (!read_at(f->fd, &h, sizeof h, 0))
        return fail(f, error, error_bytes, "%s", strerror(errno));
    if (memcmp(h.magic, VT_MAGIC, sizeof h.magic))
        return fail(f, error, error_bytes, "not a vramtrack recording%s",
                    status.st_size ? " (bad magic)" : " (empty file)");
    if (!reserve(f, (uint64_t)status.st_size, h.limit_bytes))
        return fail(f, error, error_bytes, "no memory to follow it");
    return true;
}

struct vt_follow *vt_follow_open(const char *path, int32_t pid, bool brief, char *error, size_t error_bytes)
{
    struct vt_follow *f = calloc(1, sizeof *f);

    if (!f || !(f->path = strdup(path))) {
        free(f);
        snprintf(error, error_bytes, "out of memory");
        return NULL;
    }
    f->pid = pid;
    f->brief = brief;
    f->fd = -1;
    if (open_file(f, error, error_bytes))
        return f;
    vt_follow_close(f);
    return NULL;
}

void vt_follow_close(struct vt_follow *f)
{
    if (!f)
        return;
    vt_reading_close(f->reading);
    if (f->copy)
        munmap(f->copy, f->room);
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f);
}
