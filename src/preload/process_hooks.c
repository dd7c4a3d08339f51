/*
 * Set-up when CUDA starts, and the end of the process.
 *
 * The end has two steps. exit() runs handlers newest first: ours is registered after the driver's, so it runs before
 * CUDA is torn down; from then on what contexts take with them is not the program's doing and is not booked. Objects
 * with static storage are destroyed later, and what they free still is. The end is recorded, and the report written, by
 * a handler from before main, behind all handlers of the program and all destructors of its libraries (a destructor of
 * ours would run before theirs). _exit() and its kin run no handlers: both steps at once.
 */
#include "preload/process_hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/call.h"
#include "preload/codes.h"
#include "preload/failure.h"
#include "preload/handler.h"
#include "preload/report.h"
#include "preload/usage.h"

static int done;
static int exit_code; /* as exit() was told */

/* A child made by vfork shares this memory but is not this process: it must not end our recording. */
static bool is_this_process(void)
{
    return vt_state_recording() && vt_header()->pid == (int32_t)getpid();
}

static void begin_end(int code)
{
    exit_code = code;
    vt_usage_at(VT_USAGE_END, VT_NONE);
    if (vt_state_recording() && vt_state_lock(false)) {
        vt_state.ending = true;
        vt_state_unlock();
    }
}

#define EXIT_BYTES 64 /* exit() sets up a call that never returns: a few instructions */

bool vt_process_ending(void)
{
    void *ip[VT_DEPTH_MAX]; /* the whole stack, whatever depth the user wants recorded */
    if (vt_state.ending || vt_tls.busy || !vt_unwind)
        return vt_state.ending;
    int saved = errno, n = vt_unwind(ip, VT_DEPTH_MAX);
    for (int i = 0; i < n; i++)
        if ((char *)ip[i] > (char *)exit && (char *)ip[i] <= (char *)exit + EXIT_BYTES)
            begin_end(exit_code);
    errno = saved;
    return vt_state.ending;
}

static void record_end(int code)
{
    if (!is_this_process() || vt_state.ended)
        return;
    if (!vt_state.ending) /* no exit handler has run: CUDA and NVML are still there */
        vt_usage_at(VT_USAGE_END, VT_NONE);
    if (!vt_state_lock(false))
        return;
    struct vt_header *h = vt_header();
    uint32_t failure = vt_failure_resolve_all();
    h->end_ns = vt_now();
    h->exit_code = code & 0xff;
    h->end = VT_END_EXIT;
    vt_state.ending = vt_state.ended = true;
    vt_state_unlock();
    if (vt_in_signal_handler()) /* _exit is what a handler may call; a report is not */
        return;
    if (failure != VT_NONE)
        vt_report_oom(failure);
    vt_report_end();
}

bool vt_process_before_exec(void)
{
    if (!is_this_process() || vt_state.ended || !vt_state_lock(false))
        return false;
    vt_header()->end_ns = vt_now();
    vt_header()->end = VT_END_EXEC;
    vt_state_unlock();
    return true;
}

void vt_process_exec_failed(void)
{
    int saved = errno;
    if (vt_state_lock(false)) {
        vt_header()->end_ns = 0;
        vt_header()->end = VT_END_RUNNING;
        vt_state_unlock();
    }
    errno = saved;
}

static void on_exit_handler(int code, void *unused)
{
    (void)unused;
    if (is_this_process())
        begin_end(code);
}

static void on_quick_exit(void)
{
    record_end(exit_code);
}

static void at_last(int code, void *unused)
{
    (void)unused;
    record_end(code);
}

/* Keeps the driver loaded while we hold pointers into it. */
static void pin_driver(void)
{
    const char *path = vt_driver_path();
    if (path && *path)
        dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

void vt_process_watch_exit(void)
{
    static unsigned calls;
    unsigned n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if ((n & (n - 1)) == 0) /* 1, 2, 4, 8 ...: some twenty entries at most */
        on_exit(on_exit_handler, NULL);
}

void vt_process_exit_first(void)
{
    on_exit(on_exit_handler, NULL);
}

void vt_process_hooks(void)
{
    if (__atomic_load_n(&done, __ATOMIC_ACQUIRE) || __atomic_exchange_n(&done, 1, __ATOMIC_ACQ_REL))
        return;
    int saved = errno;
    pin_driver();
    vt_stack_prepare();
    vt_codes_prepare();
    dlerror(); /* what could not be opened is not the program's business */
    on_exit(on_exit_handler, NULL);
    at_quick_exit(on_quick_exit);
    errno = saved;
}

static void (*real__exit)(int), (*real__Exit)(int), (*real_quick_exit)(int), (*real_abort)(void);

/* At load: a fork between two CUDA calls must be noticed, and the ways out are taken by children of vfork too, where
 * nothing may be looked up any more. */
__attribute__((constructor)) static void at_load(void)
{
    real__exit = (void (*)(int))vt_real_dlsym(RTLD_NEXT, "_exit");
    real__Exit = (void (*)(int))vt_real_dlsym(RTLD_NEXT, "_Exit");
    real_quick_exit = (void (*)(int))vt_real_dlsym(RTLD_NEXT, "quick_exit");
    real_abort = (void (*)(void))vt_real_dlsym(RTLD_NEXT, "abort");
    vt_options_resolve_directory();
    pthread_atfork(NULL, NULL, vt_state_after_fork);
    on_exit(at_last, NULL); /* before libc registers the libraries' destructors: runs behind them */
}

#define EXIT_WRAPPER(name)                                  \
    VT_EXPORT __attribute__((noreturn)) void name(int code) \
    {                                                       \
        record_end(code);                                   \
        if (real_##name)                                    \
            real_##name(code);                              \
        for (;;)                                            \
            syscall(SYS_exit_group, code);                  \
    }

EXIT_WRAPPER(_exit)
EXIT_WRAPPER(_Exit)

/* Runs the program's at_quick_exit handlers first, then ours, which was registered when CUDA started or later. */
VT_EXPORT __attribute__((noreturn)) void quick_exit(int code)
{
    if (is_this_process())
        exit_code = code;
    if (real_quick_exit)
        real_quick_exit(code);
    for (;;)
        syscall(SYS_exit_group, code);
}

/* std::terminate ends here: a program that throws because memory ran out still gets its report. */
VT_EXPORT __attribute__((noreturn)) void abort(void)
{
    uint32_t failure = VT_NONE;
    if (is_this_process() && !vt_state.ended && vt_state_lock(false)) {
        failure = vt_failure_resolve_all();
        vt_state_unlock();
    }
    if (failure != VT_NONE && !vt_in_signal_handler())
        vt_report_oom(failure);
    if (real_abort)
        real_abort();
    for (;;)
        syscall(SYS_exit_group, 134);
}
