/*
 * --fail-on: findings and failures that turn a report into exit status 1, for scripts and CI.
 */
#ifndef VT_FAIL_ON_H
#define VT_FAIL_ON_H

#include <stdint.h>

struct vt_reading;

struct vt_fail_on {
    uint32_t families; /* bit per enum vt_family */
    uint32_t failures; /* bit per enum vt_failure_kind */
};

/* For the help text; vt_fail_on_parse() accepts these and the kinds of failures one by one. */
#define VT_FAIL_ON_WORDS "leak, oom, retry, misuse"

/* Adds a list of words, separated by commas. Returns 0, or VT_EXIT_ERROR after saying which word is none. */
int vt_fail_on_parse(struct vt_fail_on *fail_on, const char *list);

/* VT_EXIT_FOUND after saying on standard error what was found, else VT_EXIT_OK; VT_EXIT_ERROR without memory. */
int vt_fail_on_check(const struct vt_fail_on *fail_on, struct vt_reading *reading, const char *moment);

#endif
