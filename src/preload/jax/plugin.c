/*
 * The way in: a plugin is a library that exports GetPjrtApi, which returns a table of functions. JAX finds GetPjrtApi with
 * dlsym, whose answer is a function of ours: it returns a copy of the plugin's table in which the functions that make and
 * end buffers are ours. The table has no place for a pointer of ours, so there is a set of functions per plugin.
 *
 * A plugin whose table is not as pjrt.h says is left alone, and the recording says so.
 */
#include "preload/jax/plugin.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "preload/jax/jax.h"
#include "preload/resolve.h"

#define PLUGINS 4 /* a process loads one or two */

static struct vt_jax_api apis[PLUGINS];

#define THUNK(n, name)                                         \
    static void *name##_##n(void *arguments)                   \
    {                                                          \
        return vt_jax_##name(&apis[n], (uint64_t *)arguments); \
    }
VT_JAX_WRAPPED(THUNK, 0)
VT_JAX_WRAPPED(THUNK, 1)
VT_JAX_WRAPPED(THUNK, 2)
VT_JAX_WRAPPED(THUNK, 3)
#undef THUNK

#define ENTRY(n, name) [VT_PJRT_##name] = name##_##n,
static vt_pjrt_fn *const ours[PLUGINS][VT_PJRT_Buffer_Bitcast + 1] = {
    {VT_JAX_WRAPPED(ENTRY, 0)}, {VT_JAX_WRAPPED(ENTRY, 1)}, {VT_JAX_WRAPPED(ENTRY, 2)}, {VT_JAX_WRAPPED(ENTRY, 3)}};
#undef ENTRY

/* Functions without which nothing can be recorded. */
static const uint8_t needed[] = {VT_PJRT_Error_Destroy,
                                 VT_PJRT_Error_Message,
                                 VT_PJRT_Error_GetCode,
                                 VT_PJRT_Client_Create,
                                 VT_PJRT_Client_Destroy,
                                 VT_PJRT_Client_PlatformName,
                                 VT_PJRT_Client_AddressableDevices,
                                 VT_PJRT_Client_BufferFromHostBuffer,
                                 VT_PJRT_Device_LocalHardwareId,
                                 VT_PJRT_Device_AddressableMemories,
                                 VT_PJRT_Memory_Kind,
                                 VT_PJRT_Executable_Destroy,
                                 VT_PJRT_Executable_NumOutputs,
                                 VT_PJRT_LoadedExecutable_Destroy,
                                 VT_PJRT_LoadedExecutable_GetExecutable,
                                 VT_PJRT_LoadedExecutable_Execute,
                                 VT_PJRT_Buffer_Destroy,
                                 VT_PJRT_Buffer_OnDeviceSizeInBytes,
                                 VT_PJRT_Buffer_Memory,
                                 VT_PJRT_Buffer_Delete,
                                 VT_PJRT_Buffer_IsDeleted};

/* A plugin that is left alone. */
static struct refusal {
    const void *table;
    int state;      /* as of the tables below */
    uint32_t noted; /* generation + 1 of the process whose recording says it; with the lock */
    char text[128];
} refusals[PLUGINS];

enum { FREE, FILLING, READY };

static const char *file_of(const void *address)
{
    struct vt_object o;
    if (!vt_object_at(address, &o) || !o.name)
        return "a plugin";
    const char *slash = strrchr(o.name, '/');
    return slash ? slash + 1 : o.name;
}

void vt_jax_note_refusals(void)
{
    for (unsigned i = 0; i < PLUGINS; i++) {
        struct refusal *r = &refusals[i];
        if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) != READY || r->noted == vt_state.generation + 1)
            continue;
        struct vt_allocator *a = vt_writer_append(&vt_state.writer, VT_ALLOCATORS, &(uint64_t){0});
        if (!a)
            return;
        r->noted = vt_state.generation + 1;
        a->name = vt_intern(r->text);
        a->device = -1;
        a->framework = VT_FRAMEWORK_JAX;
        a->flags = VT_ALLOCATOR_UNSEEN;
        vt_writer_publish(&vt_state.writer, VT_ALLOCATORS);
    }
}

/* Remembers why the table of a plugin, of which `function` is part, is handed out as it is: for the recording that there
 * is or will be. */
