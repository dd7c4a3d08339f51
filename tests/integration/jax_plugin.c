/*
 * A plugin as JAX loads it: exports GetPjrtApi, whose table has the shape of the real one's. It takes an arena from the
 * (simulated) driver, as XLA does, hands out parts of it without telling anybody, and keeps books of its own, which the
 * tests compare with the report. Arguments are declared here as C structs with their real types, apart from pjrt.h.
 *
 * FAKE_MAJOR, FAKE_MINOR, FAKE_WORDS (length of the table), FAKE_PLATFORM, FAKE_DEVICES, FAKE_LACKS (number of a function
 * that is NULL) and FAKE_GROWS (no arena at first) in the environment change what it says of itself and does. fake_* are
 * for the programs: see jax_program.h.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jax_program.h"
#include "preload/jax/pjrt.h"

#define EXPORT __attribute__((visibility("default")))
#define GIB (1ull << 30)

struct error {
    int code;
    char message[200];
};

struct memory {
    const char *kind;
    int device;
};

struct device {
    int ordinal;
    struct memory memory[3]; /* device, pinned_host, unpinned_host */
    struct memory *memories[3];
    uint64_t used;
};

struct client {
    int count;
    struct device device[4];
    struct device *devices[4];
};

struct buffer {
    uint64_t magic, bytes;
    struct memory *memory;
    bool deleted, counted;
};
#define MAGIC 0x6275666665720001ull

struct loaded {
    const struct fake_program *program;
    struct client *client;
};

struct executable {
    const struct fake_program *program;
};

static struct client *the_client;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int executables; /* given out by GetExecutable and not destroyed */
static uint64_t capacity = 4 * GIB;
static int asked[160];

static struct error *fail(int code, const char *message)
{
    struct error *e = calloc(1, sizeof *e);
    e->code = code;
    snprintf(e->message, sizeof e->message, "%s", message);
    return e;
}

/* As the real ones check: a struct smaller than the callee knows it is refused. */
#define CHECK(args, last)                                                                     \
    do {                                                                                      \
        if ((args)->struct_size < offsetof(__typeof__(*(args)), last) + sizeof((args)->last)) \
            return fail(3, "Unexpected size of arguments");                                   \
    } while (0)

#define HEAD FAKE_HEAD

/* --- errors --- */

struct error_args {
    HEAD;
    struct error *error;
};
struct message_args {
    HEAD;
    const struct error *error;
    const char *message;
    size_t message_size;
};
struct code_args {
    HEAD;
    const struct error *error;
    int code;
};

static void error_destroy(struct error_args *a)
{
    free(a->error);
}

static void error_message(struct message_args *a)
{
    a->message = a->error->message;
    a->message_size = strlen(a->message);
}

static struct error *error_code(struct code_args *a)
{
    CHECK(a, code);
    a->code = a->error->code;
    return NULL;
}

/* --- clients --- */

struct client_create_args {
    HEAD;
    const void *options;
    size_t num_options;
    void *kv_get, *kv_get_arg, *kv_put, *kv_put_arg;
    struct client *client;
};
struct client_args {
    HEAD;
    struct client *client;
};
struct text_args {
    HEAD;
    const void *object;
    const char *text;
    size_t size;
};
struct list_args {
    HEAD;
    void *object;
    void *const *list;
    size_t count;
};
struct int_args {
    HEAD;
    struct device *device;
    int id;
};

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

/* XLA has no reference to the driver: it opens it and looks functions up by their exported names. */
static bool take_arena(int device, uint64_t bytes)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle arena;
    CUcontext context;
#define DRIVER(name) ((__typeof__(&name))dlsym(driver, #name))
    return driver && !DRIVER(cuInit)(0) && !DRIVER(cuDevicePrimaryCtxRetain)(&context, device) &&
           !DRIVER(cuCtxSetCurrent)(context) && !DRIVER(cuMemCreate)(&arena, bytes, &prop, 0);
}

static struct error *client_create(struct client_create_args *a)
{
    CHECK(a, client);
    struct client *c = calloc(1, sizeof *c);
    static const char *const kinds[] = {"device", "pinned_host", "unpinned_host"};
    c->count = atoi(setting("FAKE_DEVICES", "1"));
    for (int i = 0; i < c->count; i++) {
        struct device *d = c->devices[i] = &c->device[i];
        d->ordinal = i;
        for (int k = 0; k < 3; k++) {
            d->memory[k] = (struct memory){kinds[k], i};
            d->memories[k] = &d->memory[k];
        }
        if (!strcmp(setting("FAKE_PLATFORM", "cuda"), "cuda") &&
            !take_arena(i, getenv("FAKE_GROWS") ? 2 << 20 : capacity))
            return fail(13, "no arena");
    }
    the_client = a->client = c;
    return NULL;
}

static struct error *client_destroy(struct client_args *a)
{
    CHECK(a, client);
    free(a->client);
    the_client = NULL;
    return NULL;
}

static struct error *client_platform(struct text_args *a)
{
    CHECK(a, size);
    a->text = setting("FAKE_PLATFORM", "cuda");
    a->size = strlen(a->text);
    return NULL;
}

static struct error *client_devices(struct list_args *a)
{
    CHECK(a, count);
    struct client *c = a->object;
    a->list = (void *const *)c->devices;
    a->count = (size_t)c->count;
    return NULL;
}

