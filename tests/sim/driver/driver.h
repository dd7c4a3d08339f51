/*
 * Shared declarations of the simulated driver.
 *
 * One mutex protects everything.  An exported function is a thin shell made by SIM_CALL or SIM_CALL_OUT: count the call,
 * inject a failure if one is due, check that the driver is initialised, take the lock, do the work, release the lock.
 * The work is done by functions with internal linkage or a sim_ prefix, which never call an exported cu* function: a
 * library that interposes on cu* therefore sees exactly the calls the application made, as with the real driver.
 */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

/* Makes cuda.h declare every export under its own name, old variants and per-thread-stream variants included. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../sim.h"
#include "../sim_table.h"

/* Declared in cudaProfiler.h, which not every set of CUDA headers has. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);

#define SIM_API __attribute__((visibility("default")))

#define SIM_MAX_DEVICES 16
#define SIM_MIB ((size_t)1 << 20)
#define SIM_PAGE (2 * SIM_MIB) /* what the card hands out */
#define SIM_UNIT ((size_t)512) /* what small allocations are cut into */
#define SIM_UNITS (SIM_PAGE / SIM_UNIT)
#define SIM_ORDERS 13 /* block sizes inside a page: 512 B << 0 .. 512 B << 12 */

enum sim_id {
#define SIM_X(export, base, version, stream) SIM_ID_##export,
    SIM_TABLE(SIM_X)
#undef SIM_X
        SIM_IDS
};

/* ---- address space (slots.c) ---- */

uintptr_t sim_slot_take(size_t bytes, size_t *slot_bytes); /* 0 if there's no address space left */
void sim_slot_give(uintptr_t addr, size_t slot_bytes);
uintptr_t *sim_slot_owner(uintptr_t addr); /* a word per slot for its owner, or NULL outside every chunk */
bool sim_va_is_ours(uintptr_t addr);       /* address space of the card, allocated or not */

/* ---- memory blocks (space.c) ---- */

enum sim_kind {
    SIM_LINEAR = 1,  /* cuMemAlloc, cuMemAllocPitch */
    SIM_MANAGED,     /* cuMemAllocManaged */
    SIM_PINNED,      /* cuMemHostAlloc, cuMemAllocHost */
    SIM_ARRAY,       /* arrays and mipmapped arrays: the address is never shown */
    SIM_POOLED,      /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    SIM_POOL_IMPORT, /* cuMemPoolImportPointer */
    SIM_IPC,         /* cuIpcOpenMemHandle */
    SIM_EXTERNAL,    /* cuExternalMemoryGetMappedBuffer */
    SIM_GRAPH,       /* memory nodes of graphs */
    SIM_GLOBAL       /* __device__ variables of modules */
};

struct sim_device;
struct sim_unit;
struct sim_module;
struct sim_pool;
struct sim_capture;

/* A source of addresses.  The card's own heap pays for its pages; a pool's heap doesn't, the pool has paid already. */
struct sim_heap {
    struct sim_device *device;
    bool charged;
    bool host;              /* not memory of the card at all */
    unsigned int available; /* bit n: free[n] is not empty */
    struct sim_unit *free[SIM_ORDERS];
};

struct sim_block {
    uintptr_t addr;
    size_t bytes;      /* as requested */
    size_t slot_bytes; /* address space it takes if it isn't part of a shared page, else 0 */
    enum sim_kind kind;
    unsigned int flags;
    unsigned int refs; /* SIM_IPC: times opened; SIM_GRAPH: graphs and executables that know it */
    bool live;         /* SIM_GRAPH: allocated by a launch and not freed yet */
    struct sim_heap *heap;
    struct sim_device *device;
    struct sim_ctx *ctx;
    struct sim_pool *pool;
    struct sim_block *prev, *next; /* in the context's list */
    uint64_t serial;               /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned int epoch;            /* sim.epoch when it was made: a forked child doesn't own its parent's blocks */
    uint64_t origin_ptr;           /* SIM_IPC: what was exported, and by whom */
    int origin_pid;
};

CUresult sim_block_new(struct sim_heap *heap, size_t bytes, enum sim_kind kind, struct sim_block **out);
CUresult sim_block_new_host(size_t bytes, enum sim_kind kind, struct sim_block **out);
void sim_block_free(struct sim_block *block);
struct sim_block *sim_block_around(uintptr_t addr); /* the block that contains addr, or NULL */
struct sim_block *sim_block_at(uintptr_t addr);     /* the block that starts at addr, or NULL */

