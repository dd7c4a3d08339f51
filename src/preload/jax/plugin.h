/*
 * Inside the JAX module: one plugin's table, and what the files of the module offer each other.
 *
 *   plugin.c    the way in: GetPjrtApi, the copied table, plugins that are left alone
 *   device.c    clients: which memory space lies where; what the arena says of itself
 *   buffer.c    buffers come and go, one by one
 *   execute.c   runs of programs: outputs, donated arguments
 *   program.c   what is known of each compiled program
 *   error.c     errors that mean "out of memory"; message.c reads their text
 *
 * The functions vt_jax_NAME stand in the place of PJRT_NAME. They call the real one exactly once with the caller's own
 * arguments and return what it returned; no lock of ours is held meanwhile. All keep errno and may run on any thread. On a
 * client that is not CUDA's nothing is done but that.
 */
#ifndef VT_PRELOAD_JAX_PLUGIN_H
#define VT_PRELOAD_JAX_PLUGIN_H

#include <string.h>

#include "preload/arena.h"
#include "preload/jax/pjrt.h"
#include "preload/track.h"

#define VT_JAX_TABLE_WORDS 512 /* most words of a table that is copied; 0.116 has 143 */

struct vt_jax_api {
    const uint64_t *table; /* the plugin's */
    int state;
    bool gpu;         /* a client of a CUDA platform was made from it (atomic) */
    const char *name; /* the plugin's file, without directories: the loader's string */
    uint64_t original[VT_JAX_TABLE_WORDS];
    uint64_t copy[VT_JAX_TABLE_WORDS];
};

/* What is replaced. X(n, NAME) for plugin number n. */
#define VT_JAX_WRAPPED(X, n)                              \
    X(n, Error_Destroy)                                   \
    X(n, Error_GetCode)                                   \
    X(n, Client_Create)                                   \
    X(n, Client_Destroy)                                  \
    X(n, Client_BufferFromHostBuffer)                     \
    X(n, LoadedExecutable_Destroy)                        \
    X(n, LoadedExecutable_Execute)                        \
    X(n, Buffer_Destroy)                                  \
    X(n, Buffer_Delete)                                   \
    X(n, Buffer_CopyToDevice)                             \
    X(n, Buffer_CopyToMemory)                             \
    X(n, Client_CreateViewOfDeviceBuffer)                 \
    X(n, AsyncHostToDeviceTransferManager_RetrieveBuffer) \
    X(n, Client_CreateUninitializedBuffer)                \
    X(n, Buffer_DonateWithControlDependency)              \
    X(n, Buffer_Bitcast)

#define VT_JAX_DECLARE(n, name) void *vt_jax_##name(struct vt_jax_api *api, uint64_t *arguments);
VT_JAX_WRAPPED(VT_JAX_DECLARE, )
#undef VT_JAX_DECLARE

/* Has the plugin this function, where it is known to lie? */
static inline bool vt_jax_can(const struct vt_jax_api *api, unsigned function)
{
    bool ordered = api->original[VT_PJRT_TABLE_VERSION] >> 32 >= VT_PJRT_ORDERED_MINOR;
    return (function < VT_PJRT_REQUIRED || ordered) &&
           function < api->original[VT_PJRT_TABLE_BYTES] / sizeof(uint64_t) && api->original[function];
}

static inline void *vt_jax_real(const struct vt_jax_api *api, unsigned function, void *arguments)
{
    return ((vt_pjrt_fn *)(uintptr_t)api->original[function])(arguments);
}

/* Asks the plugin something about an object; the answer is in q. False: it would not say. Without the lock. */
static inline bool vt_jax_ask(const struct vt_jax_api *api, unsigned function, const void *object,
                              struct vt_pjrt_question *q)
{
    memset(q, 0, sizeof *q);
    q->word[VT_PJRT_SIZE] = sizeof *q;
    q->word[VT_PJRT_OBJECT] = (uintptr_t)object;
    void *error = vt_jax_real(api, function, q);
    if (!error)
        return true;
    struct vt_pjrt_question end = {.word = {[VT_PJRT_SIZE] = sizeof end, [VT_PJRT_OBJECT] = (uintptr_t)error}};
    vt_jax_real(api, VT_PJRT_Error_Destroy, &end);
    return false;
}

/* The same for calls that allocate: what the driver refuses meanwhile is theirs to tell (failure.h). */
static inline void *vt_jax_allocate(const struct vt_jax_api *api, unsigned function, void *arguments)
{
    uint8_t outer = vt_tls.framework;
    vt_tls.framework = 1;
    void *error = vt_jax_real(api, function, arguments);
    vt_tls.framework = outer;
    return error;
}

