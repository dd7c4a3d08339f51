/* Contexts, devices and streams; see context.h. */
#include "preload/context.h"

#include <stdio.h>
#include <string.h>

#include "preload/arena.h"
#include "preload/call.h"
#include "preload/cuda/pool.h"
#include "preload/usage.h"

#define CONTEXTS 4096
#define PRIMARIES 64

/* Index + 1 is the number that live allocations carry. Entries are never reused: a handle that comes back is a new
 * context. With the state lock held. */
static struct {
    void *handle;
    int16_t device;
    bool gone;
} contexts[CONTEXTS];
static unsigned context_count;
static uint32_t generation = 1; /* counts contexts that went away: what threads remember is void then */
static void *primaries[PRIMARIES];

struct stream_entry {
    UT_hash_handle hh;
    struct {
        uint64_t handle, per_thread;
    } key;
    uint16_t number;
    int16_t device;
};
static struct stream_entry *streams;

uint16_t vt_context_index_of(void *handle)
{
    for (unsigned i = context_count; handle && i-- > 0;)
        if (contexts[i].handle == handle && !contexts[i].gone)
            return (uint16_t)(i + 1);
    return 0;
}

static uint16_t add_context(void *handle, int16_t device)
{
    uint16_t index = vt_context_index_of(handle);
    if (index || context_count == CONTEXTS)
        return index;
    contexts[context_count].handle = handle;
    contexts[context_count].device = device;
    return (uint16_t)++context_count;
}

