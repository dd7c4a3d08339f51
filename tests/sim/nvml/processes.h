/*
 * The other processes on the simulated cards, as SIM_NVML_PROCESSES names them: "pid:name:MiB[:device],...". The driver
 * takes their bytes off what is free, NVML lists them.
 */
#ifndef SIM_NVML_PROCESSES_H
#define SIM_NVML_PROCESSES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sim_process {
    unsigned int pid;
    char name[200]; /* empty: nobody knows */
    unsigned long long bytes;
    int device;
};

/* Takes the next entry off *text; false at the end, or where it is not understood. */
static inline bool sim_process_next(const char **text, struct sim_process *p)
{
    const char *at = *text, *colon = at ? strchr(at, ':') : NULL, *end = colon ? strchr(colon + 1, ':') : NULL;
    char *rest;
    size_t length;

    if (end == NULL) {
        return false;
    }
    memset(p, 0, sizeof(*p));
    p->pid = (unsigned int)strtoul(at, NULL, 10);
    length = (size_t)(end - colon - 1);
    memcpy(p->name, colon + 1, length < sizeof(p->name) ? length : sizeof(p->name) - 1);
    p->bytes = strtoull(end + 1, &rest, 10) << 20;
    if (*rest == ':') {
        p->device = (int)strtol(rest + 1, &rest, 10);
    }
    *text = *rest == ',' ? rest + 1 : NULL;
    return true;
}

#endif