/* ---- devices and contexts (device.c, context.c) ---- */

struct sim_device {
    int index;
    size_t total, used, others;
    size_t live_bytes, live_count;
    struct sim_heap heap;
    struct sim_heap graph_heap;
    size_t graph_used, graph_reserved, graph_used_high, graph_reserved_high;
    struct sim_ctx *primary;
    unsigned int primary_flags;
    struct sim_pool *default_pool, *current_pool;
};

struct sim_stream {
    struct sim_ctx *ctx;
    unsigned int flags;
    int priority;
    uint64_t id;
    bool per_thread; /* a thread's default stream */
    pthread_t thread;
    struct sim_capture *capture;
    struct sim_stream *next; /* in the context's list */
};

struct sim_ctx {
    struct sim_device *device;
    bool primary;
    bool destroyed;
    unsigned int refs; /* primary: retained; other: attached */
    unsigned int flags;
    unsigned int api_version;
    uint64_t id;
    size_t limits[CU_LIMIT_MAX];
    struct sim_block *blocks; /* what dies with the context */
    struct sim_stream legacy; /* the NULL stream */
    struct sim_stream *streams;
    struct sim_module *modules;
    struct sim_ctx *next;
};

CUresult sim_device_check(CUdevice dev);
CUresult sim_device_charge(struct sim_device *device, size_t bytes);
void sim_device_refund(struct sim_device *device, size_t bytes);

void sim_ctx_forget_thread(void);               /* empties this thread's stack of current contexts */
CUresult sim_ctx_current(struct sim_ctx **out); /* CUDA_ERROR_INVALID_CONTEXT if there's none */
void sim_ctx_adopt(struct sim_ctx *ctx, struct sim_block *block);
void sim_ctx_disown(struct sim_block *block);

/* ---- streams, captures, pools, graphs, VMM: what the files need of one another ---- */

CUresult sim_stream_find(CUstream handle, bool per_thread, struct sim_stream **out);
CUresult sim_stream_find_work(CUstream handle, bool per_thread, CUgraphNodeType type); /* kernel, copy: run or record */
void sim_stream_forget(struct sim_ctx *ctx);

CUresult sim_capture_forbids(void); /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where an unsafe call breaks a capture */
CUresult sim_capture_alloc(struct sim_stream *s, CUdeviceptr *out, size_t bytes);
CUresult sim_capture_free(struct sim_stream *s, CUdeviceptr ptr);
CUresult sim_capture_work(struct sim_stream *s, CUgraphNodeType type);
CUresult sim_capture_break(struct sim_stream *s);
void sim_capture_abandon(struct sim_stream *s);
uint64_t sim_capture_id(const struct sim_stream *s);
CUresult sim_capture_join(struct sim_stream *s, uint64_t id);

/* A forked child starts with nothing: forget what the parent had, without giving anything back. */
void sim_capture_start_over(void);
void sim_pinned_start_over(void);
void sim_vmm_start_over(void);

struct sim_graph;
struct sim_graph *sim_graph_new(void);
void sim_graph_drop(struct sim_graph *graph);
bool sim_graph_is(CUgraph graph);
CUresult sim_graph_add_alloc(struct sim_graph *graph, struct sim_device *device, size_t bytes, CUgraphNode *node,
                             CUdeviceptr *out);
CUresult sim_graph_add_free(struct sim_graph *graph, CUdeviceptr ptr, CUgraphNode *node);
CUresult sim_graph_add_work(struct sim_graph *graph, CUgraphNodeType type, CUgraphNode *node);
CUgraphNode *sim_graph_last(struct sim_graph *graph, size_t *count);

void sim_module_forget(struct sim_ctx *ctx);

CUresult sim_pool_start(struct sim_device *device);
void sim_pool_settle(struct sim_device *device); /* a synchronisation: give back what's above the threshold */
void sim_pool_return(struct sim_block *block);
CUresult sim_free_any(uintptr_t addr); /* cuMemFree: every kind of block that it frees */

CUresult sim_mipmap_new(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels, bool external);

CUresult sim_graph_free_live(struct sim_block *block);

bool sim_host_registered(uintptr_t addr);
CUresult sim_vmm_describe(uintptr_t addr, uintptr_t *base, size_t *bytes, int *device);

