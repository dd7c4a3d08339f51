/*
 * The side of whoever asks for a moment; see request.h, and src/preload/request.c for the side that answers.
 *
 * Order matters: `request` is 0 while the name changes, so that the recorder never takes half a name; the recorder stores the
 * moment before `answer`. A request that somebody left behind who died is simply replaced.
 */
#include "cli/request.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "analysis/format.h"
#include "analysis/model.h"
#include "recording/reader.h"
#include "recording/utf8.h"

#define QUIET_S 0.1 /* who makes no call for less may only be between two of them */

__attribute__((format(printf, 2, 3))) static enum vt_request_state refuse(struct vt_request *r, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(r->text, sizeof r->text, format, arguments);
    va_end(arguments);
    return VT_REQUEST_REFUSED;
}

static enum vt_request_state refuse_open(struct vt_request *r)
{
    int error = errno;
    struct stat status;
    const struct passwd *owner;

    if (error != EACCES || stat(r->path, &status))
        return refuse(r, "%.900s: %s", r->path, strerror(error));
    owner = getpwuid(status.st_uid);
    if (status.st_uid != geteuid())
        return refuse(r, "%.800s: the recording belongs to %s: only that user can ask for a moment", r->path,
                      owner ? owner->pw_name : "another user");
    return refuse(r, "%.800s: the recording is not writable, so nobody can be asked through it", r->path);
}

/* Why the process would not answer, if that is known. */
static enum vt_request_state check(struct vt_request *r, const struct vt_header *h)
{
    char program[sizeof h->program + 1] = "";

    if (memcmp(h->magic, VT_MAGIC, sizeof h->magic))
        return refuse(r, "%.900s: not a vramtrack recording", r->path);
    if (h->major != VT_MAJOR)
        return refuse(r, "%.800s: written by format version %u, this program reads %u", r->path, h->major, VT_MAJOR);
    if (h->minor < 4)
        return refuse(r, "%.800s: written by an older recorder (format %u.%u), which takes no requests", r->path,
                      h->major, h->minor);
    memcpy(program, h->program, sizeof h->program);
    if (!r->pid)
        r->pid = h->pid;
    if (h->end != VT_END_RUNNING || !vt_model_process_lives(r->pid, h->process_start_ticks))
        return refuse(r, "%s (pid %d) has ended: its last state is the moment \"end\" of %.800s", program, r->pid,
                      r->path);
    if (h->flags & VT_FLAG_STOPPED)
        return refuse(r, "%s (pid %d) records no more: an internal failure stopped it (see vramtrack report %.700s)",
                      program, r->pid, r->path);
    if (h->flags & VT_FLAG_NO_SPACE)
        return refuse(r, "%s (pid %d) counts on in memory: its disk was full, and no moment gets into %.700s", program,
                      r->pid, r->path);
    return VT_REQUEST_PENDING;
}

/* The first name of snapshot-1, snapshot-2, ... that no moment has. */
static void choose_name(struct vt_request *r)
{
    char error[256];
    struct vt_reading *reading = vt_reading_open(r->path, error, sizeof error);
    unsigned number = 0;

    do
        snprintf(r->name, sizeof r->name, "snapshot-%u", ++number);
    while (reading && number < 1000 && vt_model_has_moment(reading, r->name));
    vt_reading_close(reading);
}

