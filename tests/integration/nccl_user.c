/* A library that is linked with NCCL, as PyTorch's libtorch_cuda is: what it calls reaches whoever was loaded first. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

struct id {
    char bytes[128];
};
int ncclCommInitRank(void **c, int ranks, struct id id, int rank);
int ncclCommSplit(void *c, int color, int key, void **made, void *config);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *c, void *stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *c, void *stream);
int ncclSend(const void *from, size_t count, int type, int peer, void *c, void *stream);

int user_init(void **c, int ranks, int rank)
{
    struct id id = {{'A'}};
    id.bytes[127] = 'Z';
    return ncclCommInitRank(c, ranks, id, rank);
}

int user_split(void *c, void **made)
{
    return ncclCommSplit(c, 1, 2, made, NULL);
}

int user_reduce(void *c)
{
    return ncclAllReduce(NULL, NULL, 123456789012345, 7, 0, c, NULL);
}

int user_broadcast(void *c)
{
    return ncclBroadcast(NULL, NULL, 1, 7, 0, c, NULL);
}

/* Returns errno behind the call * 100 + its result. */
int user_send(void *c)
{
    int result = ncclSend(NULL, 1, 7, 0, c, NULL);
    return errno * 100 + result;
}

int user_start(void)
{
    return ncclGroupStart();
}

int user_end(void)
{
    return ncclGroupEnd();
}
