/*
 * cuInit and cuGetProcAddress: where a program's way to the driver begins.
 *
 * The driver chooses the version of a function that the caller may have; only its answer decides whether a wrapper takes
 * its place. That holds for "cuGetProcAddress" itself as well: libcudart asks for it and then uses what it got.
 */
#include "preload/call.h"
#include "preload/process_hooks.h"
#include "preload/torch/scopes.h"

VT_EXPORT CUresult cuInit(unsigned int flags)
{
    VT_BEGIN(cuInit);
    CUresult r = real(flags);
    if (!r && call.record) {
        vt_process_hooks(); /* after the driver registered its own exit handler: ours runs first */
        vt_torch_attach();
    }
    return VT_END(r);
}

static void substitute(const struct vt_call *call, CUresult r, void **function)
{
    if (!r && call->record && function && *function)
        *function = vt_substitute(*function);
}

VT_EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    VT_BEGIN(cuGetProcAddress);
    CUresult r = real(symbol, function, version, flags);
    substitute(&call, r, function);
    return VT_END(r);
}

VT_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *status)
{
    VT_BEGIN(cuGetProcAddress_v2);
    CUresult r = real(symbol, function, version, flags, status);
    substitute(&call, r, function);
    return VT_END(r);
}
