/*
 * Stream capture: what is called on a capturing stream becomes graph nodes instead of happening.
 *
 * While a capture runs, calls that could disturb it (cuMemAlloc, cuMemFree, cuCtxSynchronize, ...) fail with
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and break it; which threads that concerns follows the mode of the capture and
 * the calling thread's own mode (cuThreadExchangeStreamCaptureMode).  A broken capture must still be ended.
 */
#include "driver.h"

#include <stdlib.h>

struct sim_capture {
    struct sim_graph *graph;
    struct sim_stream *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    uint64_t id;
    bool broken;
    bool borrowed; /* cuStreamBeginCaptureToGraph: the graph belongs to the program */
    struct sim_capture *next;
};

static struct sim_capture *captures;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool conflicts(const struct sim_capture *c)
{
    bool own = pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;

    switch (thread_mode) {
    case CU_STREAM_CAPTURE_MODE_GLOBAL:
        return own || c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    case CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
        return own;
    default:
        return false;
    }
}

CUresult sim_capture_forbids(void)
{
    CUresult result = CUDA_SUCCESS;
    struct sim_capture *c;

    if (sim.captures == 0) {
        return CUDA_SUCCESS;
    }
    for (c = captures; c != NULL; c = c->next) {
        if (conflicts(c)) {
            c->broken = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult sim_capture_break(struct sim_stream *s)
{
    if (s->capture != NULL) {
        s->capture->broken = true;
    }
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

uint64_t sim_capture_id(const struct sim_stream *s)
{
    return s->capture != NULL ? s->capture->id : 0;
}

CUresult sim_capture_join(struct sim_stream *s, uint64_t id)
{
    struct sim_capture *c;

    for (c = captures; c != NULL && c->id != id; c = c->next) {
    }
    if (c == NULL) {
        return CUDA_SUCCESS; /* that capture is over */
    }
    if (s->capture != NULL && s->capture != c) {
        c->broken = s->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    s->capture = c;
    return CUDA_SUCCESS;
}

static CUresult usable(struct sim_stream *s)
{
    return s->capture->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult sim_capture_alloc(struct sim_stream *s, CUdeviceptr *out, size_t bytes)
{
    TRY(usable(s));
    return sim_graph_add_alloc(s->capture->graph, s->ctx->device, bytes, NULL, out);
}

CUresult sim_capture_free(struct sim_stream *s, CUdeviceptr ptr)
{
    TRY(usable(s));
    return sim_graph_add_free(s->capture->graph, ptr, NULL);
}

CUresult sim_capture_work(struct sim_stream *s, CUgraphNodeType type)
{
    TRY(usable(s));
    return sim_graph_add_work(s->capture->graph, type, NULL);
}

static CUresult begin(CUstream handle, bool per_thread, CUgraph into, CUstreamCaptureMode mode)
{
    struct sim_capture *c;
    struct sim_stream *s;

    REQUIRE(mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    TRY(sim_stream_find(handle, per_thread, &s));
    if (s == &s->ctx->legacy) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (s->capture != NULL) {
        s->capture->broken = true;
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    REQUIRE(into == NULL || sim_graph_is(into));
    c = calloc(1, sizeof(*c));
    c->graph = into != NULL ? (struct sim_graph *)into : sim_graph_new();
    c->borrowed = into != NULL;
    c->origin = s;
    c->mode = mode;
    c->thread = pthread_self();
    c->id = ++sim.serial;
    c->next = captures;
    captures = c;
    sim.captures++;
    s->capture = c;
    return CUDA_SUCCESS;
}

static void leave_streams(struct sim_capture *c)
{
    struct sim_ctx *ctx;
    struct sim_stream *s;

    for (ctx = sim.contexts; ctx != NULL; ctx = ctx->next) {
        for (s = ctx->streams; s != NULL; s = s->next) {
            if (s->capture == c) {
                s->capture = NULL;
            }
        }
    }
}

static void capture_close(struct sim_capture *c, bool keep_graph)
{
    struct sim_capture **at;

    for (at = &captures; *at != c; at = &(*at)->next) {
    }
    *at = c->next;
    sim.captures--;
    leave_streams(c);
    if (!keep_graph && !c->borrowed) {
        sim_graph_drop(c->graph);
    }
    free(c);
}

/* The stream goes away: so does the capture that began on it. */
void sim_capture_abandon(struct sim_stream *s)
{
    if (s->capture != NULL && s->capture->origin == s) {
        capture_close(s->capture, false);
    }
    s->capture = NULL;
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *out)
{
    struct sim_capture *c;
    struct sim_stream *s;
    bool broken;

    REQUIRE(out != NULL);
    *out = NULL;
    TRY(sim_stream_find(handle, per_thread, &s));
    c = s->capture;
    if (c == NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (c->origin != s) {
        c->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self())) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    broken = c->broken;
    *out = broken ? NULL : (CUgraph)c->graph;
    capture_close(c, !broken);
    return broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

struct info {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **dependencies;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static CUresult get_info(CUstream handle, bool per_thread, const struct info *out)
{
    struct sim_capture *c;
    struct sim_stream *s;
    size_t count = 0;
    const CUgraphNode *last = NULL;

    REQUIRE(out->status != NULL);
    TRY(sim_stream_find(handle, per_thread, &s));
    c = s->capture;
    *out->status = c == NULL   ? CU_STREAM_CAPTURE_STATUS_NONE
                   : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (c == NULL || c->broken) {
        return CUDA_SUCCESS;
    }
    last = sim_graph_last(c->graph, &count);
    if (out->id != NULL) {
        *out->id = c->id;
    }
    if (out->graph != NULL) {
        *out->graph = (CUgraph)c->graph;
    }
    if (out->dependencies != NULL) {
        *out->dependencies = last;
    }
    if (out->edges != NULL) {
        *out->edges = NULL;
    }
    if (out->count != NULL) {
        *out->count = count;
    }
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;

    REQUIRE(mode != NULL && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Dependencies don't matter here: nodes run in the order in which they were added. */
static CUresult update_dependencies(CUstream handle, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(handle, per_thread, &s));
    return s->capture != NULL ? usable(s) : CUDA_ERROR_ILLEGAL_STATE;
}

void sim_capture_start_over(void)
{
    captures = NULL;
    sim.captures = 0;
    thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* ---- exports ---- */

EXPORT_STREAM(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream hStream),
              begin(hStream, per_thread, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL))
EXPORT_STREAM(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, (CUstream hStream, CUstreamCaptureMode mode),
              begin(hStream, per_thread, NULL, mode))
EXPORT_STREAM(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
              (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
               size_t numDependencies, CUstreamCaptureMode mode),
              ((void)dependencies, (void)dependencyData, (void)numDependencies, hGraph == NULL)
                  ? CUDA_ERROR_INVALID_VALUE
                  : begin(hStream, per_thread, hGraph, mode))
EXPORT_STREAM(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream hStream, CUgraph *phGraph),
              end(hStream, per_thread, phGraph))
EXPORT_STREAM(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
              get_info(hStream, per_thread, &(struct info){.status = captureStatus}))
EXPORT_STREAM(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
              (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
              get_info(hStream, per_thread, (&(struct info){.status = captureStatus_out, .id = id_out})))
EXPORT_STREAM(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
              (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
               const CUgraphNode **dependencies_out, size_t *numDependencies_out),
              get_info(hStream, per_thread,
                       (&(struct info){captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                       numDependencies_out})))
EXPORT_STREAM(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
              (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out,
               const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
              get_info(hStream, per_thread,
                       (&(struct info){captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                                       numDependencies_out})))
EXPORT_STREAM(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
              (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies, unsigned int flags),
              ((void)dependencies, (void)numDependencies, (void)flags, update_dependencies(hStream, per_thread)))
EXPORT_STREAM(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
              (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
               size_t numDependencies, unsigned int flags),
              ((void)dependencies, (void)dependencyData, (void)numDependencies, (void)flags,
               update_dependencies(hStream, per_thread)))
EXPORT(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), exchange_mode(mode))
