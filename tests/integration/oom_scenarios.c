/*
 * Ways in which programs run out of memory, get over it, or don't; argv[1] names one. Every call's result and errno go to
 * standard output, which must be the same with and without the library.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim.h"

#define MIB ((size_t)1 << 20)
#define NOINLINE __attribute__((noinline, noclone))

/* Makes a call, and says what became of it. */
#define SAY(call)             \
    ({                        \
        errno = 77;           \
        int result_ = (call); \
        int errno_ = errno;   \
        say(result_, errno_); \
        result_;              \
    })

static CUcontext context;

static void say(int result, int error)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%d %d\n", result, error);
    if (write(1, line, (size_t)n) != n)
        _exit(99);
}

static void must(int result)
{
    if (result)
        _exit(98);
}

NOINLINE static CUdeviceptr hold_memory(size_t n)
{
    CUdeviceptr p = 0;
    must(cuMemAlloc_v2(&p, n));
    return p;
}

NOINLINE static int ask_big(size_t n)
{
    CUdeviceptr p = 0;
    return SAY(cuMemAlloc_v2(&p, n));
}

NOINLINE static int ask_elsewhere(size_t n)
{
    CUdeviceptr p = 0;
    return SAY(cuMemAlloc_v2(&p, n));
}

/* Asks up to `rungs` times from neighbouring lines; before the last one, `give_back` is freed. */
NOINLINE static int climb(size_t n, int rungs, CUdeviceptr give_back)
{
    CUdeviceptr p = 0;
    int r;
    if (rungs == 1 && give_back)
        must(cuMemFree_v2(give_back));
    r = SAY(cuMemAlloc_v2(&p, n));
    if (!r || --rungs == 0)
        return r;
    if (rungs == 1 && give_back)
        must(cuMemFree_v2(give_back));
    r = SAY(cuMemAlloc_v2(&p, n));
    if (!r || --rungs == 0)
        return r;
    if (rungs == 1 && give_back)
        must(cuMemFree_v2(give_back));
    return SAY(cuMemAlloc_v2(&p, n));
}

static int ladder2_recovers(void)
{
    return climb(600 * MIB, 2, hold_memory(300 * MIB));
}

static int ladder3_recovers(void)
{
    return climb(600 * MIB, 3, hold_memory(300 * MIB));
}

static int ladder2_fails(void)
{
    hold_memory(300 * MIB);
    climb(600 * MIB, 2, 0);
    return 3;
}

static int ladder3_fails(void)
{
    hold_memory(300 * MIB);
    climb(600 * MIB, 3, 0);
    return 3;
}

/* Asks again and again from one line; frees one of what it holds between two tries, if there is any left. */
NOINLINE static int try_again(size_t n, int tries, CUdeviceptr *held, int held_count)
{
    CUdeviceptr p = 0;
    int r = 1;
    for (int i = 0; i < tries && r; i++) {
        r = SAY(cuMemAlloc_v2(&p, n));
        if (r && i < held_count)
            must(cuMemFree_v2(held[i]));
    }
    return r;
}

static int loop_recovers(void)
{
    CUdeviceptr held[3] = {hold_memory(100 * MIB), hold_memory(100 * MIB), hold_memory(100 * MIB)};
    return try_again(700 * MIB, 5, held, 3);
}

static int loop_fails(void)
{
    CUdeviceptr held[2] = {hold_memory(100 * MIB), hold_memory(100 * MIB)};
    hold_memory(300 * MIB);
    try_again(600 * MIB, 3, held, 2);
    return 3;
}

/* The most that can be had, found by halving. */
static int probe(void)
{
    hold_memory(300 * MIB);
    for (size_t n = 4096 * MIB; n > MIB; n /= 2)
        if (!ask_big(n))
            return 0;
    return 1;
}

static int single(void)
{
    hold_memory(300 * MIB);
    ask_big(600 * MIB);
    return 3;
}

static int smaller_elsewhere(void)
{
    hold_memory(300 * MIB);
    ask_big(600 * MIB);
    ask_elsewhere(2 * MIB);
    return 3;
}

static int larger_elsewhere(void)
{
    CUdeviceptr p = hold_memory(300 * MIB);
    ask_big(600 * MIB);
    must(cuMemFree_v2(p));
    return ask_elsewhere(601 * MIB);
}

static int two(void)
{
    hold_memory(64 * MIB);
    ask_big(1000 * MIB);
    ask_elsewhere(2 * MIB);
    hold_memory(128 * MIB);
    ask_big(900 * MIB);
    ask_elsewhere(4 * MIB);
    return 0;
}

