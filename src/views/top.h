/*
 * What `vramtrack top` shows: the figures of a recording that is being written, refresh by refresh (top.c), and as lines of
 * text for a screen of any size (top_text.c) or as JSON (top_json.c). Nothing here knows a terminal.
 *
 * Names of places are looked up when they are shown for the first time, and kept. Uses malloc, no stdio streams, never exits.
 * Not thread-safe.
 */
#ifndef VRAMTRACK_VIEWS_TOP_H
#define VRAMTRACK_VIEWS_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "views/out.h"

struct vt_top;

#define VT_TOP_ERROR 640 /* room for a line that says what is wrong */

enum vt_top_sort { VT_TOP_LIVE, VT_TOP_AT_PEAK, VT_TOP_RATE, VT_TOP_COUNT, VT_TOP_SORTS };

/* "live", "at peak", "rate", "count". */
const char *vt_top_sort_name(enum vt_top_sort sort);

/* One place that holds memory. Sites of one level, kind and device whose names are the same can be one place. */
struct vt_top_row {
    const struct vt_site_row *site; /* of the model; of several the first in the order asked for */
    uint32_t row;                   /* its index in model.sites */
    uint32_t sites;                 /* how many it stands for: the rest are their sums */
    uint64_t live_bytes, live_count, at_peak_bytes;
    double share;        /* of what its level and class hold on its device, 0 to 1 */
    double allocs_per_s; /* over the last refreshes; */
    int64_t
        growth; /* live bytes now, less those some refreshes ago: both mean nothing at the first one, nor after the end */
};

/*
 * Follows the recording at `path`; the first figures are there with the first vt_top_refresh().
 * pid: as for vt_follow_open(). user_paths: as for vt_stack_style_for(); must outlive it. NULL after filling `error`.
 */
struct vt_top *vt_top_open(const char *path, int32_t pid, const char *user_paths, char *error, size_t error_bytes);
void vt_top_close(struct vt_top *top);

/* New figures; all pointers that were handed out before are void. After the end of the process they stay as they are.
 * False: nothing can be shown (any more); `error` says why. */
bool vt_top_refresh(struct vt_top *top, char *error, size_t error_bytes);

/* The analysis of the newest figures: model, symbols and style, no findings unless vt_top_judge() added them. */
const struct vt_analysis *vt_top_analysis(const struct vt_top *top);

/* Adds the findings to the analysis, and with them the verdicts of sites, until the next refresh. They take longer than all else
 * of a refresh together. False: memory ran out. */
bool vt_top_judge(struct vt_top *top);

/* The process has ended, and what is shown is its last state. */
bool vt_top_ended(const struct vt_top *top);

const char *vt_top_path(const struct vt_top *top);
uint64_t vt_top_events(const struct vt_top *top); /* booked so far */
uint64_t vt_top_torn(const struct vt_top *top);   /* booked while the figures were read */

/* Is there an earlier refresh to compare with, and a process that still does something? */
bool vt_top_has_rates(const struct vt_top *top);

/*
 * The places in an order, largest first; with a filter, those whose name has it (upper and lower case alike). NULL or "": all.
 * join: sites with the same name are one place, among the first few hundred.
 * Places whose names would take too long to find are left out by a filter, and not joined; they are by and by. *unnamed: how
 * many the filter left out for that.
 */
uint32_t vt_top_rows(struct vt_top *top, enum vt_top_sort sort, const char *filter, bool join,
                     const struct vt_top_row **rows, uint32_t *unnamed);

/* "zeros (train.py:6) < validate (train.py:15)": the user's line, and who called it. Not escaped. */
const char *vt_top_place(struct vt_top *top, const struct vt_site_row *site);

/* --- top_text.c --- */

enum vt_top_style { VT_TOP_PLAIN, VT_TOP_BOLD, VT_TOP_BAD, VT_TOP_WARN, VT_TOP_HEAD, VT_TOP_SELECTED };

struct vt_top_line {
    char *text; /* fits the width; no control characters */
    enum vt_top_style style;
};

struct vt_top_lines {
    struct vt_top_line *list;
    uint32_t count;
    bool failed; /* memory ran out: lines are missing */
};

struct vt_top_screen {
    unsigned width, height; /* height 0: as many lines as there are */
    bool utf8;              /* the terminal shows UTF-8; width is counted by wcwidth() of the current locale */
    enum vt_top_sort sort;
    const char *filter;  /* NULL: none */
    uint32_t first;      /* the first place, or line of a stack, that is shown */
    uint32_t selected;   /* index in the rows; VT_NONE: none */
    uint32_t most;       /* places that are shown, however much room there is; 0: as many as fit */
    const char *message; /* the last line; NULL: none */
};

/* The screen of a process. *rows (may be NULL): places that there are; *shown: lines for them. */
void vt_top_draw(struct vt_top *top, const struct vt_top_screen *screen, struct vt_top_lines *lines, uint32_t *rows,
                 uint32_t *shown);

/* All about one place, by its site's index: figures and the whole stack. sites: how many it stands for in the list.
 * *rows, *shown: lines that there are, and that fit. */
void vt_top_draw_site(struct vt_top *top, uint32_t site, uint32_t sites, const struct vt_top_screen *screen,
                      struct vt_top_lines *lines, uint32_t *rows, uint32_t *shown);

/* One process of the list of all. */
struct vt_top_process {
    int32_t pid;
    const char *path;                 /* of its recording */
    const struct vt_reading *reading; /* NULL: it cannot be read; then */
    const char *problem;              /* says why */
};
void vt_top_draw_processes(const struct vt_top_process *processes, uint32_t count, const struct vt_top_screen *screen,
                           struct vt_top_lines *lines);

/* Lines of text, as they are. *rows, *shown: as above (either may be NULL). */
void vt_top_draw_text(const char *const *text, const struct vt_top_screen *screen, struct vt_top_lines *lines,
                      uint32_t *rows, uint32_t *shown);

void vt_top_lines_free(struct vt_top_lines *lines);

/* --- top_json.c: schema vramtrack-top/1, one line each. Results as of vt_json_write(). --- */

/* most: sites that are listed. */
int vt_top_json(struct vt_top *top, unsigned most, int fd);
int vt_top_json_processes(const struct vt_top_process *processes, uint32_t count, int fd);

#endif
