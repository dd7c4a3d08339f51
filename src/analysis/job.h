/*
 * Many processes as one job: a summary per process, the ranks that differ from the others and the places that make the
 * difference, who died first, and who sits on somebody else's GPU.
 *
 * Recordings are added one by one and may be closed at once; kept are some figures and the largest VT_JOB_SITES places of
 * each, so a thousand ranks take some tens of MiB. The rules and their reasons are in docs/verdicts.md.
 *
 * Uses malloc, no output, never exits. Not thread-safe per job.
 */
#ifndef VRAMTRACK_JOB_H
#define VRAMTRACK_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "analysis/site_match.h"

#define VT_JOB_SITES 512 /* of a process, largest first: what is behind them makes no difference worth a word */

/* A helper (a worker that loads data, a compiler) is folded away: it holds next to nothing beside its rank. */
#define VT_JOB_TINY (64ull << 20)
#define VT_JOB_TINY_SHARE 8

/*
 * What makes a rank uneven. Absolute: below 64 MiB it is the granularity of a caching allocator (segments of 2 to 20 MiB)
 * and not worth a word. Relative: ranks of one program differ by some percent because their batches do. And against the
 * spread of all ranks: a modified z-score above 3.5 (Iglewicz and Hoaglin's limit, from median and median deviation, which
 * outliers don't move), so that ranks that all differ, as the stages of a pipeline do, are no outliers one by one.
 */
#define VT_SKEW_BYTES (64ull << 20)
#define VT_SKEW_SHARE 10 /* a tenth of the median */
#define VT_SKEW_SCORE 3.5
#define VT_SKEW_FEW 8   /* more than an eighth of the ranks is a pattern of the program's, and no odd rank */
#define VT_SKEW_RANKS 3 /* with fewer there is no telling which of them is odd */

/* When a killed process died is known by its last event only: within a second there is no telling who was first. */
#define VT_JOB_TOGETHER 1000000000ull

struct vt_job_device {
    int ordinal; /* in the process */
    uint8_t uuid[16];
    uint64_t peak, live; /* device and managed memory, level driver */
    uint64_t context;
    bool context_known;
};

struct vt_job_amount {
    uint32_t place;
    uint64_t at_peak, at_peak_count, live, live_count;
};

/* At which of its moments the parts of a process are. */
enum vt_job_when {
    VT_JOB_AT_PEAK,  /* its own highest point: it ended by itself */
    VT_JOB_AT_OOM,   /* where it ran out of memory: a moment was recorded there */
    VT_JOB_AT_END,   /* killed, or still running: what it holds last */
    VT_JOB_AT_MOMENT /* the one that was asked for, as far as its recording has that */
};

/*
 * What a process's device and managed memory consists of. At the peak, the tensors' figures are of the highest point of the
 * tensors, the others of that of the driver's memory; the two are mostly one.
 */
struct vt_job_parts {
    enum vt_job_when when;
    bool known;     /* tensors are; else `rest` is all of it */
    uint64_t bytes; /* the whole: the peak, or what is live at the moment */
    uint64_t part[VT_PART_COUNT];
    uint64_t cached; /* by frameworks; but for the peak, and beyond `bytes`, by the driver's own pools too */
    uint64_t rest;   /* of `bytes`: in no tensor and not cached; what libraries and the program took of the driver */
};

struct vt_job_rank {
    char *path, *finding; /* finding: the first loud one; NULL: none */
    char host[65], program[65], moment[33], words[VT_END_WORDS];
    int32_t pid, rank, local_rank, world_size; /* -1: not set */
    enum vt_process_end end;
    int32_t exit_code; /* if `end` is VT_PROCESS_EXIT */
    bool oom, failed;  /* failed: killed, or an exit status other than 0 */
    char missing[96];  /* what its recording lacks (as in the model); empty: it is whole */
    uint64_t start_unix_ns, end_unix_ns, oom_unix_ns, steps; /* oom: of the first one; when its moment was taken */
    uint64_t oom_live; /* device and managed memory at the first out-of-memory, whatever moment is looked at */
    bool oom_live_known;
    struct vt_job_device *devices;
    uint32_t device_count, main; /* main: the one with most memory; VT_NONE: none */
    uint64_t peak, live;         /* device and managed memory: sums over devices of each one's highest; at the moment */
    uint64_t counted;            /* live, in tensors where they are known and not in the segments that hold them */
    uint64_t part[VT_PART_COUNT], cached; /* at the moment */
    bool tensors_known;
    struct vt_job_parts parts;     /* what the table shows */
    struct vt_job_amount *amounts; /* by place */
    uint32_t amount_count;
    uint64_t floor; /* the most that a place holds which is not among them; 0: all are */
    bool helper;    /* folded away */
};

enum vt_job_measure { VT_JOB_PEAK, VT_JOB_LIVE };

struct vt_job_difference {
    uint32_t place;
    uint64_t bytes[2], count[2]; /* of the median rank, of this one */
};

/* A rank that differs from the median one. */
struct vt_job_skew {
    uint32_t rank, against; /* indices */
    enum vt_job_measure measure;
    enum vt_confidence confidence;
    uint64_t bytes[2];                     /* of the median rank, of this one */
    struct vt_job_difference *differences; /* largest first */
    uint32_t difference_count;
    int64_t rest; /* of the difference: in no place (cached, smaller places, another instant) */
};

enum vt_job_family {
    VT_JOB_OOM,
    VT_JOB_DIED,
    VT_JOB_SKEW,
    VT_JOB_STRAY,   /* a context on another rank's GPU */
    VT_JOB_SHARED,  /* all ranks of a host on one of its GPUs */
    VT_JOB_MISSING, /* fewer recordings than ranks */
    VT_JOB_NONE,
    VT_JOB_FAMILY_COUNT
};