void vt_context_retire(uint16_t index)
{
    if (!index)
        return;
    contexts[index - 1].gone = true;
    __atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

void vt_context_revive(uint16_t index)
{
    if (!index)
        return;
    uint16_t taken = vt_context_index_of(contexts[index - 1].handle); /* used meanwhile: the same context after all */
    contexts[index - 1].gone = taken != 0;
    __atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

void vt_context_set_primary(int device, void *handle)
{
    if (device >= 0 && device < PRIMARIES)
        primaries[device] = handle;
}

uint16_t vt_context_primary(int device)
{
    if (device >= 0 && device < PRIMARIES && primaries[device])
        return vt_context_index_of(primaries[device]);
    for (unsigned i = context_count;
         i-- > 0;) /* retained out of our sight: the newest one there is, mostly the only one */
        if (contexts[i].device == device && !contexts[i].gone)
            return (uint16_t)(i + 1);
    return 0;
}

struct vt_where vt_where_now(void)
{
    struct vt_where none = {-1, 0};
    __typeof__(&cuCtxGetCurrent) get = VT_HELPER(cuCtxGetCurrent);
    __typeof__(&cuCtxGetDevice) get_device = VT_HELPER(cuCtxGetDevice);
    CUcontext current = NULL;
    CUdevice device = -1;
    if (!get || get(&current) || !current)
        return none;
    uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (vt_tls.context == current && vt_tls.context_generation == now)
        return (struct vt_where){(int16_t)vt_tls.context_device, vt_tls.context_index};
    if (!get_device || get_device(&device))
        return none;
    vt_device_note(device);
    if (!vt_state_lock(true))
        return none;
    uint16_t index = add_context(current, (int16_t)device);
    vt_state_unlock();
    vt_tls.context = current;
    vt_tls.context_device = device;
    vt_tls.context_index = index;
    vt_tls.context_generation = now;
    return (struct vt_where){(int16_t)device, index};
}

bool vt_memory_info(uint64_t *free_bytes, uint64_t *total_bytes)
{
    __typeof__(&cuMemGetInfo_v2) info = (__typeof__(&cuMemGetInfo_v2))vt_driver(VT_E_cuMemGetInfo_v2);
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange = VT_HELPER(cuThreadExchangeStreamCaptureMode);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    size_t f = 0, t = 0;
    if (!info) /* the card's own figures rather than those of another interposer */
        info = VT_HELPER(cuMemGetInfo_v2);
    bool exchanged = exchange && !exchange(&mode);
    bool ok = info && !info(&f, &t);
    if (exchanged)
        exchange(&mode);
    *free_bytes = f;
    *total_bytes = t;
    return ok;
}

uint64_t vt_size_behind(uint64_t address)
{
    __typeof__(&cuMemGetAddressRange_v2) range = VT_HELPER(cuMemGetAddressRange_v2);
    CUdeviceptr base;
    size_t bytes = 0;
    return range && !range(&base, &bytes, address) ? bytes : 0;
}

bool vt_device_uuid(int device, uint8_t uuid[16], bool *mig)
{
    __typeof__(&cuDeviceGetUuid) card = VT_HELPER(cuDeviceGetUuid);
    __typeof__(&cuDeviceGetUuid_v2) part = VT_HELPER(cuDeviceGetUuid_v2);
    CUuuid of_card, of_part;
    bool has_card = card && !card(&of_card, device), has_part = part && !part(&of_part, device);
    *mig = has_card && has_part && memcmp(of_card.bytes, of_part.bytes, 16);
    if (has_card || has_part)
        memcpy(uuid, has_part ? of_part.bytes : of_card.bytes, 16);
    return has_card || has_part;
}

/* Fills a device record from the driver; none of these calls needs a context. */
static void describe_device(int device, struct vt_device *d)
{
    __typeof__(&cuDeviceGetName) name = VT_HELPER(cuDeviceGetName);
    __typeof__(&cuDeviceTotalMem_v2) total = VT_HELPER(cuDeviceTotalMem_v2);
    size_t bytes = 0;
    bool mig;
    memset(d, 0, sizeof *d);
    d->ordinal = device;
    if (!name || name(d->name, sizeof d->name - 1, device))
        snprintf(d->name, sizeof d->name, "GPU %d", device);
    if (total && !total(&bytes, device))
        d->total_bytes = bytes;
    if (vt_device_uuid(device, d->uuid, &mig) && mig)
        d->flags = VT_DEVICE_MIG;
}

/* Is the device's record still to be made? With the lock held. Records before it are made as empty ones. */
static struct vt_device *missing_device(int device)
{
    struct vt_header *h = vt_header();
    while (h->section[VT_DEVICES].count <= (uint64_t)device) {
        uint64_t i;
        struct vt_device *d = vt_writer_append(&vt_state.writer, VT_DEVICES, &i);
        if (!d)
            return NULL;
        d->ordinal = -1;
        vt_writer_publish(&vt_state.writer, VT_DEVICES);
    }
    struct vt_device *d = vt_writer_at(&vt_state.writer, VT_DEVICES, (uint64_t)device);
    return d->ordinal < 0 ? d : NULL;
}

static int ask_version(void)
{
    __typeof__(&cuDriverGetVersion) ask = VT_HELPER(cuDriverGetVersion);
    int version = 0;
    return ask && !ask(&version) ? version : 0;
}

static void note_driver(int version)
{
    struct vt_header *h = vt_header();
    if (h->driver_version || !version)
        return;
    h->driver_version = (uint32_t)version;
    h->driver = vt_intern(vt_driver_path());
}

void vt_device_note(int device)
{
    struct vt_device seen;
    if (device < 0 || device >= 4096 || !vt_state_lock(true))
        return;
    bool missing = missing_device(device) != NULL;
    vt_state_unlock();
    if (!missing)
        return;
    describe_device(device, &seen);
    int version = ask_version();
    uint64_t f = 0, t = 0;
    bool known = vt_memory_info(&f, &t) &&
                 t == seen.total_bytes; /* of the current device, which need not be this one */
    if (!vt_state_lock(true))
        return;
    struct vt_device *d = missing_device(device);
    if (d) {
        seen.free_bytes = known ? f : 0;
        seen.free_ns = known ? vt_now() : 0;
        *d = seen;
        note_driver(version);
        vt_usage_note_device(device);
    }
    vt_state_unlock();
}

static int16_t device_of_pointer(uint64_t address, int16_t otherwise)
{
    __typeof__(&cuPointerGetAttribute) get = VT_HELPER(cuPointerGetAttribute);
    int device = -1;
    if (!address || !get || get(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) || device < 0)
        return otherwise;
    return (int16_t)device;
}

static struct stream_entry *find_stream(uint64_t handle, bool per_thread)
{
    struct stream_entry probe = {.key = {handle, per_thread}}, *e = NULL;
    HASH_FIND(hh, streams, &probe.key, sizeof probe.key, e);
    return e;
}

static struct stream_entry *add_stream(uint64_t handle, bool per_thread, int16_t device)
{
    uint64_t i;
    struct vt_stream *s = vt_writer_append(&vt_state.writer, VT_STREAMS, &i);
    struct stream_entry *e = s ? vt_arena_take(sizeof *e) : NULL;
    if (!e)
        return NULL;
    s->handle = handle;
    s->device = device;
    s->flags = per_thread ? VT_STREAM_PER_THREAD : 0;
    vt_writer_publish(&vt_state.writer, VT_STREAMS);
    e->key.handle = handle;
    e->key.per_thread = per_thread;
    e->number = i < UINT16_MAX - 1 ? (uint16_t)(i + 1) : UINT16_MAX;
    e->device = device;
    HASH_ADD(hh, streams, key, sizeof e->key, e);
    return e;
}

static uint32_t streams_gone; /* counts: what threads remember of streams is void then */

/* A thread mostly stays with one stream. The built-in ones belong to whatever context is current. */
static void remember_stream(uint64_t handle, struct vt_stream_of s)
{
    vt_tls.stream = handle;
    vt_tls.stream_number = s.number;
    vt_tls.stream_device = s.device;
    vt_tls.stream_generation = __atomic_load_n(&streams_gone, __ATOMIC_ACQUIRE);
}

static bool find_stream_of(uint64_t handle, bool per_thread, struct vt_stream_of *found)
{
    if (!vt_state_lock(true))
        return false;
    struct stream_entry *e = find_stream(handle, per_thread);
    if (e)
        *found = (struct vt_stream_of){e->number, e->device};
    vt_state_unlock();
    return e != NULL;
}

static struct vt_stream_of new_stream(uint64_t handle, bool per_thread, int16_t device)
{
    struct vt_stream_of s = {0, device};
    if (!vt_state_lock(true))
        return s;
    struct stream_entry *e = find_stream(handle, per_thread);
    if (!e)
        e = add_stream(handle, per_thread, device);
    s.number = e ? e->number : 0;
    vt_state_unlock();
    return s;
}

struct vt_stream_of vt_stream_note(void *stream, bool per_thread, uint64_t address)
{
    struct vt_stream_of s;
    uint64_t handle = (uint64_t)(uintptr_t)stream;
    if (handle <= 2) { /* NULL, legacy, per-thread */
        s = new_stream(handle, handle == 2 || (handle == 0 && per_thread), -1);
        s.device = vt_where_now().device;
        return s;
    }
    if (vt_tls.stream == handle && vt_tls.stream_number &&
        vt_tls.stream_generation == __atomic_load_n(&streams_gone, __ATOMIC_ACQUIRE))
        return (struct vt_stream_of){vt_tls.stream_number, vt_tls.stream_device};
    if (!find_stream_of(handle, false, &s)) {
        int16_t device = device_of_pointer(address, vt_where_now().device);
        vt_device_note(device);
        s = new_stream(handle, false, device);
    }
    remember_stream(handle, s);
    return s;
}

void vt_stream_gone(void *stream)
{
    if (!vt_state_recording() || !vt_state_lock(false))
        return;
    struct stream_entry *e = find_stream((uint64_t)(uintptr_t)stream, false);
    if (e) {
        HASH_DEL(streams, e);
        vt_arena_give(e, sizeof *e);
        __atomic_fetch_add(&streams_gone, 1, __ATOMIC_RELEASE);
    }
    vt_state_unlock();
}

void vt_context_forget(void)
{
    memset(contexts, 0, sizeof contexts);
    memset(primaries, 0, sizeof primaries);
    context_count = 0;
    generation++;
    streams = NULL;
    vt_pool_forget();
}
