/*
 * Functions of NCCL that this library exports as well, once: see torch/table.h. (Name, beginning of the name of the library
 * that has the real one.)
 *
 * The names and arguments are those of nccl.h, 2.4 to 2.29; a function that an older NCCL lacks is never called. NCCL
 * allocates in those that make a communicator, and in the first collectives, when it connects to the other ranks.
 */
#ifndef VT_PRELOAD_NCCL_TABLE_H
#define VT_PRELOAD_NCCL_TABLE_H

#define VT_NCCL_EXPORTS(X)                    \
    X(ncclCommInitRank, "libnccl.so")         \
    X(ncclCommInitRankConfig, "libnccl.so")   \
    X(ncclCommInitRankScalable, "libnccl.so") \
    X(ncclCommInitAll, "libnccl.so")          \
    X(ncclCommSplit, "libnccl.so")            \
    X(ncclGroupStart, "libnccl.so")           \
    X(ncclGroupEnd, "libnccl.so")             \
    X(ncclAllReduce, "libnccl.so")            \
    X(ncclAllGather, "libnccl.so")            \
    X(ncclReduceScatter, "libnccl.so")        \
    X(ncclBroadcast, "libnccl.so")            \
    X(ncclReduce, "libnccl.so")               \
    X(ncclSend, "libnccl.so")                 \
    X(ncclRecv, "libnccl.so")

#endif
