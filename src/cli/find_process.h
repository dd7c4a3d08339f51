/*
 * The recordings that processes are writing right now: found by what /proc says they have mapped.
 */
#ifndef VT_FIND_PROCESS_H
#define VT_FIND_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_writing {
    int32_t pid;
    char *path; /* of the recording, as it can be opened here */
};

struct vt_writing_list {
    struct vt_writing *item; /* by pid */
    size_t count;
};

/* The recording that a process writes, to be freed. NULL: `error` says in one line why there is none. */
char *vt_find_writing(int32_t pid, char *error, size_t error_bytes);

/* All processes of which this user may know that they write one. Returns 0 or an errno; vt_writing_free() in both cases. */
int vt_find_all_writing(struct vt_writing_list *list);
void vt_writing_free(struct vt_writing_list *list);

#endif
