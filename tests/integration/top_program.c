/*
 * A program for tests of `vramtrack top` and `vramtrack snapshot`: does what it is told on standard input, one word per line,
 * and says "ok" when that is done, so that a test knows when to look.
 *
 *     grow KIB     allocates in grow()        keep KIB     in keep()
 *     drop         frees what grow() made last
 *     many N       N allocations of 4 KiB in many()
 *     step         ends a step                 fail         asks for more than there is
 *     loop         allocates and frees in loop() until the next line comes
 *     exec         becomes another program     exit         ends
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <vramtrack/vramtrack.h>

#define KIB 1024ul

static void *made[4096];
static int count;

static void *make(size_t bytes)
{
    void *p;
    if (cudaMalloc(&p, bytes) != cudaSuccess)
        exit(3);
    return p;
}

static __attribute__((noinline)) void grow(size_t bytes)
{
    made[count++] = make(bytes);
}

static __attribute__((noinline)) void keep(size_t bytes)
{
    make(bytes);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump: this function stays on the stack */
}

static __attribute__((noinline)) void many(long n)
{
    for (long i = 0; i < n; i++)
        make(4 * KIB);
}

static __attribute__((noinline)) void loop(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    while (poll(&in, 1, 0) == 0)
        cudaFree(make(64 * KIB));
}

static void obey(char *line)
{
    char word[32] = "";
    long number = 0;
    void *p;

    sscanf(line, "%31s %ld", word, &number);
    if (!strcmp(word, "grow"))
        grow((size_t)number * KIB);
    else if (!strcmp(word, "keep"))
        keep((size_t)number * KIB);
    else if (!strcmp(word, "many"))
        many(number);
    else if (!strcmp(word, "drop"))
        cudaFree(made[--count]);
    else if (!strcmp(word, "step"))
        vramtrack_step();
    else if (!strcmp(word, "fail"))
        cudaMalloc(&p, 1ul << 50);
    else if (!strcmp(word, "exec"))
        execl("/bin/cat", "cat", (char *)NULL);
    else if (!strcmp(word, "exit"))
        exit((int)number);
}

int main(void)
{
    char line[128];

    setvbuf(stdin, NULL, _IONBF, 0); /* poll() must see what is not read yet */
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "loop", 4)) {
            puts("ok");
            fflush(stdout);
            loop();
            continue;
        }
        obey(line);
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
