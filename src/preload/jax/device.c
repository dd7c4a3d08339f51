/*
 * Clients, their devices and memory spaces. A buffer says which memory space it is in; what that means is asked once, when
 * the client is made: only then can the platform be asked, and nothing has to be asked again.
 *
 * Memory spaces are kept like the routes of resolve.c: address and meaning in one word, stored and read whole.
 */
#include <errno.h>

#include "preload/jax/plugin.h"
#include "preload/ledger.h"
#include "preload/process_hooks.h"

#define MEMORIES 1024u /* a GPU has two or three */
#define CLIENTS 15     /* their number has four bits */
#define DEVICES 64
#define GONE 1ull /* the memory space of a client that was destroyed */

static uint64_t memories[MEMORIES]; /* address << 16 | client << 12 | kind << 8 | device + 1 */
static const void *clients[CLIENTS];

/* Whom to ask about the arena of a CUDA device. */
static struct {
    const void *device;
    unsigned client;   /* its number */
    uint64_t asked_ns; /* when, in the recording's time; 0: never; atomic */
} arenas[DEVICES];

static unsigned home(const void *memory)
{
    return (unsigned)((uintptr_t)memory * 0x9e3779b97f4a7c15ull >> 54);
}

struct vt_jax_place vt_jax_place_of(const void *memory)
{
    for (unsigned i = home(memory), n = 0; memory && n < MEMORIES; i++, n++) {
        uint64_t word = __atomic_load_n(&memories[i % MEMORIES], __ATOMIC_ACQUIRE);
        if (!word)
            break;
        if (word >> 16 == (uintptr_t)memory)
            return (struct vt_jax_place){.device = (int16_t)((int)(word & 0xff) - 1),
                                         .kind = (uint8_t)(word >> 8 & 15),
                                         .client = (uint8_t)(word >> 12 & 15)};
    }
    return (struct vt_jax_place){.device = -1, .kind = VT_KIND_NONE};
}

struct vt_jax_place vt_jax_place_on(const void *device)
{
    int found = -1;
    for (int i = 0; i < DEVICES; i++) {
        const void *here = __atomic_load_n(&arenas[i].device, __ATOMIC_ACQUIRE);
        if (!here || (device && here != device))
            continue;
        if (found >= 0) /* more than one could be meant */
            return (struct vt_jax_place){.device = -1, .kind = VT_KIND_NONE};
        found = i;
    }
    return (struct vt_jax_place){.device = (int16_t)found, .kind = found < 0 ? VT_KIND_NONE : VT_KIND_DEVICE};
}

