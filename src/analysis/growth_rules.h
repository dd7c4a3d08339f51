/*
 * What the files about growth share: what is thought of each place, and how that is found and told. Internal to
 * findings_growth*.c and verdict_growth.c.
 *
 * Rows are the first `births->rows` of the builder's model. Lack of memory is noted in the builder.
 */
#ifndef VRAMTRACK_GROWTH_RULES_H
#define VRAMTRACK_GROWTH_RULES_H

#include "analysis/births.h"
#include "analysis/finding_rules.h"
#include "analysis/retention.h"

#define VT_GROWTH_ROWS 256 /* places looked at, largest first: what is behind them explains no card that is full */
#define VT_GROWTH_COUNT 4  /* live allocations: fewer show nothing */
#define VT_GROWTH_TICKS 8  /* steps or passes from which growth against them is likely */
#define VT_GROWTH_PART 4   /* of the ticks, one in so many must lie in the time of growth: else it is an episode */
#define VT_GROWTH_LONG_NS (300ull * 1000000000) /* time from which steady growth is likely without steps */

/* What is thought of a row. */
struct vt_opinion {
    bool grows;
    enum vt_confidence confidence;
    enum vt_retention retention;
    double per_tick; /* bytes; 0: against no clock */
    uint64_t ticks;
};

/* May a row grow at all: memory of tensors, or of the program's own calls while it runs? However few are live,
 * or none: what a place has let go of is told of others that read alike. */
bool vt_growth_is_candidate(const struct vt_model *model, const struct vt_site_row *row);

/* Is it meant to stay by what it is? ticks: judged against a clock of the program's work. */
bool vt_growth_is_meant(const struct vt_finding_builder *b, const struct vt_site_row *row, bool ticks);

/* Was the place still at it when the model's moment came? */
bool vt_growth_is_active(const struct vt_model *model, const struct vt_site_row *row);

/* Bytes of a row that were made in ticks after `from` and before the present one, per tick. */
double vt_growth_rate(const struct vt_births *births, uint32_t row, uint64_t from);

/* For qsort(): times or ticks (uint64_t), ascending. */
int vt_growth_compare(const void *left, const void *right);

/* Judges each row by itself, then those of one chain together. */
void vt_growth_judge(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                     struct vt_opinion *opinions);

/* findings_growth_joined.c: what rows of one chain show together and none of them alone. */
void vt_growth_join(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                    struct vt_opinion *opinions);

/* findings_growth_report.c: the findings. */
void vt_growth_report(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                      struct vt_opinion *opinions);

#endif
