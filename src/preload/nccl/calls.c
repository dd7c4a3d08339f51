/*
 * The functions of NCCL that stand before the real ones: each says for which communicator it works and forwards. Arguments
 * as in nccl.h; a communicator, a configuration and a stream are pointers, types are ints, and the id is a struct of 128
 * bytes by value.
 */
#include <stddef.h>

#include "preload/loaded.h"
#include "preload/nccl/communicator.h"
#include "preload/nccl/table.h"
#include "preload/options.h"
#include "preload/resolve.h"
#include "preload/stack.h"
#include "preload/warn.h"

#define INTERNAL_ERROR 3 /* ncclInternalError */

struct id {
    char bytes[128];
};

enum function {
#define X(name, library) F_##name,
    VT_NCCL_EXPORTS(X)
#undef X
        F_COUNT
};

/* NULL: no NCCL has it. */
static void *real_of(enum function f, const char *name)
{
    static struct vt_loaded_function known[F_COUNT];
    void *real = vt_loaded_function(&known[f], "libnccl.so", name);
    if (!real)
        vt_warn("a function of NCCL was called but is not there");
    return real;
}

#define REAL(name, ...) ((int (*)(__VA_ARGS__))real_of(F_##name, #name))

/* Makes one communicator: `call` forwards, `ranks` is 0 where it is not known. */
#define MAKE(handle, ranks, forward)                 \
    do {                                             \
        struct vt_nccl_call call;                    \
        if (!real)                                   \
            return INTERNAL_ERROR;                   \
        if (vt_options()->off)                       \
            return forward;                          \
        vt_nccl_making(&call, ranks);                \
        int result = forward;                        \
        vt_nccl_made(&call, result ? NULL : handle); \
        return result;                               \
    } while (0)

#define WORK(communicator, forward)         \
    do {                                    \
        struct vt_nccl_call call;           \
        if (!real)                          \
            return INTERNAL_ERROR;          \
        if (vt_options()->off)              \
            return forward;                 \
        vt_nccl_enter(&call, communicator); \
        int result = forward;               \
        vt_nccl_leave(&call);               \
        return result;                      \
    } while (0)

VT_EXPORT int ncclCommInitRank(void **communicator, int ranks, struct id id, int rank)
{
    int (*real)(void **, int, struct id, int) = REAL(ncclCommInitRank, void **, int, struct id, int);
    MAKE(*communicator, ranks, real(communicator, ranks, id, rank));
}

VT_EXPORT int ncclCommInitRankConfig(void **communicator, int ranks, struct id id, int rank, void *config)
{
    int (*real)(void **, int, struct id, int, void *) = REAL(ncclCommInitRankConfig, void **, int, struct id, int,
                                                             void *);
    MAKE(*communicator, ranks, real(communicator, ranks, id, rank, config));
}

VT_EXPORT int ncclCommInitRankScalable(void **communicator, int ranks, int rank, int ids, void *id, void *config)
{
    int (*real)(void **, int, int, int, void *, void *) = REAL(ncclCommInitRankScalable, void **, int, int, int, void *,
                                                               void *);
    MAKE(*communicator, ranks, real(communicator, ranks, rank, ids, id, config));
}

/* All GPUs of one process at once: one number for the communicators of all of them. */
VT_EXPORT int ncclCommInitAll(void **communicators, int devices, const int *list)
{
    int (*real)(void **, int, const int *) = REAL(ncclCommInitAll, void **, int, const int *);
    MAKE(communicators[0], devices, real(communicators, devices, list));
}

VT_EXPORT int ncclCommSplit(void *communicator, int color, int key, void **made, void *config)
{
    int (*real)(void *, int, int, void **, void *) = REAL(ncclCommSplit, void *, int, int, void **, void *);
    MAKE(*made, 0, real(communicator, color, key, made, config));
}

VT_EXPORT int ncclGroupEnd(void)
{
    int (*real)(void) = REAL(ncclGroupEnd, void);
    struct vt_nccl_call call;
    if (!real)
        return INTERNAL_ERROR;
    if (vt_options()->off)
        return real();
    vt_nccl_group_end(&call);
    int result = real();
    vt_nccl_leave(&call);
    return result;
}

VT_EXPORT int ncclGroupStart(void)
{
    int (*real)(void) = REAL(ncclGroupStart, void);
    if (!real)
        return INTERNAL_ERROR;
    if (!vt_options()->off)
        vt_nccl_group_start();
    return real();
}

VT_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *communicator,
                            void *stream)
{
    int (*real)(const void *, void *, size_t, int, int, void *, void *) = REAL(ncclAllReduce, const void *, void *,
                                                                               size_t, int, int, void *, void *);
    WORK(communicator, real(from, to, count, type, op, communicator, stream));
}

VT_EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, void *communicator, void *stream)
{
    int (*real)(const void *, void *, size_t, int, void *, void *) = REAL(ncclAllGather, const void *, void *, size_t,
                                                                          int, void *, void *);
    WORK(communicator, real(from, to, count, type, communicator, stream));
}

VT_EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *communicator,
                                void *stream)
{
    int (*real)(const void *, void *, size_t, int, int, void *, void *) = REAL(ncclReduceScatter, const void *, void *,
                                                                               size_t, int, int, void *, void *);
    WORK(communicator, real(from, to, count, type, op, communicator, stream));
}

VT_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *communicator,
                            void *stream)
{
    int (*real)(const void *, void *, size_t, int, int, void *, void *) = REAL(ncclBroadcast, const void *, void *,
                                                                               size_t, int, int, void *, void *);
    WORK(communicator, real(from, to, count, type, root, communicator, stream));
}

VT_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *communicator,
                         void *stream)
{
    int (*real)(const void *, void *, size_t, int, int, int, void *,
                void *) = REAL(ncclReduce, const void *, void *, size_t, int, int, int, void *, void *);
    WORK(communicator, real(from, to, count, type, op, root, communicator, stream));
}

VT_EXPORT int ncclSend(const void *from, size_t count, int type, int peer, void *communicator, void *stream)
{
    int (*real)(const void *, size_t, int, int, void *, void *) = REAL(ncclSend, const void *, size_t, int, int, void *,
                                                                       void *);
    WORK(communicator, real(from, count, type, peer, communicator, stream));
}

VT_EXPORT int ncclRecv(void *to, size_t count, int type, int peer, void *communicator, void *stream)
{
    int (*real)(void *, size_t, int, int, void *, void *) = REAL(ncclRecv, void *, size_t, int, int, void *, void *);
    WORK(communicator, real(to, count, type, peer, communicator, stream));
}
