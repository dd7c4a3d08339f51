/*
 * Contexts: primary and created ones, the stack of current contexts of every thread, and what a context costs.
 *
 * A context takes SIM_CONTEXT_MIB of its card while it is alive.  Destroying or resetting it frees what belongs to it:
 * linear, pitched, managed and page-locked memory, arrays, streams.  Memory of cuMemCreate and of pools stays, as the
 * header says at cuCtxDestroy.  A destroyed context's handle stays known, so that using it gives
 * CUDA_ERROR_CONTEXT_IS_DESTROYED and never a crash.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define STACK_MAX 64

static _Thread_local struct {
    struct sim_ctx *ctx[STACK_MAX];
    unsigned int depth;
} stack;

void sim_ctx_forget_thread(void)
{
    stack.depth = 0;
}

CUresult sim_ctx_current(struct sim_ctx **out)
{
    struct sim_ctx *ctx;

    if (stack.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    ctx = stack.ctx[stack.depth - 1];
    if (ctx->destroyed) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

void sim_ctx_adopt(struct sim_ctx *ctx, struct sim_block *block)
{
    block->ctx = ctx;
    block->prev = NULL;
    block->next = ctx->blocks;
    if (ctx->blocks != NULL) {
        ctx->blocks->prev = block;
    }
    ctx->blocks = block;
}

void sim_ctx_disown(struct sim_block *block)
{
    if (block->ctx == NULL) {
        return;
    }
    if (block->prev != NULL) {
        block->prev->next = block->next;
    } else {
        block->ctx->blocks = block->next;
    }
    if (block->next != NULL) {
        block->next->prev = block->prev;
    }
    block->ctx = NULL;
}

static CUresult check(CUcontext handle, struct sim_ctx **out)
{
    struct sim_ctx *ctx = (struct sim_ctx *)handle;

    if (!sim_object_is(ctx, SIM_T_CONTEXT)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ctx->destroyed) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

static void set_limits(struct sim_ctx *ctx)
{
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 * SIM_MIB;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * SIM_MIB;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static CUresult ctx_new(struct sim_device *device, unsigned int flags, struct sim_ctx **out)
{
    struct sim_ctx *ctx;

    TRY(sim_device_charge(device, sim.context_bytes));
    ctx = sim_object_new(SIM_T_CONTEXT, sizeof(*ctx));
    ctx->device = device;
    ctx->flags = flags;
    ctx->refs = 1;
    ctx->id = ++sim.serial;
    ctx->legacy.ctx = ctx;
    set_limits(ctx);
    ctx->next = sim.contexts;
    sim.contexts = ctx;
    *out = ctx;
    return CUDA_SUCCESS;
}

static void ctx_free(struct sim_ctx *ctx)
{
    struct sim_ctx **at = &sim.contexts;

    sim_stream_forget(ctx);
    sim_module_forget(ctx);
    while (ctx->blocks != NULL) {
        struct sim_block *block = ctx->blocks;

        if (block->kind == SIM_PINNED) {
            sim.pinned_bytes -= block->bytes;
        }
        sim_ctx_disown(block);
        sim_block_free(block);
    }
    while (*at != ctx) {
        at = &(*at)->next;
    }
    *at = ctx->next;
    ctx->destroyed = true;
    if (ctx->primary) {
        ctx->device->primary = NULL;
    }
    sim_pool_settle(ctx->device);
    sim_device_refund(ctx->device, sim.context_bytes);
}

/* ---- primary contexts ---- */

static CUresult primary_retain(CUcontext *out, CUdevice dev)
{
    struct sim_device *device;

    REQUIRE(out != NULL);
    TRY(sim_device_check(dev));
    device = &sim.device[dev];
    if (device->primary == NULL) {
        TRY(ctx_new(device, device->primary_flags, &device->primary));
        device->primary->primary = true;
    } else {
        device->primary->refs++;
    }
    *out = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice dev)
{
    TRY(sim_device_check(dev));
    if (sim.device[dev].primary == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--sim.device[dev].primary->refs == 0) {
        ctx_free(sim.device[dev].primary);
    }
    return CUDA_SUCCESS;
}

/* Frees everything in the context, whoever holds references to it; the next retain starts a fresh one. */
static CUresult primary_reset(CUdevice dev)
{
    struct sim_ctx *ctx;

    TRY(sim_device_check(dev));
    ctx = sim.device[dev].primary;
    if (ctx == NULL) {
        return CUDA_SUCCESS;
    }
    ctx_free(ctx);
    return CUDA_SUCCESS;
}

