/*
 * What the files of the simulator's self-test share: checks that count failures and say where, and process helpers.
 */
#ifndef SIM_SELFTEST_H
#define SIM_SELFTEST_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdio.h>

#include "sim.h"
#include "sim_table.h"

#define MIB ((size_t)1 << 20)

extern int failures;

/* Both sides are printed: a wrong value is half the diagnosis. */
#define EQ(got, want)                                                                                \
    do {                                                                                             \
        unsigned long long got_ = (unsigned long long)(got), want_ = (unsigned long long)(want);     \
        if (got_ != want_) {                                                                         \
            failures++;                                                                              \
            fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #got, got_, want_); \
        }                                                                                            \
    } while (0)

#define OK(call) EQ(call, 0)
#define TRUE(condition) EQ(!!(condition), 1)

size_t free_bytes(void); /* of the current context's device */

void test_lookup(void);
void test_linear(void);
void test_host(void);
void test_pools(void);
void test_vmm(void);
void test_graphs(void);
void test_contexts(void);
void test_shared(void);
void test_failures(void);
void test_threads(void);
void test_runtime(void);

int run_self(const char *argument, const char *env); /* exec this program with an argument, env "A=b" or NULL */
int ipc_child(const char *hex);

#endif
