/*
 * Statistics of growth: does something become more at a steady rate, or did it come at once, fill up to a bound, or go up
 * and down? Pure functions over numbers; usable from any thread. findings_growth.c says what they are asked for.
 *
 * Two tests, for two kinds of data.
 *
 *   Births    When the memory that a place still holds was made, on the clock of the program's work (steps). A leak leaves
 *             something behind at a steady rate, so these times are uniform from its beginning to the present; a ring
 *             holds new ones only, a cache that has filled up old ones only, one-time state has one time. This looks at
 *             each tick once, however much was made in it: a jump at the start does not hide growth.
 *   Curve     Live bytes at equal distances, where births are not known. Mann and Kendall's test says whether there is a
 *             trend beyond chance, in whatever form and with whatever noise; Theil and Sen's slope (the median of the
 *             slopes between all pairs) says how steep, and no single jump moves it.
 */
#ifndef VRAMTRACK_TREND_H
#define VRAMTRACK_TREND_H

#include <stdbool.h>
#include <stdint.h>

/* Most points of a curve; more are not needed, as the pairs count. */
#define VT_TREND_POINTS 32

/*
 * Do `count` births (ticks, ascending) come at a steady rate from tick `from` until `now`? False for fewer than
 * VT_TREND_BIRTHS_MIN different ticks, or a span of fewer ticks than that.
 */
#define VT_TREND_BIRTHS_MIN 6
bool vt_trend_is_steady(const uint64_t *ticks, uint64_t count, uint64_t from, uint64_t now);

/* Does a curve rise by Mann and Kendall's test (one-sided, 1 %)? False for fewer than 4 points; 6 that rise are the fewest
 * that can tell. count: at most VT_TREND_POINTS. */
bool vt_trend_is_significant(const double *values, uint32_t count);

/* Theil and Sen's slope per point. 0 for fewer than 2 points. count: at most VT_TREND_POINTS. */
double vt_trend_slope(const double *values, uint32_t count);

/* Does a curve rise steadily: beyond chance as a whole, near a straight line, and in its second half nearly as fast as
 * before? */
bool vt_trend_is_rising(const double *values, uint32_t count);

#endif
