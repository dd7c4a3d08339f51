/* Prints the readings of a recording for test_usage.py: one JSON line each. */
#include <stdio.h>

#include "recording/reader.h"

static const char *const causes[] = {"before", "after", "oom", "finalize", "end", "program"};

static long long known(uint64_t bytes)
{
    return bytes == VT_UNKNOWN_BYTES ? -1 : (long long)bytes;
}

int main(int argc, char **argv)
{
    char error[256];
    struct vt_reading *r = argc > 1 ? vt_reading_open(argv[1], error, sizeof error) : NULL;
    const struct vt_usage *u;

    for (uint64_t i = 0; r && (u = vt_reading_usage(r, i)); i++) {
        printf("{\"cause\":\"%s\",\"device\":%d,\"moment\":%d,\"foreign\":%d,\"listed\":%d,\"own\":%lld,\"live\":%llu,"
               "\"free\":%lld,\"more\":%llu,\"pids\":[",
               u->cause < VT_USAGE_CAUSE_COUNT ? causes[u->cause] : "?", u->device, (int)u->moment,
               !!(u->flags & VT_USAGE_FOREIGN), !!(u->flags & VT_USAGE_LISTED), known(u->own_bytes),
               (unsigned long long)u->live_bytes, known(u->free_bytes), (unsigned long long)u->more_processes);
        for (uint32_t k = 0; k < u->processes; k++) {
            const struct vt_process_bytes *p = vt_reading_process_bytes(r, u->first_process + k);
            printf("%s%u", k ? "," : "", p ? p->pid : 0);
        }
        puts("]}");
    }
    vt_reading_close(r);
    return r ? 0 : 1;
}
