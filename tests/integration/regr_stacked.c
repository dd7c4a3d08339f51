/*
 * The program under several preloaded libraries: three allocations (4, 2, 8 MiB) and one free (of the 2) by one way:
 * `regr_stacked linked|dlsym|lookup|runtime`. Prints how many the other library saw.
 */
#include "regr.h"

static int seen(const char *counter)
{
    int *n = dlsym(RTLD_DEFAULT, counter);
    return n ? *n : -1;
}

NOINLINE static CUdeviceptr grab(__typeof__(&cuMemAlloc_v2) alloc, size_t n)
{
    CUdeviceptr p;
    OK(alloc(&p, n));
    return p;
}

NOINLINE static void *grab_by_runtime(size_t n)
{
    void *p;
    OK(cudaMalloc(&p, n));
    return p;
}

int main(int argc, char **argv)
{
    __typeof__(&cuMemAlloc_v2) alloc = cuMemAlloc_v2;
    __typeof__(&cuMemFree_v2) release = cuMemFree_v2;
    CUcontext c;
    MUST(argc == 2);
    if (!strcmp(argv[1], "runtime")) {
        OK(cudaSetDevice(0));
        grab_by_runtime(4 * MIB);
        OK(cudaFree(grab_by_runtime(2 * MIB)));
        grab_by_runtime(8 * MIB);
        printf("%d\n", seen("other_runtime_allocs"));
        return 26;
    }
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!strcmp(argv[1], "dlsym")) {
        alloc = (__typeof__(alloc))dlsym(h, "cuMemAlloc_v2");
        release = (__typeof__(release))dlsym(h, "cuMemFree_v2");
    } else if (!strcmp(argv[1], "lookup")) {
        __typeof__(&cuGetProcAddress_v2) lookup = (__typeof__(lookup))dlsym(h, "cuGetProcAddress_v2");
        OK(lookup("cuMemAlloc", (void **)&alloc, 3020, 0, NULL));
        OK(lookup("cuMemFree", (void **)&release, 3020, 0, NULL));
    }
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    OK(cuCtxSetCurrent(c));
    grab(alloc, 4 * MIB);
    OK(release(grab(alloc, 2 * MIB)));
    grab(alloc, 8 * MIB);
    printf("%d %d\n", seen("other_allocs"), seen("other_frees"));
    return 26;
}
