/* What is worth knowing about the process that is recorded, read without stdio streams and without malloc. */
#ifndef VT_PRELOAD_PROCESS_H
#define VT_PRELOAD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recording/writer.h"

struct vt_process {
    int32_t pid, rank, local_rank, world_size; /* -1: the environment does not say */
    char program[64];                          /* the script's name under Python, else the executable's */
    char host[64];
};

void vt_process_read(struct vt_process *p);

/* Fills in the header's description: executable, command line, allocator settings. With the state lock held. */
void vt_process_describe(struct vt_header *h, const struct vt_process *p);

/* What /proc calls another process: at most 15 bytes, of any kind. Empty if there is none. */
void vt_process_name(uint32_t pid, char *name, size_t size);

/* Is this the pid of a running `vramtrack`? */
bool vt_process_is_run(int pid);

/* The memory around an address, as /proc/self/maps tells it. Reading that takes a while: once per thing, not per call.
 * With the state lock held, which guards its buffers: the thread may have a small stack. */
struct vt_process_mapping {
    uintptr_t start, end;
    uint64_t offset; /* of `start` in the file */
    bool executable;
    char
        name[VT_PATH_MAX]; /* a path, perhaps with " (deleted)" behind it, or "[heap]" and the like; empty: anonymous */
};
enum vt_process_found { VT_MAPPING_THERE, VT_MAPPING_NONE, VT_MAPPING_UNKNOWN }; /* UNKNOWN: /proc can't be read */
enum vt_process_found vt_process_mapping_at(uintptr_t address, struct vt_process_mapping *m);

/* The file that is mapped at an address; false if none. For the loader's relative names. */
bool vt_process_mapped_file(uintptr_t address, char *path, size_t size);

/* The calling thread's name. */
void vt_process_thread_name(char *name, size_t size);

#endif
