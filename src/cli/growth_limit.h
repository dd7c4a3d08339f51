/*
 * --fail-on-growth: how much more memory turns a comparison into exit status 1, for scripts and CI.
 */
#ifndef VT_GROWTH_LIMIT_H
#define VT_GROWTH_LIMIT_H

#include <stdbool.h>

struct vt_diff;

struct vt_growth_limit {
    bool given, is_share;
    double value;     /* bytes, or percent of what was there before */
    const char *text; /* as the user wrote it, who owns it */
};

/* Takes "67108864", "64M", "64mi", "1.5GiB", ".5%": decimal numbers; units are powers of 1024, in either case. Returns 0, or
 * VT_EXIT_ERROR after saying what is accepted. */
int vt_growth_limit_parse(struct vt_growth_limit *limit, const char *text);

/* VT_EXIT_OK; VT_EXIT_FOUND after saying on standard error what grew too much; VT_EXIT_ERROR if a limit is given and a side
 * is incomplete, after saying which. */
int vt_growth_limit_check(const struct vt_growth_limit *limit, const struct vt_diff *diff);

#endif
