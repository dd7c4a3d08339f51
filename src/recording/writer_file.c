/*
 * The writer's side of the file and of address space: where extents lie.
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
#include "recording/writer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t vt_page_bytes(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > (long)VT_PAGE ? (uint64_t)page : VT_PAGE;
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
    return mmap(w->base + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) !=
           MAP_FAILED;
}

static bool map_memory(struct vt_writer *w, uint64_t offset, uint64_t bytes)
{
    return offset + bytes <= w->reserved_bytes && mmap(w->base + offset, bytes, PROT_READ | PROT_WRITE,
                                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
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
    __atomic_store_n(&w->state, VT_WRITER_PARTIAL, __ATOMIC_RELEASE);
    vt_writer_header(w)->flags |= VT_FLAG_NO_SPACE;
}

/* Adds a range at the end of the file. Returns 0 or an errno. */
static int append_range(struct vt_writer *w, uint64_t bytes, uint64_t *offset)
{
    int fd = reopen(w), error = 0;
    if (fd < 0 || !map_file(w, fd, w->file_bytes, bytes))
        error = errno ? errno : EIO;
    if (fd >= 0)
        raw_close(fd);
    if (error)
        return error;
    *offset = w->file_bytes;
    w->file_bytes += bytes;
    vt_writer_header(w)->used_bytes = w->file_bytes;
    return 0;
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
    int error = append_range(w, bytes, offset);
    if (error)
        lose_file(w, error);
    return !error;
}

bool vt_file_add_extent(struct vt_writer *w, struct vt_section_entry *s, unsigned e)
{
    uint64_t bytes = vt_round_up(((uint64_t)s->first << e) * s->record_bytes, vt_page_bytes()), offset;
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

bool vt_file_try_extent(struct vt_writer *w, struct vt_section_entry *s, unsigned e)
{
    uint64_t bytes = vt_round_up(((uint64_t)s->first << e) * s->record_bytes, vt_page_bytes()), offset;
    int saved = errno;
    bool ok = w->state == VT_WRITER_FILE && w->file_bytes + bytes <= vt_writer_header(w)->limit_bytes &&
              !append_range(w, bytes, &offset);
    errno = saved;
    if (ok)
        __atomic_store_n(&s->extent[e], offset, __ATOMIC_RELEASE);
    return ok;
}

/* Copies a name into a file name: what a shell or a path could trip over becomes '_'. */
static void clean_name(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; *from && n + 1 < size; from++) {
        unsigned char c = (unsigned char)*from;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
                     c == '_' || c == '+' || (c == '.' && n > 0);
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
    int n = snprintf(w->path, sizeof w->path, "%s/vramtrack.%s.%s%s.%d.%llu.vtr",
                     strcmp(directory, "/") ? directory : "", program, host, rank, o->pid,
                     (unsigned long long)start_ms);
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

bool vt_file_open(struct vt_writer *w, const struct vt_writer_options *o)
{
    struct stat st;
    errno = 0;
    int fd = create(w, o);
    if (fd < 0)
        return false;
    uint64_t bytes = vt_round_up(VT_HEADER_BYTES, vt_page_bytes());
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
    __atomic_store_n(&w->state, VT_WRITER_FILE, __ATOMIC_RELEASE);
    return true;
}

/* A place far below the libraries. Among them, gigabytes of reserved address space would push the driver's mappings into
 * page tables of their own, which the kernel then makes and frees at every allocation: cudaMalloc + cudaFree of 64 MiB
 * took 100 us instead of 80 (H200, driver 580). Only a hint: if something lies there, the kernel chooses. */
static void *far_place(void)
{
    uintptr_t here = (uintptr_t)&vt_page_bytes, distance = (uintptr_t)1 << 41;
    return here > 2 * distance ? (void *)((here - distance) & ~(((uintptr_t)1 << 30) - 1)) : NULL;
}

#define SMALLEST_LIMIT (8ull << 20)

static bool reserve_bytes(struct vt_writer *w, uint64_t limit, uint64_t bytes)
{
    void *p = mmap(far_place(), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    w->base = p;
    w->reserved_bytes = bytes;
    w->memory_bytes = limit;
    return true;
}

/* Room for the file and for what does not fit into it. Where address space is short (ulimit -v), for less of both: then
 * *limit comes back smaller. */
bool vt_file_reserve(struct vt_writer *w, uint64_t *limit)
{
    for (uint64_t times = 16; times >= 2; times /= 2)
        if (reserve_bytes(w, *limit, *limit * times))
            return true;
    while ((*limit /= 2) >= SMALLEST_LIMIT)
        if (reserve_bytes(w, *limit, *limit * 2))
            return true;
    return false;
}

bool vt_file_open_in_memory(struct vt_writer *w)
{
    if (!map_memory(w, 0, vt_round_up(VT_HEADER_BYTES, vt_page_bytes())))
        return false;
    __atomic_store_n(&w->state, VT_WRITER_MEMORY, __ATOMIC_RELEASE);
    return true;
}