/* ---- handles (state.c): every object that the application holds is registered with its type ---- */

enum sim_type {
    SIM_T_NONE,
    SIM_T_CONTEXT,
    SIM_T_STREAM,
    SIM_T_EVENT,
    SIM_T_ARRAY,
    SIM_T_MIPMAP,
    SIM_T_POOL,
    SIM_T_GRAPH,
    SIM_T_NODE,
    SIM_T_EXEC,
    SIM_T_MODULE,
    SIM_T_FUNCTION,
    SIM_T_EXTERNAL,
    SIM_T_SEMAPHORE
};

void *sim_object_new(enum sim_type type, size_t bytes);
bool sim_object_is(const void *object, enum sim_type type);
void sim_object_free(void *object);

/* ---- the whole state (state.c) ---- */

struct sim_rule {
    enum sim_id id;
    bool always;
    unsigned long long left; /* calls to let pass first */
    CUresult code;
};

struct sim_state {
    pthread_mutex_t lock;
    bool initialised, shut_down, forked;
    bool garbage;
    bool mig; /* each device is a MIG instance */
    unsigned long long latency_ns;
    int driver_version;
    int device_count;
    size_t total_bytes, context_bytes, pinned_limit;
    size_t pinned_bytes;
    uint64_t serial;
    unsigned int epoch;    /* grows when a forked child starts over */
    unsigned int captures; /* running, on any stream */
    struct sim_ctx *contexts;
    struct sim_heap host_heap;
    struct sim_device device[SIM_MAX_DEVICES];
    unsigned long long calls[SIM_IDS];
    struct sim_rule rule[32];
    unsigned int rules;
};

extern struct sim_state sim;

/* ---- entry and exit of an exported function (inject.c) ---- */

CUresult sim_enter(enum sim_id id);       /* counts, injects, checks cuInit; returns with the lock held */
CUresult sim_enter_early(enum sim_id id); /* the same for functions that work before cuInit */
CUresult sim_leave(CUresult result, void *out, size_t out_bytes);
void sim_inject_start(void);

#define SIM_RUN_(enter, name, call, out, out_bytes)        \
    do {                                                   \
        CUresult sim_result_ = enter(SIM_ID_##name);       \
        if (sim_result_ == CUDA_SUCCESS) {                 \
            sim_result_ = (call);                          \
        }                                                  \
        return sim_leave(sim_result_, (out), (out_bytes)); \
    } while (0)

#define SIM_CALL(name, call) SIM_RUN_(sim_enter, name, call, NULL, 0)
#define SIM_CALL_OUT(name, out, call) SIM_RUN_(sim_enter, name, call, (void *)(out), sizeof(*(out)))
#define SIM_CALL_EARLY(name, call) SIM_RUN_(sim_enter_early, name, call, NULL, 0)

/* One exported function: its name, for the second form the parameter that a failing call may scribble on, and the work. */
#define EXPORT(name, parameters, call) \
    SIM_API CUresult name parameters   \
    {                                  \
        SIM_CALL(name, call);          \
    }
#define EXPORT_OUT(name, out, parameters, call) \
    SIM_API CUresult name parameters            \
    {                                           \
        SIM_CALL_OUT(name, out, call);          \
    }

/* The two exports of a function that takes a stream: NULL means the legacy stream in one, the thread's in the other. */
#define EXPORT_STREAM(name, name_per_thread, parameters, call) \
    SIM_API CUresult name parameters                           \
    {                                                          \
        const bool per_thread = false;                         \
        SIM_CALL(name, ((void)per_thread, (call)));            \
    }                                                          \
    SIM_API CUresult name_per_thread parameters                \
    {                                                          \
        const bool per_thread = true;                          \
        SIM_CALL(name_per_thread, ((void)per_thread, (call))); \
    }

/* Leave the function with an error, as everywhere below: `TRY(check(x));` */
#define TRY(call)                          \
    do {                                   \
        CUresult try_result_ = (call);     \
        if (try_result_ != CUDA_SUCCESS) { \
            return try_result_;            \
        }                                  \
    } while (0)

#define REQUIRE(condition)                   \
    do {                                     \
        if (!(condition)) {                  \
            return CUDA_ERROR_INVALID_VALUE; \
        }                                    \
    } while (0)

static inline size_t sim_round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

#endif