/* Is there anything to do but to forward? */
static inline bool vt_jax_records(const struct vt_jax_api *api)
{
    return __atomic_load_n(&api->gpu, __ATOMIC_ACQUIRE) && !vt_options()->off && !vt_state.stopped && !vt_tls.busy;
}

/* Where a memory space lies; kind NONE: not on a GPU of ours, nor page-locked. Lock-free. */
struct vt_jax_place {
    int16_t device; /* -1: host */
    uint8_t kind;   /* enum vt_kind */
    uint8_t client; /* 1 to 15; 0: there were too many */
};

/* A live buffer's owner (struct vt_node): its client. Contexts, which have the small numbers, take no tensors with them. */
#define VT_JAX_OWNER(client) (uint16_t)(0xfff0u | (client))

struct vt_jax_place vt_jax_place_of(const void *memory);

/* The device memory of a PJRT_Device; or, where the call names neither (NULL), of the only GPU there is. */
struct vt_jax_place vt_jax_place_on(const void *device);

/* The same for a buffer, which must not have been destroyed. */
static inline struct vt_jax_place vt_jax_place_of_buffer(const struct vt_jax_api *api, const void *buffer)
{
    struct vt_pjrt_question q;
    if (!vt_jax_ask(api, VT_PJRT_Buffer_Memory, buffer, &q))
        return (struct vt_jax_place){.device = -1, .kind = VT_KIND_NONE};
    return vt_jax_place_of((void *)(uintptr_t)q.word[VT_PJRT_ANSWER]);
}

/* What the device's arena says of itself goes into the recording, if the last time was a second before `now`; 0: in any
 * case. Fills in what it said, if `said` is not NULL. Without the lock. */
struct vt_jax_arena {
    uint64_t used, reserved;
};
void vt_jax_note_arena(const struct vt_jax_api *api, int device, uint64_t now, struct vt_jax_arena *said);

/* With the lock held: the record of a device's arena, made at its first use; NULL: no room. */
struct vt_allocator *vt_jax_record(const struct vt_jax_api *api, int device);

/* Buffers that came to life in one call, on one device: gathered, then booked under one lock. */
#define VT_JAX_BATCH 32
struct vt_jax_batch {
    struct vt_jax_place place;
    unsigned count;
    uint64_t booked_ns; /* when the last ones were booked; 0: none were */
    struct {
        uint64_t buffer, bytes;
    } of[VT_JAX_BATCH];
};

/* Adds a buffer, asking the plugin for its size and place (or as `kind`, if that is not NONE); books what is there before
 * it where the place is another one. `t`: the stack of the call, located or not. */
void vt_jax_gather(const struct vt_jax_api *api, struct vt_jax_batch *batch, uint64_t buffer, uint8_t kind,
                   struct vt_taken_stack *t);
void vt_jax_book(struct vt_jax_batch *batch, struct vt_taken_stack *t);

/* The call got what it wanted: refusals of the driver on the way to it were none. */
void vt_jax_served(void);

/* Ends buffers whose memory the plugin has given to others (donated), under one lock. */
void vt_jax_end(const uint64_t *buffers, unsigned count);

/* What is known of a loaded executable: from its first run until it is destroyed, so until a run of it returns. */
struct vt_jax_program {
    UT_hash_handle hh;
    uint64_t executable;
    uint32_t record; /* index in VT_PROGRAMS; VT_NONE */
    uint32_t outputs, arguments;
    uint32_t runs;   /* with the lock */
    uint64_t *taken; /* a bit for each argument that a run has taken over (atomic); NULL: no arguments, no memory */
};

/* Counts a run, after the real call. Asks the plugin at the first one. *all: look at all arguments this time, not only at
 * those that were taken over before. NULL: not recording, or the plugin won't tell. */
struct vt_jax_program *vt_jax_program_runs(const struct vt_jax_api *api, const void *executable, uint64_t arguments,
                                           bool *all);

/* Any of them may be gone. */
void vt_jax_forget_programs(void);

/* A call returned an error: recorded if it means that memory ran out. The error stays the caller's. `where`: the place of
 * what was wanted; kind NONE: not known. */
void vt_jax_failed(const struct vt_jax_api *api, const void *error, struct vt_jax_place where);

/* Is the message of an error that something ran out about memory that could be allocated? */
bool vt_jax_is_about_memory(const char *message, size_t length);

/* The bytes that a message of XLA's says were asked for, as exactly as it says it; 0: it doesn't. */
uint64_t vt_jax_requested_bytes(const char *message, size_t length);

#endif
