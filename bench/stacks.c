/*
 * How long it takes to find the names of all frames of a recording, and then to make the stacks of all places, without a
 * report around it:
 *
 *     stacks RECORDING        prints seconds of processor time for either, frames shown, and how many have a name
 */
#include <stdio.h>
#include <time.h>

#include "analysis/stack.h"
#include "analysis/symbols.h"
#include "recording/reader.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    char error[512];
    struct vt_reading *reading = argc == 2 ? vt_reading_open(argv[1], error, sizeof error) : NULL;
    struct vt_symbols *symbols = vt_symbols_open();
    uint64_t frames = 0, named = 0, i;
    double start, looked_up, done;

    if (!reading || !symbols)
        return fprintf(stderr, "stacks RECORDING\n"), 2;
    start = now();
    for (i = 0; i < vt_reading_count(reading, VT_FRAMES); i++)
        vt_symbols_frame(symbols, reading, vt_reading_frame(reading, (uint32_t)i + 1), NULL);
    looked_up = now();
    for (i = 0; i < vt_reading_count(reading, VT_SITES); i++) {
        const struct vt_site *site = vt_reading_site(reading, i);
        struct vt_trace trace;

        if (!site || vt_trace_build(&trace, reading, symbols, NULL, site->stack, site->python_stack))
            continue;
        for (uint32_t f = 0; f < trace.count; f++)
            named += trace.frames[f].function != NULL;
        frames += trace.count;
        vt_trace_free(&trace);
    }
    done = now();
    printf("%.3f %.3f %llu %llu\n", looked_up - start, done - looked_up, (unsigned long long)frames,
           (unsigned long long)named);
    vt_symbols_close(symbols);
    vt_reading_close(reading);
    return 0;
}
