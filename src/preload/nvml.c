/*
 * Opens and asks NVML; see nvml.h. NVIDIA's nvml.h is not redistributable with this program, so what is used of it is
 * declared here, from the NVML API Reference (docs.nvidia.com/deploy/nvml-api, R580): names, return codes and structures
 * are part of NVML's ABI, which grows by new versions of a function beside the old ones.
 *
 * There is no lock: threads that come first together all open and initialise (NVML counts that), and the first one's
 * table of functions is kept.
 */
#include "preload/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/process.h"
#include "preload/resolve.h"

#define NVML_SUCCESS 0
#define NVML_ERROR_INSUFFICIENT_SIZE 7

struct memory_v1 { /* nvmlMemory_t; used includes what is reserved */
    unsigned long long total, free, used;
};

struct memory_v2 { /* nvmlMemory_v2_t */
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
#define MEMORY_V2 ((unsigned)sizeof(struct memory_v2) | 2u << 24)

/* nvmlProcessInfo_v2_t, which both _v2 and _v3 of the lists fill. Drivers 535.43 to 535.86 append 8 bytes to each entry in
 * _v3; 535.98 took that back (github.com/XuehaiPan/nvitop/pull/89). */
struct process_info {
    unsigned int pid;
    unsigned long long bytes; /* all ones: not available */
    unsigned int gpu_instance, compute_instance;
};
#define LONG_ENTRY (sizeof(struct process_info) + 8)

typedef int list_fn(void *device, unsigned int *count, struct process_info *list);

/* clang-format off */
#define FUNCTIONS(X)                                                                  \
    X(nvmlInit_v2, int, (void))                                                       \
    X(nvmlErrorString, const char *, (int code))                                      \
    X(nvmlSystemGetDriverVersion, int, (char *text, unsigned int size))               \
    X(nvmlSystemGetProcessName, int, (unsigned int pid, char *name, unsigned int size)) \
    X(nvmlDeviceGetHandleByUUID, int, (const char *uuid, void **device))              \
    X(nvmlDeviceGetMemoryInfo_v2, int, (void *device, struct memory_v2 *memory))      \
    X(nvmlDeviceGetMemoryInfo, int, (void *device, struct memory_v1 *memory))         \
    X(nvmlDeviceGetComputeRunningProcesses_v3, int, (void *device, unsigned int *count, struct process_info *list))  \
    X(nvmlDeviceGetComputeRunningProcesses_v2, int, (void *device, unsigned int *count, struct process_info *list))  \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, int, (void *device, unsigned int *count, struct process_info *list)) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, int, (void *device, unsigned int *count, struct process_info *list))
/* clang-format on */

struct functions {
#define X(name, result, parameters) result(*name) parameters;
    FUNCTIONS(X)
#undef X
};
static struct functions *ready; /* set once; initialised */
static int absent;
static int touched; /* somebody has begun to open it */

/* What is said of it. Written by whoever comes first, and shown once it is whole. */
static char words[160];
static int words_state; /* 0: none, 1: being written, 2: there */

static void say(const char *what, const char *text)
{
    int none = 0;
    if (!__atomic_compare_exchange_n(&words_state, &none, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    snprintf(words, sizeof words, "%s%s", what, text);
    __atomic_store_n(&words_state, 2, __ATOMIC_RELEASE);
}

static void say_code(const struct functions *f, const char *function, int code)
{
    char text[128];
    const char *meaning = f->nvmlErrorString ? f->nvmlErrorString(code) : NULL;
    snprintf(text, sizeof text, ": %s (%d)", meaning ? meaning : "error", code);
    say(function, text);
}

const char *vt_nvml_words(void)
{
    return __atomic_load_n(&words_state, __ATOMIC_ACQUIRE) == 2 ? words : NULL;
}

/* A thread that is cancelled inside NVML would take NVML's locks with it, and the call it is in is not one where the
 * program expects to be cancelled. */
struct aside {
    int error, cancel;
};

static struct aside step_aside(void)
{
    struct aside a = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &a.cancel);
    return a;
}

static void step_back(const struct aside *a)
{
    int unused;
    pthread_setcancelstate(a->cancel, &unused);
    errno = a->error;
}

static void find_functions(struct functions *f, void *library)
{
#define X(name, result, parameters) f->name = (result(*) parameters)vt_real_dlsym(library, #name);
    FUNCTIONS(X)
#undef X
}

static bool start(struct functions *f)
{
    char version[96];
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        say("", reason ? reason : "libnvidia-ml.so.1 can't be opened");
        return false;
    }
    find_functions(f, library);
    int r = f->nvmlInit_v2 ? f->nvmlInit_v2() : -1;
    if (r) {
        say_code(f, "nvmlInit_v2", r);
        return false;
    }
    if (!f->nvmlSystemGetDriverVersion || f->nvmlSystemGetDriverVersion(version, sizeof version))
        snprintf(version, sizeof version, "unknown");
    version[sizeof version - 1] = 0;
    say("driver ", version);
    return true;
}