struct vt_job_finding {
    enum vt_job_family family;
    enum vt_confidence confidence;
    char *title, *advice; /* advice NULL: none */
    char **evidence;
    uint32_t evidence_count;
    uint32_t *ranks; /* indices */
    uint32_t rank_count;
};

/* What all ranks hold at one place. */
struct vt_job_place {
    uint32_t place, ranks;      /* ranks: that hold something there */
    uint64_t sum, median, most; /* median over all whole recordings */
    uint32_t most_rank;         /* index */
};

struct vt_job {
    struct vt_spots *places;
    struct vt_job_rank *ranks; /* as added; sorted by vt_job_finish(): bad ends first, then by rank, helpers last */
    uint32_t rank_count;       /* all processes */
    uint32_t process_count;    /* those that are not folded away */
    uint32_t helper_count;
    uint32_t median[2]; /* by measure: index of the median rank; VT_NONE: no ranks */
    struct vt_job_skew *skews;
    uint32_t skew_count;
    struct vt_job_finding *findings;
    uint32_t finding_count;
    struct vt_job_place *held; /* at the peak; largest sum first */
    uint32_t held_count;
    uint32_t compared;   /* ranks that were compared: one process of each, that ended in the same way */
    uint32_t incomplete; /* processes whose recordings lack something */
    uint32_t
        unreadable; /* files that may be recordings of the job and can't be read; the caller's, before it finishes */
    bool at_moment; /* parts are at the moment that each recording was opened at; the caller's, before it adds any */
    char **notes;   /* sentences about the whole: ranks that are left out, ranks that occur twice */
    uint32_t note_count;
    bool no_memory; /* noted by the rules; vt_job_finish() reports it */
};

/* all_frames: places keep hidden frames too. Returns 0 or -ENOMEM (nothing to free). */
int vt_job_open(struct vt_job *job, bool all_frames);

/* Adds a process by its open analysis. path: copied. status_known, status: as for vt_model_end_words(). 0 or -ENOMEM. */
int vt_job_add(struct vt_job *job, const struct vt_analysis *analysis, const char *path, bool status_known, int status);

/* Folds helpers away, sorts, compares. Returns 0 or -ENOMEM. */
int vt_job_finish(struct vt_job *job);
void vt_job_free(struct vt_job *job);

/* The moment of a recording that a job shows where none is asked for: its first out-of-memory; NULL: the default one.
 * `name` has room for 33 bytes. */
const char *vt_job_moment(struct vt_reading *reading, char *name);

/* "out_of_memory", "died", "rank_skew", "stray_context", "shared_gpu", "missing_ranks", "none". */
const char *vt_job_family_name(enum vt_job_family family);
const char *vt_job_measure_name(enum vt_job_measure measure); /* "peak", "live" */

/* "rank 3", or "pid 4711" where it has none. Returns buffer (VT_JOB_NAME long). */
#define VT_JOB_NAME 32
const char *vt_job_rank_name(char *buffer, const struct vt_job_rank *rank);

/* Is it a rank's main process? */
static inline bool vt_job_is_rank(const struct vt_job_rank *r)
{
    return r->rank >= 0 && !r->helper;
}

/* Can it be compared with others? What is missing from a recording is not known to be 0. */
static inline bool vt_job_compares(const struct vt_job_rank *r)
{
    return vt_job_is_rank(r) && !r->missing[0];
}

/* --- what the parts share; internal to job*.c --- */

/* job_parts.c: sets `parts`, once the rest of the rank's figures are there. 0 or -ENOMEM. */
int vt_job_take_parts(const struct vt_job *job, struct vt_job_rank *rank, const struct vt_analysis *analysis);
/* job_own.c: sets oom, its time and what was held, and `finding`, once `live` is there. 0 or -ENOMEM. */
int vt_job_take_own(struct vt_job_rank *rank, const struct vt_analysis *analysis);
/* Device and managed memory that is live at a model's moment. */
uint64_t vt_job_live_of(const struct vt_model *model);
/* job_skew.c: medians, skews and `held`. */
void vt_job_find_skew(struct vt_job *job);
/* job_findings.c */
void vt_job_find_all(struct vt_job *job);
/* A new finding, its text (printf style), a line of evidence, and a process that it is about (index). Where memory ran out,
 * which is noted, there is no finding (NULL), or it lacks the rest. */
struct vt_job_finding *vt_job_new_finding(struct vt_job *job, enum vt_job_family family, enum vt_confidence confidence);
void vt_job_set_text(struct vt_job *job, char **text, const char *format, ...) __attribute__((format(printf, 3, 4)));
void vt_job_add_evidence(struct vt_job *job, struct vt_job_finding *finding, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void vt_job_add_rank(struct vt_job *job, struct vt_job_finding *finding, uint32_t index);
#define VT_JOB_EVIDENCE 8 /* lines of a finding */
/* job_gpus.c: whose GPUs ranks use: another rank's, or all the same one. */
void vt_job_find_gpus(struct vt_job *job);
/* Room for one more element in an array of `count`; NULL: memory ran out (noted). */
void *vt_job_grow(struct vt_job *job, void *array, uint32_t count, size_t bytes);
/* job_notes.c: `notes` and `incomplete`, once the processes are sorted. */
void vt_job_add_notes(struct vt_job *job);
/* A rank's amount at a place, or NULL. */
const struct vt_job_amount *vt_job_amount_at(const struct vt_job_rank *rank, uint32_t place);

#endif
