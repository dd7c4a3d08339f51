/*
 * The model: what a report shows of one recording at one moment, as plain tables.
 *
 * Moments
 *   "end"    what is live now in the file: at exit, or when the process was killed, or at this instant while it runs
 *            (if the writer left a moment "end", that one).
 *   "peak"   per site the values at the highest point of its scope (level, class, device). Scopes peak at different
 *            times; within one scope the values belong together.
 *   others   as recorded: "finalize", "oom-1", named ones. Withdrawn moments (empty name) do not exist.
 * The default is "finalize" if there is one, else "end".
 *
 * For a killed process the live figures are summed up from the live slots, which are the truth: the process may have
 * died between a slot and its sum.
 *
 * Uses malloc, no stdio streams, never exits. Tables belong to the model; strings and records to the reading, which
 * must outlive it. Not thread-safe per model.
 */
#ifndef VRAMTRACK_MODEL_H
#define VRAMTRACK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/fragmentation.h"
#include "recording/reader.h"

enum vt_process_end { VT_PROCESS_EXIT, VT_PROCESS_KILLED, VT_PROCESS_RUNNING };

/* How a site's live bytes developed; see vt_model_growth(). */
struct vt_growth {
    int64_t bytes;
    int64_t allocs;
    double bytes_per_s;
    bool monotonic; /* live bytes never fell from one interval to the next */
    uint64_t steps; /* training steps in which that happened; 0: there are none, or it is not known */
    double bytes_per_step;
};

struct vt_total_row {
    const struct vt_total *record;
    uint32_t index;
    uint64_t live_bytes, live_count, requested_bytes; /* at the moment */
};

/* Whose code made the allocation: by the innermost module that is neither ours nor CUDA's nor the interpreter's; by the
 * Python stack where there is none. */
enum vt_owner { VT_OWNER_UNKNOWN, VT_OWNER_APPLICATION, VT_OWNER_LIBRARY, VT_OWNER_FRAMEWORK };

struct vt_site_row {
    const struct vt_site *record;
    uint32_t index;                                   /* the site's id in reports */
    uint64_t live_bytes, live_count, requested_bytes; /* at the moment; requested 0 where it was not kept */
    uint64_t at_peak_bytes, at_peak_count;
    uint64_t newest_ns; /* when the newest of the live ones was made; 0: not known */
    struct vt_growth growth;
    bool pool; /* level driver: a framework hands this memory on as tensors */
    enum vt_owner owner;
    uint32_t module;     /* index of the owning module; VT_NONE */
    const char *verdict; /* family of the finding that names this site; NULL: none */
    enum { VT_SUPPRESSION_UNKNOWN, VT_SUPPRESSED, VT_NOT_SUPPRESSED } suppression; /* as far as findings have looked */
};

struct vt_moment_row {
    char name[33];
    uint64_t time_ns;
};

struct vt_failure_row {
    const struct vt_failure *record;
    uint32_t index;
};

struct vt_library_row {
    uint32_t module; /* index in VT_MODULES */
    uint64_t bytes;
};

struct vt_other_process {
    uint32_t pid;     /* as NVML says it: the host's, in a container */
    const char *name; /* any bytes; empty: not known. The reading's */
    uint64_t bytes;
};

/* What tensors are to a program, in the order of the schema. */
enum vt_tensor_part {
    VT_PART_PARAMETERS,
    VT_PART_GRADIENTS,
    VT_PART_OPTIMIZER,
    VT_PART_ACTIVATIONS,
    VT_PART_INPUTS,
    VT_PART_OTHER,
    VT_PART_COUNT
};

/* One GPU. `known` flags say which figures the recording has; the others mean nothing. */
struct vt_device_row {
    const struct vt_device *record;
    bool tensors_known; /* else frameworks' pools are part of `application` */
    uint64_t pool;      /* driver-level bytes of frameworks that hand them on as tensors */
    uint64_t tensors;   /* live tensors; tensor_part tells them apart, all under "other" until vt_account_add_parts() */
    uint64_t tensor_part[VT_PART_COUNT];
    uint64_t cached_unused; /* of the pool, and of the driver's own pools */
    uint64_t application, context, free, unaccounted;
    bool context_known, free_known, unaccounted_known;
    bool free_computed; /* from an older reading and what was allocated since, not read at the moment itself */
    struct vt_library_row *libraries;
    uint32_t library_count;
    bool others_known;               /* other processes are known, and not part of `unaccounted` */
    struct vt_other_process *others; /* largest first */
    uint32_t other_count;
    uint64_t reserved;                  /* by the driver, of what CUDA offers; mostly 0 */
    bool card_known;                    /* what NVML says: */
    uint64_t card_bytes, card_reserved; /* the card's size, and what the driver keeps of it, offered by CUDA or not */
};

struct vt_model {
    struct vt_reading *reading;
    char moment[33];
    uint64_t moment_ns;
    uint64_t parameters_ns;           /* when the newest place that makes parameters was new; 0: none (category.h) */
    const struct vt_moment *recorded; /* NULL: "end" of the file, or "peak" */
    enum vt_process_end end;
    uint64_t duration_ns;

    struct vt_total_row *totals; /* as in the file */
    uint32_t total_count;
    struct vt_site_row *sites; /* by live bytes, largest first, then at_peak_bytes */
    uint32_t site_count;
    struct vt_moment_row *moments; /* end, peak, recorded ones */
    uint32_t moment_count;
    struct vt_failure_row *failures;
    uint32_t failure_count;
    struct vt_device_row *devices;
    uint32_t device_count;
    struct vt_fragmentation fragmentation; /* as it was at the moment; at "peak" no pools are `known` */

