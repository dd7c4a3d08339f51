/*
 * A C program (no C++ in it, no libgcc_s) that unwinds in every way: cancelled and exiting threads, and two C++ plugins
 * between which an exception travels. `regr_threads WAY PLUGIN PLUGIN [cuda]`: with cuda, each step allocates 1 MiB.
 */
#include "regr.h"

static int with_cuda;
#ifdef NO_CUDA /* not linked to libcuda either */
static void start(void)
{
}
static void grab(void)
{
}
#else
static CUcontext context;

static void start(void)
{
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
}

NOINLINE static void grab(void)
{
    CUdeviceptr p;
    if (!with_cuda)
        return;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&p, 1 * MIB));
}
#endif

static void cleanup(void *word)
{
    grab();
    printf("cleanup %s\n", (char *)word);
}

static int ready[2];

static void *cancelled(void *unused)
{
    pthread_cleanup_push(cleanup, "cancelled");
    char byte;
    grab();
    MUST(write(ready[1], "x", 1) == 1);
    for (;;)
        MUST(read(0, &byte, 1) != 1); /* never answered: the cancellation point */
    pthread_cleanup_pop(0);
    return unused;
}

static void *exits(void *unused)
{
    (void)unused;
    pthread_cleanup_push(cleanup, "exits");
    grab();
    pthread_exit("gone");
    pthread_cleanup_pop(0);
}

int main(int argc, char **argv)
{
    pthread_t t;
    void *result;
    char byte;
    int input[2];
    MUST(argc >= 4);
    with_cuda = argc > 4;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(!pipe(input) && dup2(input[0], 0) == 0 && !pipe(ready));
    if (with_cuda)
        start();
    if (!strcmp(argv[1], "cancel")) {
        pthread_create(&t, NULL, cancelled, NULL);
        MUST(read(ready[0], &byte, 1) == 1);
        pthread_cancel(t);
        pthread_join(t, &result);
        puts(result == PTHREAD_CANCELED ? "cancelled" : "?");
    } else if (!strcmp(argv[1], "exit")) {
        pthread_create(&t, NULL, exits, NULL);
        pthread_join(t, &result);
        puts(result);
        grab();
        pthread_exit(NULL);
    } else {
        void *a = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL), *b = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
        if (!a || !b) {
            puts(dlerror());
            return 1;
        }
        int (*outer)(int (*)(int), void (*)(void)) = dlsym(a, "outer");
        int (*inner)(int) = dlsym(b, "inner");
        MUST(outer && inner);
        printf("outer %d\n", outer(inner, grab));
        printf("outer %d\n", outer(inner, grab));
        if (!strcmp(argv[1], "terminate")) {
            fflush(stdout);
            inner(7); /* nobody catches it */
        }
    }
    return 23;
}