static CUresult primary_set_flags(CUdevice dev, unsigned int flags)
{
    TRY(sim_device_check(dev));
    sim.device[dev].primary_flags = flags;
    if (sim.device[dev].primary != NULL) {
        sim.device[dev].primary->flags = flags;
    }
    return CUDA_SUCCESS;
}

static CUresult primary_state(CUdevice dev, unsigned int *flags, int *active)
{
    TRY(sim_device_check(dev));
    REQUIRE(flags != NULL && active != NULL);
    *flags = sim.device[dev].primary_flags;
    *active = sim.device[dev].primary != NULL;
    return CUDA_SUCCESS;
}

/* ---- created contexts and the stack ---- */

static CUresult create(CUcontext *out, unsigned int flags, CUdevice dev, unsigned int api_version)
{
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && stack.depth < STACK_MAX);
    TRY(sim_device_check(dev));
    TRY(ctx_new(&sim.device[dev], flags, &ctx));
    ctx->api_version = api_version;
    stack.ctx[stack.depth++] = ctx;
    *out = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

static CUresult destroy(CUcontext handle)
{
    struct sim_ctx *ctx;

    TRY(check(handle, &ctx));
    if (ctx->primary) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (stack.depth > 0 && stack.ctx[stack.depth - 1] == ctx) {
        stack.depth--;
    }
    ctx_free(ctx);
    return CUDA_SUCCESS;
}

static CUresult attach(CUcontext *out, unsigned int flags)
{
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && flags == 0);
    TRY(sim_ctx_current(&ctx));
    ctx->refs++;
    *out = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

static CUresult detach(CUcontext handle)
{
    struct sim_ctx *ctx;

    TRY(check(handle, &ctx));
    if (ctx->refs > 1) {
        ctx->refs--;
        return CUDA_SUCCESS;
    }
    return destroy(handle);
}

static CUresult push(CUcontext handle)
{
    struct sim_ctx *ctx;

    TRY(check(handle, &ctx));
    REQUIRE(stack.depth < STACK_MAX);
    stack.ctx[stack.depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *out)
{
    if (stack.depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    stack.depth--;
    if (out != NULL) {
        *out = (CUcontext)stack.ctx[stack.depth];
    }
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext handle)
{
    struct sim_ctx *ctx;

    if (handle == NULL) {
        stack.depth -= stack.depth > 0;
        return CUDA_SUCCESS;
    }
    TRY(check(handle, &ctx));
    stack.depth += stack.depth == 0;
    stack.ctx[stack.depth - 1] = ctx;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *out)
{
    REQUIRE(out != NULL);
    *out = stack.depth > 0 ? (CUcontext)stack.ctx[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out, CUcontext handle)
{
    struct sim_ctx *ctx;

    REQUIRE(out != NULL);
    TRY(handle != NULL ? check(handle, &ctx) : sim_ctx_current(&ctx));
    *out = ctx->device->index;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext handle)
{
    struct sim_ctx *ctx;

    TRY(handle != NULL ? check(handle, &ctx) : sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    sim_pool_settle(ctx->device);
    return CUDA_SUCCESS;
}

static CUresult get_api_version(CUcontext handle, unsigned int *version)
{
    struct sim_ctx *ctx;

    REQUIRE(version != NULL);
    TRY(handle != NULL ? check(handle, &ctx) : sim_ctx_current(&ctx));
    *version = ctx->api_version ? ctx->api_version : 3020;
    return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext handle, unsigned long long *id)
{
    struct sim_ctx *ctx;

    REQUIRE(id != NULL);
    TRY(handle != NULL ? check(handle, &ctx) : sim_ctx_current(&ctx));
    *id = ctx->id;
    return CUDA_SUCCESS;
}

static CUresult flags(unsigned int *get, const unsigned int *set)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    if (set != NULL) {
        ctx->flags = *set;
        return CUDA_SUCCESS;
    }
    REQUIRE(get != NULL);
    *get = ctx->flags;
    return CUDA_SUCCESS;
}

static CUresult limit(CUlimit which, size_t *get, const size_t *set)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    REQUIRE((unsigned int)which < CU_LIMIT_MAX);
    if (set != NULL) {
        ctx->limits[which] = *set;
        return CUDA_SUCCESS;
    }
    REQUIRE(get != NULL);
    *get = ctx->limits[which];
    return CUDA_SUCCESS;
}

static CUresult priority_range(int *least, int *greatest)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = -5;
    }
    return CUDA_SUCCESS;
}

