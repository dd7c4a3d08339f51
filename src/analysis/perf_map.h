/*
 * The names that a JIT compiler gives to its code: /tmp/perf-PID.map, as `python -X perf`, V8, Java agents and LLVM
 * write it for the perf tool. Of use only in the process that wrote it (elsewhere the pid may mean another one), which
 * is where the library's own report is made.
 *
 * Anybody may put a file there: it must be a regular file of the given user, not a link, and nothing in it is believed
 * beyond being a name.
 */
#ifndef VRAMTRACK_PERF_MAP_H
#define VRAMTRACK_PERF_MAP_H

#include <stdint.h>
#include <sys/types.h>

struct vt_perf_map;

#define VT_PERF_MAP_BYTES (32u << 20) /* what is read of a file: its end, which has the newest code */
#define VT_PERF_NAME 256              /* longer names are cut */

/* Reads a map that `owner` owns. NULL: there is none that can be used, or no memory. */
struct vt_perf_map *vt_perf_map_read(const char *path, uid_t owner);
void vt_perf_map_free(struct vt_perf_map *map);

/* The name of the newest code that covers the address, or NULL. It belongs to the map. */
const char *vt_perf_map_find(const struct vt_perf_map *map, uint64_t address);

/* The map of this very process, if it is the one with this pid and start time (/proc/PID/stat field 22); else NULL. */
struct vt_perf_map *vt_perf_map_own(int32_t pid, uint64_t start_ticks);

#endif
