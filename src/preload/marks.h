/*
 * What the program itself says: include/vramtrack/vramtrack.h (marks.c), and NVTX, which many libraries use for the same
 * purpose (nvtx.c, with VRAMTRACK_NVTX=1).
 */
#ifndef VT_PRELOAD_MARKS_H
#define VT_PRELOAD_MARKS_H

/* A named point in time. Does nothing if nothing is being recorded. Without a lock; keeps errno. */
void vt_mark(const char *name);

#endif
