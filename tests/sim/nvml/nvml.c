/*
 * A simulated NVML for the simulated driver: the memory of the driver's cards, and who holds it. It asks the driver that
 * the process has loaded (sim.h), and knows the other processes from SIM_NVML_PROCESSES.
 *
 * As the real one it counts initialisations, knows devices by CUDA's uuid, and has several versions of a function. What is
 * declared here follows the NVML API Reference (docs.nvidia.com/deploy/nvml-api). Built with SIM_NVML_OLD it is the
 * library of a driver from before memory had a second version, and the lists of processes a third.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "processes.h"

#define API __attribute__((visibility("default")))
#define MIB (1ull << 20)

enum {
    SUCCESS,
    UNINITIALIZED,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    NO_PERMISSION,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE,
    UNKNOWN = 999
};

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};
struct process_info {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
};

struct device { /* what a handle stands for */
    int index;
    bool mig_parent; /* the whole card of which CUDA has a MIG instance */
};
#define DEVICES 16
static struct device devices[DEVICES][2]; /* CUDA's device, its MIG parent */
static int initialised;

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

static bool is_set(const char *name, const char *value)
{
    const char *text = getenv(name);

    return text != NULL && strcmp(text, value) == 0;
}

/* A figure of the driver that this process uses. */
static unsigned long long driver(const char *name, int device)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned long long (*get)(int) = handle != NULL ? (unsigned long long (*)(int))dlsym(handle, name) : NULL;
    unsigned long long value = get != NULL ? get(device) : 0;

    if (handle != NULL) {
        dlclose(handle);
    }
    return value;
}

/* SIM_NVML_FAIL is "function:code,...". */
static int injected(const char *function)
{
    const char *text = getenv("SIM_NVML_FAIL");
    size_t length = strlen(function);

    while (text != NULL && *text != '\0') {
        if (strncmp(text, function, length) == 0 && text[length] == ':') {
            return atoi(text + length + 1);
        }
        text = strchr(text, ',');
        text += text != NULL;
    }
    return SUCCESS;
}

#define BEGIN()                                                     \
    do {                                                            \
        int code_ = injected(__func__);                             \
        if (code_ != SUCCESS) {                                     \
            return code_;                                           \
        }                                                           \
        if (__atomic_load_n(&initialised, __ATOMIC_ACQUIRE) <= 0) { \
            return UNINITIALIZED;                                   \
        }                                                           \
    } while (0)

