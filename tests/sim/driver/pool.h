/*
 * Memory pools: shared by pool.c and pool_share.c.
 */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "driver.h"

struct sim_pool {
    struct sim_device *device; /* whose card pays and whose synchronisations settle it; NULL: host memory, free */
    struct sim_heap heap;
    size_t reserved, reserved_high, used, used_high, live;
    cuuint64_t threshold;
    int reuse[4]; /* attributes 1 to 3: kept, without effect */
    CUmemPoolProps props;
    bool is_default, imported, destroyed;
    struct sim_pool *next; /* all pools */
};

CUresult sim_pool_check(CUmemoryPool handle, struct sim_pool **out);
struct sim_pool *sim_pool_new(struct sim_device *device, const CUmemPoolProps *props);

#endif
