/*
 * The state of the simulated driver: environment, start, fork, end of the process, and the registry of handles.
 *
 * The registry answers "is this a live handle of that type" without touching the memory behind it, so that a stale or
 * made-up handle gives CUDA_ERROR_INVALID_HANDLE instead of a crash.
 */
#include "../nvml/processes.h"
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct sim_state sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- handles: open addressing, linear probing, backward-shift deletion ---- */

struct entry {
    const void *object;
    enum sim_type type;
};

static struct entry *table;
static size_t table_size, table_used; /* the size is a power of two */

static size_t slot_for(const void *object)
{
    return (size_t)(((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15u >> 20) & (table_size - 1);
}

static struct entry *find(const void *object)
{
    size_t at;

    if (table_size == 0 || object == NULL) {
        return NULL;
    }
    for (at = slot_for(object); table[at].object != NULL; at = (at + 1) & (table_size - 1)) {
        if (table[at].object == object) {
            return &table[at];
        }
    }
    return NULL;
}

static void insert(const void *object, enum sim_type type)
{
    size_t at = slot_for(object);

    while (table[at].object != NULL) {
        at = (at + 1) & (table_size - 1);
    }
    table[at].object = object;
    table[at].type = type;
}

static void grow(void)
{
    struct entry *old = table;
    size_t old_size = table_size, i;

    table_size = old_size ? 2 * old_size : 256;
    table = calloc(table_size, sizeof(*table));
    for (i = 0; i < old_size; i++) {
        if (old[i].object != NULL) {
            insert(old[i].object, old[i].type);
        }
    }
    free(old);
}

void *sim_object_new(enum sim_type type, size_t bytes)
{
    void *object = calloc(1, bytes);

    if (object == NULL) {
        return NULL;
    }
    if (2 * (table_used + 1) > table_size) {
        grow();
    }
    table_used++;
    insert(object, type);
    return object;
}

bool sim_object_is(const void *object, enum sim_type type)
{
    struct entry *e = find(object);

    return e != NULL && e->type == type;
}

void sim_object_free(void *object)
{
    struct entry *e = find(object);
    size_t hole, at;

    if (e == NULL) {
        return;
    }
    hole = (size_t)(e - table);
    for (at = (hole + 1) & (table_size - 1); table[at].object != NULL; at = (at + 1) & (table_size - 1)) {
        size_t home = slot_for(table[at].object);

        /* Move an entry back if the hole lies between its home and where it is now. */
        if (((at - home) & (table_size - 1)) >= ((at - hole) & (table_size - 1))) {
            table[hole] = table[at];
            hole = at;
        }
    }
    table[hole].object = NULL;
    table_used--;
    free(object);
}

/* ---- start and end ---- */

static unsigned long long number(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* What is taken on a card by others: processes without a name, those that NVML lists, and the driver itself. */
static size_t others_on(int device)
{
    const char *text = getenv("SIM_NVML_PROCESSES"), *reserved = getenv("SIM_NVML_RESERVED");
    size_t bytes = number("SIM_OTHERS_MIB", 0) * SIM_MIB;
    struct sim_process p;

    while (sim_process_next(&text, &p)) {
        bytes += p.device == device ? p.bytes : 0;
    }
    if (reserved != NULL && strcmp(reserved, "inside") == 0) {
        bytes += number("SIM_NVML_RESERVED_MIB", 512) * SIM_MIB;
    }
    return bytes;
}

static void configure(void)
{
    int i;

    sim.device_count = (int)number("SIM_DEVICES", 1);
    sim.device_count = sim.device_count > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : sim.device_count;
    sim.total_bytes = number("SIM_TOTAL_MIB", 16384) * SIM_MIB;
    sim.context_bytes = number("SIM_CONTEXT_MIB", 300) * SIM_MIB;
    sim.pinned_limit = number("SIM_PINNED_MIB", 1 << 20) * SIM_MIB;
    sim.driver_version = (int)number("SIM_DRIVER_VERSION", 13000);
    sim.latency_ns = number("SIM_LATENCY_NS", 0);
    sim.garbage = number("SIM_GARBAGE", 0) != 0;
    sim.mig = number("SIM_MIG", 0) != 0;
    for (i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_device *device = &sim.device[i];

        memset(device, 0, sizeof(*device));
        device->index = i;
        device->total = sim.total_bytes;
        device->others = others_on(i);
        device->heap.device = device;
        device->heap.charged = true;
        device->graph_heap.device = device;
    }
    sim.host_heap = (struct sim_heap){.device = &sim.device[0], .host = true};
}

/* The real driver 570 and later does this while it is being loaded: an interposer's dlsym must not wait for anything. */
static void look_up_self(void)
{
    Dl_info self;
    void *handle;

    if (dladdr((void *)&sim, &self) == 0) {
        return;
    }
    handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) {
        return;
    }
    if (dlsym(handle, "cuGetExportTable") == NULL || dlsym(handle, "cuMemAlloc_v2") == NULL) {
        abort();
    }
    dlclose(handle);
}

static void before_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&sim.lock);
}

/* CUDA state doesn't survive a fork.  What the parent allocated is abandoned: the child must not touch it. */
static void after_fork_child(void)
{
    pthread_mutex_init(&sim.lock, NULL);
    if (sim.initialised) {
        sim.initialised = false;
        sim.forked = true;
        sim_ctx_forget_thread();
    }
}

__attribute__((constructor)) static void loaded(void)
{
    configure();
    sim_inject_start();
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    if (number("SIM_CTOR_DLSYM", 0) != 0) {
        look_up_self();
    }
}

static void shut_down(void)
{
    pthread_mutex_lock(&sim.lock);
    sim.shut_down = true;
    pthread_mutex_unlock(&sim.lock);
}

static void start_over(void)
{
    configure();
    memset(table, 0, table_size * sizeof(*table));
    table_used = 0;
    sim.epoch++;
    sim.contexts = NULL;
    sim_capture_start_over();
    sim_pinned_start_over();
    sim_vmm_start_over();
    sim.forked = false;
}

static CUresult start(unsigned int flags)
{
    int i;

    REQUIRE(flags == 0);
    if (sim.shut_down) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (sim.initialised) {
        return CUDA_SUCCESS;
    }
    if (sim.forked) {
        const char *policy = getenv("SIM_FORK");

        if (policy != NULL && strcmp(policy, "refuse") == 0) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        start_over();
    } else if (number("SIM_ATEXIT", 1) != 0) {
        atexit(shut_down);
    }
    if (sim.device_count == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    for (i = 0; i < sim.device_count; i++) {
        TRY(sim_pool_start(&sim.device[i]));
    }
    sim.initialised = true;
    return CUDA_SUCCESS;
}

/* On WSL2 libcuda.so.1 is a stub that opens the real driver and looks functions up by name. */
static CUresult forward_init(unsigned int flags)
{
#ifndef SIM_BEHIND_STUB
    if (number("SIM_WSL", 0) != 0) {
        void *real = dlopen("libcuda.so.1.1", RTLD_NOW | RTLD_LOCAL);
        void *init = real ? dlsym(real, "cuInit") : NULL;

        return init ? ((CUresult(*)(unsigned int))init)(flags) : CUDA_ERROR_NO_DEVICE;
    }
#endif
    (void)flags;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuInit(unsigned int Flags)
{
    TRY(forward_init(Flags));
    SIM_CALL_EARLY(cuInit, start(Flags));
}
