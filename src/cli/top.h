/*
 * What the two sides of `vramtrack top` share: options and targets (top.c), the terminal (top_screen.c).
 */
#ifndef VT_CLI_TOP_H
#define VT_CLI_TOP_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/find_process.h"
#include "views/top.h"

#define VT_TOP_VERB "top"

struct vt_top_options {
    double interval;
    const char *user_paths;
    unsigned top; /* places that --once and --json show */
    bool once, json;
    const char *target; /* process id, recording or directory; NULL: all processes */
};

/* What is looked at. */
struct vt_top_target {
    int32_t pid; /* 0: what the recording says */
    char *path;  /* to be freed; NULL: the list of all processes */
};

/* The list of all recorded processes, with their totals. */
struct vt_top_processes {
    struct vt_writing_list list;
    struct vt_top_process *item;
    struct vt_follow **follow;
    char (*problem)[VT_TOP_ERROR];
    uint32_t count;
};

/* Returns 0 or an errno; vt_top_processes_free() in both cases. */
int vt_top_processes_find(struct vt_top_processes *processes);
void vt_top_processes_free(struct vt_top_processes *processes);

/* Does the locale have UTF-8? */
bool vt_top_utf8(void);

/* The keys and the screen. Returns the exit status; the terminal is as it was before. */
int vt_top_interact(const struct vt_top_options *options, const struct vt_top_target *target);

#endif
