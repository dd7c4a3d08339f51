/*
 * Ways in which processes multiply, change and end, each with a little GPU memory held; argv[1] names one.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define NOINLINE __attribute__((noinline, noclone))

extern char **environ;
static CUcontext context;
static const char *self;

static void must(int result)
{
    if (result)
        _exit(90);
}

static void start_cuda(void)
{
    must(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
}

NOINLINE static CUdeviceptr hold_memory(size_t n)
{
    CUdeviceptr p = 0;
    must(cuMemAlloc_v2(&p, n));
    return p;
}

static int status_of(pid_t pid)
{
    int status = 0;
    must(waitpid(pid, &status, 0) != pid);
    return status;
}

/* ---- children ---- */

static int fork_allocating(void)
{
    start_cuda();
    hold_memory(10 * MIB);
    pid_t pid = fork();
    if (!pid) {
        start_cuda();
        hold_memory(3 * MIB);
        hold_memory(4 * MIB);
        exit(5);
    }
    hold_memory(1 * MIB);
    printf("%d %d\n", (int)pid, status_of(pid));
    return 0;
}

static int fork_idle(void)
{
    start_cuda();
    hold_memory(10 * MIB);
    pid_t a = fork();
    if (!a)
        exit(5);
    must(status_of(a) != 5 << 8);
    pid_t b = fork();
    if (!b)
        _exit(6);
    must(status_of(b) != 6 << 8);
    pid_t c = vfork();
    if (!c)
        _exit(7);
    must(status_of(c) != 7 << 8);
    hold_memory(1 * MIB);
    return 0;
}

static int stop;

static void *churn(void *unused)
{
    (void)unused;
    must(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        CUdeviceptr p = 0;
        must(cuMemAlloc_v2(&p, 4096) || cuMemFree_v2(p));
    }
    return NULL;
}

/* Most children end at once; every twentieth allocates, so that what the fork left behind must work. */
static int fork_stress(void)
{
    pthread_t thread[4];
    start_cuda();
    hold_memory(2 * MIB);
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, churn, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (!pid) {
            if (i % 20 == 0) {
                start_cuda();
                hold_memory(3 * MIB);
            }
            exit(i % 100);
        }
        must(status_of(pid) != i % 100 << 8);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    return 0;
}

static int second(void)
{
    start_cuda();
    hold_memory(2 * MIB);
    return 4;
}

static int exec_self(void)
{
    start_cuda();
    hold_memory(1 * MIB);
    execl(self, self, "second", NULL);
    return 91;
}

/* The program goes on after an exec that fails; errno must be exec's. */
static int exec_fails(void)
{
    start_cuda();
    hold_memory(1 * MIB);
    errno = 0;
    if (execl("/nonexistent/program", "program", NULL) != -1 || errno != ENOENT)
        return 91;
    hold_memory(2 * MIB);
    return 4;
}

static int spawn_self(void)
{
    char *arguments[] = {(char *)self, "second", NULL};
    pid_t pid;
    start_cuda();
    hold_memory(1 * MIB);
    must(posix_spawn(&pid, self, NULL, NULL, arguments, environ));
    printf("%d %d\n", (int)pid, status_of(pid));
    hold_memory(1 * MIB);
    return 0;
}

/* The daemon's first allocation is made before it closes everything and moves away, the others after. */
static int daemonise(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t first = fork();
    if (!first) {
        setsid();
        if (fork())
            _exit(0);
        start_cuda();
        hold_memory(4096);
        for (int fd = 0; fd < 1024; fd++)
            close(fd);
        must(chdir("/"));
        for (int i = 0; i < 20000; i++)
            hold_memory(4096);
        exit(3);
    }
    must(status_of(first) != 0);
    int status = 0;
    must(wait(&status) <= 0);
    return status >> 8 & 0xff;
}

/* ---- ends ---- */

static void give_back(void);
static CUdeviceptr held;

static int by_return(void)
{
    return 3;
}

static int by_exit(void)
{
    exit(259);
}

static int by__exit(void)
{
    _exit(3);
}

static int by__Exit(void)
{
    _Exit(3);
}

static int by_quick_exit(void)
{
    quick_exit(3);
}

static void *last_thread(void *unused)
{
    (void)unused;
    must(cuCtxSetCurrent(context));
    hold_memory(MIB);
    return NULL;
}

static int by_pthread_exit(void)
{
    pthread_t t;
    pthread_create(&t, NULL, last_thread, NULL);
    pthread_exit(NULL);
}

static int by_segv(void)
{
    *(volatile int *)8 = 1;
    return 92;
}

static int by_sigterm(void)
{
    raise(SIGTERM);
    return 92;
}

static int by_abort(void)
{
    abort();
}

static int by_atexit_free(void)
{
    atexit(give_back);
    return 3;
}

static void give_back(void)
{
    must(cuMemFree_v2(held));
}

/* Registered before cuInit, so it runs behind the driver's own handler, as a static runtime's does. */
static void runtime_teardown(void)
{
    cuDevicePrimaryCtxRelease_v2(0);
    cuDevicePrimaryCtxReset_v2(0);
}

static void context_teardown(void)
{
    cuDevicePrimaryCtxReset_v2(0);
}

static void late_free(void)
{
    cuMemFree_v2(held); /* fails: the driver has shut down */
}

static const struct {
    const char *name;
    int (*run)(void);
    void (*before)(void); /* atexit handler to be registered before CUDA starts */
    void (*after)(void);  /* and after */
} end[] =
    {
        {"return", by_return},
        {"exit", by_exit},
        {"_exit", by__exit},
        {"_Exit", by__Exit},
        {"quick_exit", by_quick_exit},
        {"pthread_exit", by_pthread_exit},
        {"segv", by_segv},
        {"sigterm", by_sigterm},
        {"abort", by_abort},
        {"atexit_free", by_atexit_free},
        {"late_free", by_return, late_free},
        {"teardown", by_return, runtime_teardown},
        {"early_teardown", by_return, NULL, context_teardown},
},
  other[] = {
      {"fork_allocating", fork_allocating},
      {"fork_idle", fork_idle},
      {"fork_stress", fork_stress},
      {"second", second},
      {"exec_self", exec_self},
      {"exec_fails", exec_fails},
      {"spawn_self", spawn_self},
      {"daemonise", daemonise},
};

int main(int argc, char **argv)
{
    self = argv[0];
    for (size_t i = 0; argc > 1 && i < sizeof other / sizeof *other; i++)
        if (!strcmp(other[i].name, argv[1]))
            return other[i].run();
    for (size_t i = 0; argc > 1 && i < sizeof end / sizeof *end; i++)
        if (!strcmp(end[i].name, argv[1])) {
            if (end[i].before)
                atexit(end[i].before);
            start_cuda();
            if (end[i].after)
                atexit(end[i].after);
            held = hold_memory(5 * MIB);
            return end[i].run();
        }
    return 93;
}