/* The child has a report of its own, although the parent has just had one. */
static int parent_and_child(void)
{
    hold_memory(64 * MIB);
    ask_big(1000 * MIB);
    ask_elsewhere(2 * MIB);
    pid_t pid = fork();
    if (!pid) {
        must(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
        sim_set_free(0, 800 * MIB);
        for (int i = 0; i < 5000; i++)
            hold_memory(4096);
        ask_big(900 * MIB);
        ask_elsewhere(2 * MIB);
        _exit(4);
    }
    int status = 0;
    must(waitpid(pid, &status, 0) != pid);
    return WEXITSTATUS(status);
}

static pthread_barrier_t barrier;

static void *fail_in_thread(void *size)
{
    CUdeviceptr p = 0;
    must(cuCtxSetCurrent(context));
    pthread_barrier_wait(&barrier);
    errno = 77;
    int r = cuMemAlloc_v2(&p, (size_t)size);
    return (void *)(size_t)(r == CUDA_ERROR_OUT_OF_MEMORY && errno == 77);
}

static int threads(void)
{
    pthread_t a, b;
    void *ok_a, *ok_b;
    hold_memory(300 * MIB);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&a, NULL, fail_in_thread, (void *)(800 * MIB));
    pthread_create(&b, NULL, fail_in_thread, (void *)(900 * MIB));
    pthread_join(a, &ok_a);
    pthread_join(b, &ok_b);
    say((int)(size_t)ok_a, (int)(size_t)ok_b);
    return 0;
}

/* More threads than verdicts can wait for, each gone after its failure. */
static int many_threads(void)
{
    int good = 0;
    hold_memory(300 * MIB);
    pthread_barrier_init(&barrier, NULL, 1);
    for (int i = 0; i < 300; i++) {
        pthread_t t;
        void *ok = NULL;
        pthread_create(&t, NULL, fail_in_thread, (void *)(800 * MIB));
        pthread_join(t, &ok);
        good += ok != NULL;
    }
    say(good, 0);
    return 0;
}

static int stop;

static void *churn(void *unused)
{
    (void)unused;
    must(cuCtxSetCurrent(context));
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        CUdeviceptr p[8];
        for (int i = 0; i < 8; i++)
            must(cuMemAlloc_v2(&p[i], 4096));
        for (int i = 0; i < 8; i++)
            must(cuMemFree_v2(p[i]));
    }
    return NULL;
}

/* The report is written while other threads go on. */
static int under_load(void)
{
    pthread_t t[4];
    hold_memory(300 * MIB);
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, churn, NULL);
    for (int i = 0; i < 20; i++) {
        ask_big((600 + (size_t)i) * MIB);
        ask_elsewhere(4096);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    return 0;
}

static int abort_after(void)
{
    hold_memory(300 * MIB);
    ask_big(600 * MIB);
    abort();
}

static int kill_after(void)
{
    hold_memory(300 * MIB);
    ask_big(600 * MIB);
    raise(SIGKILL);
    return 1;
}

static int exit_now_after(void)
{
    hold_memory(300 * MIB);
    ask_big(600 * MIB);
    _exit(3);
}

static int other_code(void)
{
    hold_memory(300 * MIB);
    sim_fail_next("cuMemAlloc_v2", 0, CUDA_ERROR_NOT_PERMITTED);
    ask_big(16 * MIB);
    return ask_elsewhere(16 * MIB);
}

/* As an allocator with expandable segments: many small physical pieces; on refusal all of this try go back. */
NOINLINE static int grow_segment(size_t pieces, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    for (size_t i = 0; i < pieces; i++) {
        int r = SAY(cuMemCreate(&handle[i], 20 * MIB, &prop, 0));
        while (r && i > 0)
            must(cuMemRelease(handle[--i]));
        if (r)
            return r;
    }
    return 0;
}

static int expandable(void)
{
    static CUmemGenericAllocationHandle cached[10], wanted[40];
    must(grow_segment(10, cached));
    if (!grow_segment(40, wanted))
        return 1;
    for (int i = 0; i < 10; i++)
        must(cuMemRelease(cached[i]));
    return grow_segment(40, wanted);
}

static int flood(void)
{
    hold_memory(300 * MIB);
    for (int i = 0; i < 500; i++)
        ask_big(600 * MIB);
    return 0;
}

static int flood_of_sizes(void)
{
    hold_memory(300 * MIB);
    for (size_t i = 0; i < 500; i++)
        ask_big((600 + i) * MIB);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} scenario[] = {
#define S(name)     \
    {               \
#name, name \
    }
    S(ladder2_recovers),
    S(ladder3_recovers),
    S(ladder2_fails),
    S(ladder3_fails),
    S(loop_recovers),
    S(loop_fails),
    S(probe),
    S(single),
    S(smaller_elsewhere),
    S(larger_elsewhere),
    S(two),
    S(parent_and_child),
    S(threads),
    S(many_threads),
    S(under_load),
    S(abort_after),
    S(kill_after),
    S(exit_now_after),
    S(other_code),
    S(expandable),
    S(flood),
    S(flood_of_sizes),
};

int main(int argc, char **argv)
{
    must(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    sim_set_free(0, 800 * MIB);
    for (size_t i = 0; argc > 1 && i < sizeof scenario / sizeof *scenario; i++)
        if (!strcmp(scenario[i].name, argv[1]))
            return scenario[i].run();
    return 97;
}