static void add_memory(const void *memory, struct vt_jax_place place)
{
    uint64_t word = (uint64_t)(uintptr_t)memory << 16 | (uint64_t)place.client << 12 | (uint64_t)place.kind << 8 |
                    (uint64_t)(place.device + 1);
    for (unsigned i = home(memory), n = 0; n < MEMORIES; i++, n++) {
        uint64_t *at = &memories[i % MEMORIES], old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (old >> 16 == (uintptr_t)memory) /* page-locked memory is every device's */
            return;
        if (old <= GONE && __atomic_compare_exchange_n(at, &old, word, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return;
    }
}

static bool is(const char *text, uint64_t length, const char *word)
{
    return length == strlen(word) && !memcmp(text, word, length);
}

/* "device" is the card's memory, "pinned_host" page-locked memory that CUDA allocated; other spaces of the host are none of
 * CUDA's business. */
static uint8_t kind_of(const struct vt_jax_api *api, const void *memory)
{
    struct vt_pjrt_question q;
    if (!vt_jax_ask(api, VT_PJRT_Memory_Kind, memory, &q))
        return VT_KIND_NONE;
    const char *kind = (const char *)(uintptr_t)q.word[VT_PJRT_ANSWER];
    uint64_t length = q.word[VT_PJRT_ANSWER_LENGTH];
    return is(kind, length, "device")        ? VT_KIND_DEVICE
           : is(kind, length, "pinned_host") ? VT_KIND_PINNED
                                             : VT_KIND_NONE;
}

static void learn_device(const struct vt_jax_api *api, const void *device, unsigned index, unsigned client)
{
    struct vt_pjrt_question q;
    int ordinal = vt_jax_ask(api, VT_PJRT_Device_LocalHardwareId, device, &q) ? (int32_t)q.word[VT_PJRT_ANSWER] : -1;
    if (ordinal < 0) /* not defined: devices are numbered in the order in which CUDA has them */
        ordinal = (int)index;
    if (ordinal >= DEVICES || !vt_jax_ask(api, VT_PJRT_Device_AddressableMemories, device, &q))
        return;
    const void *const *list = (const void *const *)(uintptr_t)q.word[VT_PJRT_ANSWER];
    for (uint64_t i = 0; i < q.word[VT_PJRT_ANSWER_LENGTH]; i++) {
        struct vt_jax_place place = {.kind = kind_of(api, list[i]), .client = (uint8_t)client};
        place.device = place.kind == VT_KIND_DEVICE ? (int16_t)ordinal : -1;
        if (place.kind != VT_KIND_NONE)
            add_memory(list[i], place);
    }
    __atomic_store_n(&arenas[ordinal].client, client, __ATOMIC_RELAXED);
    __atomic_store_n(&arenas[ordinal].device, device, __ATOMIC_RELEASE);
}

static unsigned number_of(const void *client, const void *wanted)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        const void *found = wanted;
        if (__atomic_compare_exchange_n(&clients[i], &found, client, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return i + 1;
    }
    return 0;
}

#ifndef VT_JAX_PLATFORM
#define VT_JAX_PLATFORM "cuda"
#endif

static void learn_client(struct vt_jax_api *api, const void *client)
{
    struct vt_pjrt_question q;
    if (!vt_jax_ask(api, VT_PJRT_Client_PlatformName, client, &q) ||
        !is((const char *)(uintptr_t)q.word[VT_PJRT_ANSWER], q.word[VT_PJRT_ANSWER_LENGTH], VT_JAX_PLATFORM) ||
        !vt_jax_ask(api, VT_PJRT_Client_AddressableDevices, client, &q))
        return;
    unsigned number = number_of(client, NULL);
    const void *const *devices = (const void *const *)(uintptr_t)q.word[VT_PJRT_ANSWER];
    for (uint64_t i = 0; i < q.word[VT_PJRT_ANSWER_LENGTH]; i++)
        learn_device(api, devices[i], (unsigned)i, number);
    __atomic_store_n(&api->gpu, true, __ATOMIC_RELEASE);
}

void *vt_jax_Client_Create(struct vt_jax_api *api, uint64_t *arguments)
{
    void *error = vt_jax_real(api, VT_PJRT_Client_Create, arguments);
    int saved = errno;
    if (!error && !vt_options()->off && vt_pjrt_has(arguments, VT_PJRT_Client_Create_client))
        learn_client(api, (const void *)(uintptr_t)arguments[VT_PJRT_Client_Create_client]);
    if (vt_jax_records(api)) /* the interpreter has to be found before the first buffer */
        vt_process_hooks();
    errno = saved;
    return error;
}

static bool of_client(const struct vt_node *node, const struct vt_slot *slot, void *number)
{
    (void)slot;
    return node->space == VT_SPACE_TENSOR && node->owner == VT_JAX_OWNER(*(unsigned *)number);
}

static void forget_client(unsigned number)
{
    for (unsigned i = 0; i < MEMORIES; i++) {
        uint64_t word = __atomic_load_n(&memories[i], __ATOMIC_ACQUIRE);
        if (word > GONE && (word >> 12 & 15) == number)
            __atomic_store_n(&memories[i], GONE, __ATOMIC_RELEASE);
    }
    for (unsigned i = 0; i < DEVICES; i++)
        if (__atomic_load_n(&arenas[i].client, __ATOMIC_RELAXED) == number)
            __atomic_store_n(&arenas[i].device, NULL, __ATOMIC_RELEASE);
    vt_retire(of_client, &number);
    vt_jax_forget_programs();
}

/* What the client still held goes with it. */
void *vt_jax_Client_Destroy(struct vt_jax_api *api, uint64_t *arguments)
{
    bool readable = vt_pjrt_has(arguments, VT_PJRT_OBJECT) && arguments[VT_PJRT_OBJECT];
    unsigned number = readable ? number_of(NULL, (const void *)(uintptr_t)arguments[VT_PJRT_OBJECT]) : 0;
    if (number)
        forget_client(number);
    return vt_jax_real(api, VT_PJRT_Client_Destroy, arguments);
}

struct vt_allocator *vt_jax_record(const struct vt_jax_api *api, int device)
{
    uint64_t count = vt_header()->section[VT_ALLOCATORS].count, i;
    for (i = 0; i < count; i++) {
        struct vt_allocator *a = vt_writer_at(&vt_state.writer, VT_ALLOCATORS, i);
        if (a->framework == VT_FRAMEWORK_JAX && a->device == device && !(a->flags & VT_ALLOCATOR_UNSEEN))
            return a;
    }
    struct vt_allocator *a = vt_writer_append(&vt_state.writer, VT_ALLOCATORS, &i);
    if (!a)
        return NULL;
    a->name = vt_intern(api->name);
    a->device = (int16_t)device;
    a->framework = VT_FRAMEWORK_JAX;
    vt_writer_publish(&vt_state.writer, VT_ALLOCATORS);
    return a;
}

#define EVERY_NS 1000000000ull

/* Is it this thread's turn to ask? */
static bool due(int device, uint64_t now)
{
    uint64_t *asked = &arenas[device].asked_ns, last = __atomic_load_n(asked, __ATOMIC_RELAXED);
    bool old = !last || last > now ||
               now - last >= EVERY_NS; /* a recording may be younger than the last one's answer */
    return !now || (old && __atomic_compare_exchange_n(asked, &last, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* The live buffers of the device as booked, now. */
static void fill_sum(struct vt_allocator *a, int device)
{
    uint32_t index = vt_total_index(VT_LEVEL_TENSOR, VT_KIND_DEVICE, (int16_t)device);
    const struct vt_total *t = index == VT_NONE ? NULL : vt_writer_at(&vt_state.writer, VT_TOTALS, index);
    a->sum_bytes = t ? t->live_bytes : 0;
    a->base_bytes = a->allocated_bytes > a->sum_bytes ? a->allocated_bytes - a->sum_bytes : 0;
}

static uint64_t known(const struct vt_pjrt_question *q, unsigned word)
{
    return q->word[word + 1] & 0xff ? q->word[word] : 0;
}

void vt_jax_note_arena(const struct vt_jax_api *api, int device, uint64_t now, struct vt_jax_arena *said)
{
    struct vt_pjrt_question q;
    if (device < 0 || device >= DEVICES || vt_state.ending || !vt_state_recording() || !due(device, now))
        return;
    const void *asked = __atomic_load_n(&arenas[device].device, __ATOMIC_ACQUIRE);
    if (!asked || !vt_jax_can(api, VT_PJRT_Device_MemoryStats) ||
        !vt_jax_ask(api, VT_PJRT_Device_MemoryStats, asked, &q))
        return;
    uint64_t used = q.word[VT_PJRT_MemoryStats_in_use], pool = known(&q, VT_PJRT_MemoryStats_pool);
    if (said)
        *said = (struct vt_jax_arena){used, pool};
    if (!vt_state_lock(false))
        return;
    struct vt_allocator *a = vt_jax_record(api, device);
    if (a) {
        uint64_t peak = known(&q, VT_PJRT_MemoryStats_pool_peak);
        a->allocated_bytes = used;
        a->reserved_bytes = pool;
        a->reserved_peak_bytes = peak > a->reserved_peak_bytes ? peak : a->reserved_peak_bytes;
        a->limit_bytes = known(&q, VT_PJRT_MemoryStats_limit);
        a->largest_free_bytes = known(&q, VT_PJRT_MemoryStats_largest_free);
        a->reports++;
        fill_sum(a, device);
    }
    vt_state_unlock();
}
