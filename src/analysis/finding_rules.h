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

/* "1.00 GiB in 4 (device) by place: 6 allocated, 2 freed." as evidence. */
void vt_show_site(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_site_row *site);

/* Does the site hold memory that a driver call made and nobody freed? */
bool vt_holds_memory(const struct vt_site_row *site);

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

#endif
