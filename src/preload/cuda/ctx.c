/*
 * Contexts come and go, and what goes with them: cuMemAlloc, cuMemAllocHost, managed memory, arrays and registrations of
 * that context end without a free call; physical VMM memory and stream-ordered memory stay (cuda.h at cuCtxDestroy).
 */
#include "preload/context.h"
#include "preload/ledger.h"
#include "preload/process_hooks.h"
#include "preload/torch/scopes.h"
#include "preload/track.h"
#include "preload/usage.h"

static bool goes_with_context(const struct vt_node *n, const struct vt_slot *s, void *argument)
{
    if (n->owner != *(const uint16_t *)argument || n->space == VT_SPACE_TENSOR)
        return false;
    switch (s->kind) {
    case VT_KIND_DEVICE:
    case VT_KIND_PINNED:
    case VT_KIND_REGISTERED:
    case VT_KIND_MANAGED:
    case VT_KIND_ARRAY:
    case VT_KIND_IMPORTED:
        return n->space != VT_SPACE_OBJECT;
    default:
        return false;
    }
}

/* Before the driver ends a context: its handle leads to a new context from now on. Returns the index it had. */
static uint16_t context_going(const struct vt_call *call, CUcontext context, int primary_of)
{
    uint16_t index = 0;
    if (call->record && vt_state_recording() && !vt_process_ending() && vt_state_lock(false)) {
        index = context ? vt_context_index_of(context) : vt_context_primary(primary_of);
        vt_context_retire(index);
        vt_state_unlock();
    }
    return index;
}

/* After: it is gone, or it is not. */
static void context_gone(uint16_t index, bool gone)
{
    if (!index)
        return;
    if (gone)
        vt_retire(goes_with_context, &index);
    if (!vt_state_lock(false))
        return;
    if (gone)
        vt_book_mark(VT_EVENT_CONTEXT_END, index, 0);
    else
        vt_context_revive(index);
    vt_state_unlock();
}

static void context_coming(const struct vt_call *call, CUdevice device)
{
    if (call->record)
        vt_usage_before_context(device);
}

/* A context appeared: the first moment at which the library may do slow things (see vt_process_hooks). */
static void context_made(const struct vt_call *call, CUdevice device, CUresult r)
{
    vt_process_hooks();
    vt_torch_attach();
    if (call->record)
        vt_usage_after_context(device, !r);
}

VT_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    VT_BEGIN(cuCtxCreate_v2);
    context_coming(&call, device);
    CUresult r = real(context, flags, device);
    context_made(&call, device, r);
    return VT_END(r);
}

VT_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
                                  CUdevice device)
{
    VT_BEGIN(cuCtxCreate_v3);
    context_coming(&call, device);
    CUresult r = real(context, params, count, flags, device);
    context_made(&call, device, r);
    return VT_END(r);
}

VT_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    VT_BEGIN(cuCtxCreate_v4);
    context_coming(&call, device);
    CUresult r = real(context, params, flags, device);
    context_made(&call, device, r);
    return VT_END(r);
}

VT_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    VT_BEGIN(cuCtxDestroy_v2);
    uint16_t index = context ? context_going(&call, context, -1) : 0;
    CUresult r = real(context);
    context_gone(index, !r);
    return VT_END(r);
}

VT_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    VT_BEGIN(cuCtxDetach);
    uint16_t index = context ? context_going(&call, context, -1) : 0;
    CUresult r = real(context);
    context_gone(index, !r); /* a context's usage count can't be raised any more: the first detach is the last */
    return VT_END(r);
}

VT_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    VT_BEGIN(cuDevicePrimaryCtxRetain);
    context_coming(&call, device);
    CUresult r = real(context, device);
    context_made(&call, device, r);
    if (!r && call.record)
        vt_context_set_primary(device, *context);
    return VT_END(r);
}

static bool is_active(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxGetState) state = VT_HELPER(cuDevicePrimaryCtxGetState);
    unsigned flags;
    int active = 1;
    return !state || state(device, &flags, &active) || active;
}

#define PRIMARY_WRAPPER(name, ends)                          \
    VT_EXPORT CUresult name(CUdevice device)                 \
    {                                                        \
        VT_BEGIN(name);                                      \
        uint16_t index = context_going(&call, NULL, device); \
        CUresult r = real(device);                           \
        context_gone(index, !r && (ends));                   \
        return VT_END(r);                                    \
    }

PRIMARY_WRAPPER(cuDevicePrimaryCtxRelease, !is_active(device))
PRIMARY_WRAPPER(cuDevicePrimaryCtxRelease_v2, !is_active(device))
PRIMARY_WRAPPER(cuDevicePrimaryCtxReset, true)
PRIMARY_WRAPPER(cuDevicePrimaryCtxReset_v2, true)

/* What programs ask themselves is kept: it costs the driver nothing more. */
VT_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    VT_BEGIN(cuMemGetInfo_v2);
    CUresult r = real(free_bytes, total_bytes);
    if (!r && call.record && free_bytes && total_bytes)
        vt_usage_program(*free_bytes, *total_bytes);
    return VT_END(r);
}
