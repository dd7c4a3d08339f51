/*
 * Handles of physical memory: shared by virtual memory management and multicast.
 */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "driver.h"

struct sim_physical {
    CUmemAllocationProp prop;
    size_t bytes;
    struct sim_device *device; /* who pays; NULL for host memory, multicast objects and other processes' memory */
    unsigned int handles;      /* that have references or mappings */
    uint64_t id;
    bool multicast;
    size_t bound; /* multicast: bytes bound */
};

struct sim_handle {
    CUmemGenericAllocationHandle value;
    struct sim_physical *physical;
    unsigned int refs, mappings;
    struct sim_handle *next; /* in its hash bucket */
};

struct sim_handle *sim_handle_find(CUmemGenericAllocationHandle value);
struct sim_handle *sim_handle_new(struct sim_physical *physical); /* with one reference */
struct sim_physical *sim_physical_new(size_t bytes);
bool sim_vmm_is_mapped(uintptr_t addr);

#endif
