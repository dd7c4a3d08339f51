/*
 * Places: what makes sites of different recordings the same to a person. Ids and addresses belong to one process; a place
 * is known by its level, its kind, its entry point and the functions, files and lines of its visible frames. Frames
 * without a name are known by module and offset. Files and modules count by their last part: another checkout, or another
 * host, has them elsewhere.
 *
 * A table keeps each place once, with copies of all its text, so recordings can be closed when they have been looked at.
 * It is bounded by VT_SPOTS_MAX: a recording is not trusted. Uses malloc, no output, never exits. Not thread-safe.
 */
#ifndef VRAMTRACK_SITE_MATCH_H
#define VRAMTRACK_SITE_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/model.h"
#include "analysis/stack.h"

#define VT_SPOTS_MAX 65536u /* of a table; a program has some hundreds */

/* The device of a place: an ordinal, VT_SPOT_HOST, or VT_SPOT_ANY where the caller does not tell GPUs apart. */
#define VT_SPOT_HOST (-1)
#define VT_SPOT_ANY (-2)

struct vt_spot {
    uint8_t level, kind;
    int16_t device;
    const char *api;
    struct vt_trace trace; /* its visible frames; with `all_frames` of the table every one of the first site's */
    uint32_t depth;        /* frames of a language that its recording keeps, for vt_view_cut() */
    const char *exact;     /* equal for the same place */
    const char *chain;     /* the same without lines and offsets: equal where lines have moved */
};

struct vt_spots;

/* Returns an empty table, or NULL if memory ran out. all_frames: hidden frames are kept too, to be shown; they are no part of
 * what makes a place. */
struct vt_spots *vt_spots_open(bool all_frames);
void vt_spots_close(struct vt_spots *places);

/*
 * The place of a site, made if it is new; its index, VT_NONE if the table is full (`vt_spots_full()`), or if memory ran out.
 * device: what the place is to have. symbols, style: as for vt_trace_build().
 */
uint32_t vt_spots_add(struct vt_spots *places, const struct vt_reading *reading, struct vt_symbols *symbols,
                      const struct vt_stack_style *style, const struct vt_site *site, int device);

bool vt_spots_full(const struct vt_spots *places);
bool vt_spots_no_memory(const struct vt_spots *places);

/* A place by its index; valid until the next vt_spots_add(). Its strings and frames are valid as long as the table. */
const struct vt_spot *vt_spots_at(const struct vt_spots *places, uint32_t index);
uint32_t vt_spots_count(const struct vt_spots *places);

/* How it is named in one line: by its user frame, and, if other places of the table have the same one and other callers, the
 * innermost caller that differs: "zeros (train.py:6) < validate (train.py:15)". Returns buffer (VT_SPOT_NAME long). */
#define VT_SPOT_NAME 256
const char *vt_spot_name(char *buffer, const struct vt_spots *spots, uint32_t index);

/* Is this site one that counts when bytes are compared? Where tensors are known, they count and not the segments that they
 * lie in; address space is no memory. */
bool vt_site_counts(const struct vt_model *model, const struct vt_site_row *row);

/* The same place by all but lines: 0 if equal, else an order. For sorting what has found no equal. */
int vt_spot_compare_chain(const struct vt_spot *a, const struct vt_spot *b);

/* The same by all from the innermost frame to the line that the place is named by, whoever calls that: 0 if equal, else an order. */
int vt_spot_compare_inner(const struct vt_spot *a, const struct vt_spot *b);

/* Has the line that the place is named by a function? Without names, equal chains mean little. */
bool vt_spot_is_named(const struct vt_spot *place);

/* The order of two places of one chain in the source, innermost difference last. */
int vt_spot_compare_lines(const struct vt_spot *a, const struct vt_spot *b);

#endif
