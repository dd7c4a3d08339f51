/*
 * What the text views share: opening the analysis that a request asks for, and writing names, places and stacks.
 * Internal to src/views.
 */
#ifndef VRAMTRACK_VIEWS_COMMON_H
#define VRAMTRACK_VIEWS_COMMON_H

#include "analysis/analysis.h"
#include "analysis/stack.h"
#include "views/out.h"
#include "views/views.h"

/* Opens the analysis of a request: for an OOM report without a moment, the one that was taken at the failure. Result as
 * of vt_analysis_open(), and -ENOENT for a failure that is not there. */
int vt_view_open(struct vt_analysis *analysis, struct vt_reading *reading, const struct vt_report_request *request);

/* The stack of a site or failure. On lack of memory the trace is empty. */
void vt_view_trace(const struct vt_analysis *analysis, struct vt_trace *trace, uint32_t stack, uint32_t python_stack);

/* A C string as a name, cut at `most` bytes (0: whole). */
void vt_view_name(struct vt_out *out, const char *name, size_t most);

/* A frame in one line: "function (file.cu:12)". */
void vt_view_place(struct vt_out *out, const struct vt_display_frame *frame);

/* "GPU 0", or "host". */
void vt_view_device(struct vt_out *out, int device);

/* The command line of the recorded process, arguments separated by blanks. */
void vt_view_command(struct vt_out *out, const struct vt_reading *reading, size_t most);

/* The next command that the request names, or the default one. */
void vt_view_next(struct vt_out *out, const struct vt_report_request *request);

#endif