    char missing[96]; /* "totals, failures": what the recording should have and lacks; empty: it is whole */
    char **notes;     /* the reading's and the model's own */
    uint32_t note_count;
};

/*
 * Builds the model at a moment (NULL: the default one). Returns 0, -ENOENT if there is no such moment, or -ENOMEM.
 * vt_model_free() releases it in every case but a failure, which leaves nothing to release.
 */
int vt_model_build(struct vt_model *model, struct vt_reading *reading, const char *moment);
void vt_model_free(struct vt_model *model);

/* The newest recorded moment of this name that was not withdrawn, or NULL. The name is as recorded, or as reports print it,
 * with \xNN for bytes. */
const struct vt_moment *vt_model_find_moment(const struct vt_reading *reading, const char *moment);

/* True if the moment exists (NULL: the default one, which always does). Names as above. */
bool vt_model_has_moment(struct vt_reading *reading, const char *moment);

/* Is the model's moment the end, of the process or of the program's own code? Leaks and growth are judged there alone. */
bool vt_model_is_end(const struct vt_model *model);

/* Adds a note, printf style. Lack of memory drops it. */
void vt_model_note(struct vt_model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fills model->missing from model->reading. Part of vt_model_build(). */
void vt_model_find_gaps(struct vt_model *model);

/* Is the process with this pid and start time (/proc/PID/stat field 22) alive? */
bool vt_model_process_lives(int32_t pid, uint64_t start_ticks);

/* How the process ended, looking at /proc if the file says "running". */
enum vt_process_end vt_model_process_end(const struct vt_header *header);

/*
 * How the process ended, in words: "exit status 0", "ended by signal 11 (Segmentation fault)", "was killed or crashed",
 * "still running". status: as waitpid gave it, if that is known. Returns buffer (VT_END_WORDS long).
 */
#define VT_END_WORDS 80
const char *vt_model_end_words(char *buffer, const struct vt_model *model, bool status_known, int status);

/*
 * Growth of a site with `live_bytes` in `live_count` allocations at `now_ns`:
 *   nothing was ever freed: all that is live, over the time since the site's first allocation;
 *   otherwise: live bytes now minus live bytes at half of that time (history), over the second half.
 * allocs is bytes divided by the mean size of the live allocations.
 */
struct vt_growth vt_model_growth(const struct vt_site *site, uint64_t live_bytes, uint64_t live_count, uint64_t now_ns);

/*
 * Growth of a row of level tensor, against training steps where there are three and more: what the site held more at the
 * model's moment than when half of the steps had ended, nothing if it has not changed since, and all that is live if
 * nothing was ever freed. Elsewhere, and for rows of level driver, as vt_model_growth().
 */
struct vt_growth vt_model_growth_of(const struct vt_model *model, const struct vt_site_row *row);

/* Training steps that had ended at a time, and when step number `step` (from 0) ended: exact, or between its neighbours
 * where steps were thinned out. */
uint64_t vt_model_steps_until(const struct vt_reading *reading, uint64_t time_ns);
uint64_t vt_model_step_end(const struct vt_reading *reading, uint64_t step);

/* True if all that the row's site had ever allocated was live at the model's moment. */
bool vt_model_never_freed(const struct vt_site_row *row);

/* The last time at which a site that never freed has allocated; of others, when it last allocated or freed: of either, no
 * later than the model's moment. */
uint64_t vt_model_last_ns(const struct vt_model *model, const struct vt_site_row *row);

/* A site's live bytes at the end of the first interval of its history that ends at or after `time_ns` (*end_ns), as far as
 * that is before `now_ns`; else `live_bytes`, and *end_ns is now_ns. */
uint64_t vt_model_live_at(const struct vt_site *site, uint64_t time_ns, uint64_t now_ns, uint64_t live_bytes,
                          uint64_t *end_ns);

/* The Python of the recorded process and what was said of it ("CPython 3.12.3", "CPython 3.17.0 is newer ..."), or NULL if
 * there was none or its frames were not wanted. *refused: its frames, or later ones, were not read. */
const char *vt_model_python(const struct vt_reading *reading, bool *refused);

/* Sets a row's owner and module from its record's stacks. */
void vt_model_set_owner(const struct vt_reading *reading, struct vt_site_row *row);

/* The row of a site by its index, or NULL. */
struct vt_site_row *vt_model_site(const struct vt_model *model, uint32_t index);

/* Schema words: kinds, levels, kinds of failure, ends, owners; "unknown" for numbers that are none. */
const char *vt_kind_name(unsigned kind);
const char *vt_level_name(unsigned level);
const char *vt_phase_name(unsigned phase);
const char *vt_step_source_name(unsigned source);
const char *vt_failure_name(unsigned kind);
const char *vt_end_name(enum vt_process_end end);
const char *vt_owner_name(enum vt_owner owner);

/* The phase (enum vt_phase) at the highest point of what "peak" is named after. */
unsigned vt_model_peak_phase(const struct vt_model *model);

/* True for kinds that are memory of their own (not address space, not somebody else's). */
bool vt_kind_is_memory(unsigned kind);

/* Name of a CUDA result as the entry point's API spells it, e.g. "cudaErrorMemoryAllocation"; NULL if unknown. */
const char *vt_code_name(int code, const char *api);

/* Failures that are one to a person: out-of-memory failures that differ in size only. Others are alone. */
struct vt_oom_group {
    uint64_t times, low, high; /* calls; smallest and largest request */
    bool first;                /* else the other fields mean nothing: an earlier row stands for the group */
};
struct vt_oom_group vt_model_oom_group(const struct vt_model *model, uint32_t row);

/* True if the failure is an out-of-memory that was not recovered from. */
bool vt_failure_is_oom(unsigned kind);

#endif
