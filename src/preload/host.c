/*
 * The host's memory at a refusal of page-locked memory; see host.h. Limits of control groups count from the process's own
 * group up to the root that it sees; in a container that is the container's own.
 */
#include "preload/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "preload/state.h"

#define INTERVAL_NS 1000000000u /* one reading a second at most: a program may be refused for hours */
#define NO_LIMIT (1ull << 62)   /* version 1 of control groups says "none" with a number as large as this */

static uint64_t newest_ns;

struct host {
    uint64_t available, limit, used, lockable;
};

/* The beginning of a file as text. False: it can't be read. */
static bool read_file(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);

    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static bool read_number(const char *path, uint64_t *number)
{
    char text[64];

    if (!read_file(path, text, sizeof text))
        return false;
    *number = strncmp(text, "max", 3) ? strtoull(text, NULL, 10) : VT_UNKNOWN_BYTES;
    if (*number >= NO_LIMIT)
        *number = VT_UNKNOWN_BYTES;
    return true;
}

static uint64_t available(void)
{
    char text[1024], *at;

    if (!read_file("/proc/meminfo", text, sizeof text) || !(at = strstr(text, "MemAvailable:")))
        return 0;
    return strtoull(at + strlen("MemAvailable:"), NULL, 10) << 10;
}

/* Takes the limit of one group if it leaves less than the one before. */
static void take_group(struct host *host, const char *folder, const char *limit_name, const char *used_name)
{
    char path[512];
    uint64_t limit, used;

    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    if (!read_number(path, &limit) || limit == VT_UNKNOWN_BYTES)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, used_name);
    if (!read_number(path, &used))
        return;
    used = used < limit ? used : limit;
    if (host->limit && host->limit - host->used <= limit - used)
        return;
    host->limit = limit;
    host->used = used;
}

/* The group that /proc/self/cgroup names, and those around it. */
static void take_groups(struct host *host)
{
    static const char root[] = "/sys/fs/cgroup";
    char text[1024], folder[384], *own, *slash;

    take_group(host, "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
    if (!read_file("/proc/self/cgroup", text, sizeof text) || !(own = strstr(text, "0::/")))
        return;
    own += 3;
    own[strcspn(own, "\n")] = '\0';
    if (strstr(own, "/..") || strlen(own) + sizeof root > sizeof folder)
        own = "";
    snprintf(folder, sizeof folder, "%s%s", root, own);
    do {
        take_group(host, folder, "memory.max", "memory.current");
        slash = strrchr(folder, '/');
        *slash = '\0';
    } while (strlen(folder) >= strlen(root));
}

static struct host look(void)
{
    struct host host = {.available = available()};
    struct rlimit lock;

    take_groups(&host);
    if (!getrlimit(RLIMIT_MEMLOCK, &lock))
        host.lockable = lock.rlim_cur == RLIM_INFINITY ? VT_UNKNOWN_BYTES : lock.rlim_cur;
    return host;
}

static bool is_due(void)
{
    struct timespec t;
    uint64_t now, before = __atomic_load_n(&newest_ns, __ATOMIC_RELAXED);

    clock_gettime(CLOCK_MONOTONIC, &t);
    now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return (!before || now - before >= INTERVAL_NS) &&
           __atomic_compare_exchange_n(&newest_ns, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static bool is_host(uint32_t failure)
{
    bool host;

    if (!vt_state_recording() || !vt_state_lock(false))
        return false;
    host = failure < vt_header()->section[VT_FAILURES].count &&
           vt_class_of((enum vt_kind)((const struct vt_failure *)vt_writer_at(&vt_state.writer, VT_FAILURES, failure))
                           ->memory_kind) == VT_CLASS_HOST;
    vt_state_unlock();
    return host;
}

void vt_host_oom(uint32_t failure)
{
    int saved = errno;
    struct host host;

    if (is_host(failure) && is_due()) {
        host = look();
        if (vt_state_lock(false)) {
            struct vt_header *h = vt_header();

            h->host_available_bytes = host.available;
            h->host_limit_bytes = host.limit;
            h->host_used_bytes = host.used;
            h->lockable_bytes = host.lockable;
            h->host_failure = failure + 1;
            vt_state_unlock();
        }
    }
    errno = saved;
}
