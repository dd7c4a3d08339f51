/*
 * A stand-in for NCCL: allocates as it does, on threads that it starts and waits for, when a communicator is made and in its
 * first collective. Inside a group, when the group ends.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct communicator {
    int ranks, connected;
};
struct id {
    char bytes[128];
};

static __thread int depth, queued;
static __thread struct communicator *queue[8];
static pthread_barrier_t both;
static struct communicator only;

static void *allocate(void *bytes)
{
    void *p;
    return (void *)(long)(cudaMalloc(&p, (size_t)bytes) != cudaSuccess);
}

/* On a thread of its own. */
static int take(size_t bytes)
{
    pthread_t t;
    void *failed;
    pthread_create(&t, NULL, allocate, (void *)bytes);
    pthread_join(t, &failed);
    return failed ? 1 : 0;
}

int ncclCommInitRank(struct communicator **c, int ranks, struct id id, int rank)
{
    if (id.bytes[0] != 'A' || id.bytes[127] != 'Z' || rank >= ranks)
        return 4; /* ncclInvalidArgument */
    *c = malloc(sizeof **c);
    **c = (struct communicator){ranks, 0};
    return take(4 << 20);
}

/* The same handle each time, as if the one before had been destroyed. */
int ncclCommSplit(struct communicator *c, int color, int key, struct communicator **made, void *config)
{
    (void)color, (void)key, (void)config;
    only = (struct communicator){c->ranks / 2, 0};
    *made = &only;
    return take(1 << 20);
}

static int connect_all(void)
{
    int result = 0;
    for (int i = 0; i < queued; i++) {
        result |= queue[i]->connected ? 0 : take(2 << 20);
        queue[i]->connected = 1;
    }
    queued = 0;
    return result;
}

int ncclGroupStart(void)
{
    depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    return --depth ? 0 : connect_all();
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, struct communicator *c, void *stream)
{
    (void)from, (void)to, (void)op, (void)stream;
    if (count != 123456789012345 || type != 7)
        return 4;
    queue[queued++] = c;
    return depth ? 0 : connect_all();
}

/* Allocates once another thread is in here as well. */
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct communicator *c, void *stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)root, (void)c, (void)stream;
    pthread_barrier_wait(&both);
    int result = take(8 << 20);
    pthread_barrier_wait(&both);
    return result;
}

int ncclSend(const void *from, size_t count, int type, int peer, struct communicator *c, void *stream)
{
    (void)from, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    errno = EOWNERDEAD;
    return 6; /* ncclRemoteError */
}

__attribute__((constructor)) static void begin(void)
{
    pthread_barrier_init(&both, NULL, 2);
}
