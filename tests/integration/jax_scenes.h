/* Part of jax_program.c: the plugin, opened as jaxlib opens one, and the calls that the scenes make. */
#ifndef JAX_SCENES_H
#define JAX_SCENES_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "jax_program.h"
#include "preload/jax/pjrt.h"

#define MIB (1ull << 20)
#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(99);                                               \
        }                                                           \
    } while (0)

typedef const uintptr_t *get_api_fn(void);
typedef void *call_fn(void *);

static void *library;
static const uintptr_t *api;
static void *client;
static void *(*load)(const struct fake_program *);
static void (*relabel)(void *, const struct fake_program *);
static void *(*make_error)(int, const char *);
static unsigned long long (*live_bytes)(int);
static int (*asked)(int);
static void *(*memory_of)(int, int);
static void *(*device_of)(int);

#define CALL(name, args) ((call_fn *)api[VT_PJRT_##name])(args)
#define SIZED(type, ...) ((type){.struct_size = sizeof(type), __VA_ARGS__})

static void find(const char *path)
{
    library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    CHECK(library);
    load = (void *(*)(const struct fake_program *))dlsym(library, "fake_load");
    relabel = (void (*)(void *, const struct fake_program *))dlsym(library, "fake_relabel");
    make_error = (void *(*)(int, const char *))dlsym(library, "fake_error");
    live_bytes = (unsigned long long (*)(int))dlsym(library, "fake_live_bytes");
    asked = (int (*)(int))dlsym(library, "fake_asked");
    memory_of = (void *(*)(int, int))dlsym(library, "fake_memory");
    device_of = (void *(*)(int))dlsym(library, "fake_device");
    get_api_fn *get = (get_api_fn *)dlsym(library, "GetPjrtApi");
    CHECK(get && get() == get());
    api = get();
    CHECK(!dlerror());
}

static void make_client(void)
{
    uintptr_t args[11] = {sizeof args};
    CHECK(!CALL(Client_Create, args));
    client = (void *)args[VT_PJRT_Client_Create_client];
}

__attribute__((noinline)) static void *from_host(uint64_t bytes)
{
    int64_t dims[] = {(int64_t)bytes};
    struct fake_from_host a = SIZED(struct fake_from_host, .client = client, .dims = dims, .num_dims = 1);
    CHECK(!CALL(Client_BufferFromHostBuffer, &a));
    return a.buffer;
}

static void destroy(void *buffer)
{
    struct fake_buffer_args a = SIZED(struct fake_buffer_args, .buffer = buffer);
    CHECK(!CALL(Buffer_Destroy, &a));
}

static void delete (void *buffer)
{
    struct fake_buffer_args a = SIZED(struct fake_buffer_args, .buffer = buffer);
    CHECK(!CALL(Buffer_Delete, &a));
}

static void forget(void *executable)
{
    struct fake_buffer_args a = SIZED(struct fake_buffer_args, .buffer = executable);
    CHECK(!CALL(LoadedExecutable_Destroy, &a));
}

/* One run on the first devices; returns the error. */
__attribute__((noinline)) static void *run(void *executable, size_t devices, size_t count, void **arguments,
                                           void **outputs, struct fake_options *options)
{
    void *const *in[4];
    void **out[4];
    for (size_t d = 0; d < devices; d++) {
        in[d] = arguments + d * count;
        out[d] = outputs + d * 8;
    }
    struct fake_execute a = SIZED(struct fake_execute, .executable = executable, .options = options, .arguments = in,
                                  .num_devices = devices, .num_args = count, .outputs = out);
    return CALL(LoadedExecutable_Execute, &a);
}

/* As jaxlib turns an error into a status: code, text, and away with it. */
static int status(void *error, char *text)
{
    struct fake_code c = SIZED(struct fake_code, .error = error);
    struct fake_message m = SIZED(struct fake_message, .error = error);
    struct fake_buffer_args d = SIZED(struct fake_buffer_args, .buffer = error);
    CHECK(error);
    CHECK(!CALL(Error_GetCode, &c));
    CALL(Error_Message, &m);
    snprintf(text, 200, "%.*s", (int)m.message_size, m.message);
    CALL(Error_Destroy, &d);
    return c.code;
}

#endif
