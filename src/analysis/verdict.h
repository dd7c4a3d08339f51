/*
 * Why an allocation failed for want of memory: what the rows of the decision table share. Internal to findings_oom.c,
 * verdict_*.c and advice.c.
 *
 * A row looks at a refusal and returns a finding with its numbers, or NULL if it does not explain it. Rows only read.
 * Lack of memory is noted in the builder, as everywhere in the rules. Not thread-safe per builder.
 */
#ifndef VRAMTRACK_VERDICT_H
#define VRAMTRACK_VERDICT_H

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/frameworks.h"

#define VT_HOLDERS_MAX 8 /* sites that a finding names */
#define VT_SHOWN_MAX 3   /* of them in evidence */

/* Below this a measure is not worth its cost, and a cause not a word: the least that a framework takes from the driver for a
 * large request is 20 MiB, and a context's figure varies by more than that. */
#define VT_WORTH (64ull << 20)

/* A failure, and everything as it was then. */
struct vt_refusal {
    const struct vt_failure *failure;
    struct vt_model built;              /* of the failure's own moment, if the report shows another one */
    const struct vt_model *then;        /* NULL: nothing was copied at the failure */
    const struct vt_device_row *device; /* then, or as the report shows it; NULL: not known */
    const struct vt_fragmentation *segments;
    const struct vt_pools *pools; /* NULL: no tensors on the device, or no moment */
    uint64_t total;               /* of the card; 0: not known */
    uint64_t missing;             /* what had to be free beyond what was; the whole request where that is not known */
    unsigned frameworks;          /* vt_frameworks_on() */
    bool host;                    /* page-locked host memory was asked for */
    bool by_framework;            /* refused without asking the driver */
    char framework[VT_FRAMEWORKS_NAME];
    char asked[VT_FORMAT_BYTES];
};

typedef struct vt_finding *vt_verdict(struct vt_finding_builder *b, const struct vt_refusal *r);

/* verdict_limits.c: it could not have been granted, or something else than the card refused. */
vt_verdict vt_verdict_host, vt_verdict_huge, vt_verdict_limit;

/* verdict_pieces.c: memory was there, but not in a form that the request could have. */
vt_verdict vt_verdict_pieces, vt_verdict_pending, vt_verdict_private;

/* verdict_growth.c: it filled up. */
vt_verdict vt_verdict_growth;

/* verdict_holders.c: somebody in particular holds it; vt_verdict_capacity() always says something. */
vt_verdict vt_verdict_others, vt_verdict_libraries, vt_verdict_arena, vt_verdict_capacity;

/* The row of the device that the failure was on; NULL: not known, or no model. */
const struct vt_device_row *vt_refusal_device(const struct vt_model *model, const struct vt_failure *failure);

/* Did something refuse although the card, as far as is known, had room? */
bool vt_refused_by_limit(const struct vt_refusal *r);

/* Did a framework's allocator make the request, as opposed to other code of the process? */
bool vt_asked_by_framework(const struct vt_model *m, const struct vt_refusal *r);

/* Evidence: "PyTorch had reserved 5.00 GiB, 3.10 GiB of it in tensors; 1.90 GiB were cached but unused." */
void vt_show_pools(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r);

/* Evidence: who held most at the failure, of the memory that was asked for (device or host). Names them as sites. */
void vt_show_largest(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r);

/* Is NAME=...WORD... among the recorded settings of the environment? `word` may be "". */
bool vt_setting_has(const struct vt_reading *reading, const char *name, const char *word);

#endif
