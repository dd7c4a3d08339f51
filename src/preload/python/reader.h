/*
 * Reads of the interpreter's memory through the kernel, which answers a bad address with an error: for what may not be
 * what it should be (check.c), or may be freed by another thread meanwhile (states.c).
 */
#ifndef VT_PRELOAD_PYTHON_READER_H
#define VT_PRELOAD_PYTHON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/python/offsets.h"

#define VT_PY_FIELDS 10

/* Fields of one or several objects, gathered to be read by one call. */
struct reader {
    unsigned count;
    size_t bytes;
    struct iovec to[VT_PY_FIELDS], from[VT_PY_FIELDS];
};

static inline void want(struct reader *r, const void *object, unsigned offset, void *field, size_t size)
{
    if (offset == VT_PY_NONE)
        return;
    r->to[r->count] = (struct iovec){field, size};
    r->from[r->count++] = (struct iovec){(void *)((uintptr_t)object + offset), size};
    r->bytes += size;
}

/* By thread id: the process id stops working when the main thread has ended. */
static inline bool fetch(struct reader *r)
{
    long n = syscall(SYS_process_vm_readv, syscall(SYS_gettid), r->to, (unsigned long)r->count, r->from,
                     (unsigned long)r->count, 0ul);
    bool all = n == (long)r->bytes;
    r->count = 0, r->bytes = 0;
    return all;
}

#endif
