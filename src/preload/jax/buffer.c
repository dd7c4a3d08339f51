/*
 * Buffers come and go. A buffer is one live allocation of level tensor, found under the address of its PJRT_Buffer: a host
 * address, which is never also the device address of another framework's tensor, because CUDA keeps both kinds of addresses
 * in one space. What is asked of the plugin (size, memory space) is known without waiting for the GPU; where the memory
 * lies is not asked, for that waits. Buffers that share memory are told by how they are made: views of somebody else's
 * memory are imported, and a buffer made from another one's memory takes its place.
 */
#include <errno.h>

#include "preload/failure.h"
#include "preload/jax/plugin.h"

#define KINDS (VT_KINDS(VT_KIND_DEVICE) | VT_KINDS(VT_KIND_PINNED) | VT_KINDS(VT_KIND_IMPORTED))

void vt_jax_book(struct vt_jax_batch *batch, struct vt_taken_stack *t)
{
    uint32_t site;
    struct vt_site_key key = {VT_LEVEL_TENSOR, batch->place.kind, batch->place.device, VT_E_jax};
    unsigned count = batch->count;
    batch->count = 0;
    if (!count || !vt_lock_with_site(&key, t, &site))
        return;
    for (unsigned i = 0; i < count; i++) {
        struct vt_alloc a = {.kind = (enum vt_kind)batch->place.kind,
                             .space = VT_SPACE_TENSOR,
                             .level = VT_LEVEL_TENSOR,
                             .device = batch->place.device,
                             .owner = VT_JAX_OWNER(batch->place.client),
                             .key = batch->of[i].buffer,
                             .address = batch->of[i].buffer,
                             .bytes = batch->of[i].bytes,
                             .requested = batch->of[i].bytes};
        vt_book(&a, site);
    }
    batch->booked_ns = vt_header()->last_ns;
    vt_state_unlock();
}

void vt_jax_gather(const struct vt_jax_api *api, struct vt_jax_batch *batch, uint64_t buffer, uint8_t kind,
                   struct vt_taken_stack *t)
{
    struct vt_pjrt_question q;
    struct vt_jax_place place = vt_jax_place_of_buffer(api, (const void *)(uintptr_t)buffer);
    if (place.kind == VT_KIND_NONE ||
        !vt_jax_ask(api, VT_PJRT_Buffer_OnDeviceSizeInBytes, (const void *)(uintptr_t)buffer, &q))
        return;
    if (kind != VT_KIND_NONE)
        place.kind = kind;
    bool same = place.kind == batch->place.kind && place.device == batch->place.device &&
                place.client == batch->place.client;
    if (!same || batch->count == VT_JAX_BATCH)
        vt_jax_book(batch, t);
    batch->place = place;
    batch->of[batch->count].buffer = buffer;
    batch->of[batch->count++].bytes = q.word[VT_PJRT_ANSWER];
}

void vt_jax_end(const uint64_t *buffers, unsigned count)
{
    if (!count || !vt_state_recording())
        return;
    vt_watch_finalizing();
    if (!vt_state_lock(false))
        return;
    for (unsigned i = 0; i < count; i++) {
        struct vt_freeing f = {.space = VT_SPACE_TENSOR, .key = buffers[i]};
        vt_take_off(&f, KINDS);
    }
    vt_state_unlock();
}

void vt_jax_served(void)
{
    if (vt_tls.pending && vt_state_lock(false)) {
        vt_failure_served();
        vt_state_unlock();
    }
}

/* Where a refused buffer was to be: its arguments name a memory space or a device. */
static struct vt_jax_place wanted(const uint64_t *arguments, unsigned memory, unsigned device)
{
    if (memory && vt_pjrt_has(arguments, memory) && arguments[memory])
        return vt_jax_place_of((const void *)(uintptr_t)arguments[memory]);
    bool named = device && vt_pjrt_has(arguments, device);
    return vt_jax_place_on(named ? (const void *)(uintptr_t)arguments[device] : NULL);
}

/* A call that makes one buffer, whose address it writes into a word of its arguments. */
static inline __attribute__((always_inline)) void *make(struct vt_jax_api *api, uint64_t *arguments, unsigned function,
                                                        unsigned word, unsigned memory, unsigned device)
{
    struct vt_taken_stack t;
    struct vt_jax_batch batch = {.count = 0};
    bool view = function == VT_PJRT_Client_CreateViewOfDeviceBuffer;
    void *error = vt_jax_allocate(api, function, arguments);
    int saved = errno;
    if (!vt_jax_records(api))
        return error;
    if (error)
        vt_jax_failed(api, error, wanted(arguments, memory, device));
    else if (vt_pjrt_has(arguments, word) && arguments[word]) {
        vt_take_tensor(&t);
        vt_jax_gather(api, &batch, arguments[word], view ? VT_KIND_IMPORTED : VT_KIND_NONE, &t);
        vt_jax_book(&batch, &t);
        vt_jax_served();
        if (batch.booked_ns && batch.place.kind == VT_KIND_DEVICE)
            vt_jax_note_arena(api, batch.place.device, batch.booked_ns, NULL);
    }
    errno = saved;
    return error;
}

