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

/* A frame in one line: "function (file.cu:12)". Of a long name of a function, template arguments are left out: "f<...>::call". */
void vt_view_place(struct vt_out *out, const struct vt_display_frame *frame);

/* "... cut at 64 frames (VRAMTRACK_DEPTH)" as a line behind `indent`; nothing if the stack is whole. depth: the most frames
 * of a language that the recording keeps. */
void vt_view_cut(struct vt_out *out, const char *indent, const struct vt_trace *trace, uint32_t depth);

/* The frames of a stack, a line each behind `indent`: the visible ones, as many as are of use, or all of them. depth: as for
 * vt_view_cut(). */
void vt_view_frames(struct vt_out *out, const char *indent, const struct vt_trace *trace, uint32_t depth, bool all);

/* " [at::native::empty_cuda]": the native function that the trace's Python user frame called; nothing if there is none. */
void vt_view_leaf(struct vt_out *out, const struct vt_trace *trace);

/* "rank 1 of 8", or "rank 1" where the size of the job was not recorded or makes no sense. Returns buffer. */
#define VT_VIEW_RANK 40
const char *vt_view_rank(char buffer[VT_VIEW_RANK], const struct vt_header *header);

/* "is missing" or "are missing", behind model.missing. */
const char *vt_view_are_missing(const struct vt_model *m);

/* "GPU 0", or "host". */
void vt_view_device(struct vt_out *out, int device);

/* The same for a failed call, whose device need not be known. */
void vt_view_failure_device(struct vt_out *out, const struct vt_failure *failure);

/* The command line of the recorded process as one would type it, cut at about `most` bytes. */
void vt_view_command(struct vt_out *out, const struct vt_reading *reading, size_t most);

/* Sites of one kind, device and entry point whose visible stacks read the same. */
struct vt_joined {
    struct vt_site_row row; /* of the first of them, with the sums of all */
    uint64_t alloc_calls, free_calls, retired, threads;
    uint32_t sites;
    char *stack; /* to be freed; NULL: memory ran out, so it is like no other */
};

/* Fills `groups` (room for `most`, zeroed), largest first. Returns how many there are; *shown: the sites in them. */
uint32_t vt_view_join_sites(const struct vt_analysis *a, struct vt_joined *groups, uint32_t most, uint32_t *shown);

/* Is this site one that people see in a list of who holds memory? Where tensors are known, they are shown instead of the
 * segments that they lie in, so that nothing is counted twice; address space is no memory. */
bool vt_view_is_shown(const struct vt_analysis *a, const struct vt_site_row *row);

/* The largest `most` holders of live memory, one line each, one line for the rest, and one for what frameworks have cached
 * and nobody uses. */
void vt_view_holders(struct vt_out *out, const struct vt_analysis *a, unsigned most);

/* The line "1.90 GiB cached but unused by PyTorch"; nothing if there is nothing. Returns the bytes. */
uint64_t vt_view_cached(struct vt_out *out, const struct vt_analysis *a);

/* Of a GPU's account: the lines of what tensors, caches and the application hold; and "  PyTorch: reserved ...", if there is
 * something to say (returns the lines written: 0 or 1). */
void vt_view_account(struct vt_out *out, const struct vt_device_row *device);
unsigned vt_view_reserved(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *device);

/* "  tensors at their highest point: 4.10 GiB; activations 1.99 GiB, ...", largest first. device: of a model of "peak", with the
 * parts of its account. */
void vt_view_tensors_at_peak(struct vt_out *out, const struct vt_device_row *device);

/* The section on fragmentation; nothing if there is no more to say than the account says. */
void vt_view_fragmentation(struct vt_out *out, const struct vt_analysis *a);

/* What the arenas of frameworks that compile programs say of themselves, and the programs' temporary memory; nothing if
 * there are none. */
void vt_view_programs(struct vt_out *out, const struct vt_reading *reading);

/* The highest peak of each device's memory as the driver saw it: "peak 1.25 GiB on GPU 0, 2.00 GiB on GPU 1". False if there is
 * none, which is said as well. */
bool vt_view_peaks(struct vt_out *out, const struct vt_model *model);

/* "growth (likely): Tensors grow with every step." and a newline. */
void vt_view_finding(struct vt_out *out, const struct vt_finding *finding);

/* Who was refused: the call, or the framework whose allocator asked: "cudaMalloc", "PyTorch's allocator". */
void vt_view_requester(struct vt_out *out, const struct vt_reading *reading, const struct vt_failure *failure);

/* The place that asked, what it called, and how far training had come: "train_step (train.py:31) [at::native::empty_cuda], in
 * backward, after 12 steps". */
void vt_view_requested_by(struct vt_out *out, const struct vt_analysis *analysis, const struct vt_failure *failure);

/* What would help: at most `most` lines, each "try (saves up to 1.00 GiB, enough): ..." behind `indent`. Returns the lines
 * written. */
unsigned vt_view_advice(struct vt_out *out, const struct vt_finding *finding, const char *indent, unsigned most);

/* The next command that the request names, or the default one. */
void vt_view_next(struct vt_out *out, const struct vt_report_request *request);

#endif