static const struct functions *functions(void)
{
    return __atomic_load_n(&ready, __ATOMIC_ACQUIRE);
}

bool vt_nvml_open(void)
{
    if (functions() || __atomic_load_n(&absent, __ATOMIC_RELAXED))
        return functions() != NULL;
    struct aside aside = step_aside();
    struct functions *f = calloc(1, sizeof *f), *none = NULL;
    __atomic_store_n(&touched, 1, __ATOMIC_RELAXED);
    if (!f || !start(f))
        __atomic_store_n(&absent, 1, __ATOMIC_RELAXED);
    else if (__atomic_compare_exchange_n(&ready, &none, f, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        f = NULL;
    free(f);
    dlerror(); /* what is missing is not the program's business */
    step_back(&aside);
    return functions() != NULL;
}

void *vt_nvml_device(const uint8_t uuid[16], bool mig)
{
    char text[48];
    void *device = NULL;
    int n = snprintf(text, sizeof text, mig ? "MIG-" : "GPU-"), r = -1;
    for (int i = 0; i < 16; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      uuid[i]);
    const struct functions *f = functions();
    struct aside aside = step_aside();
    if (f && f->nvmlDeviceGetHandleByUUID)
        r = f->nvmlDeviceGetHandleByUUID(text, &device);
    step_back(&aside);
    return r ? NULL : device;
}

static void read_memory(const struct functions *f, void *device, struct vt_nvml_usage *u)
{
    struct memory_v2 m = {.version = MEMORY_V2};
    struct memory_v1 old = {0};
    if (f->nvmlDeviceGetMemoryInfo_v2 && !f->nvmlDeviceGetMemoryInfo_v2(device, &m)) {
        u->total = m.total;
        u->reserved = m.reserved;
        u->free = m.free;
        /* As documented it includes what is reserved; drivers give total = reserved + used + free. */
        u->used = m.used >= m.reserved && m.used + m.free >= m.total ? m.used - m.reserved : m.used;
    } else if (f->nvmlDeviceGetMemoryInfo && !f->nvmlDeviceGetMemoryInfo(device, &old)) {
        u->total = old.total;
        u->free = old.free;
        u->used = old.used;
    }
    if (u->total != VT_UNKNOWN_BYTES && (!u->total || u->free > u->total))
        u->total = u->reserved = u->free = u->used = VT_UNKNOWN_BYTES;
}

static uint64_t known(uint64_t bytes)
{
    return bytes == VT_UNKNOWN_BYTES ? 0 : bytes;
}

static void leave_out(struct vt_nvml_usage *u, uint64_t bytes)
{
    u->more++;
    u->more_bytes += known(bytes);
}

static bool is_self(uint32_t pid)
{
    return pid == (uint32_t)getpid();
}

/* Where the next process goes: into free room, or where the smallest was. NULL: it is the smallest itself. This process
 * always has a place. */
static struct vt_nvml_process *place_for(struct vt_nvml_usage *u, uint32_t pid, uint64_t bytes)
{
    struct vt_nvml_process *smallest = &u->process[is_self(u->process[0].pid)];
    if (u->count < VT_NVML_PROCESSES)
        return &u->process[u->count++];
    for (uint32_t i = 1; i < u->count; i++)
        if (known(u->process[i].bytes) < known(smallest->bytes) && !is_self(u->process[i].pid))
            smallest = &u->process[i];
    if (known(bytes) <= known(smallest->bytes) && !is_self(pid)) {
        leave_out(u, bytes);
        return NULL;
    }
    leave_out(u, smallest->bytes);
    return smallest;
}

/* A process with a graphics context and a compute context is in both lists, each time with all it holds. */
static void add_process(struct vt_nvml_usage *u, uint32_t pid, uint64_t bytes)
{
    struct vt_nvml_process *p = NULL;
    for (uint32_t i = 0; !p && i < u->count; i++)
        if (u->process[i].pid == pid)
            p = &u->process[i];
    if (p && (bytes == VT_UNKNOWN_BYTES || (p->bytes != VT_UNKNOWN_BYTES && p->bytes >= bytes)))
        return;
    if (!p && !(p = place_for(u, pid, bytes)))
        return;
    p->pid = pid;
    p->bytes = bytes;
}

#define MOST 4096u

/* Entries that are longer than they should be reach behind the end of the list. */
static size_t entry_bytes(const unsigned char *list, unsigned int count, unsigned char filler)
{
    size_t end = count * LONG_ENTRY;
    for (size_t i = count * sizeof(struct process_info); i < end; i++)
        if (list[i] != filler)
            return LONG_ENTRY;
    return sizeof(struct process_info);
}

static bool read_list(list_fn *function, void *device, struct vt_nvml_usage *u)
{
    const unsigned char filler = 0xa5;
    unsigned char *list = NULL;
    unsigned int room = 64, count = 0;
    int r = NVML_ERROR_INSUFFICIENT_SIZE;
    while (function && r == NVML_ERROR_INSUFFICIENT_SIZE && room <= MOST) {
        free(list);
        if (!(list = malloc(room * LONG_ENTRY)))
            return false;
        memset(list, filler, room * LONG_ENTRY);
        count = room;
        r = function(device, &count, (struct process_info *)list);
        if (r == NVML_ERROR_INSUFFICIENT_SIZE) /* `count` is how many there were: there may be more now */
            room = count >= room ? count + count / 2 + 8 : 2 * room;
    }
    if (r == NVML_SUCCESS && count <= room) {
        size_t stride = entry_bytes(list, count, filler);
        for (unsigned int i = 0; i < count; i++) {
            struct process_info p;
            memcpy(&p, list + i * stride, sizeof p);
            add_process(u, p.pid, p.bytes);
        }
    }
    free(list);
    return r == NVML_SUCCESS;
}

static void read_processes(const struct functions *f, void *device, struct vt_nvml_usage *u)
{
    if (!read_list(f->nvmlDeviceGetComputeRunningProcesses_v3, device, u) &&
        !read_list(f->nvmlDeviceGetComputeRunningProcesses_v2, device, u))
        return;
    u->listed = true;
    if (!read_list(f->nvmlDeviceGetGraphicsRunningProcesses_v3, device, u))
        read_list(f->nvmlDeviceGetGraphicsRunningProcesses_v2, device, u);
}

static void sort(struct vt_nvml_usage *u)
{
    for (uint32_t i = 1; i < u->count; i++) {
        struct vt_nvml_process p = u->process[i];
        uint32_t at = i;
        for (; at && known(u->process[at - 1].bytes) < known(p.bytes); at--)
            u->process[at] = u->process[at - 1];
        u->process[at] = p;
    }
}

static void name_process(const struct functions *f, struct vt_nvml_process *p)
{
    char name[256] = "";
    if (f->nvmlSystemGetProcessName && !f->nvmlSystemGetProcessName(p->pid, name, sizeof name)) {
        name[sizeof name - 1] = 0;
        const char *slash = strrchr(name, '/');
        snprintf(p->name, sizeof p->name, "%.*s", (int)sizeof p->name - 1, slash && slash[1] ? slash + 1 : name);
    }
    if (!p->name[0])
        vt_process_name(p->pid, p->name, sizeof p->name);
}

bool vt_nvml_read(void *device, struct vt_nvml_usage *u)
{
    memset(u, 0, sizeof *u);
    u->total = u->reserved = u->free = u->used = VT_UNKNOWN_BYTES;
    const struct functions *f = functions();
    if (!f || !device)
        return false;
    struct aside aside = step_aside();
    read_memory(f, device, u);
    read_processes(f, device, u);
    sort(u);
    for (uint32_t i = 0; i < u->count; i++)
        u->self |= is_self(u->process[i].pid);
    for (uint32_t i = 0; u->self && i < u->count; i++)
        name_process(f, &u->process[i]);
    step_back(&aside);
    return u->listed || u->total != VT_UNKNOWN_BYTES;
}

void vt_nvml_forget(void)
{
    if (!touched)
        return;
    ready = NULL;
    absent = 1;
    words_state = 0;
    say("", "not asked by the child of a process that had asked NVML before");
}
