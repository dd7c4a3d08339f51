/*
 * The recordings in a directory: what `report DIR` chooses from and what `run` finds when its program has ended.
 */
#ifndef VT_RECORDINGS_H
#define VT_RECORDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_FOUND_NAMED 3 /* files told by name */

struct vt_found {
    char *path;             /* directory and name */
    uint64_t start_unix_ns; /* of the process */
    uint32_t oom_count;
    int32_t pid, rank;
    char host[64], program[64];
    uint64_t bytes, last_ns; /* of the file; of the newest event, or the end */
};

struct vt_found_list {
    struct vt_found *item; /* oldest first */
    size_t count;
    size_t unreadable;            /* files named *.vtr that can't be read, or are no recordings */
    char *unread[VT_FOUND_NAMED]; /* of the first of them, which one and why; to be shown escaped */
    size_t copies;                /* of recordings that are listed: those are left out */
    char *copied[VT_FOUND_NAMED]; /* the paths of the first of them */
};

/* Lists the *.vtr files that begin like a recording. Of several files of one process (host, pid, rank, program and start),
 * as after a copy, the longest one counts, or that which says how the process ended. Returns 0 or an errno; vt_found_free() in both cases. */
int vt_found_in(const char *directory, struct vt_found_list *list);
void vt_found_free(struct vt_found_list *list);

/* Counts a file that turned out to be none when it was opened. text: which and why; copied. Returns 0 or ENOMEM. */
int vt_found_unreadable(struct vt_found_list *list, const char *text);

/* A line on standard error for each file that can't be read and each copy; at most VT_FOUND_NAMED of each, and a count. */
void vt_found_say(const struct vt_found_list *list);

bool vt_found_has(const struct vt_found_list *list, const char *path);

/* The name of the text report that belongs to a recording; to be freed. NULL: out of memory. */
char *vt_text_path(const char *recording);

#endif
