/*
 * What changed between two sides, as text, as JSON and as a page. For the command only.
 */
#ifndef VRAMTRACK_VIEWS_DIFF_H
#define VRAMTRACK_VIEWS_DIFF_H

#include <stdbool.h>

#include "analysis/diff.h"

struct vt_diff_view {
    int fd; /* where to write; stays open */
    bool colour;
    bool stacks;     /* the frames of each place, not only the line that it is named by */
    bool all_frames; /* hidden ones as well */
    unsigned top;    /* places shown; 0: the default */
};

/* All return 0 or a negative errno: -ENOMEM, or what write(2) reported. */
int vt_diff_text_write(const struct vt_diff *diff, const struct vt_diff_view *view);

/* Schema vramtrack-diff/1. */
int vt_diff_json_write(const struct vt_diff *diff, const struct vt_diff_view *view);

/* A page for a browser (html_diff.c): bounded as that of a recording (html.h). */
int vt_diff_html_write(const struct vt_diff *diff, const struct vt_diff_view *view);

/* A change with its sign: "+1.25 GiB", "-4.00 MiB", "0 B". Returns buffer (VT_DIFF_CHANGE long). */
#define VT_DIFF_CHANGE 32
const char *vt_diff_format(char *buffer, const uint64_t bytes[2]);

#endif
