/*
 * What the host could give when page-locked memory was refused (header.host_*): its available memory, the limit of the
 * process's control group, and the limit on locked memory.
 *
 * Reads a few small files of /proc and /sys, with no allocation and no stdio; seldom enough, whatever the program does.
 * Not with the state lock held, and not from a signal handler. Keeps errno.
 */
#ifndef VT_PRELOAD_HOST_H
#define VT_PRELOAD_HOST_H

#include <stdint.h>

/* The failure (index in VT_FAILURES) was an out-of-memory; those of device memory are passed over. */
void vt_host_oom(uint32_t failure);

#endif
