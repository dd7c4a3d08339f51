/*
 * Takes steps, one per argument, to make recordings large or awkward:
 *   hold=N     N allocations of 4 KiB that stay        sites=N   one allocation from each of N distinct stacks
 *   device=N   switches to another GPU                 managed   one allocation of another kind
 *   oom        asks for more than there is             wait      says "ready" and waits for a line of input
 *   rss        says VmRSS and VmHWM in KiB             end=N     exit status
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static void must(int result)
{
    if (result)
        _exit(90);
}

NOINLINE static CUdeviceptr hold_memory(size_t n)
{
    CUdeviceptr p = 0;
    must(cuMemAlloc_v2(&p, n));
    return p;
}

/* The bits of `path` choose the lines that are called from: 16 bits, 65536 stacks. */
NOINLINE static CUdeviceptr descend(unsigned path, unsigned depth)
{
    CUdeviceptr p;
    if (!depth)
        return hold_memory(4096);
    if (path & 1)
        p = descend(path >> 1, depth - 1);
    else
        p = descend(path >> 1, depth - 1);
    return p + 1;
}

static void say_rss(void)
{
    char line[256];
    unsigned long rss = 0, hwm = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "VmRSS: %lu", &rss);
        sscanf(line, "VmHWM: %lu", &hwm);
    }
    must(!f || fclose(f));
    printf("%lu %lu\n", rss, hwm);
}

static void use_device(int device)
{
    CUcontext context;
    must(cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context));
}

static void step(const char *s)
{
    const char *equal = strchr(s, '=');
    unsigned n = equal ? (unsigned)atoi(equal + 1) : 0;
    CUdeviceptr p = 0;
    if (!strncmp(s, "hold=", 5))
        while (n--)
            hold_memory(4096);
    else if (!strncmp(s, "sites=", 6))
        while (n--)
            descend(n, 16);
    else if (!strncmp(s, "device=", 7))
        use_device((int)n);
    else if (!strcmp(s, "managed"))
        must(cuMemAllocManaged(&p, 8192, CU_MEM_ATTACH_GLOBAL));
    else if (!strcmp(s, "oom"))
        printf("%d\n", cuMemAlloc_v2(&p, (size_t)1 << 42));
    else if (!strcmp(s, "wait")) {
        char line[16];
        puts("ready");
        fflush(stdout);
        must(!fgets(line, sizeof line, stdin));
    } else if (!strcmp(s, "rss"))
        say_rss();
    else if (!strncmp(s, "end=", 4))
        exit((int)n);
    else
        _exit(91);
}

int main(int argc, char **argv)
{
    must(cuInit(0));
    use_device(0);
    for (int i = 1; i < argc; i++)
        step(argv[i]);
    return 0;
}
