/* Threads that open ranges of common names and of their own, allocate in them and end steps, all at once. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <vramtrack/vramtrack.h>

#define THREADS 4
#define ROUNDS 500

static int make(size_t bytes)
{
    void *p;
    return cudaMalloc(&p, bytes) || cudaFree(p);
}

static void *work(void *argument)
{
    const char *own = argument;
    char name[32];
    long failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "round %d", i);
        vramtrack_range_push("common");
        failed += make(4096);
        vramtrack_range_push(own);
        failed += make(8192);
        vramtrack_range_push(name);
        failed += make(12288);
        vramtrack_range_pop(name);
        vramtrack_range_pop(own);
        vramtrack_range_pop("common");
        vramtrack_step();
        if (i % 100 == 0)
            vramtrack_moment("now and then");
    }
    return (void *)failed;
}

int main(void)
{
    static char *const names[THREADS] = {"first", "second", "third", "fourth"};
    pthread_t threads[THREADS];
    long failed = make(16384);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, names[i]);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed += (long)result;
    }
    _exit(failed != 0);
}
