/*
 * Streams and events.  Nothing runs in the background: work is finished when its call returns, so waiting never waits,
 * but every synchronisation settles the pools of its device, because that's when they give memory back.
 */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

struct sim_event {
    struct sim_ctx *ctx;
    unsigned int flags;
    uint64_t capture; /* the capture it was recorded in, 0 for none */
    struct timespec time;
};

/* The calling thread's default stream in a context; made when it is first used. */
static struct sim_stream *thread_stream(struct sim_ctx *ctx)
{
    struct sim_stream *s;

    for (s = ctx->streams; s != NULL; s = s->next) {
        if (s->per_thread && pthread_equal(s->thread, pthread_self())) {
            return s;
        }
    }
    s = sim_object_new(SIM_T_STREAM, sizeof(*s));
    s->ctx = ctx;
    s->per_thread = true;
    s->thread = pthread_self();
    s->id = ++sim.serial;
    s->next = ctx->streams;
    ctx->streams = s;
    return s;
}

CUresult sim_stream_find(CUstream handle, bool per_thread, struct sim_stream **out)
{
    struct sim_ctx *ctx;

    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        TRY(sim_ctx_current(&ctx));
        per_thread = handle == CU_STREAM_PER_THREAD || (handle == NULL && per_thread);
        *out = per_thread ? thread_stream(ctx) : &ctx->legacy;
        return CUDA_SUCCESS;
    }
    *out = (struct sim_stream *)handle;
    return sim_object_is(handle, SIM_T_STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_stream_find_work(CUstream handle, bool per_thread, CUgraphNodeType type)
{
    struct sim_stream *s;

    TRY(sim_stream_find(handle, per_thread, &s));
    return s->capture != NULL ? sim_capture_work(s, type) : CUDA_SUCCESS;
}

void sim_stream_forget(struct sim_ctx *ctx)
{
    while (ctx->streams != NULL) {
        struct sim_stream *s = ctx->streams;

        sim_capture_abandon(s);
        ctx->streams = s->next;
        sim_object_free(s);
    }
}

static CUresult create(CUstream *out, unsigned int flags, int priority)
{
    struct sim_stream *s;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && flags <= CU_STREAM_NON_BLOCKING);
    TRY(sim_ctx_current(&ctx));
    s = sim_object_new(SIM_T_STREAM, sizeof(*s));
    s->ctx = ctx;
    s->flags = flags;
    s->priority = priority;
    s->id = ++sim.serial;
    s->next = ctx->streams;
    ctx->streams = s;
    *out = (CUstream)s;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUstream handle)
{
    struct sim_stream *s = (struct sim_stream *)handle;
    struct sim_stream **at;

    if (!sim_object_is(s, SIM_T_STREAM) || s->per_thread) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    sim_capture_abandon(s);
    for (at = &s->ctx->streams; *at != s; at = &(*at)->next) {
    }
    *at = s->next;
    sim_object_free(s);
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream handle, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(handle, per_thread, &s));
    if (s->capture != NULL) {
        return sim_capture_break(s);
    }
    sim_pool_settle(s->ctx->device);
    return CUDA_SUCCESS;
}

static CUresult query(CUstream handle, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(handle, per_thread, &s));
    return s->capture != NULL ? sim_capture_break(s) : CUDA_SUCCESS;
}

static CUresult describe(CUstream handle, bool per_thread, struct sim_stream *out)
{
    struct sim_stream *s;

    TRY(sim_stream_find(handle, per_thread, &s));
    *out = *s;
    return CUDA_SUCCESS;
}

static CUresult get_int(CUstream handle, bool per_thread, size_t offset, int *out)
{
    struct sim_stream s;

    REQUIRE(out != NULL);
    TRY(describe(handle, per_thread, &s));
    *out = *(int *)((char *)&s + offset);
    return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, bool per_thread, unsigned long long *out)
{
    struct sim_stream s;

    REQUIRE(out != NULL);
    TRY(describe(handle, per_thread, &s));
    *out = s.id;
    return CUDA_SUCCESS;
}

