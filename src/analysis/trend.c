/*
 * Statistics of growth; see trend.h. What the limits are good for is tested with hundreds of random loops, healthy and
 * leaking (tests/unit/test_growth.c).
 */
#include "analysis/trend.h"

#include <stdlib.h>

/*
 * The largest distance of the births' distribution from a uniform one (as of Kolmogorov and Smirnov, but a fixed bound: with
 * many births the test of significance would reject a leak for the slightest unevenness). A quarter of the time without any,
 * at either end, reaches it.
 */
#define DISTANCE_MAX 0.25

/* Beginning and end without births, in mean gaps between births. A leak that comes by chance is silent for so long in one of
 * 50 cases (exp -4); a cache that is full is silent from then on. */
#define SILENT_GAPS 4
#define SILENT_TICKS 2 /* beside that: the present tick is not over */

/* A place that becomes slower, such as a cache that knows more and more of what comes, has fewer births in the second half:
 * by more than chance would (1.64 standard deviations: one in 20), and by a fifth at least. */
#define SLOWER_SIGMAS 1.64
#define SLOWER_SHARE 0.8

#define Z_MIN 2.33            /* one in a hundred by chance; needs 6 points in a row that rise */
#define SECOND_HALF_SLOPE 0.5 /* of the slope as a whole: a leak does not slow down, a cache that fills up does */

/* Of the whole rise, how far a curve may be off the straight line: one that knows nothing of births must look the part. */
#define OFF_LINE_MAX 0.25

static uint64_t distinct(const uint64_t *ticks, uint64_t count)
{
    uint64_t i, found = 0;

    for (i = 0; i < count; i++)
        found += !i || ticks[i] != ticks[i - 1];
    return found;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The distance of the different ticks from a uniform distribution over [from, from + span). */
static double distance(const uint64_t *ticks, uint64_t count, uint64_t from, double span, uint64_t different)
{
    double worst = 0, step = 1 / (double)different, below = 0;
    uint64_t i;

    for (i = 0; i < count; i++) {
        double at;

        if (i && ticks[i] == ticks[i - 1])
            continue;
        at = 1 - larger(0, 1 - ((double)(ticks[i] - from) + 0.5) / span);
        worst = larger(worst, larger(at - below, below + step - at));
        below += step;
    }
    return worst;
}

static bool slows_down(const uint64_t *ticks, uint64_t count, uint64_t from, double span)
{
    double first = 0, second = 0;
    uint64_t i;

    for (i = 0; i < count; i++)
        if (!i || ticks[i] != ticks[i - 1])
            *((double)(ticks[i] - from) < span / 2 ? &first : &second) += 1;
    return second < first * SLOWER_SHARE &&
           (first - second) * (first - second) > SLOWER_SIGMAS * SLOWER_SIGMAS * (first + second);
}

bool vt_trend_is_steady(const uint64_t *ticks, uint64_t count, uint64_t from, uint64_t now)
{
    uint64_t different;
    double span, silent;

    while (count && ticks[0] < from) /* of before: nothing to be judged */
        ticks++, count--;
    while (count && ticks[count - 1] > now)
        count--;
    if (now < from || now - from < VT_TREND_BIRTHS_MIN || (different = distinct(ticks, count)) < VT_TREND_BIRTHS_MIN)
        return false;
    span = (double)(now - from);
    silent = SILENT_GAPS * (double)(ticks[count - 1] - ticks[0]) / (double)(different - 1) + SILENT_TICKS;
    if ((double)(ticks[0] - from) > silent || (double)(now - ticks[count - 1]) > silent)
        return false;
    return distance(ticks, count, from, span, different) <= DISTANCE_MAX && !slows_down(ticks, count, from, span);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The variance of Mann and Kendall's S: n (n - 1) (2n + 5) / 18, less the same for each group of equal values. */
static double variance(const double *values, uint32_t count)
{
    double sorted[VT_TREND_POINTS], sum = (double)count * (count - 1) * (2.0 * count + 5);
    uint32_t i, same = 1;

    for (i = 0; i < count; i++)
        sorted[i] = values[i];
    qsort(sorted, count, sizeof *sorted, compare);
    for (i = 1; i <= count; i++) {
        if (i < count && sorted[i] <= sorted[i - 1]) {
            same++;
            continue;
        }
        sum -= (double)same * (same - 1) * (2.0 * same + 5);
        same = 1;
    }
    return sum / 18;
}

/* Z = (S - 1) / sqrt(variance) for S > 0; compared by its square, which needs no libm. */
bool vt_trend_is_significant(const double *values, uint32_t count)
{
    uint32_t i, j;
    double s = 0;

    if (count < 4 || count > VT_TREND_POINTS)
        return false;
    for (i = 0; i < count; i++)
        for (j = i + 1; j < count; j++)
            s += (values[j] > values[i]) - (values[j] < values[i]);
    return s > 1 && (s - 1) * (s - 1) >= Z_MIN * Z_MIN * variance(values, count);
}

double vt_trend_slope(const double *values, uint32_t count)
{
    double slopes[VT_TREND_POINTS * (VT_TREND_POINTS - 1) / 2];
    uint32_t i, j, n = 0;

    if (count < 2 || count > VT_TREND_POINTS)
        return 0;
    for (i = 0; i < count; i++)
        for (j = i + 1; j < count; j++)
            slopes[n++] = (values[j] - values[i]) / (j - i);
    qsort(slopes, n, sizeof *slopes, compare);
    return n % 2 ? slopes[n / 2] : (slopes[n / 2 - 1] + slopes[n / 2]) / 2;
}

/* Does a curve keep near the straight line from its first point to its last? */
static bool is_straight(const double *values, uint32_t count)
{
    double rise = values[count - 1] - values[0], off;
    uint32_t i;

    for (i = 0; i < count; i++) {
        off = values[i] - values[0] - rise * i / (count - 1);
        if (larger(off, -off) > rise * OFF_LINE_MAX)
            return false;
    }
    return true;
}

bool vt_trend_is_rising(const double *values, uint32_t count)
{
    uint32_t half = count / 2;
    double slope = vt_trend_slope(values, count);

    return slope > 0 && vt_trend_is_significant(values, count) && is_straight(values, count) &&
           vt_trend_slope(values + half, count - half) >= slope * SECOND_HALF_SLOPE;
}
