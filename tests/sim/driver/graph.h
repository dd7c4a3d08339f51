/*
 * Graphs and nodes: shared by graph.c, which builds them, and exec.c, which runs them.
 */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "driver.h"

struct sim_node {
    struct sim_graph *graph;
    CUgraphNodeType type;
    struct sim_block *block; /* allocation and free nodes */
};

struct sim_graph {
    CUgraphNode *node; /* in the order in which they were added, which is the order in which they run */
    size_t count, room;
};

CUresult sim_graph_find(CUgraph handle, struct sim_graph **out);
void sim_graph_block_release(struct sim_block *block); /* one graph, executable or launch less knows it */

#endif
