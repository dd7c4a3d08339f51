/*
 * The outputs: one function per view. Each builds the analysis of a reading at a moment and writes it to a descriptor.
 *
 * vt_summary_write() and vt_text_write() are linked into the preload library too: they use malloc but no stdio stream,
 * never exit, and give up quietly (a negative result) when memory runs out. vt_json_write() and vt_html_write() are for the command only.
 * None of them is async-signal-safe; different readings may be written by different threads at once.
 */
#ifndef VRAMTRACK_VIEWS_H
#define VRAMTRACK_VIEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/stack.h"

struct vt_reading;

enum vt_report_cause { VT_REPORT_EXIT, VT_REPORT_OOM };

struct vt_report_request {
    const char *recording_path; /* NULL when it could not be written */
    const char *moment;         /* name; NULL: the default ("finalize" if there is one, else "end") */
    int fd;                     /* where to write; stays open */
    bool colour;                /* terminal colours; the caller knows whether fd is a terminal */
    bool all_frames;            /* show the frames of CUDA, the interpreter, the loader and the C library as well */
    enum vt_show_stacks stacks;
    const char *user_paths; /* as for vt_stack_style_for() */
    unsigned top;           /* sites shown; 0: the view's default */
    enum vt_report_cause cause;
    uint32_t failure;         /* VT_REPORT_OOM: index in VT_FAILURES */
    const char *next_command; /* shown as the next thing to do; NULL: "vramtrack report PATH" */
    bool status_known;        /* `status` is what waitpid said about the process */
    int status;
    bool no_symbols;            /* do not look at the program's files: module and offset only */
    bool blocks;                /* JSON: every segment and every block in it */
    struct vt_symbols *symbols; /* what to look names up with, kept for more; NULL: a symbolizer of its own */
};

/*
 * All return 0 or a negative errno: -ENOENT if there is no such moment (or failure), -ENOMEM, or what write(2)
 * reported.
 */

/* The short report, at most 25 lines, one when nothing is live and nothing failed. Each line begins with "vramtrack: "
 * or two spaces. */
int vt_summary_write(struct vt_reading *reading, const struct vt_report_request *request);

/* The full report as text. */
int vt_text_write(struct vt_reading *reading, const struct vt_report_request *request);

/* Schema vramtrack-report/1. */
int vt_json_write(struct vt_reading *reading, const struct vt_report_request *request);

/* A page for a browser: one file that needs nothing else, at most 10 MB. */
int vt_html_write(struct vt_reading *reading, const struct vt_report_request *request);

#endif
