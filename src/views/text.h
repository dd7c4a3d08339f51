/*
 * The parts of the full text report, in files of their own. Internal to src/views/text*.c.
 */
#ifndef VRAMTRACK_VIEWS_TEXT_H
#define VRAMTRACK_VIEWS_TEXT_H

#include "views/common.h"

/* A blank line, and a section's name. */
void vt_text_heading(struct vt_out *out, const char *name);

/* text_top.c: what happened and what to do about it, in 15 lines at most: how the process ended, the request that failed, the
 * verdicts with their numbers, and measures with their bytes. */
void vt_text_top(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request);

/* text_top.c: the findings with all that is known of them; those that vt_text_top() has told completely are left out. */
void vt_text_findings(struct vt_out *out, const struct vt_findings *findings);

/* text_account.c: the account of each GPU and who holds most of it; at the out-of-memory as well, where the report shows
 * another moment that nobody asked for. */
void vt_text_accounts(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request);

/* text_calls.c: calls that failed, with their stacks. */
void vt_text_failures(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request);

/* text_ranges.c: memory by phase and by named range, and the program's marks; nothing where there are none. */
void vt_text_ranges(struct vt_out *out, const struct vt_model *m);

/* text_sites.c: the places, with their stacks. */
void vt_text_sites(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request);

#endif
