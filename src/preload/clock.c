/* Keeps the counter and the clock together; see clock.h. */
#include "preload/clock.h"

#include <stdbool.h>
#include <time.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define MS 1000000ull
#define READING 4000u /* counts that a reading of the clock may take: a microsecond or two */

uint64_t vt_clock_read(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

#ifdef __x86_64__

/* Does the counter run at one rate whatever the processor does? Asked once: virtual machines make the question costly. */
static bool runs_evenly(void)
{
    static int known; /* 1: no, 2: yes */
    unsigned a, b, c, d;
    if (!__atomic_load_n(&known, __ATOMIC_RELAXED))
        __atomic_store_n(&known, __get_cpuid(0x80000007, &a, &b, &c, &d) && d & 1u << 8 ? 2 : 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&known, __ATOMIC_RELAXED) == 2;
}

/* Is what the counter says of the time what the clock says? */
static bool is_close(const struct vt_clock *c, uint64_t counter, uint64_t ns)
{
    uint64_t passed = counter - c->counter;
    if (passed >> 40) /* minutes, or backwards */
        return false;
    uint64_t said = c->ns + (uint64_t)((__uint128_t)passed * c->rate >> 32);
    return said < ns + MS && ns < said + MS;
}

static void begin(struct vt_clock *c, uint64_t counter, uint64_t ns)
{
    *c = (struct vt_clock){.counter = counter, .ns = ns, .first_counter = counter, .first_ns = ns};
}

uint64_t vt_clock_adjust(struct vt_clock *c)
{
    uint64_t counter = __builtin_ia32_rdtsc(), ns = vt_clock_read();
    if (__builtin_ia32_rdtsc() - counter > READING) /* this thread was stopped: they don't belong together */
        return ns;
    if (!c->first_ns)
        begin(c, counter, ns);
    uint64_t counts = counter - c->first_counter, time = ns - c->first_ns;
    if (c->rate && !is_close(c, counter, ns)) /* the machine slept, or was moved to another */
        begin(c, counter, ns);
    else if (time >= 10 * MS && counts && runs_evenly()) {
        double per_count = (double)time / (double)counts;
        c->rate = (uint64_t)(per_count * 4294967296.0);
        c->horizon = per_count > 0.01 && per_count < 100 ? (uint64_t)((double)MS / per_count) : 0;
        c->counter = counter;
        c->ns = ns;
    }
    return ns;
}

#else

uint64_t vt_clock_adjust(struct vt_clock *c)
{
    (void)c;
    return vt_clock_read();
}

#endif