/* It is this one's turn: writes the request. */
static enum vt_request_state write_request(struct vt_request *r)
{
    struct vt_header *h = mmap(NULL, VT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    struct timespec now;
    enum vt_request_state state;

    if (h == MAP_FAILED)
        return refuse(r, "%.900s: %s", r->path, strerror(errno));
    r->header = h;
    state = check(r, h);
    if (state != VT_REQUEST_PENDING)
        return state;
    if (!*r->name)
        choose_name(r);
    clock_gettime(CLOCK_MONOTONIC, &now);
    r->number = (uint32_t)now.tv_nsec ^ (uint32_t)getpid() << 12;
    while (!r->number || r->number == __atomic_load_n(&h->answer, __ATOMIC_RELAXED) ||
           r->number == __atomic_load_n(&h->request, __ATOMIC_RELAXED))
        r->number++;
    r->events = h->section[VT_EVENTS].count;
    __atomic_store_n(&h->request, 0, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof r->name; i++) /* each behind the 0 */
        __atomic_store_n(&h->request_name[i], r->name[i], __ATOMIC_RELEASE);
    __atomic_store_n(&h->request, r->number, __ATOMIC_RELEASE);
    return VT_REQUEST_PENDING;
}

/* One turn after the other; false: somebody else asks right now. */
static bool take_turn(struct vt_request *r)
{
    return !flock(r->fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK; /* where there are no locks: without */
}

enum vt_request_state vt_request_begin(struct vt_request *r, const char *path, int32_t pid, const char *name)
{
    struct stat status;

    memset(r, 0, sizeof *r);
    r->pid = pid;
    snprintf(r->path, sizeof r->path, "%s", path);
    if (name) {
        strncpy(r->name, name, sizeof r->name - 1);
        vt_utf8_mend(r->name, sizeof r->name);
    }
    r->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0)
        return refuse_open(r);
    if (fstat(r->fd, &status))
        return refuse(r, "%.900s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size < VT_HEADER_BYTES)
        return refuse(r, "%.900s: not a vramtrack recording", path);
    return take_turn(r) ? write_request(r) : VT_REQUEST_PENDING;
}

/* The name that the recorder gave the moment with this number (index + 1). */
static enum vt_request_state read_answer(struct vt_request *r, uint32_t moment)
{
    struct vt_section_entry moments;
    char name[sizeof((struct vt_moment *)NULL)->name] = "";
    uint64_t offset;

    if (!moment)
        return refuse(r, "the recording has no room for another moment (there may be 128)");
    memcpy(&moments, &r->header->section[VT_MOMENTS], sizeof moments);
    offset = moments.first && !(moments.first & (moments.first - 1)) ? vt_record_offset(&moments, moment - 1) : 0;
    if (!offset || pread(r->fd, name, sizeof name, (off_t)offset) != (ssize_t)sizeof name)
        return refuse(r, "%.900s: the answer is damaged", r->path);
    snprintf(r->text, sizeof r->text, "%.*s", (int)sizeof name, name);
    return VT_REQUEST_TAKEN;
}

enum vt_request_state vt_request_poll(struct vt_request *r)
{
    if (!r->header)
        return take_turn(r) ? write_request(r) : VT_REQUEST_PENDING;
    if (__atomic_load_n(&r->header->answer, __ATOMIC_ACQUIRE) == r->number)
        return read_answer(r, r->header->answer_moment);
    if (r->header->end == VT_END_RUNNING && vt_model_process_lives(r->pid, r->header->process_start_ticks))
        return VT_REQUEST_PENDING;
    if (__atomic_load_n(&r->header->answer, __ATOMIC_ACQUIRE) == r->number) /* its last call took it */
        return read_answer(r, r->header->answer_moment);
    return refuse(
        r, "the process (pid %d) ended before it took the moment: its last state is the moment \"end\" of %.800s",
        r->pid, r->path);
}

void vt_request_explain(struct vt_request *r, double seconds)
{
    const struct vt_header *h = r->header;
    char ago[VT_FORMAT_BYTES];
    struct timespec now;
    uint64_t since;

    if (!h) {
        refuse(r, "somebody else's request for a moment was not answered within %g s", seconds);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    since = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - h->start_mono_ns - h->last_ns;
    if (seconds >= QUIET_S && h->section[VT_EVENTS].count != r->events) {
        refuse(r, "the process (pid %d) did not answer within %g s, although it makes CUDA calls", r->pid, seconds);
        return;
    }
    if (seconds < QUIET_S || (int64_t)since < (int64_t)(QUIET_S * 1e9)) {
        refuse(r, "the process (pid %d) took no moment within %g s", r->pid, seconds);
        return;
    }
    refuse(r,
           "no moment was taken within %g s: the process (pid %d) makes no CUDA calls now, and the next one would have "
           "taken "
           "it. Nothing has changed for %s: vramtrack report %.600s shows what it holds",
           seconds, r->pid, vt_format_seconds(ago, since), r->path);
}

void vt_request_end(struct vt_request *r)
{
    uint32_t number = r->number;

    if (r->header) {
        if (number)
            __atomic_compare_exchange_n(&r->header->request, &number, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        munmap(r->header, VT_HEADER_BYTES);
    }
    if (r->fd > 0)
        close(r->fd); /* and with it the lock */
    r->header = NULL;
    r->fd = 0;
}
