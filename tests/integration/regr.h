/* Shared by the programs of the regression tests: the driver under its export names, and calls that must succeed. */
#ifndef REGR_H
#define REGR_H

#include "preload/cuda/headers.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define NOINLINE __attribute__((noinline, used))

/* errno and dlerror are the program's own: whatever a call returns, they are what they were. */
#define CODE(call)                                                                              \
    ({                                                                                          \
        errno = 4711;                                                                           \
        int code_ = (int)(call);                                                                \
        if (errno != 4711) {                                                                    \
            fprintf(stderr, "line %d: %s changes errno to %d\n", __LINE__, #call, errno);       \
            _exit(90);                                                                          \
        }                                                                                       \
        const char *error_ = dlerror();                                                         \
        if (error_) {                                                                           \
            fprintf(stderr, "line %d: %s leaves \"%s\" to dlerror\n", __LINE__, #call, error_); \
            _exit(93);                                                                          \
        }                                                                                       \
        code_;                                                                                  \
    })
#define IS(code, call)                                                          \
    do {                                                                        \
        int got_ = CODE(call);                                                  \
        if (got_ != (int)(code)) {                                              \
            fprintf(stderr, "line %d: %s returns %d\n", __LINE__, #call, got_); \
            _exit(91);                                                          \
        }                                                                       \
    } while (0)
#define OK(call) IS(0, call)
#define MUST(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
            _exit(92);                                                      \
        }                                                                   \
    } while (0)

/* "libcuda.so.1:cuMemAlloc_v2": where an address lies. */
static inline const char *place(void *address)
{
    static char text[8][128];
    static int next;
    char *to = text[next++ % 8];
    Dl_info in;
    if (!address)
        return "NULL";
    if (!dladdr(address, &in) || !in.dli_sname)
        return "?";
    const char *slash = strrchr(in.dli_fname, '/');
    snprintf(to, 128, "%s:%s", slash ? slash + 1 : in.dli_fname, in.dli_sname);
    return to;
}

#endif
