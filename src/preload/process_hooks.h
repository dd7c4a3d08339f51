/*
 * The library's place in the life of the process: what is set up when CUDA starts, and what happens at the end.
 */
#ifndef VT_PRELOAD_PROCESS_HOOKS_H
#define VT_PRELOAD_PROCESS_HOOKS_H

/* Called from cuInit and from the creation of contexts, after the real call: opens the unwinder, registers for fork and
 * exit. Once; later calls cost a load. May open libraries: never with a lock held, never from dlsym. */
void vt_process_hooks(void);

#endif
