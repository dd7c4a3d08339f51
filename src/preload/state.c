/* Start, stop, fork, the lock; see state.h. Facts about the process are read here, once, when recording starts. */
#include "preload/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload/arena.h"
#include "preload/hot.h"
#include "preload/jax/jax.h"
#include "preload/options.h"
#include "preload/process.h"
#include "preload/request.h"
#include "preload/warn.h"

__thread struct vt_tls vt_tls;
VT_HOT_DATA struct vt_state vt_state;

static inline void pause_briefly(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* A mutex of the C library costs a tensor 30 ns more: more code, and a locked instruction to set it free. */
void vt_state_wait(void)
{
    static const struct timespec doze = {0, VT_STATE_DOZE_NS};
    for (int i = 0; i < 100; i++) { /* what is done under the lock takes a fraction of a microsecond mostly */
        int expected = 0;
        if (__atomic_compare_exchange_n(&vt_state.lock, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        pause_briefly();
    }
    int saved = errno;
    __atomic_add_fetch(&vt_state.waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_exchange_n(&vt_state.lock, 1, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &vt_state.lock, FUTEX_WAIT_PRIVATE, 1, &doze, NULL, 0);
    __atomic_sub_fetch(&vt_state.waiting, 1, __ATOMIC_SEQ_CST);
    errno = saved;
}

void vt_state_wake(void)
{
    int saved = errno;
    syscall(SYS_futex, &vt_state.lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

struct string_entry {
    UT_hash_handle hh;
    uint64_t hash;
    uint32_t id;
};
static struct string_entry *strings;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t vt_now(void)
{
    return vt_clock_read() - vt_state.start_mono_ns;
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return h;
}

uint32_t vt_intern(const char *text)
{
    struct string_entry *e = NULL;
    if (!text || !*text)
        return 0;
    uint64_t hash = hash_text(text);
    HASH_FIND(hh, strings, &hash, sizeof hash, e);
    if (e)
        return e->id;
    uint32_t id = vt_writer_string(&vt_state.writer, text, strlen(text));
    if (id && (e = vt_arena_take(sizeof *e))) {
        e->hash = hash;
        e->id = id;
        HASH_ADD(hh, strings, hash, sizeof e->hash, e);
    }
    return id;
}

uint32_t vt_thread_new(void)
{
    uint64_t index;
    struct vt_thread *t = vt_writer_append(&vt_state.writer, VT_THREADS, &index);
    if (t) {
        t->tid = (int32_t)syscall(SYS_gettid);
        t->first_ns = vt_now();
        vt_process_thread_name(t->name, sizeof t->name);
        vt_writer_publish(&vt_state.writer, VT_THREADS);
    } else
        index = UINT16_MAX;
    vt_tls.thread = (uint32_t)index + 1;
    vt_tls.thread_generation = vt_state.generation;
    return (uint32_t)index;
}

static void explain_writer(void)
{
    const struct vt_writer *w = &vt_state.writer;
    const char *directory = vt_options()->directory;
    if (w->state == VT_WRITER_MEMORY)
        vt_warn("no recording can be written to %s: %s; counting in memory only (VRAMTRACK_DIR chooses the directory)",
                directory ? directory : "the working directory", strerror(w->error));
}

static bool start(void)
{
    struct vt_process process;
    const struct vt_options *o = vt_options();
    vt_process_read(&process);
    struct vt_writer_options wo = {
        .directory = o->directory,
        .program = process.program,
        .host = process.host,
        .pid = process.pid,
        .rank = process.rank,
        .start_unix_ns = clock_ns(CLOCK_REALTIME),
        .limit_bytes = o->limit_bytes,
        .events = o->events,
    };
    vt_options_complain();
    vt_state.start_mono_ns = vt_clock_read();
    if (!vt_writer_open(&vt_state.writer, &wo)) {
        vt_state.stopped = true;
        vt_warn("not recording: no memory for the recording");
        return false;
    }
    struct vt_header *h = vt_header();
    h->start_mono_ns = vt_state.start_mono_ns;
    h->stack_depth = o->native || o->python ? o->depth : 0;
    vt_process_describe(h, &process);
    vt_jax_note_refusals();
    explain_writer();
    return true;
}

/* Says once that the disk is full: with the lock dropped again, the next event would have to tell it otherwise. */
static void watch_disk(void)
{
    static bool told;
    const struct vt_writer *w = &vt_state.writer;
    if (w->state == VT_WRITER_PARTIAL && !told) {
        told = true;
        vt_warn("%s can't grow: %s; counting on in memory", w->path, strerror(w->error));
    }
}

/* Nothing was recorded so far. */
static bool lock_and_start(void)
{
    int free_lock = 0;
    vt_tls.busy = 1;
    if (!__atomic_compare_exchange_n(&vt_state.lock, &free_lock, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        vt_state_wait();
    if (!vt_state.stopped && (vt_state.writer.state != VT_WRITER_CLOSED || start()))
        return true;
    vt_state_leave();
    return false;
}

bool vt_state_lock(bool may_start)
{
    if (__builtin_expect(vt_tls.busy, 0)) {
        if (vt_state_recording()) {
            __atomic_fetch_or(&vt_header()->flags, VT_FLAG_MISSED, __ATOMIC_RELAXED);
            __atomic_fetch_add(&vt_header()->missed_events, 1, __ATOMIC_RELAXED);
        }
        return false;
    }
    if (vt_state_enter())
        return true;
    return may_start && !vt_state.stopped && lock_and_start();
}

void vt_state_watch(void)
{
    if (vt_arena_failed)
        vt_state_stop("no memory for its tables");
    watch_disk();
}

void vt_state_unlock(void)
{
    vt_state_leave();
}

void vt_state_stop(const char *reason)
{
    if (vt_state.stopped)
        return;
    vt_header()->flags |= VT_FLAG_STOPPED;
    vt_header()->stop_reason = vt_writer_string(&vt_state.writer, reason, strlen(reason));
    vt_state.stopped = true;
    vt_warn("recording stopped: %s; the program is not affected", reason);
}

void vt_state_after_fork(void)
{
    /* The parent's recording is mapped here as well: nothing of it may be touched. Only this thread exists. */
    uint32_t generation = vt_state.generation + 1;
    vt_writer_abandon(&vt_state.writer);
    memset(&vt_state, 0, sizeof vt_state);
    vt_state.generation = generation;
    memset(&vt_tls, 0, sizeof vt_tls);
    vt_track_forget();
    vt_stack_forget();
    vt_vmm_forget();
    vt_import_forget();
    vt_graph_forget();
    vt_context_forget();
    vt_failure_forget();
    vt_report_forget();
    vt_usage_forget();
    vt_phase_forget();
    vt_nccl_forget();
    vt_tensorflow_forget();
    strings = NULL;
    vt_arena_drop();
}
