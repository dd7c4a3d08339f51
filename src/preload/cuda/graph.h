/* Graph memory: who captures, and which graph owns what. None of these is called with the state lock held. */
#ifndef VT_PRELOAD_CUDA_GRAPH_H
#define VT_PRELOAD_CUDA_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/cuda/headers.h"

/* Is this stream capturing? Costs nothing while no capture is open anywhere. *graph: the graph that is being built, or
 * NULL if the driver does not tell. */
bool vt_graph_captures(CUstream stream, bool per_thread, void **graph);

/*
 * The number of the stream capture, from 1, that this thread's allocations are made for at this instant; 0: none. That is
 * the one that the thread has begun itself, or any in the mode `global`: while that lasts, the driver lets only those
 * threads allocate that have put themselves into the mode `relaxed`, as frameworks do for what a graph is to keep.
 */
uint16_t vt_graph_capture(void);

extern int vt_graph_open_captures; /* in all threads */

/* False: vt_graph_capture() is 0. */
static inline bool vt_graph_may_capture(void)
{
    return __atomic_load_n(&vt_graph_open_captures, __ATOMIC_ACQUIRE) > 0;
}

/* An allocation belongs to a graph: it ends when the graph and all that was instantiated from it are gone. */
void vt_graph_owns(void *graph, uint64_t address);

#endif
