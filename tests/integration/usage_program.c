/*
 * Programs for test_usage.py: each holds 200 MiB of GPU memory and ends in some way. What they print and return must not
 * depend on anything that is asked about the card meanwhile.
 *
 *   usage_program plain|enumerate|oom|flood|exit_now|quick|handler|kill|ask|two|threads|fork|fork_first|shutdown|pool|reset
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define OK(call)                                                      \
    do {                                                              \
        int code_ = (int)(call);                                      \
        if (code_) {                                                  \
            printf("line %d: %s gives %d\n", __LINE__, #call, code_); \
            exit(9);                                                  \
        }                                                             \
    } while (0)

static int is_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;

    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static CUdeviceptr hold(size_t bytes)
{
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, bytes));
    return p;
}

static void start(int device)
{
    CUcontext context;
    errno = EBUSY;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    if (errno != EBUSY)
        printf("errno %d\n", errno);
}

static void enumerate(void)
{
    char name[64];
    int count;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    OK(cuDeviceGetName(name, sizeof name, 0));
    printf("%d %s\n", count, name);
}

/* A refusal, and a smaller success elsewhere: the program went on without it. */
static void oom(void)
{
    CUdeviceptr p;
    printf("%d\n", cuMemAlloc_v2(&p, 15 * 1024 * MIB));
    hold(2 * MIB);
}

static void flood(void)
{
    CUdeviceptr p;
    for (size_t i = 0; i < 400; i++)
        if (cuMemAlloc_v2(&p, (15 * 1024 + i) * MIB) != CUDA_ERROR_OUT_OF_MEMORY)
            printf("not refused\n");
}

static void on_signal(int number)
{
    (void)number;
    _exit(7);
}

static void ask(void)
{
    size_t free_bytes, total;
    for (int i = 0; i < 1000; i++)
        OK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%zu of %zu, %d\n", free_bytes / MIB, total / MIB, cuMemGetInfo_v2(NULL, NULL));
}

static void *on_device(void *device)
{
    start((int)(intptr_t)device);
    hold(100 * MIB);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[4];
    for (intptr_t i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, on_device, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

static void fork_one(void)
{
    int status;
    fflush(stdout);
    if (fork() == 0) {
        start(0);
        hold(50 * MIB);
        exit(5);
    }
    wait(&status);
    printf("child %d\n", WEXITSTATUS(status));
}

/* A pool that keeps what is given back. */
static void pool(void)
{
    CUmemoryPool pool;
    CUdeviceptr p;
    cuuint64_t all = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(cuMemAllocAsync(&p, 512 * MIB, NULL));
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
}

/* A program that ends NVML more often than it began it. */
static void end_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;
    int (*end)(void) = library ? (int (*)(void))dlsym(library, "nvmlShutdown") : NULL;
    if (!init || !end)
        exit(8);
    init();
    end();
    end();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain";

    if (!strcmp(mode, "enumerate")) {
        enumerate();
        if (is_mapped("libnvidia-ml"))
            printf("NVML is loaded\n");
        return 3;
    }
    if (!strcmp(mode, "threads")) {
        threads();
        return 3;
    }
    if (!strcmp(mode, "fork_first"))
        fork_one();
    start(0);
    hold(200 * MIB);
    if (!strcmp(mode, "oom"))
        oom();
    else if (!strcmp(mode, "flood"))
        flood();
    else if (!strcmp(mode, "ask"))
        ask();
    else if (!strcmp(mode, "fork"))
        fork_one();
    else if (!strcmp(mode, "shutdown"))
        end_nvml();
    else if (!strcmp(mode, "pool"))
        pool();
    else if (!strcmp(mode, "reset"))
        OK(cuDevicePrimaryCtxReset_v2(0));
    else if (!strcmp(mode, "two")) {
        start(1);
        hold(300 * MIB);
    } else if (!strcmp(mode, "handler")) {
        signal(SIGUSR1, on_signal);
        raise(SIGUSR1);
    }
    fflush(stdout);
    if (!strcmp(mode, "exit_now"))
        _exit(3);
    if (!strcmp(mode, "quick"))
        quick_exit(3);
    if (!strcmp(mode, "kill"))
        kill(getpid(), SIGKILL);
    return 3;
}
