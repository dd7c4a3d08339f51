/*
 * JAX's buffers, seen through the PJRT C API: what the rest of the library calls. How it is done: plugin.h.
 */
#ifndef VT_PRELOAD_JAX_JAX_H
#define VT_PRELOAD_JAX_JAX_H

/* What dlsym hands out in place of a plugin's GetPjrtApi: a function of ours that calls the real one and returns a copy of
 * its table with some functions replaced; or `real` itself if there is no room for another plugin. From any thread, also
 * before any constructor ran: no lock, no allocation, no call. */
void *vt_jax_substitute(void *real);

/* Writes into the recording which plugins are left alone, and why. With the state lock held; once per recording is enough,
 * and the module does so itself for plugins that come later. */
void vt_jax_note_refusals(void);

#endif
