/*
 * The VRAMTRACK_* environment: one table, read once. docs/environment.md describes the same options to users.
 *
 * vt_options() may be called from anywhere, also from dlsym before any constructor ran: it only reads environ, takes
 * no lock and allocates nothing. Threads that race to be first compute the same values.
 */
#ifndef VT_PRELOAD_OPTIONS_H
#define VT_PRELOAD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum vt_report_mode { VT_REPORT_MODE_ALL, VT_REPORT_MODE_OOM, VT_REPORT_MODE_OFF };

struct vt_options {
    bool off;                   /* VRAMTRACK_OFF: substitute nothing, record nothing */
    const char *directory;      /* VRAMTRACK_DIR; NULL: working directory */
    bool native, python;        /* VRAMTRACK_STACKS: which stacks are taken */
    bool both;                  /* ... and of tensors both, not the native one only where there is no Python */
    unsigned depth;             /* VRAMTRACK_DEPTH: frames per stack */
    uint64_t limit_bytes;       /* VRAMTRACK_LIMIT_MB, in bytes */
    uint64_t events;            /* VRAMTRACK_EVENTS: ring size */
    enum vt_report_mode report; /* VRAMTRACK_REPORT */
    bool under_run;             /* VRAMTRACK_RUN: `vramtrack run` reports at the end */
    bool nvml;                  /* VRAMTRACK_NVML: NVML may be asked who else holds memory */
    bool nvtx;                  /* VRAMTRACK_NVTX: take NVTX ranges and marks over */
};

#define VT_DEPTH_MAX 256u

/* Behind vt_options(). */
extern struct vt_known_options {
    struct vt_options values;
    bool read;
} vt_known_options;
const struct vt_options *vt_options_read(void);

static inline const struct vt_options *vt_options(void)
{
    if (__builtin_expect(__atomic_load_n(&vt_known_options.read, __ATOMIC_ACQUIRE), 1))
        return &vt_known_options.values;
    return vt_options_read();
}

/* A relative VRAMTRACK_DIR means a place seen from where the process starts: called at load, before the program can change
 * its directory. */
void vt_options_resolve_directory(void);

/* Says on standard error which names and values were not understood, one line each. Called once, when recording starts. */
void vt_options_complain(void);

#endif
