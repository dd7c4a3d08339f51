/*
 * The library's own reports, written by the same analysis and text views as the command's, from a private copy of the
 * recording. On the same occasions the names of native frames are stored in the recording, also where no report is wanted
 * (names.h). Never with a lock held. Both may take a second or two; they run once per process or seldom.
 */
#ifndef VT_PRELOAD_REPORT_H
#define VT_PRELOAD_REPORT_H

#include <stdint.h>

/* An out-of-memory that the program did not recover from; index in VT_FAILURES. Rate-limited. */
void vt_report_oom(uint32_t failure);

/* The end of the process was recorded. */
void vt_report_end(void);

#endif
