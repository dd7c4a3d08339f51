/*
 * What one pair of allocation and free costs, as a program sees it: nanoseconds per pair, the fastest of many batches (what
 * else runs on the machine only ever adds). The program stays on one processor.
 *
 *     alloc malloc|async BYTES DEPTH PAIRS        calls the runtime from DEPTH frames down
 *
 * The runtime is opened with dlopen, so the same program runs on the simulated GPU and on a real one, with and without
 * the library preloaded. `bench/run` compares.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int (*malloc_)(void **, size_t), (*free_)(void *), (*malloc_async)(void **, size_t, void *),
    (*free_async)(void *, void *);
static int (*synchronize)(void *), (*create)(void **);
static void *stream;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *runtime(void)
{
    static const char *const names[] = {"libcudart.so.13", "/usr/local/cuda/lib64/libcudart.so.13", "libcudart.so.12",
                                        NULL};
    for (int i = 0; names[i]; i++) {
        void *h = dlopen(names[i], RTLD_NOW);
        if (h)
            return h;
    }
    fprintf(stderr, "no CUDA runtime: %s\n", dlerror());
    exit(77);
}

static int pair(int async, size_t bytes)
{
    void *p;
    if (async)
        return malloc_async(&p, bytes, stream) || free_async(p, stream);
    return malloc_(&p, bytes) || free_(p);
}

static int __attribute__((noinline)) down(int depth, int async, size_t bytes, int pairs)
{
    if (depth > 0) {
        int r = down(depth - 1, async, bytes, pairs);
        __asm__ volatile("" : "+r"(r)); /* no tail call: the frame must be there */
        return r;
    }
    for (int i = 0; i < pairs; i++)
        if (pair(async, bytes))
            return 1;
    return 0;
}

/* Moving between processors of different speed would drown what is measured. */
static void stay_here(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
    enum { BATCHES = 100 };
    double best = 1e18;
    if (argc != 5)
        return fprintf(stderr, "alloc malloc|async BYTES DEPTH PAIRS\n"), 2;
    int async = !strcmp(argv[1], "async"), depth = atoi(argv[3]), pairs = atoi(argv[4]);
    size_t bytes = strtoull(argv[2], NULL, 10);
    void *h = runtime();
    malloc_ = dlsym(h, "cudaMalloc");
    free_ = dlsym(h, "cudaFree");
    malloc_async = dlsym(h, "cudaMallocAsync");
    free_async = dlsym(h, "cudaFreeAsync");
    synchronize = dlsym(h, "cudaStreamSynchronize");
    create = dlsym(h, "cudaStreamCreate");
    if (free_(NULL) || create(&stream))
        return fprintf(stderr, "no GPU\n"), 77;
    stay_here();
    for (int i = 0; i < BATCHES; i++) {
        double start = now_ns();
        if (down(depth, async, bytes, pairs))
            return fprintf(stderr, "an allocation failed\n"), 1;
        double ns = (now_ns() - start) / pairs;
        best = ns < best ? ns : best;
        synchronize(stream);
    }
    printf("%.1f\n", best);
    return 0;
}
