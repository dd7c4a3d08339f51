/*
 * Exports: a recording in the formats of other people's viewers, one writer per format (export_*.c). For the command only.
 *
 * Writers stream: what they keep in memory grows with distinct frames and places, never with events or with the output.
 * All names from a recording leave as valid UTF-8 without control characters (others as \xNN), then escaped as the format
 * wants it. The same recording gives the same bytes. Not thread-safe per reading's symbolizer; no stdio streams, no exit.
 */
#ifndef VRAMTRACK_EXPORT_H
#define VRAMTRACK_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "views/common.h"

/* What a place is weighed by. LEAKED: of places that a finding calls a leak all that is live, of those that it calls growing
 * what they grew by. */
enum vt_export_type { VT_EXPORT_LIVE, VT_EXPORT_AT_PEAK, VT_EXPORT_ALLOCATED, VT_EXPORT_LEAKED, VT_EXPORT_TYPES };

/* Which places. ALL: tensors in the place of the segments that they lie in, and what else the driver gave. */
enum vt_export_level { VT_EXPORT_DRIVER, VT_EXPORT_TENSOR, VT_EXPORT_ALL };

#define VT_EXPORT_EVENTS 200000u /* viewers in a browser choke on more */

struct vt_export_request {
    const char *moment; /* as in vt_report_request, like the next ones */
    int fd;             /* where to write; stays open */
    bool all_frames;
    enum vt_show_stacks stacks;
    const char *user_paths;
    struct vt_symbols *symbols; /* NULL: module and offset only */
    enum vt_export_type type;   /* of folded; what speedscope and pprof show first */
    enum vt_export_level level;
    uint64_t events; /* the newest ones, at most so many */
    bool *nothing;   /* set if no place that is shown has anything of `type`; NULL: not asked */
};

/*
 * All return 0 or a negative errno: -ENOENT if there is no such moment, -ENODATA if what the format needs was not recorded
 * at the moment, -ENOMEM, or what write(2) reported.
 */

/* One line per place, for flamegraph.pl and others: frames outermost first, separated by ';', a space, the bytes. */
int vt_folded_write(struct vt_reading *reading, const struct vt_export_request *request);

/* The table of places with a line of names (RFC 4180, lines end with LF). */
int vt_csv_write(struct vt_reading *reading, const struct vt_export_request *request);

/* https://www.speedscope.app/file-format-schema.json: one sampled profile per type that has something. */
int vt_speedscope_write(struct vt_reading *reading, const struct vt_export_request *request);

/* github.com/google/pprof/proto/profile.proto, compressed with gzip: objects and bytes of every type. */
int vt_pprof_write(struct vt_reading *reading, const struct vt_export_request *request);

/* Chrome's trace event format in JSON, which Perfetto reads: the whole run. */
int vt_perfetto_write(struct vt_reading *reading, const struct vt_export_request *request);

/* The pickle that torch.cuda.memory._snapshot() is saved as, for _memory_viz.py and pytorch.org/memory_viz. */
int vt_torch_snapshot_write(struct vt_reading *reading, const struct vt_export_request *request);

/* Prometheus' text format, without times. */
int vt_prometheus_write(struct vt_reading *reading, const struct vt_export_request *request);

/* "live", "at-peak", "allocated", "leaked". */
const char *vt_export_type_name(enum vt_export_type type);

/* --- shared by the writers: export_common.c ------------------------------------------------------------------------- */

struct vt_export {
    struct vt_analysis a;
    struct vt_out out;
    const struct vt_export_request *request;
    char *clean; /* what vt_export_clean() handed out */
    size_t clean_bytes;
};

/* Opens the analysis and the output. Returns 0, or a negative errno with nothing to close. */
int vt_export_open(struct vt_export *x, struct vt_reading *reading, const struct vt_export_request *request);

/* Writes what is buffered and closes. Returns 0 or the first error. */
int vt_export_close(struct vt_export *x);

/* Lack of memory: what was written is worth nothing. */
void vt_export_fail(struct vt_export *x, int error);

/* The text as valid UTF-8 without control characters; NULL is "". Valid until the next call. */
const char *vt_export_clean(struct vt_export *x, const char *text);

/* The text as a JSON string, with its quotes. */
void vt_export_json(struct vt_export *x, const char *text);

/* Does the request ask for this place? */
bool vt_export_shows(const struct vt_export *x, const struct vt_site_row *row);

struct vt_export_value {
    uint64_t bytes, count;
};
struct vt_export_value vt_export_value(const struct vt_site_row *row, enum vt_export_type type);

/* Does a stack show this frame? */
bool vt_export_has_frame(const struct vt_export *x, const struct vt_display_frame *frame);

/* "function (file.py:12)", not cleaned. Returns buffer. */
#define VT_EXPORT_LABEL 2048
const char *vt_export_label(char buffer[VT_EXPORT_LABEL], const struct vt_display_frame *frame);

/* The two frames outside of every stack: "GPU 0" or "host", and "tensors" or the kind. */
#define VT_EXPORT_ROOT 24
const char *vt_export_device(char buffer[VT_EXPORT_ROOT], int device);
const char *vt_export_kind(const struct vt_site_row *row);

/* "parameters" and so on of tensors; of others whose memory it is, or the library's name. Not cleaned. */
const char *vt_export_category(const struct vt_export *x, const struct vt_site_row *row);

/* --- tables of frames: export_stacks.c ------------------------------------------------------------------------------ */

/* Frames that are equal in all that is shown of them have one number, from 0. */
struct vt_export_frames {
    struct vt_display_frame *list;
    uint32_t count, room;
    uint32_t *table; /* number + 1, by hash */
    uint32_t slots;  /* a power of two */
};

/* The number of a frame, whose strings must outlive the table; VT_NONE: no memory. */
uint32_t vt_export_frame(struct vt_export_frames *frames, const struct vt_display_frame *frame);
void vt_export_frames_free(struct vt_export_frames *frames);

/* The stacks of all places that the request asks for. */
struct vt_export_stacks {
    struct vt_export_frames frames;
    struct vt_export_stack {
        const struct vt_site_row *row;
        size_t first;
        uint32_t count;
    } * stacks;
    uint32_t count;
    uint32_t *numbers; /* of frames: stacks are ranges in it, innermost first, without the roots */
    size_t used, room;
};

/* Returns 0 or -ENOMEM; to be freed in both cases. */
int vt_export_stacks_build(struct vt_export_stacks *stacks, const struct vt_export *x);
void vt_export_stacks_free(struct vt_export_stacks *stacks);

#endif
