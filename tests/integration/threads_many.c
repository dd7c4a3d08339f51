/*
 * argv[1] threads, argv[2] of them at a time, each allocating 4 KiB at the same place, and all but every tenth freeing it.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static CUcontext context;
static pthread_barrier_t barrier;

static void must(int result)
{
    if (result)
        _exit(90);
}

__attribute__((noinline)) static CUdeviceptr from_thread(void)
{
    CUdeviceptr p = 0;
    must(cuMemAlloc_v2(&p, 4096));
    return p;
}

static void *work(void *number)
{
    must(cuCtxSetCurrent(context));
    pthread_barrier_wait(&barrier);
    CUdeviceptr p = from_thread();
    if ((size_t)number % 10)
        must(cuMemFree_v2(p));
    return NULL;
}

int main(int argc, char **argv)
{
    size_t count = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, at_once = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    pthread_t thread[256];
    must(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || at_once > 256 || count % at_once);
    pthread_barrier_init(&barrier, NULL, (unsigned)at_once);
    for (size_t i = 0; i < count; i += at_once) {
        for (size_t k = 0; k < at_once; k++)
            must(pthread_create(&thread[k], NULL, work, (void *)(i + k)));
        for (size_t k = 0; k < at_once; k++)
            must(pthread_join(thread[k], NULL));
    }
    return 0;
}
