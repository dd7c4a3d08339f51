/*
 * Pages for a browser, of one recording (html.c), of a job (html_job.c) and of a comparison (html_diff.c): what their parts
 * share. Internal to src/views/html*.c.
 *
 * A page is a fixed text (src/views/html, put together at build time) around one block of JSON. Its figures come from the
 * functions that make `--json`, so both say the same. The block is bounded whatever the recording says: each part has a
 * budget of bytes, and what finds no room is counted, added up, and named in the page.
 *
 * A recording is hostile, and the page is opened from a disk: the JSON is plain ASCII without a '<', so nothing in it can
 * end the block, and the page's policy runs no other script than its own.
 */
#ifndef VRAMTRACK_HTML_H
#define VRAMTRACK_HTML_H

#include <jansson.h>

#include "views/export.h"

/* Bytes of the parts; with the page's own text they stay below 10 MB. */
#define VT_PAGE_LIST 120000u      /* each of the report's lists */
#define VT_PAGE_STACKS 6500000u   /* places and failures with their stacks */
#define VT_PAGE_FAILURES 700000u  /* of that, failures at most */
#define VT_PAGE_TIMELINE 1000000u /* curves, steps and marks */
#define VT_PAGE_MAP 900000u       /* segments and blocks */
#define VT_PAGE_MOMENTS 200000u   /* what places held at other moments */
#define VT_PAGE_TEXT 3000u        /* one string of the recording; longer ones are cut */

/* Of a job's page. */
#define VT_PAGE_RANKS 2200000u   /* the ranks' figures */
#define VT_PAGE_PLACES 3200000u  /* places with their stacks */
#define VT_PAGE_AMOUNTS 2600000u /* what each rank holds at them */
#define VT_PAGE_SKEW 400000u     /* what makes ranks uneven */

struct vt_page_buffer {
    char *text;
    size_t used, room;
    bool failed; /* memory ran out */
};

struct vt_page_strings;
struct vt_page_nodes;

struct vt_page {
    struct vt_export x; /* .a is the analysis; no request */
    struct vt_page_buffer left_out;

    const struct vt_site_row **rows; /* by index of a site; NULL: none. Room for model.site_count */
    uint32_t *number_of;             /* per index of a site: its place in the page's list + 1; 0: not in the page */
    char **names; /* per index of a site: what it is called if its line alone says too little; or NULL */

    /* html_stacks.c: tables that other parts name things by. */
    struct vt_page_buffer strings, frames, nodes;
    struct vt_page_strings *string_table;
    struct vt_page_nodes *node_table;
    struct vt_export_frames frame_table;
    uint32_t string_count, node_count;

    /* html_sites.c */
    struct vt_page_buffer sites, others, failures, moments, moments_left;
    uint32_t site_count;
};

/* --- html_frame.c: the fixed texts ------------------------------------------------------------------------------------- */

enum vt_page_kind { VT_PAGE_OF_RECORDING, VT_PAGE_OF_JOB, VT_PAGE_OF_DIFF };

/* Opens the output and writes what comes before the block; the list of what was left out, its end, and what comes behind. */
void vt_page_begin(struct vt_page *page, enum vt_page_kind kind, int fd);
void vt_page_end(struct vt_page *page, enum vt_page_kind kind);

/* The row of a site by its index; NULL: there is none. */
static inline const struct vt_site_row *vt_page_row(const struct vt_page *page, uint32_t site)
{
    return site < page->x.a.model.site_count ? page->rows[site] : NULL;
}

/* --- html_names.c ----------------------------------------------------------------------------------------------------- */

/* Names the sites of `list` as the text report does (analysis/places.h): page->names, of the first of them at most. */
void vt_page_name_sites(struct vt_page *page, const struct vt_site_row *const *list, uint32_t count);
void vt_page_names_free(struct vt_page *page);

/* --- html_buffer.c --------------------------------------------------------------------------------------------------- */

