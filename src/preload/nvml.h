/*
 * NVML, NVIDIA's management library, asked for what CUDA doesn't tell: which processes hold a card's memory, and what the
 * driver keeps for itself. The library is opened when the first question comes (libnvidia-ml.so.1, RTLD_LOCAL), and stays.
 *
 * Every function may be called by any thread, keeps errno, is not interrupted by a thread's cancellation, and can only
 * fail by knowing less: in a container, under gVisor, WSL, a vGPU or a MIG instance, NVML refuses some or all of this.
 * None is async-signal-safe, may run with a lock of ours held, or belongs on the way of an allocation: opening takes
 * milliseconds, reading up to one.
 */
#ifndef VT_PRELOAD_NVML_H
#define VT_PRELOAD_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "vramtrack/recording.h"

#define VT_NVML_PROCESSES 64u /* kept one by one; the smallest of more are summed up */
#define VT_NVML_NAME 64u

struct vt_nvml_process {
    uint32_t pid;
    uint64_t bytes;          /* VT_UNKNOWN_BYTES: not known */
    char name[VT_NVML_NAME]; /* any bytes; empty: not known */
};

/* Sizes are VT_UNKNOWN_BYTES where NVML doesn't say. */
struct vt_nvml_usage {
    uint64_t total, reserved, free;
    uint64_t used;  /* without what is reserved, if that is known */
    bool listed;    /* the processes below are all there are */
    bool self;      /* this process is one of them */
    uint32_t count; /* largest first */
    uint64_t more, more_bytes;
    struct vt_nvml_process process[VT_NVML_PROCESSES];
};

/* Opens and initialises NVML at the first call. False: there is none, or it failed; then it isn't tried again. */
bool vt_nvml_open(void);

/* "driver 580.95.05", or why there are no figures; NULL before vt_nvml_open(). */
const char *vt_nvml_words(void);

/* NVML's handle of a device, by CUDA's uuid; NULL if NVML doesn't know it. After vt_nvml_open() only. */
void *vt_nvml_device(const uint8_t uuid[16], bool mig);

/* What the device holds now. Processes have names only if this process is listed: otherwise the pids are of another
 * namespace, where they would name somebody else. False: nothing is known. */
bool vt_nvml_read(void *device, struct vt_nvml_usage *usage);

/* In the child of a fork. If the parent had asked, the child never will: another thread may have held one of NVML's locks,
 * which stay locked here. (CUDA itself is of no use in that child.) */
void vt_nvml_forget(void);

#endif
