/*
 * The frame of every wrapper:
 *
 *     VT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
 *     {
 *         VT_BEGIN(cuMemAlloc_v2);
 *         CUresult r = real(p, bytes);
 *         ... vt_record_alloc(&call, ...) ...
 *         return VT_END(r);
 *     }
 *
 * VT_BEGIN finds the real function (as `real`) and notes in the thread's words that it is running. If the real function
 * leads back into the same wrapper on the same thread (another interposer that looks its own function up through us),
 * the nested call goes straight to the driver and is not recorded: the outer one will be.
 */
#ifndef VT_PRELOAD_CALL_H
#define VT_PRELOAD_CALL_H

#include "preload/cuda/headers.h"
#include "preload/options.h"
#include "preload/resolve.h"
#include "preload/state.h"

/* What a call returns when there is no real function anywhere: the drivers' own code for it. */
#define VT_NOT_LOADED CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
#define VT_RUNTIME_NOT_LOADED cudaErrorSharedObjectSymbolNotFound

struct vt_call {
    uint16_t entry, previous;
    uint16_t label; /* enum vt_entry_id that names the call: the runtime's entry point if the program called that */
    bool record;
};

static inline void *vt_enter(struct vt_call *c, enum vt_entry_id e)
{
    bool nested = vt_tls.entry == e + 1;
    void *real = nested ? vt_driver(e) : NULL;
    if (!real)
        real = vt_real(e);
    c->entry = (uint16_t)e;
    c->previous = vt_tls.entry;
    c->label = vt_tls.runtime ? (uint16_t)(vt_tls.runtime - 1) : (uint16_t)e;
    c->record = !nested && !vt_options()->off && !vt_state.stopped;
    vt_tls.entry = (uint16_t)(e + 1);
    return real;
}

static inline void vt_leave(const struct vt_call *c)
{
    vt_tls.entry = c->previous;
}

#define VT_BEGIN(name)                                                        \
    struct vt_call call;                                                      \
    __typeof__(&name) real = (__typeof__(&name))vt_enter(&call, VT_E_##name); \
    if (!real)                                                                \
    return vt_leave(&call), VT_NOT_LOADED

#define VT_END(result) (vt_leave(&call), (result))

/* A helper function of the driver, for our own questions to it; NULL if it has none. */
#define VT_HELPER(name) ((__typeof__(&name))vt_real(VT_E_##name))

#endif