void vt_page_put(struct vt_page_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A value as ASCII without '<', its strings cut at VT_PAGE_TEXT bytes. Lets go of it. */
void vt_page_put_json(struct vt_page_buffer *buffer, json_t *value);

/* Puts a buffer's text behind another's, and empties it. */
void vt_page_append(struct vt_page_buffer *buffer, struct vt_page_buffer *more);

/* ,"key":value; lets go of the value. */
void vt_page_put_key(struct vt_page *page, const char *key, json_t *value);

/* ,"key":[...] of elements that `element` makes of an index; those behind `most` bytes are left out, and counted. */
void vt_page_put_list(struct vt_page *page, const char *key, uint64_t count, size_t most,
                      json_t *(*element)(const void *of, uint32_t index), const void *of);

/* ,"key":[the buffer's text], which is empty then. */
void vt_page_flush_list(struct vt_page *page, const char *key, struct vt_page_buffer *buffer);

/* Puts a buffer's text into the output and empties it; its failure becomes the page's. */
void vt_page_flush(struct vt_page *page, struct vt_page_buffer *buffer);

/* "name":N for the page's list of what it lacks; nothing if count is 0. */
void vt_page_lacks(struct vt_page *page, const char *name, uint64_t count);

/* --- html_stacks.c: strings and stacks, each once -------------------------------------------------------------------- */

/* The number of a string, from 1; 0: NULL, or no memory. */
uint32_t vt_page_string(struct vt_page *page, const char *text);

struct vt_page_stack {
    uint32_t node;   /* of the innermost frame; 0: there is no stack, or no memory */
    int user;        /* which frame is the one to blame, counted from the innermost; -1: none */
    bool cut, whole; /* whole: it found room */
};

/* Adds a stack (ids, 0: none), as far as all tables together stay below `most` bytes. */
struct vt_page_stack vt_page_stack(struct vt_page *page, uint32_t native, uint32_t python, size_t most);

/* The same of a trace that is built. The frames' strings must outlive the page. */
struct vt_page_stack vt_page_trace(struct vt_page *page, const struct vt_trace *trace, size_t most);

/* Writes the keys strings, frames and nodes. */
void vt_page_write_tables(struct vt_page *page);

size_t vt_page_stack_bytes(const struct vt_page *page);
void vt_page_stacks_free(struct vt_page *page);

/* --- the parts: each writes one or more keys of the block, beginning with a comma -------------------------------------- */

void vt_page_write_stacks(struct vt_page *page);   /* failures, sites, others, moments, strings, frames, nodes */
void vt_page_write_timeline(struct vt_page *page); /* html_timeline.c */
/* Into the timeline: ",\n\"layers\":[...]". */
void vt_page_put_layers(struct vt_page *page, struct vt_page_buffer *buffer); /* html_layers.c */
void vt_page_write_map(struct vt_page *page);                                 /* html_map.c */

/* --- html_replay.c: the newest events again --------------------------------------------------------------------------- */

struct vt_page_replay {
    uint64_t first, count; /* numbers of the events */
    uint64_t from_ns, until_ns;
    uint32_t intervals;
    bool exact; /* an interval per event */
    uint32_t sites, scopes;
    int64_t *site_live; /* per site: before the first event */
    int64_t *scope_live;
    uint64_t now_ns; /* of the newest event replayed: times never go back */
    uint32_t now;    /* its interval */
};

/* Goes back from what is live now to what was live before the first event that is kept. 0 or -ENOMEM; to be freed. */
int vt_page_replay_open(struct vt_page_replay *replay, const struct vt_reading *reading, uint32_t most);
void vt_page_replay_free(struct vt_page_replay *replay);

/* Begins at the first event again. */
void vt_page_replay_rewind(struct vt_page_replay *replay);

/* Event `number`: the bytes by which it changes its site (*site VT_NONE: by nothing), and replay->now is its interval. */
int64_t vt_page_replay_step(struct vt_page_replay *replay, const struct vt_reading *reading, uint64_t number,
                            uint32_t *site);

/* When an interval begins, in ns; of exact ones, event `number`'s time. */
uint64_t vt_page_replay_time(const struct vt_page_replay *replay, const struct vt_reading *reading, uint32_t interval);

#endif
