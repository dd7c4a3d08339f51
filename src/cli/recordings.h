/*
 * The recordings in a directory: what `report DIR` chooses from and what `run` finds when its program has ended.
 */
#ifndef VT_RECORDINGS_H
#define VT_RECORDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_found {
    char *path;             /* directory and name */
    uint64_t start_unix_ns; /* of the process */
    uint32_t oom_count;
};

struct vt_found_list {
    struct vt_found *item; /* oldest first */
    size_t count;
    size_t unreadable; /* files named *.vtr that are no recordings */
};

/* Lists the *.vtr files that begin like a recording. Returns 0 or an errno; vt_found_free() in both cases. */
int vt_found_in(const char *directory, struct vt_found_list *list);
void vt_found_free(struct vt_found_list *list);

bool vt_found_has(const struct vt_found_list *list, const char *path);

/* The name of the text report that belongs to a recording; to be freed. NULL: out of memory. */
char *vt_text_path(const char *recording);

#endif
