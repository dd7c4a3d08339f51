/*
 * What PyTorch tells about phases, ranges and steps: its record_function scopes (record_function.c) and its backward
 * (engine.c), for phase.h. And whose memory is cuBLAS's (workspace.c).
 */
#ifndef VT_PRELOAD_TORCH_SCOPES_H
#define VT_PRELOAD_TORCH_SCOPES_H

#include "preload/phase.h"
#include "preload/resolve.h"

/*
 * Asks PyTorch to tell about its scopes, if it is loaded and was not asked before. There is no moment at which it would be
 * known that PyTorch has just been loaded; this is called where the slow path is fine: when CUDA is initialised, when a
 * context is made, when backward is entered. None of our locks may be held. Keeps errno.
 */
void vt_torch_attach(void);

/* What a block that PyTorch's caching allocator hands out is booked as (enum vt_entry_id). */
static inline uint16_t vt_torch_label(void)
{
    if (__builtin_expect(!vt_phase_tls.workspace, 1))
        return VT_E_torch_caching;
    vt_phase_tls.workspace = 0; /* one allocation: if it fails, nothing else may take the name */
    return VT_E_torch_workspace;
}

#endif
