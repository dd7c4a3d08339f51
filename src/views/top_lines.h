/*
 * Lines that fit a screen: what the screens of `vramtrack top` are made of. Internal to src/views/top*.c.
 */
#ifndef VRAMTRACK_VIEWS_TOP_LINES_H
#define VRAMTRACK_VIEWS_TOP_LINES_H

#include "views/top.h"

/* A line that is being written. What does not fit is dropped. */
struct vt_line {
    char text[2048];
    size_t used;
    unsigned columns, width;
    bool utf8, full;
};

struct vt_line vt_line_begin(const struct vt_top_screen *screen);

/* printf for our own words: ASCII, and single UTF-8 characters of one column. */
__attribute__((format(printf, 2, 3))) void vt_line_format(struct vt_line *line, const char *format, ...);

/* A name of the recording, escaped, in at most `most` columns: cut with "..." where it is longer. */
void vt_line_name(struct vt_line *line, const char *name, unsigned most);
void vt_line_bytes(struct vt_line *line, const char *name, size_t length, unsigned most);

/* Appends it to the lines. */
void vt_line_end(struct vt_line *line, struct vt_top_lines *lines, enum vt_top_style style);

/* "train  pid 12 on vm  running 3.1 s  step 7": the first line of the screens of a process. */
void vt_top_put_process(struct vt_top *top, struct vt_line *line);

/* Drops what is behind the first `most` lines. */
void vt_lines_cut(struct vt_top_lines *lines, uint32_t most);

/* The first of `count` rows to be shown in `room` lines, so that the selected one is among them. */
uint32_t vt_lines_first(uint32_t first, uint32_t selected, uint32_t count, uint32_t room);

/* Leaves the first `fixed` lines, and of the others those from screen->first on that fit. Sets how many others there are and
 * how many fit (either may be NULL). */
void vt_lines_scroll(struct vt_top_lines *lines, const struct vt_top_screen *screen, uint32_t fixed, uint32_t *rows,
                     uint32_t *shown);

/* Fills up to the last line of the screen, which gets the message. */
void vt_lines_message(struct vt_top_lines *lines, const struct vt_top_screen *screen);

#endif