static void refuse(const uint64_t *table, const void *function, const char *why)
{
    for (unsigned i = 0; i < PLUGINS; i++) {
        struct refusal *r = &refusals[i];
        int state = FREE;
        if (!__atomic_compare_exchange_n(&r->state, &state, FILLING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            if (__atomic_load_n(&r->table, __ATOMIC_ACQUIRE) == table)
                return;
            continue;
        }
        __atomic_store_n(&r->table, table, __ATOMIC_RELEASE);
        snprintf(r->text, sizeof r->text, "%s: %s", file_of(function), why);
        __atomic_store_n(&r->state, READY, __ATOMIC_RELEASE);
        break;
    }
    if (vt_state_recording() && vt_state_lock(false)) {
        vt_jax_note_refusals();
        vt_state_unlock();
    }
}

/* Why a table can't be copied, or NULL. `text` is room for it. */
static const char *unknown(const uint64_t *table, char *text, size_t size)
{
    uint64_t words = table[VT_PJRT_TABLE_BYTES] / sizeof(uint64_t);
    if (words <= VT_PJRT_TABLE_VERSION)
        return "its table of functions has no version";
    unsigned major = (unsigned)table[VT_PJRT_TABLE_VERSION], minor = (unsigned)(table[VT_PJRT_TABLE_VERSION] >> 32);
    if (major != VT_PJRT_MAJOR) {
        snprintf(text, size, "PJRT API %u.%u is not known", major, minor);
        return text;
    }
    if (words < VT_PJRT_REQUIRED || words > VT_JAX_TABLE_WORDS) {
        snprintf(text, size, "PJRT API %u.%u with a table of %llu functions is not known", major, minor,
                 (unsigned long long)words - VT_PJRT_TABLE_VERSION - 1);
        return text;
    }
    for (unsigned i = 0; i < sizeof needed; i++)
        if (!table[needed[i]]) {
            snprintf(text, size, "PJRT API %u.%u lacks function %u", major, minor, needed[i]);
            return text;
        }
    return NULL;
}

static size_t table_bytes(const uint64_t *table)
{
    return table[VT_PJRT_TABLE_BYTES] / sizeof(uint64_t) * sizeof(uint64_t);
}

static void fill(struct vt_jax_api *api, const uint64_t *table, const void *function)
{
    memcpy(api->original, table, table_bytes(table));
    memcpy(api->copy, table, table_bytes(table));
    for (unsigned i = 0; i < sizeof ours[0] / sizeof ours[0][0]; i++)
        if (ours[api - apis][i] && vt_jax_can(api, i))
            api->copy[i] = (uintptr_t)ours[api - apis][i];
    api->name = file_of(function);
}

/* The place of a table, claimed or found; NULL: all are taken. */
static struct vt_jax_api *place_of(const uint64_t *table, bool *claimed)
{
    for (unsigned i = 0; i < PLUGINS; i++) {
        const uint64_t *none = NULL;
        *claimed = __atomic_compare_exchange_n(&apis[i].table, &none, table, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (*claimed || none == table)
            return &apis[i];
    }
    return NULL;
}

#define PATIENCE 10000 /* turns; filling takes a microsecond, and the child of a fork has nobody who goes on with it */

/* Is it the table that was copied? The chain of extensions may have grown since. */
static bool is_same(struct vt_jax_api *api, const uint64_t *table)
{
    const unsigned first = VT_PJRT_TABLE_VERSION;
    __atomic_store_n(&api->copy[VT_PJRT_TABLE_EXTENSIONS], table[VT_PJRT_TABLE_EXTENSIONS], __ATOMIC_RELAXED);
    return api->original[VT_PJRT_TABLE_BYTES] == table[VT_PJRT_TABLE_BYTES] &&
           !memcmp(api->original + first, table + first, table_bytes(table) - first * sizeof(uint64_t));
}

/* The table that the caller of a plugin's `function` gets. */
static const uint64_t *copy_of(const uint64_t *table, const void *function)
{
    char text[96];
    bool claimed;
    const char *why = table ? unknown(table, text, sizeof text) : NULL;
    struct vt_jax_api *api = table && !why ? place_of(table, &claimed) : NULL;
    if (!api) {
        if (table)
            refuse(table, function, why ? why : "there are too many plugins in this process");
        return table;
    }
    if (claimed) {
        fill(api, table, function);
        __atomic_store_n(&api->state, READY, __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < PATIENCE && __atomic_load_n(&api->state, __ATOMIC_ACQUIRE) != READY; i++)
        sched_yield();
    if (__atomic_load_n(&api->state, __ATOMIC_ACQUIRE) != READY)
        return table;
    if (is_same(api, table))
        return api->copy;
    refuse(table, function, "it was loaded where another plugin had been");
    return table;
}

typedef const uint64_t *get_api_fn(void);
static get_api_fn *real_get_api[PLUGINS];

#define GET_API(n)                                                              \
    static const uint64_t *get_api_##n(void)                                    \
    {                                                                           \
        get_api_fn *real = __atomic_load_n(&real_get_api[n], __ATOMIC_ACQUIRE); \
        return copy_of(real(), (const void *)real);                             \
    }
GET_API(0)
GET_API(1)
GET_API(2)
GET_API(3)
#undef GET_API

static get_api_fn *const get_api[PLUGINS] = {get_api_0, get_api_1, get_api_2, get_api_3};

void *vt_jax_substitute(void *real)
{
    for (unsigned i = 0; i < PLUGINS; i++) {
        get_api_fn *none = NULL;
        if (__atomic_compare_exchange_n(&real_get_api[i], &none, (get_api_fn *)real, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            none == (get_api_fn *)real)
            return (void *)get_api[i];
    }
    return real;
}
