/*
 * Following a recording that is being written: one private copy that is brought up to date, refresh by refresh.
 *
 * A live file changes under whoever maps it, and a mapping of a file that somebody truncates is a SIGBUS. So it is read
 * with pread() into a copy of the same layout, record for record at the same offset. Strings, frames and other records that
 * never change are copied once and stay where they are as long as the follower lives: what a symbolizer remembers of them
 * stays valid. Of events only the first are copied, of moments only the totals while the process runs; of what is left, all is
 * copied anew.
 *
 * Uses malloc, no stdio streams, never exits. Not thread-safe.
 */
#ifndef VRAMTRACK_FOLLOW_H
#define VRAMTRACK_FOLLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recording/reader.h"

struct vt_follow;

/*
 * Opens a recording. pid: of the writing process as it is called here, which in a container is not what it calls itself; it
 * takes the place of the header's in all readings. 0: what the header says. brief: header, totals, scopes and devices are
 * enough.
 * Returns NULL after filling `error` (one line without a newline, which names the path).
 */
struct vt_follow *vt_follow_open(const char *path, int32_t pid, bool brief, char *error, size_t error_bytes);
void vt_follow_close(struct vt_follow *follow);

/*
 * Brings the copy up to date. ended: the process is gone, so what moments hold is wanted too.
 * Returns a reading of it, valid until the next call and owned by the follower; NULL: the file is no recording (any more),
 * which `error` explains.
 */
struct vt_reading *vt_follow_refresh(struct vt_follow *follow, bool ended, char *error, size_t error_bytes);

/* Events that were booked while the newest copy was made: 0 means that all of it is of one instant. */
uint64_t vt_follow_torn(const struct vt_follow *follow);

/* Events booked in all, as of the newest refresh. */
uint64_t vt_follow_events(const struct vt_follow *follow);

#endif
