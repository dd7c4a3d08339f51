/*
 * --fail-on: findings and failures that turn a report into exit status 1, for scripts and CI.
 */
#ifndef VT_FAIL_ON_H
#define VT_FAIL_ON_H

#include <stdint.h>

struct vt_reading;
struct vt_symbols;
struct vt_stack_style;

struct vt_fail_on {
    uint32_t families; /* bit per enum vt_family */
    uint32_t failures; /* bit per enum vt_failure_kind */
};

/* What vt_fail_on_parse() accepts, for the help text. "oom" and "misuse" stand for several kinds of failures. */
#define VT_FAIL_ON_FINDINGS \
    "leak, growth, fragmentation, cache, waste, pending, capacity,\n                       limit, misuse, overhead"
#define VT_FAIL_ON_FAILURES                                                \
    "oom, retry, framework_oom, failed_alloc, failed_free, double_free,\n" \
    "                       interior_pointer, unknown_pointer, wrong_api"

/* Adds a list of words, separated by commas. Returns 0, or VT_EXIT_ERROR after saying which word is none. */
int vt_fail_on_parse(struct vt_fail_on *fail_on, const char *list);

/* VT_EXIT_FOUND after saying on standard error what was found and in which recording, else VT_EXIT_OK; VT_EXIT_ERROR without memory and
 * for an incomplete recording, which can't answer the question. What a report leaves out because VRAMTRACK_SUPPRESSIONS
 * names it is not found here either. symbols, style: those of the report, as for vt_analysis_open(); NULL: the default. */
int vt_fail_on_check(const struct vt_fail_on *fail_on, struct vt_reading *reading, const char *moment,
                     struct vt_symbols *symbols, const struct vt_stack_style *style);

#endif
