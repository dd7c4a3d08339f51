/*
 * The time of an event, for half of what a reading of the clock costs.
 *
 * Between readings of CLOCK_MONOTONIC, at most a millisecond apart, the processor's counter says how much later it is. Its
 * rate is measured against the clock itself, from the first reading on. Where the counter can't be trusted to run evenly
 * (CPUID says whether it does; other architectures than x86-64), and whenever it is found to be off, the clock is read.
 */
#ifndef VT_PRELOAD_CLOCK_H
#define VT_PRELOAD_CLOCK_H

#include <stdint.h>

struct vt_clock {                     /* all zero at first */
    uint64_t counter, ns;             /* at the last reading */
    uint64_t horizon;                 /* counts after it until the next reading; 0: always read */
    uint64_t rate;                    /* nanoseconds per count << 32 */
    uint64_t first_counter, first_ns; /* at the first reading that counts */
};

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t vt_clock_read(void);

/* Behind vt_clock_quick. */
uint64_t vt_clock_adjust(struct vt_clock *c);

/* The same, off by a microsecond at most where the counter runs evenly; may be a little less than what it returned last.
 * For one thread at a time. */
static inline uint64_t vt_clock_quick(struct vt_clock *c)
{
#ifdef __x86_64__
    uint64_t passed = __builtin_ia32_rdtsc() - c->counter;
    if (__builtin_expect(passed < c->horizon, 1))
        return c->ns + (passed * c->rate >> 32);
#endif
    return vt_clock_adjust(c);
}

#endif
