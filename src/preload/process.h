/* What is worth knowing about the process that is recorded, read without stdio streams and without malloc. */
#ifndef VT_PRELOAD_PROCESS_H
#define VT_PRELOAD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vramtrack/recording.h"

struct vt_process {
    int32_t pid, rank, local_rank, world_size; /* -1: the environment does not say */
    char program[64];                          /* the script's name under Python, else the executable's */
    char host[64];
};

void vt_process_read(struct vt_process *p);

/* Fills in the header's description: executable, command line, allocator settings. With the state lock held. */
void vt_process_describe(struct vt_header *h, const struct vt_process *p);

/* Is this the pid of a running `vramtrack`? */
bool vt_process_is_run(int pid);

/* The file that is mapped at an address, as the kernel knows it; false if none. For the loader's relative names. */
bool vt_process_mapped_file(uintptr_t address, char *path, size_t size);

/* The calling thread's name. */
void vt_process_thread_name(char *name, size_t size);

#endif
