/*
 * What the whole preload library shares: the lock, the per-thread words, the recording, and the life of the process.
 *
 * Life: nothing exists until the first allocation is seen; vt_state_lock() then creates the recording. After an
 * internal failure the library stops recording for good and only forwards calls. The child of a fork starts afresh.
 *
 * Rules of the lock: no CUDA call, no dlopen/dlsym/dl_iterate_phdr, no malloc and no user code while it is held; system
 * calls only when the recording grows. A thread that is inside (vt_tls.busy) never enters again: a signal handler that
 * calls CUDA in the middle of our work is forwarded and counted as missed.
 */
#ifndef VT_PRELOAD_STATE_H
#define VT_PRELOAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/clock.h"
#include "preload/request.h"
#include "recording/writer.h"

/* Per thread; plain words without destructors, because hooks run during thread teardown as well. Kept small: it lives
 * in the static TLS block. */
struct vt_tls {
    uint8_t busy;           /* inside our own code */
    uint8_t torch;          /* enum vt_torch_call of the call that is running (torch/allocator.h) */
    uint16_t entry;         /* entry point whose real function is running (enum vt_entry_id + 1); 0: none */
    uint16_t runtime;       /* runtime entry point that the program called (enum vt_entry_id + 1); 0: none */
    uint16_t driver_events; /* recorded inside that runtime call */
    uint32_t thread;        /* index in VT_THREADS + 1 */
    uint32_t thread_generation;
    void *context; /* the current context as last seen, and what is known of it */
    int32_t context_device;
    uint16_t context_index;
    uint8_t framework;        /* an allocator of JAX's or TensorFlow's is busy, and will tell what came of it */
    uint8_t framework_device; /* device + 1 from which the driver allocated meanwhile; 0: none */
    uint32_t context_generation;
    uint32_t pending; /* index + 1 of this thread's unresolved out-of-memory */
    uint32_t frees;   /* that gave something back; wraps */
    uint64_t stream;  /* the stream last used, and what is known of it */
    uint16_t stream_number;
    int16_t stream_device;
    uint32_t stream_generation;
    uint32_t torch_halvings; /* see vt_torch_asks */
    uint64_t torch_free,
        torch_total; /* what PyTorch's allocator was told last of the device's memory; total 0: nothing */
};
extern __thread struct vt_tls vt_tls;

/* What every event reads comes first: on two lines of the cache. */
struct vt_state {
    int lock;            /* 1: held */
    uint32_t waiting;    /* threads that may be asleep until it is free */
    uint32_t generation; /* counts forks: what threads remember of an older one is void */
    bool stopped;        /* an internal failure: no recording any more */
    bool ending;         /* exit has begun: bulk teardown is no longer the program's doing */
    bool ended;          /* the end was recorded */
    uint64_t start_mono_ns;
    struct vt_clock clock; /* for vt_now_held */
    struct vt_writer writer;
};
extern struct vt_state vt_state;
extern int vt_arena_failed; /* arena.h: no memory for a table */

static inline struct vt_header *vt_header(void)
{
    return vt_writer_header(&vt_state.writer);
}

/* True if a recording exists (it may be gone a moment later; for short cuts only). */
static inline bool vt_state_recording(void)
{
    return __atomic_load_n(&vt_state.writer.state, __ATOMIC_ACQUIRE) != VT_WRITER_CLOSED && !vt_state.stopped;
}

/* Takes the lock, and starts the recording if there is none and `start`. False (and no lock): nothing to record to. */
bool vt_state_lock(bool start);
void vt_state_unlock(void);

/* Behind vt_state_enter and vt_state_leave. */
void vt_state_wait(void);
void vt_state_wake(void);
void vt_state_watch(void);

/* vt_state_lock(false) in line, for the path of every tensor. False also where that has more to do: ask it. */
static inline bool vt_state_enter(void)
{
    int free_lock = 0;
    if (__builtin_expect(vt_tls.busy, 0) || __builtin_expect(!vt_state_recording(), 0))
        return false;
    vt_tls.busy = 1;
    if (__builtin_expect(
            !__atomic_compare_exchange_n(&vt_state.lock, &free_lock, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 0))
        vt_state_wait();
    if (__builtin_expect(vt_state.stopped, 0)) {
        vt_state_unlock();
        return false;
    }
    if (__builtin_expect(__atomic_load_n(&vt_header()->request, __ATOMIC_RELAXED) != 0, 0))
        vt_request_answer();
    return true;
}

/* vt_state_unlock. The lock is set free by a plain store, since a locked instruction costs as much as booking does. So it can
 * happen that a thread which is just going to sleep is not seen here; it looks for itself after VT_STATE_DOZE_NS. */
#define VT_STATE_DOZE_NS 200000
static inline void vt_state_leave(void)
{
    if (__builtin_expect(vt_arena_failed || vt_state.writer.state == VT_WRITER_PARTIAL, 0))
        vt_state_watch();
    __atomic_store_n(&vt_state.lock, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&vt_state.waiting, __ATOMIC_RELAXED) != 0, 0))
        vt_state_wake();
    vt_tls.busy = 0;
}

/* Stops recording for good with one warning. With the lock held. `reason` is a literal. */
void vt_state_stop(const char *reason);

/* Nanoseconds since the recording began. */
uint64_t vt_now(void);

/* The same, for half the time (clock.h), and never before the newest event. With the lock held. */
static inline uint64_t vt_now_held(void)
{
    uint64_t now = vt_clock_quick(&vt_state.clock) - vt_state.start_mono_ns;
    uint64_t newest = vt_writer_header(&vt_state.writer)->last_ns;
    return now < newest ? newest : now;
}

/* A string id for a text, the same id for the same text. With the lock held. */
uint32_t vt_intern(const char *text);

/* Index of the calling thread in VT_THREADS (saturating at UINT16_MAX). With the lock held. */
uint32_t vt_thread_new(void); /* behind it */

static inline uint32_t vt_thread_index(void)
{
    if (__builtin_expect(vt_tls.thread && vt_tls.thread_generation == vt_state.generation, 1))
        return vt_tls.thread - 1;
    return vt_thread_new();
}

/* To be registered once: puts the child of a fork into the state of a fresh process. */
void vt_state_after_fork(void);

/* Run by vt_state_after_fork: each table that lives in the arena forgets itself. */
void vt_track_forget(void);
void vt_stack_forget(void);
void vt_vmm_forget(void);
void vt_import_forget(void);
void vt_graph_forget(void);
void vt_context_forget(void);
void vt_failure_forget(void);
void vt_report_forget(void);
void vt_usage_forget(void);
void vt_phase_forget(void);
void vt_nccl_forget(void);
void vt_tensorflow_forget(void);

#endif
