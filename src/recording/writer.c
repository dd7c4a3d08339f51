/*
 * The writer's side of include/vramtrack/recording.h: extents, records, strings.
 *
 * Address space for the whole recording is reserved once, so that an extent never moves and a record's address is
 * base + file offset for life. The first limit_bytes of it mirror the file; behind them lies room for extents that the
 * file can't take (bound reached, disk full). Blocks are allocated before an extent is mapped: writing into a hole of a
 * sparse file on a full disk raises SIGBUS in the middle of somebody else's program.
 *
 * No descriptor is kept open: programs close descriptors that they do not know (daemons, subprocess), and a number
 * that was closed and reused would make us write into a file of theirs. Growing is rare; the file is reopened by path
 * and its identity compared.
 */
#include "recording/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STRING_BYTES_MAX 65535u

static const struct {
    uint32_t record_bytes, first;
    unsigned share; /* at most limit_bytes / share for this section; 0: as the table below says */
} shapes[VT_SECTION_COUNT] = {
    [VT_STRINGS] = {1, 65536, 32},
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
};

static uint64_t page_bytes(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > (long)VT_PAGE ? (uint64_t)page : VT_PAGE;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* Through syscall(): the libc functions are cancellation points, and a thread must not be cancelled inside our lock. */
static int raw_open(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}

static void raw_close(int fd)
{
    syscall(SYS_close, fd);
}

static bool write_zeros(int fd, uint64_t offset, uint64_t bytes)
{
    static const char zeros[65536];
    while (bytes > 0) {
        size_t chunk = bytes < sizeof zeros ? bytes : sizeof zeros;
        long n = syscall(SYS_pwrite64, fd, zeros, chunk, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return true;
}

/* Gives the range real blocks on the disk, so that writing to its mapping can't fail later. */
static bool allocate_blocks(int fd, uint64_t offset, uint64_t bytes)
{
    long r;
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && offset + bytes > most.rlim_cur) { /* SIGXFSZ would end the program */
        errno = EFBIG;
        return false;
    }
    do
        r = syscall(SYS_fallocate, fd, 0, offset, bytes);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return true;
    return (errno == EOPNOTSUPP || errno == ENOSYS) && write_zeros(fd, offset, bytes);
}

static bool map_file(struct vt_writer *w, int fd, uint64_t offset, uint64_t bytes)
{
    if (!allocate_blocks(fd, offset, bytes))
        return false;
    return mmap(w->base + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) != MAP_FAILED;
}

static bool map_memory(struct vt_writer *w, uint64_t offset, uint64_t bytes)
{
    return offset + bytes <= w->reserved_bytes &&
           mmap(w->base + offset, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* The recording's file, or -1 when the path no longer leads to it. */
static int reopen(struct vt_writer *w)
{
    struct stat st;
    int fd = raw_open(w->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_dev == w->device && st.st_ino == w->inode)
        return fd;
    raw_close(fd);
    errno = ESTALE;
    return -1;
}

/* The disk is gone: what comes from now on stays in memory. */
static void lose_file(struct vt_writer *w, int error)
{
    w->error = error;
    w->state = VT_WRITER_PARTIAL;
    vt_writer_header(w)->flags |= VT_FLAG_NO_SPACE;
}

static bool grow_in_file(struct vt_writer *w, uint64_t bytes, uint64_t *offset)
{
    struct vt_header *h = vt_writer_header(w);
    if (w->state != VT_WRITER_FILE)
        return false;
    if (w->file_bytes + bytes > h->limit_bytes) {
        h->flags |= VT_FLAG_BOUND_REACHED;
        return false;
    }
    int fd = reopen(w);
    bool ok = fd >= 0 && map_file(w, fd, w->file_bytes, bytes);
    if (!ok)
        lose_file(w, errno);
    if (fd >= 0)
        raw_close(fd);
    if (!ok)
        return false;
    *offset = w->file_bytes;
    w->file_bytes += bytes;
    h->used_bytes = w->file_bytes;
    return true;
}

static bool add_extent(struct vt_writer *w, struct vt_section_entry *s, unsigned e)
{
    uint64_t bytes = round_up(((uint64_t)s->first << e) * s->record_bytes, page_bytes()), offset;
    int saved = errno;
    bool ok = grow_in_file(w, bytes, &offset);
    if (!ok && map_memory(w, w->memory_bytes, bytes)) {
        offset = w->memory_bytes;
        w->memory_bytes += bytes;
        ok = true;
    }
    errno = saved;
    if (ok)
        __atomic_store_n(&s->extent[e], offset, __ATOMIC_RELEASE);
    return ok;
}

/* Makes sure that record i has an extent. */
static bool ensure(struct vt_writer *w, struct vt_section_entry *s, uint64_t i)
{
    unsigned e = 63u - (unsigned)__builtin_clzll((i >> __builtin_ctz(s->first)) + 1);
    if (e >= VT_MAX_EXTENTS)
        return false;
    return s->extent[e] || add_extent(w, s, e);
}

static void make_directory(struct vt_header *h, const struct vt_writer_options *o)
{
    for (int i = 0; i < VT_SECTION_COUNT; i++) {
        struct vt_section_entry *s = &h->section[i];
        s->record_bytes = shapes[i].record_bytes;
        s->first = shapes[i].first;
        if (shapes[i].share) {
            s->limit = o->limit_bytes / shapes[i].share / s->record_bytes;
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
    make_directory(h, o);
    memcpy(h->magic, VT_MAGIC, sizeof h->magic); /* last: a reader that comes earlier sees no recording */
}

/* Copies a name into a file name: what a shell or a path could trip over becomes '_'. */
static void clean_name(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from && n + 1 < size; from++) {
        unsigned char c = (unsigned char)*from;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '+' ||
                     (c == '.' && n > 0);
        to[n++] = plain ? (char)c : '_';
    }
    to[n] = 0;
}

static bool make_path(struct vt_writer *w, const struct vt_writer_options *o, uint64_t start_ms)
{
    char directory[VT_PATH_MAX - 300], program[65], host[65], rank[24] = "";
    if (o->directory && o->directory[0] == '/')
        snprintf(directory, sizeof directory, "%s", o->directory);
    else {
        if (!getcwd(directory, sizeof directory))
            return false;
        size_t n = strlen(directory);
        if (o->directory && o->directory[0])
            snprintf(directory + n, sizeof directory - n, "/%s", o->directory);
    }
    clean_name(program, sizeof program, o->program);
    clean_name(host, sizeof host, o->host);
    if (o->rank >= 0)
        snprintf(rank, sizeof rank, ".rank%d", o->rank);
    int n = snprintf(w->path, sizeof w->path, "%s/vramtrack.%s.%s%s.%d.%llu.vtr", strcmp(directory, "/") ? directory : "", program, host,
                     rank, o->pid, (unsigned long long)start_ms);
    return n > 0 && (size_t)n < sizeof w->path;
}

/* Creates the file under a name that nothing has, or -1 with errno. */
static int create(struct vt_writer *w, const struct vt_writer_options *o)
{
    uint64_t start_ms = o->start_unix_ns / 1000000;
    for (int attempt = 0; attempt < 100; attempt++) {
        if (!make_path(w, o, start_ms + (uint64_t)attempt))
            break;
        int fd = raw_open(w->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    if (!errno)
        errno = ENAMETOOLONG;
    return -1;
}

static bool open_file(struct vt_writer *w, const struct vt_writer_options *o)
{
    struct stat st;
    errno = 0;
    int fd = create(w, o);
    if (fd < 0)
        return false;
    uint64_t bytes = round_up(VT_HEADER_BYTES, page_bytes());
    bool ok = fstat(fd, &st) == 0 && map_file(w, fd, 0, bytes);
    int error = errno;
    raw_close(fd);
    if (!ok) { /* nobody has seen it yet */
        unlink(w->path);
        errno = error;
        return false;
    }
    w->device = st.st_dev;
    w->inode = st.st_ino;
    w->file_bytes = bytes;
    w->state = VT_WRITER_FILE;
    return true;
}

/* A place far below the libraries. Among them, gigabytes of reserved address space would push the driver's mappings into
 * page tables of their own, which the kernel then makes and frees at every allocation: cudaMalloc + cudaFree of 64 MiB
 * took 100 us instead of 80 (H200, driver 580). Only a hint: if something lies there, the kernel chooses. */
static void *far_place(void)
{
    uintptr_t here = (uintptr_t)&page_bytes, distance = (uintptr_t)1 << 41;
    return here > 2 * distance ? (void *)((here - distance) & ~(((uintptr_t)1 << 30) - 1)) : NULL;
}

static bool reserve(struct vt_writer *w, uint64_t limit)
{
    for (uint64_t times = 16; times >= 2; times /= 2) { /* RLIMIT_AS may be tight */
        void *p = mmap(far_place(), limit * times, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            continue;
        w->base = p;
        w->reserved_bytes = limit * times;
        w->memory_bytes = limit;
        return true;
    }
    return false;
}

bool vt_writer_open(struct vt_writer *w, const struct vt_writer_options *o)
{
    int saved = errno;
    memset(w, 0, sizeof *w);
    if (!reserve(w, round_up(o->limit_bytes, page_bytes())))
        return false;
    if (!open_file(w, o)) {
        w->error = errno;
        w->path[0] = 0;
        if (!map_memory(w, 0, round_up(VT_HEADER_BYTES, page_bytes()))) {
            munmap(w->base, w->reserved_bytes);
            errno = saved;
            return false;
        }
        w->state = VT_WRITER_MEMORY;
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

void vt_writer_publish(struct vt_writer *w, enum vt_section section)
{
    vt_writer_publish_many(w, section, 1);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it, and pages come one fault at a time */
#endif
#define EVENTS_AHEAD 2048u /* 80 KiB */

/* Has the pages of the next events made ready in one go: a page fault for every hundred events would be a third of what
 * writing them costs. */
static void prepare_events(struct vt_writer *w, const struct vt_section_entry *s, uint64_t i)
{
    uint64_t page = page_bytes(), extent_end = s->first, last = i + EVENTS_AHEAD;
    int saved = errno;
    while (extent_end <= i)
        extent_end = 2 * extent_end + s->first;
    if (last > extent_end)
        last = extent_end;
    uint64_t from = vt_record_offset(s, i) / page * page, to = vt_record_offset(s, last - 1) + s->record_bytes;
    madvise(w->base + from, to - from, MADV_POPULATE_WRITE);
    w->events_ready = last;
    errno = saved;
}

struct vt_event *vt_writer_next_event(struct vt_writer *w)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[VT_EVENTS];
    uint64_t i = s->count < s->limit ? s->count : s->count % s->limit;
    if (!ensure(w, s, i)) { /* no room for the ring to grow: wrap at what there is */
        s->limit = i;
        if (!i)
            return NULL;
        i = 0;
    }
    if (s->count == i && i >= w->events_ready)
        prepare_events(w, s, i);
    return (struct vt_event *)(w->base + vt_record_offset(s, i));
}

/* Strings lie in one section of bytes. One that does not fit into the rest of an extent starts in the next. */
uint32_t vt_writer_string(struct vt_writer *w, const char *text, size_t length)
{
    struct vt_section_entry *s = &vt_writer_header(w)->section[VT_STRINGS];
    if (!text || !length)
        return 0;
    if (length > STRING_BYTES_MAX - 8)
        length = STRING_BYTES_MAX - 8;
    uint64_t need = round_up(sizeof(struct vt_string) + length + 1, 4);
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

/* Extents keep their order but move together: those that lie behind the file's limit would blow up the image. */
uint64_t vt_writer_image(const struct vt_writer *w, void **image)
{
    const struct vt_header *h = vt_writer_header(w);
    uint64_t page = page_bytes(), bytes = round_up(VT_HEADER_BYTES, page), at = bytes;
    for (int i = 0; i < VT_SECTION_COUNT; i++)
        for (unsigned e = 0; i != VT_EVENTS && e < VT_MAX_EXTENTS; e++)
            if (h->section[i].extent[e])
                bytes += round_up(((uint64_t)h->section[i].first << e) * h->section[i].record_bytes, page);
    unsigned char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return 0;
    memcpy(copy, h, VT_HEADER_BYTES);
    struct vt_header *to = (struct vt_header *)copy;
    for (int i = 0; i < VT_SECTION_COUNT; i++)
        for (unsigned e = 0; e < VT_MAX_EXTENTS; e++) {
            uint64_t from = h->section[i].extent[e];
            to->section[i].extent[e] = 0;
            if (!from || i == VT_EVENTS)
                continue;
            uint64_t size = ((uint64_t)h->section[i].first << e) * h->section[i].record_bytes;
            memcpy(copy + at, w->base + from, size);
            to->section[i].extent[e] = at;
            at += round_up(size, page);
        }
    to->used_bytes = bytes;
    *image = copy;
    return bytes;
}

void vt_writer_free_image(void *image, uint64_t bytes)
{
    if (bytes)
        munmap(image, bytes);
}
