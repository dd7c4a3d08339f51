/*
 * The library's own reports, and the names that are looked up on these occasions; see report.h. Both are made from a
 * private copy of the recording, so that the program's other threads go on allocating meanwhile.
 */
#include "preload/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/host.h"
#include "preload/loaded.h"
#include "preload/names.h"
#include "preload/options.h"
#include "preload/state.h"
#include "preload/usage.h"
#include "preload/warn.h"
#include "recording/reader.h"
#include "views/views.h"

#define REPORTS_MAX 5
#define TEXT_BYTES_MAX (64u << 20) /* no text gets that long */
#define INTERVAL_NS 10000000000ull

static bool wrote_text;   /* the .txt is ours: it may be written again */
static uint64_t last_oom; /* time of the newest OOM report; 0: none */
static unsigned oom_reports;
static int reporting; /* one report at a time: a second one would write into the same .txt */

void vt_report_forget(void)
{
    reporting = 0; /* another thread of the parent may have been at it */
    wrote_text = false;
    last_oom = 0;
    oom_reports = 0;
}

/* The recording's name with .txt in place of .vtr. */
static bool text_path(const char *recording, char *path, size_t size)
{
    size_t n = strlen(recording);
    if (n < 4 || n + 1 > size)
        return false;
    memcpy(path, recording, n - 4);
    memcpy(path + n - 4, ".txt", 5);
    return true;
}

static void write_text(struct vt_reading *reading, struct vt_report_request request)
{
    char path[VT_PATH_MAX];
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < TEXT_BYTES_MAX) /* SIGXFSZ would end the program */
        return;
    if (!request.recording_path || !text_path(request.recording_path, path, sizeof path))
        return;
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (wrote_text ? O_TRUNC : O_EXCL);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    if (fd < 0)
        return;
    wrote_text = true;
    request.fd = fd;
    request.colour = false;
    vt_text_write(reading, &request);
    syscall(SYS_close, fd);
}

/* The views first: the names that they look up are there for the recording, too. */
static void use_copy(struct vt_reading *reading, struct vt_report_request *request)
{
    struct vt_symbols *symbols = vt_symbols_open();
    if (symbols)
        vt_symbols_use_memory(symbols, vt_loaded_name);
    if (request) {
        request->symbols = symbols;
        vt_summary_write(reading, request);
        write_text(reading, *request);
    }
    vt_names_store(reading, symbols);
    vt_symbols_close(symbols);
}

static void look_at_copy(const struct vt_report_request *base)
{
    void *image = NULL;
    uint64_t bytes = 0;
    char path[VT_PATH_MAX] = "";
    if (!vt_state_lock(false))
        return;
    bytes = vt_writer_image(&vt_state.writer, &image);
    memcpy(path, vt_state.writer.path, sizeof path);
    vt_state_unlock();
    struct vt_report_request request = {0};
    if (base)
        request = *base;
    request.recording_path = *path ? path : NULL;
    vt_tls.busy = 1; /* what the analysis calls must not be recorded */
    struct vt_reading *reading = bytes ? vt_reading_from_memory(image, bytes) : NULL;
    if (reading) {
        use_copy(reading, base ? &request : NULL);
        vt_reading_close(reading);
    } else if (base)
        vt_warn("no memory for a report; run: vramtrack report %s", path);
    vt_tls.busy = 0;
    vt_writer_free_image(image, bytes);
}

/* Copies the recording, hands it to the views, and stores the names in it. NULL: the names alone. */
static void report(const struct vt_report_request *base)
{
    if (__atomic_exchange_n(&reporting, 1, __ATOMIC_ACQUIRE))
        return;
    look_at_copy(base);
    __atomic_store_n(&reporting, 0, __ATOMIC_RELEASE);
}

static bool terminal(void)
{
    struct stat st;
    return fstat(2, &st) == 0 && S_ISCHR(st.st_mode) && isatty(2);
}

void vt_report_oom(uint32_t failure)
{
    vt_usage_oom(failure);
    vt_host_oom(failure);
    uint64_t now = vt_now();
    if (__atomic_load_n(&oom_reports, __ATOMIC_RELAXED) >= REPORTS_MAX)
        return;
    uint64_t before = __atomic_load_n(&last_oom, __ATOMIC_RELAXED);
    if ((before && now - before < INTERVAL_NS) ||
        !__atomic_compare_exchange_n(&last_oom, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    __atomic_fetch_add(&oom_reports, 1, __ATOMIC_RELAXED);
    int saved = errno;
    struct vt_report_request request = {.fd = 2, .colour = terminal(), .cause = VT_REPORT_OOM, .failure = failure};
    report(vt_options()->report == VT_REPORT_MODE_OFF ? NULL : &request);
    errno = saved;
}

/* Under `vramtrack run` the command reports, from the file: what never got there would be lost. */
static bool is_in_memory_only(void)
{
    if (!vt_state_lock(false))
        return false;
    bool memory = !vt_state.writer.path[0] || (vt_header() && vt_header()->flags & VT_FLAG_NO_SPACE);
    vt_state_unlock();
    return memory;
}

void vt_report_end(void)
{
    const struct vt_options *o = vt_options();
    int saved = errno;
    bool here = o->report == VT_REPORT_MODE_ALL && (!o->under_run || is_in_memory_only());
    struct vt_report_request request = {.fd = 2, .colour = terminal(), .cause = VT_REPORT_EXIT, .failure = VT_NONE};
    report(here ? &request : NULL);
    errno = saved;
}
