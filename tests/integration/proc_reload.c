/*
 * Opens the library argv[1], allocates through it, closes it, and does the same with argv[2]. Prints where the function
 * lay each time: at the same place if the loader put the second library where the first one was.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

static int use(const char *path, size_t n)
{
    void *library = dlopen(path, RTLD_NOW);
    CUdeviceptr (*grab)(size_t) = library ? (CUdeviceptr(*)(size_t))dlsym(library, "grab") : NULL;
    if (!grab || !grab(n))
        return 1;
    printf("%p\n", (void *)grab);
    return dlclose(library);
}

int main(int argc, char **argv)
{
    CUcontext context;
    if (argc < 3 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 9;
    for (int i = 1; i < argc; i++)
        if (use(argv[i], (size_t)i << 20))
            return 8;
    return 0;
}
