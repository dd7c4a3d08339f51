/*
 * The library's place in the life of the process: what is set up when CUDA starts, and what happens at the end.
 */
#ifndef VT_PRELOAD_PROCESS_HOOKS_H
#define VT_PRELOAD_PROCESS_HOOKS_H

#include <stdbool.h>

/* Called from cuInit and from the creation of contexts, after the real call: opens the unwinder, registers for fork and
 * exit. Once; later calls cost a load. May open libraries: never with a lock held, never from dlsym. */
void vt_process_hooks(void);

/* Called for stacks that were never seen: registers for exit again now and then, because runtimes that start later put
 * their teardown before ours. Never with a lock held. */
void vt_process_watch_exit(void);

/* Registers for exit once more: what was registered so far is then torn down after ours. Never with a lock held. */
void vt_process_exit_first(void);

/* Is the process on its way out? Runtimes register their teardown after our exit handler when they are first used late;
 * then the calling stack tells, which is walked here: for calls that end contexts, not for hot ones. Once true, always. */
bool vt_process_ending(void);

/* Around exec*: marks this process's recording as ended by it; false if there is none (then there is nothing to undo). */
bool vt_process_before_exec(void);
void vt_process_exec_failed(void);

#endif