API int nvmlInit_v2(void)
{
    int code = injected(__func__), i;

    if (code != SUCCESS) {
        return code;
    }
    for (i = 0; i < DEVICES; i++) {
        __atomic_store_n(&devices[i][0].index, i, __ATOMIC_RELAXED);
        __atomic_store_n(&devices[i][1].index, i, __ATOMIC_RELAXED);
        __atomic_store_n(&devices[i][1].mig_parent, true, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&initialised, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}

API int nvmlShutdown(void)
{
    BEGIN();
    __atomic_fetch_sub(&initialised, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}

API const char *nvmlErrorString(int code)
{
    return code == NOT_SUPPORTED ? "Not Supported" : code == UNKNOWN ? "Unknown Error" : "Simulated Error";
}

API int nvmlSystemGetDriverVersion(char *text, unsigned int size)
{
    BEGIN();
    snprintf(text, size, "999.1.sim");
    return SUCCESS;
}

/* "GPU-" or "MIG-" and the 16 bytes that the driver says ("simulated-gpu-00"). */
static void uuid_of(char *text, size_t size, int device, bool mig)
{
    char bytes[17];
    int i, n = snprintf(text, size, mig ? "MIG-" : "GPU-");

    snprintf(bytes, sizeof(bytes), mig ? "simulated-mig-0%d" : "simulated-gpu-0%d", device);
    for (i = 0; i < 16; i++) {
        n += snprintf(text + n, size - (size_t)n, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      (unsigned char)bytes[i]);
    }
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    char text[64];
    int i;

    BEGIN();
    for (i = 0; i < DEVICES && driver("sim_device_total", i) != 0; i++) {
        bool mig = number("SIM_MIG", 0) != 0;

        uuid_of(text, sizeof(text), i, mig);
        if (strcmp(text, uuid) == 0) {
            *device = &devices[i][0];
            return SUCCESS;
        }
        uuid_of(text, sizeof(text), i, false);
        if (mig && strcmp(text, uuid) == 0) {
            *device = &devices[i][1];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

static struct memory_v2 memory_of(const struct device *d)
{
    struct memory_v2 m = {.reserved = number("SIM_NVML_RESERVED_MIB", 512) * MIB};
    unsigned long long total = driver("sim_device_total", d->index);
    unsigned long long taken = driver("sim_device_used", d->index) + driver("sim_device_others", d->index);

    if (is_set("SIM_NVML_RESERVED", "inside")) { /* of what CUDA offers; the driver counts it as taken */
        m.total = total;
        m.used = taken - m.reserved;
    } else {
        m.total = total + m.reserved;
        m.used = taken;
    }
    m.total *= d->mig_parent ? 7 : 1;
    m.free = m.total - m.reserved - m.used;
    return m;
}

API int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
    struct memory_v2 m;

    BEGIN();
    m = memory_of(device);
    *out = (struct memory){m.total, m.free, m.used + m.reserved};
    return SUCCESS;
}

#ifndef SIM_NVML_OLD
API int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *out)
{
    BEGIN();
    if (out->version != 0x02000028) {
        return INVALID_ARGUMENT;
    }
    *out = memory_of(device);
    out->version = 0x02000028;
    if (is_set("SIM_NVML_USED", "all")) {
        out->used += out->reserved;
    }
    return SUCCESS;
}
#endif

/* ---- processes ---- */

static void put(void *list, size_t entry_bytes, unsigned int room, unsigned int *count, unsigned int pid,
                unsigned long long bytes)
{
    struct process_info info = {pid, bytes, 0xffffffff, 0xffffffff};
    char *at = (char *)list + *count * entry_bytes;

    if (*count < room && list != NULL) {
        memset(at, 0, entry_bytes);
        memcpy(at, &info, sizeof(info));
    }
    (*count)++;
}

/* Graphics contexts: those of the other processes whose name ends in "-graphics". */
static bool has_graphics(const struct sim_process *p)
{
    size_t length = strlen(p->name);

    return length > 9 && strcmp(p->name + length - 9, "-graphics") == 0;
}

static int list_processes(const struct device *d, unsigned int *count, void *list, size_t entry_bytes, bool graphics)
{
    const char *text = getenv("SIM_NVML_PROCESSES");
    unsigned int room = *count, own = (unsigned int)number("SIM_NVML_PID", (unsigned long long)getpid());
    unsigned long long used = driver("sim_device_used", d->index);
    struct sim_process p;

    if (d->mig_parent) {
        return NO_PERMISSION;
    }
    *count = 0;
    while (sim_process_next(&text, &p)) {
        if (p.device == d->index && (!graphics || has_graphics(&p))) {
            put(list, entry_bytes, room, count, p.pid, p.bytes);
        }
    }
    if (used != 0 && !graphics && own != 0) {
        put(list, entry_bytes, room, count, own, used);
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned int *count, void *list)
{
    BEGIN();
    return list_processes(device, count, list, sizeof(struct process_info), false);
}

API int nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned int *count, void *list)
{
    BEGIN();
    return list_processes(device, count, list, sizeof(struct process_info), true);
}

#ifndef SIM_NVML_OLD
/* Some drivers have longer entries in this version. */
static size_t entry_v3(void)
{
    return sizeof(struct process_info) + (number("SIM_NVML_LONG", 0) != 0 ? 8 : 0);
}

API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, void *list)
{
    BEGIN();
    return list_processes(device, count, list, entry_v3(), false);
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned int *count, void *list)
{
    BEGIN();
    return list_processes(device, count, list, entry_v3(), true);
}
#endif

API int nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size)
{
    const char *text = getenv("SIM_NVML_PROCESSES");
    struct sim_process p;

    BEGIN();
    while (sim_process_next(&text, &p)) {
        if (p.pid == pid && p.name[0] != '\0') {
            snprintf(name, size, "%s", p.name);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}