static struct error *device_id(struct int_args *a)
{
    CHECK(a, id);
    a->id = a->device->ordinal;
    return NULL;
}

static struct error *device_memories(struct list_args *a)
{
    CHECK(a, count);
    struct device *d = a->object;
    a->list = (void *const *)d->memories;
    a->count = 3;
    return NULL;
}

static struct error *memory_kind(struct text_args *a)
{
    CHECK(a, size);
    a->text = ((const struct memory *)a->object)->kind;
    a->size = strlen(a->text);
    return NULL;
}

struct stats_args {
    HEAD;
    struct device *device;
    int64_t bytes_in_use;
    struct {
        int64_t value;
        bool known;
    } peak, allocs, largest_alloc, limit, reserved, peak_reserved, reservable, largest_free, pool, peak_pool;
};

static struct error *device_stats(struct stats_args *a)
{
    CHECK(a, peak_pool);
    pthread_mutex_lock(&lock);
    asked[VT_PJRT_Device_MemoryStats]++;
    a->bytes_in_use = (int64_t)a->device->used;
    a->limit.value = a->pool.value = a->peak_pool.value = (int64_t)capacity;
    a->largest_free.value = (int64_t)(capacity - a->device->used);
    a->limit.known = a->pool.known = a->peak_pool.known = a->largest_free.known = true;
    pthread_mutex_unlock(&lock);
    return NULL;
}

#include "jax_plugin_objects.h"

/* --- the table, and what the programs need beside it --- */

const void *fake_table(void);

EXPORT const void *fake_table(void)
{
    static uintptr_t table[600];
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (!table[0]) {
        size_t words = (size_t)atoi(setting("FAKE_WORDS", "143"));
        table[2] = 24;
        table[4] = (uintptr_t)atoi(setting("FAKE_MAJOR", "0")) | (uintptr_t)atoi(setting("FAKE_MINOR", "116")) << 32;
        for (size_t i = 5; i < words; i++)
            table[i] = 0x1000 + i; /* nobody calls it */
#define IS(name, function) table[VT_PJRT_##name] = (uintptr_t)(function)
        IS(Error_Destroy, error_destroy);
        IS(Error_Message, error_message);
        IS(Error_GetCode, error_code);
        IS(Client_Create, client_create);
        IS(Client_Destroy, client_destroy);
        IS(Client_PlatformName, client_platform);
        IS(Client_AddressableDevices, client_devices);
        IS(Client_BufferFromHostBuffer, from_host);
        IS(Device_LocalHardwareId, device_id);
        IS(Device_AddressableMemories, device_memories);
        IS(Device_MemoryStats, device_stats);
        IS(Memory_Kind, memory_kind);
        IS(Executable_Destroy, executable_destroy);
        IS(Executable_Name, executable_name);
        IS(Executable_NumOutputs, executable_outputs);
        IS(LoadedExecutable_Destroy, loaded_destroy);
        IS(LoadedExecutable_GetExecutable, get_executable);
        IS(LoadedExecutable_Execute, execute);
        IS(Buffer_Destroy, buffer_destroy);
        IS(Buffer_OnDeviceSizeInBytes, buffer_size);
        IS(Buffer_Memory, buffer_memory);
        IS(Buffer_Delete, buffer_delete);
        IS(Buffer_IsDeleted, buffer_is_deleted);
        IS(Buffer_CopyToDevice, copy_to_device);
        IS(Buffer_CopyToMemory, copy_to_memory);
        IS(Client_CreateViewOfDeviceBuffer, view);
        IS(Executable_GetCompiledMemoryStats, executable_memory);
        IS(AsyncHostToDeviceTransferManager_RetrieveBuffer, retrieve);
        IS(Client_CreateUninitializedBuffer, uninitialized);
        IS(Buffer_DonateWithControlDependency, donate_with_dependency);
        IS(Buffer_Bitcast, bitcast);
        if (getenv("FAKE_LACKS"))
            table[atoi(getenv("FAKE_LACKS"))] = 0;
        table[0] = words * sizeof *table;
    }
    pthread_mutex_unlock(&once);
    return table;
}

EXPORT const void *GetPjrtApi(void)
{
    return fake_table();
}

EXPORT void *fake_load(const struct fake_program *program)
{
    struct loaded *l = malloc(sizeof *l);
    *l = (struct loaded){program, the_client};
    return l;
}

/* Another executable at the same address. */
EXPORT void fake_relabel(void *executable, const struct fake_program *program)
{
    *(struct loaded *)executable = (struct loaded){program, the_client};
}

/* As an extension of the API makes one. */
EXPORT void *fake_buffer(uint64_t bytes)
{
    struct buffer *b = NULL;
    return new_buffer(the_client->devices[0]->memories[0], bytes, true, &b) ? NULL : b;
}

EXPORT void *fake_error(int code, const char *message)
{
    return fail(code, message);
}

EXPORT unsigned long long fake_live_bytes(int device)
{
    return the_client ? the_client->device[device].used : 0;
}

EXPORT int fake_asked(int function)
{
    return function < 0 ? executables : asked[function];
}

EXPORT void *fake_memory(int device, int which)
{
    return the_client->devices[device]->memories[which];
}

EXPORT void *fake_device(int device)
{
    return the_client->devices[device];
}