/* Behind the name: the words of the arguments that name a memory space and a device; 0: there is none. */
#define MAKES(name, memory, device)                                                               \
    void *vt_jax_##name(struct vt_jax_api *api, uint64_t *arguments)                              \
    {                                                                                             \
        return make(api, arguments, VT_PJRT_##name, VT_PJRT_##name##_buffer, (memory), (device)); \
    }

MAKES(Client_BufferFromHostBuffer, 11, 10)
MAKES(Client_CreateUninitializedBuffer, 8, 7)
MAKES(Client_CreateViewOfDeviceBuffer, 13, 8)
MAKES(AsyncHostToDeviceTransferManager_RetrieveBuffer, 0, 0)
MAKES(Buffer_CopyToDevice, 0, 3)
MAKES(Buffer_CopyToMemory, 3, 0)

/* One buffer's memory is another one's now: it stays where and when it was allocated. */
static void move(uint64_t from, uint64_t to)
{
    if (!vt_state_recording() || !vt_state_lock(false))
        return;
    struct vt_node *old = vt_live_find(VT_SPACE_TENSOR, from), *there = vt_live_find(VT_SPACE_TENSOR, to);
    if (old && !there) {
        struct vt_slot slot = *vt_live_slot(old);
        uint16_t owner = old->owner;
        slot.address = to;
        vt_live_remove(old);
        vt_live_add(VT_SPACE_TENSOR, to, &slot, owner);
    }
    vt_state_unlock();
}

static void *hand_over(struct vt_jax_api *api, uint64_t *arguments, unsigned function, unsigned word)
{
    void *error = vt_jax_real(api, function, arguments);
    int saved = errno;
    if (vt_jax_records(api) && !error && vt_pjrt_has(arguments, word) && arguments[word])
        move(arguments[VT_PJRT_OBJECT], arguments[word]);
    errno = saved;
    return error;
}

void *vt_jax_Buffer_DonateWithControlDependency(struct vt_jax_api *api, uint64_t *arguments)
{
    return hand_over(api, arguments, VT_PJRT_Buffer_DonateWithControlDependency,
                     VT_PJRT_Buffer_DonateWithControlDependency_buffer);
}

void *vt_jax_Buffer_Bitcast(struct vt_jax_api *api, uint64_t *arguments)
{
    return hand_over(api, arguments, VT_PJRT_Buffer_Bitcast, VT_PJRT_Buffer_Bitcast_buffer);
}

/* Memory of the device that goes, and was never seen to come: an extension of the API made the buffer. */
static void note_unknown(const struct vt_jax_api *api, const void *buffer)
{
    struct vt_pjrt_question q;
    struct vt_jax_place place = vt_jax_place_of_buffer(api, buffer);
    if (place.kind != VT_KIND_DEVICE || !vt_jax_ask(api, VT_PJRT_Buffer_IsDeleted, buffer, &q) ||
        q.word[VT_PJRT_ANSWER] & 0xff || !vt_jax_ask(api, VT_PJRT_Buffer_OnDeviceSizeInBytes, buffer, &q) ||
        !vt_state_lock(false))
        return;
    struct vt_allocator *a = vt_jax_record(api, place.device);
    if (a) {
        a->unknown_frees++;
        a->unknown_bytes += q.word[VT_PJRT_ANSWER];
    }
    vt_state_unlock();
}

/* Off the books before the real call: afterwards another thread may be given a buffer at the same address. */
static void *end(struct vt_jax_api *api, uint64_t *arguments, unsigned function)
{
    struct vt_freeing f;
    struct vt_call call = {.label = VT_E_jax, .record = vt_jax_records(api)};
    if (!call.record || !vt_pjrt_has(arguments, VT_PJRT_OBJECT) || !arguments[VT_PJRT_OBJECT])
        return vt_jax_real(api, function, arguments);
    int saved = errno;
    vt_free_begin(&call, &f, VT_SPACE_TENSOR, arguments[VT_PJRT_OBJECT], KINDS, false);
    if (!f.removed && function == VT_PJRT_Buffer_Destroy && vt_state_recording())
        note_unknown(api, (const void *)(uintptr_t)arguments[VT_PJRT_OBJECT]);
    errno = saved;
    void *error = vt_jax_real(api, function, arguments);
    vt_free_end(&call, &f, error ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
    return error;
}

void *vt_jax_Buffer_Destroy(struct vt_jax_api *api, uint64_t *arguments)
{
    return end(api, arguments, VT_PJRT_Buffer_Destroy);
}

void *vt_jax_Buffer_Delete(struct vt_jax_api *api, uint64_t *arguments)
{
    return end(api, arguments, VT_PJRT_Buffer_Delete);
}
