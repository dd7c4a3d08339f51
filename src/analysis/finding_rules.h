/*
 * What the rules of the findings share: building a finding piece by piece. Internal to findings*.c.
 *
 * Lack of memory is noted in the builder and ends in one error, so that rules need not check every call;
 * vt_new_finding() then returns a finding that is thrown away.
 */
#ifndef VRAMTRACK_FINDING_RULES_H
#define VRAMTRACK_FINDING_RULES_H

#include <stdbool.h>

#include "analysis/findings.h"
#include "analysis/places.h"
#include "analysis/suppress.h"

struct vt_finding_builder {
    struct vt_findings *findings;
    struct vt_model *model;
    struct vt_symbols *symbols; /* NULL: no names */
    const struct vt_stack_style *style;
    struct vt_suppressions suppressions;
    struct vt_finding spare;
    bool no_memory;
};

/* Room for a place in evidence lines. */
#define VT_PLACE_BYTES 256

struct vt_finding *vt_new_finding(struct vt_finding_builder *b, enum vt_family family, enum vt_confidence confidence,
                                  const char *title, ...) __attribute__((format(printf, 4, 5)));
/* For what is known only when a finding's sites have been looked at. */
void vt_retitle(struct vt_finding_builder *b, struct vt_finding *finding, enum vt_confidence confidence,
                const char *title, ...) __attribute__((format(printf, 4, 5)));
void vt_add_evidence(struct vt_finding_builder *b, struct vt_finding *finding, const char *text, ...)
    __attribute__((format(printf, 3, 4)));
void vt_add_advice(struct vt_finding_builder *b, struct vt_finding *finding, uint64_t saves_bytes, const char *text,
                   ...) __attribute__((format(printf, 4, 5)));
void vt_add_site(struct vt_finding_builder *b, struct vt_finding *finding, uint32_t site);

/* The user frame of a stack as text, in buffer (VT_PLACE_BYTES). Returns buffer. */
const char *vt_place_of(struct vt_finding_builder *b, char *buffer, uint32_t stack, uint32_t python_stack);

/* True if the model shows the end of the run (not a moment inside it), where "still live" means "never freed". */
bool vt_is_final(const struct vt_model *model);

/* Is the place named in the user's file of suppressions? Ask only of what would be reported: it is counted. */
bool vt_is_suppressed(struct vt_finding_builder *b, struct vt_site_row *row);

/* Does the site hold memory that a driver call made and nobody freed? */
bool vt_holds_memory(const struct vt_site_row *site);

/* Evidence for a finding's sites, one line per place as vt_show_place() writes it, at most `most`, largest first. */
void vt_show_sites(struct vt_finding_builder *b, struct vt_finding *finding, uint32_t most);

/* Rows of the builder's model as places (findings_places.c). */
struct vt_row_places {
    const struct vt_model *model;
    struct vt_places places;
    uint32_t *of; /* by row: index of its place; VT_NONE: it was not wanted */
    uint32_t rows;
};

/* What rows of one name hold together. */
struct vt_place_sum {
    const struct vt_place *place; /* the first of that name */
    uint64_t bytes, count, made, freed;
    uint64_t requested,
        retired; /* bytes that were asked for of what is live; allocations that went with their context */
};

/* The places of those of the first `rows` rows that are wanted. False: no memory (noted). vt_row_places_free() in either
 * case. */
bool vt_row_places_build(struct vt_finding_builder *b, struct vt_row_places *places, const bool *wanted, uint32_t rows);
void vt_row_places_free(struct vt_row_places *places);

/* A row's place, or NULL. */
const struct vt_place *vt_row_place(const struct vt_row_places *places, uint32_t row);

/* One sum per name for the rows that are taken, largest first, to be freed; NULL: no memory (noted), and *count is 0. */
struct vt_place_sum *vt_row_places_sum(struct vt_finding_builder *b, const struct vt_row_places *places,
                                       const bool *taken, uint32_t *count);

/* Places and sums of the finding's sites (the first 512 of them), for evidence with a line per name. The list is to be freed,
 * and vt_row_places_free() called, in either case. */
struct vt_place_sum *vt_sum_sites(struct vt_finding_builder *b, const struct vt_finding *finding,
                                  struct vt_row_places *places, uint32_t *count);

/* "1.00 GiB in 4 (device) by place: 6 allocated, 2 freed." as evidence. */
void vt_show_place(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_place_sum *sum);

/* Did memory run out on a device, or on any (VT_ANY_DEVICE)? */
#define VT_ANY_DEVICE -1
bool vt_ran_out(const struct vt_model *model, int device);

/* Does the model show the moment at which the program's own code had ended? */
bool vt_is_at_finalize(const struct vt_model *model);

/* What stands before a finding's title where memory ran out, because reports begin with the account of that moment then, which
 * has other figures: "At the end, "; else "". A constant; for models that are vt_is_final(). */
const char *vt_moment_before(const struct vt_model *model);

/* What would give back the memory of the finding's sites, which are pools of frameworks: measures that the recorded
 * environment shows to be taken already are left out (findings_frameworks.c). */
void vt_advise_pools(struct vt_finding_builder *b, struct vt_finding *finding);

/* The same for a stream-ordered pool of the driver with `bytes` that nobody uses: only what the finding's sites' own code
 * could call. */
void vt_advise_stream_pool(struct vt_finding_builder *b, struct vt_finding *finding, uint64_t bytes);

/* Does the recorded environment tell JAX and TensorFlow, those of them that are in `frameworks` (bits as in frameworks.h), to
 * take memory as they need it instead of an arena? */
bool vt_takes_as_needed(const struct vt_reading *reading, unsigned frameworks);

/* How many other processes on a device run the same program or executable, and hold enough for a CUDA context; *name: which,
 * if there are any. *contexts: bytes that their contexts take at most, together: of each no more than this process's context
 * (0: not known) and no more than it holds. */
uint32_t vt_same_executable(const struct vt_reading *reading, const struct vt_device_row *device, const char **name,
                            uint64_t *contexts);

/* The rules, one per file. */
void vt_find_ooms(struct vt_finding_builder *b);         /* findings_oom.c: capacity, limit, fragmentation */
void vt_find_misuses(struct vt_finding_builder *b);      /* findings_failures.c: misuse */
void vt_find_failed_calls(struct vt_finding_builder *b); /* findings_calls.c: misuse, limit */
void vt_find_kept(struct vt_finding_builder *b);         /* findings_kept.c: pending */
void vt_find_leaks(struct vt_finding_builder *b);        /* findings_live.c: leak */
void vt_find_growth(struct vt_finding_builder *b);       /* findings_growth.c: growth */
void vt_find_replaced(struct vt_finding_builder *b);     /* findings_replaced.c: growth */
void vt_find_unreleased(struct vt_finding_builder *b);   /* findings_unreleased.c: misuse */
void vt_find_waste(struct vt_finding_builder *b);        /* findings_waste.c: waste, overhead */
void vt_find_pools(struct vt_finding_builder *b);        /* findings_pools.c: cache, waste, overhead */
void vt_find_stream_pools(struct vt_finding_builder *b); /* findings_stream_pools.c: cache; part of vt_find_pools() */
void vt_find_contexts(struct vt_finding_builder *b);     /* findings_contexts.c: overhead */

#endif