static CUresult get_ctx(CUstream handle, bool per_thread, CUcontext *out, CUgreenCtx *green)
{
    struct sim_stream s;

    REQUIRE(out != NULL);
    TRY(describe(handle, per_thread, &s));
    *out = (CUcontext)s.ctx;
    if (green != NULL) {
        *green = NULL;
    }
    return CUDA_SUCCESS;
}

static CUresult get_device(CUstream handle, bool per_thread, CUdevice *out)
{
    struct sim_stream s;

    REQUIRE(out != NULL);
    TRY(describe(handle, per_thread, &s));
    *out = s.ctx->device->index;
    return CUDA_SUCCESS;
}

/* ---- events ---- */

static CUresult event_create(CUevent *out, unsigned int flags)
{
    struct sim_event *event;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && flags <= 7);
    TRY(sim_ctx_current(&ctx));
    event = sim_object_new(SIM_T_EVENT, sizeof(*event));
    event->ctx = ctx;
    event->flags = flags;
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

static CUresult event_find(CUevent handle, struct sim_event **out)
{
    *out = (struct sim_event *)handle;
    return sim_object_is(handle, SIM_T_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult event_destroy(CUevent handle)
{
    struct sim_event *event;

    TRY(event_find(handle, &event));
    sim_object_free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent handle, CUstream stream, bool per_thread)
{
    struct sim_event *event;
    struct sim_stream *s;

    TRY(event_find(handle, &event));
    TRY(sim_stream_find(stream, per_thread, &s));
    event->capture = sim_capture_id(s);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return CUDA_SUCCESS;
}

/* A stream that waits for an event of a capture joins the capture: that's how work forks inside one. */
static CUresult wait_event(CUstream stream, CUevent handle, bool per_thread)
{
    struct sim_event *event;
    struct sim_stream *s;

    TRY(event_find(handle, &event));
    TRY(sim_stream_find(stream, per_thread, &s));
    return event->capture != 0 ? sim_capture_join(s, event->capture) : CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent handle)
{
    struct sim_event *event;

    TRY(event_find(handle, &event));
    if (event->capture != 0) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (!event->ctx->destroyed) {
        sim_pool_settle(event->ctx->device);
    }
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent handle)
{
    struct sim_event *event;

    TRY(event_find(handle, &event));
    return event->capture != 0 ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *out, CUevent start_handle, CUevent end_handle)
{
    struct sim_event *start, *end;

    REQUIRE(out != NULL);
    TRY(event_find(start_handle, &start));
    TRY(event_find(end_handle, &end));
    if (start->time.tv_sec == 0 || end->time.tv_sec == 0) {
        return CUDA_ERROR_INVALID_HANDLE; /* never recorded */
    }
    *out = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
           (float)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6f;
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuStreamCreate, phStream, (CUstream * phStream, unsigned int Flags), create(phStream, Flags, 0))
EXPORT_OUT(cuStreamCreateWithPriority, phStream, (CUstream * phStream, unsigned int flags, int priority),
           create(phStream, flags, priority))
EXPORT(cuStreamDestroy, (CUstream hStream), destroy(hStream))
EXPORT(cuStreamDestroy_v2, (CUstream hStream), destroy(hStream))
EXPORT_STREAM(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream hStream), synchronize(hStream, per_thread))
EXPORT_STREAM(cuStreamQuery, cuStreamQuery_ptsz, (CUstream hStream), query(hStream, per_thread))
EXPORT_STREAM(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream hStream, int *priority),
              get_int(hStream, per_thread, offsetof(struct sim_stream, priority), priority))
EXPORT_STREAM(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream hStream, unsigned int *flags),
              get_int(hStream, per_thread, offsetof(struct sim_stream, flags), (int *)flags))
EXPORT_STREAM(cuStreamGetId, cuStreamGetId_ptsz, (CUstream hStream, unsigned long long *streamId),
              get_id(hStream, per_thread, streamId))