static CUresult cache_config(CUfunc_cache *get)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    if (get != NULL) {
        *get = CU_FUNC_CACHE_PREFER_NONE;
    }
    return CUDA_SUCCESS;
}

static CUresult peer(CUcontext handle)
{
    struct sim_ctx *ctx, *other;

    TRY(sim_ctx_current(&ctx));
    TRY(check(handle, &other));
    return ctx->device == other->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuDevicePrimaryCtxRetain, pctx, (CUcontext * pctx, CUdevice dev), primary_retain(pctx, dev))
EXPORT(cuDevicePrimaryCtxRelease, (CUdevice dev), primary_release(dev))
EXPORT(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), primary_release(dev))
EXPORT(cuDevicePrimaryCtxReset, (CUdevice dev), primary_reset(dev))
EXPORT(cuDevicePrimaryCtxReset_v2, (CUdevice dev), primary_reset(dev))
EXPORT(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned int flags), primary_set_flags(dev, flags))
EXPORT(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags), primary_set_flags(dev, flags))
EXPORT(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active), primary_state(dev, flags, active))

EXPORT_OUT(cuCtxCreate, pctx, (CUcontext * pctx, unsigned int flags, CUdevice dev), create(pctx, flags, dev, 3010))
EXPORT_OUT(cuCtxCreate_v2, pctx, (CUcontext * pctx, unsigned int flags, CUdevice dev), create(pctx, flags, dev, 3020))
EXPORT_OUT(cuCtxCreate_v3, pctx,
           (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev),
           ((void)paramsArray, numParams < 0) ? CUDA_ERROR_INVALID_VALUE : create(pctx, flags, dev, 3020))
EXPORT_OUT(cuCtxCreate_v4, pctx,
           (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev),
           ((void)ctxCreateParams, create(pctx, flags, dev, 3020)))
EXPORT(cuCtxDestroy, (CUcontext ctx), destroy(ctx))
EXPORT(cuCtxDestroy_v2, (CUcontext ctx), destroy(ctx))
EXPORT_OUT(cuCtxAttach, pctx, (CUcontext * pctx, unsigned int flags), attach(pctx, flags))
EXPORT(cuCtxDetach, (CUcontext ctx), detach(ctx))
EXPORT(cuCtxPushCurrent, (CUcontext ctx), push(ctx))
EXPORT(cuCtxPushCurrent_v2, (CUcontext ctx), push(ctx))
EXPORT(cuCtxPopCurrent, (CUcontext * pctx), pop(pctx))
EXPORT(cuCtxPopCurrent_v2, (CUcontext * pctx), pop(pctx))
EXPORT(cuCtxSetCurrent, (CUcontext ctx), set_current(ctx))
EXPORT_OUT(cuCtxGetCurrent, pctx, (CUcontext * pctx), get_current(pctx))
EXPORT_OUT(cuCtxGetDevice, device, (CUdevice * device), get_device(device, NULL))
EXPORT_OUT(cuCtxGetDevice_v2, device, (CUdevice * device, CUcontext ctx), get_device(device, ctx))
EXPORT(cuCtxSynchronize, (void), synchronize(NULL))
EXPORT(cuCtxSynchronize_v2, (CUcontext ctx), synchronize(ctx))
EXPORT_OUT(cuCtxGetFlags, flags_out, (unsigned int *flags_out), flags(flags_out, NULL))
EXPORT(cuCtxSetFlags, (unsigned int flags_in), flags(NULL, &flags_in))
EXPORT_OUT(cuCtxGetApiVersion, version, (CUcontext ctx, unsigned int *version), get_api_version(ctx, version))
EXPORT_OUT(cuCtxGetId, ctxId, (CUcontext ctx, unsigned long long *ctxId), get_id(ctx, ctxId))
EXPORT(cuCtxSetLimit, (CUlimit limit_id, size_t value), limit(limit_id, NULL, &value))
EXPORT_OUT(cuCtxGetLimit, pvalue, (size_t * pvalue, CUlimit limit_id), limit(limit_id, pvalue, NULL))
EXPORT(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priority_range(least, greatest))
EXPORT_OUT(cuCtxGetCacheConfig, pconfig, (CUfunc_cache * pconfig), cache_config(pconfig))
EXPORT(cuCtxSetCacheConfig, (CUfunc_cache config), ((void)config, cache_config(NULL)))
EXPORT(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned int Flags),
       Flags != 0 ? CUDA_ERROR_INVALID_VALUE : peer(peerContext))
EXPORT(cuCtxDisablePeerAccess, (CUcontext peerContext), peer(peerContext))
