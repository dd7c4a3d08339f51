/*
 * Eight threads that allocate and free memory of several kinds until the process is killed. Says "go" on standard output
 * once argv[1] operations are done in total, and goes on.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 8
#define HELD 24

static CUcontext context;
static unsigned long done, until;

static int take(unsigned kind, size_t bytes, CUdeviceptr *p)
{
    CUDA_ARRAY_DESCRIPTOR shape = {.Width = bytes / 4, .Height = 1, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    switch (kind) {
    case 0:
        return cuMemAlloc_v2(p, bytes);
    case 1:
        return cuMemAllocAsync(p, bytes, NULL);
    case 2:
        return cuMemAllocHost_v2((void **)p, bytes);
    case 3:
        return cuMemAllocManaged(p, bytes, CU_MEM_ATTACH_GLOBAL);
    default:
        return cuArrayCreate_v2((CUarray *)p, &shape);
    }
}

static int give(unsigned kind, CUdeviceptr p)
{
    switch (kind) {
    case 1:
        return cuMemFreeAsync(p, NULL);
    case 2:
        return cuMemFreeHost((void *)p);
    case 4:
        return cuArrayDestroy((CUarray)p);
    default:
        return cuMemFree_v2(p);
    }
}

static void *work(void *number)
{
    unsigned seed = (unsigned)(size_t)number * 7919 + (unsigned)until;
    CUdeviceptr held[HELD] = {0};
    unsigned kind[HELD] = {0};
    if (cuCtxSetCurrent(context))
        _exit(8);
    for (;;) {
        unsigned i = (unsigned)rand_r(&seed) % HELD;
        if (held[i]) {
            if (give(kind[i], held[i]))
                _exit(7);
            held[i] = 0;
        } else {
            kind[i] = (unsigned)rand_r(&seed) % 5;
            if (take(kind[i], 4096u * (1 + (unsigned)rand_r(&seed) % 64), &held[i]))
                _exit(6);
        }
        if (__atomic_add_fetch(&done, 1, __ATOMIC_RELAXED) == until && write(1, "go\n", 3) != 3)
            _exit(5);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    until = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0))
        return 9;
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    return 4;
}
