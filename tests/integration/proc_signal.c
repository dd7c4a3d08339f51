/* A thread allocates host memory all the time; a signal interrupts it, and the handler calls _exit. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int rounds;

static void handler(int number)
{
    (void)number;
    _exit(3);
}

static void *work(void *unused)
{
    void *p[64];
    (void)unused;
    for (;;) {
        for (int i = 0; i < 64; i++)
            p[i] = malloc(1500 + 37 * (size_t)i);
        for (int i = 0; i < 64; i++)
            free(p[i]);
        __atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr p = 0;
    pthread_t thread;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 5 << 20))
        return 9;
    signal(SIGUSR1, handler);
    pthread_create(&thread, NULL, work, NULL);
    while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < 100)
        ;
    pthread_kill(thread, SIGUSR1);
    for (;;)
        pause();
}