EXPORT_STREAM(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream hStream, CUcontext *pctx),
              get_ctx(hStream, per_thread, pctx, NULL))
EXPORT_STREAM(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
              get_ctx(hStream, per_thread, pCtx, pGreenCtx))
EXPORT_STREAM(cuStreamGetDevice, cuStreamGetDevice_ptsz, (CUstream hStream, CUdevice *device),
              get_device(hStream, per_thread, device))
EXPORT_STREAM(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
              Flags > 1 ? CUDA_ERROR_INVALID_VALUE : wait_event(hStream, hEvent, per_thread))
EXPORT_STREAM(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
              (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags),
              ((void)length, (void)flags, dptr == 0)
                  ? CUDA_ERROR_INVALID_VALUE
                  : sim_stream_find_work(hStream, per_thread, CU_GRAPH_NODE_TYPE_EMPTY))

EXPORT_OUT(cuEventCreate, phEvent, (CUevent * phEvent, unsigned int Flags), event_create(phEvent, Flags))
EXPORT(cuEventDestroy, (CUevent hEvent), event_destroy(hEvent))
EXPORT(cuEventDestroy_v2, (CUevent hEvent), event_destroy(hEvent))
EXPORT_STREAM(cuEventRecord, cuEventRecord_ptsz, (CUevent hEvent, CUstream hStream),
              event_record(hEvent, hStream, per_thread))
EXPORT_STREAM(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,
              (CUevent hEvent, CUstream hStream, unsigned int flags),
              flags > 1 ? CUDA_ERROR_INVALID_VALUE : event_record(hEvent, hStream, per_thread))
EXPORT(cuEventQuery, (CUevent hEvent), event_query(hEvent))
EXPORT(cuEventSynchronize, (CUevent hEvent), event_synchronize(hEvent))
EXPORT_OUT(cuEventElapsedTime, pMilliseconds, (float *pMilliseconds, CUevent hStart, CUevent hEnd),
           event_elapsed(pMilliseconds, hStart, hEnd))
EXPORT_OUT(cuEventElapsedTime_v2, pMilliseconds, (float *pMilliseconds, CUevent hStart, CUevent hEnd),
           event_elapsed(pMilliseconds, hStart, hEnd))

/* User code runs without the driver's lock: it may call the driver. */
static CUresult host_function(CUstream stream, bool per_thread, bool *run)
{
    struct sim_stream *s;

    TRY(sim_stream_find(stream, per_thread, &s));
    *run = s->capture == NULL;
    return *run ? CUDA_SUCCESS : sim_capture_work(s, CU_GRAPH_NODE_TYPE_HOST);
}

#define HOST_FUNCTION(name, stream, per_thread, valid, user_call)                                  \
    do {                                                                                           \
        bool run = false;                                                                          \
        CUresult result = sim_enter(SIM_ID_##name);                                                \
        if (result == CUDA_SUCCESS) {                                                              \
            result = (valid) ? host_function(stream, per_thread, &run) : CUDA_ERROR_INVALID_VALUE; \
        }                                                                                          \
        result = sim_leave(result, NULL, 0);                                                       \
        if (result == CUDA_SUCCESS && run) {                                                       \
            user_call;                                                                             \
        }                                                                                          \
        return result;                                                                             \
    } while (0)

SIM_API CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    HOST_FUNCTION(cuLaunchHostFunc, hStream, false, fn != NULL, fn(userData));
}

SIM_API CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
    HOST_FUNCTION(cuLaunchHostFunc_ptsz, hStream, true, fn != NULL, fn(userData));
}

SIM_API CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    HOST_FUNCTION(cuStreamAddCallback, hStream, false, callback != NULL && flags == 0,
                  callback(hStream, CUDA_SUCCESS, userData));
}

SIM_API CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
                                          unsigned int flags)
{
    HOST_FUNCTION(cuStreamAddCallback_ptsz, hStream, true, callback != NULL && flags == 0,
                  callback(hStream, CUDA_SUCCESS, userData));
}
