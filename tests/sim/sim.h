/*
 * Control functions of the simulated driver, for tests.
 *
 * build/sim/libcuda.so.1 exports these next to the cu* functions.  A test that links the library calls them directly;
 * one that doesn't finds them with dlsym.  They need no cuInit, take no CUDA context and are not counted as calls.
 * Names are export names ("cuMemAlloc_v2", not "cuMemAlloc"); codes are CUresult values.
 */
#ifndef SIM_H
#define SIM_H

#ifdef __cplusplus
extern "C" {
#endif

/* Let `after` calls of `name` pass, then make one return `code`.  0 on success, -1 for a name that isn't exported. */
int sim_fail_next(const char *name, unsigned long long after, int code);

/* Make every call of `name` return `code` until sim_fail_clear.  0 on success, -1 for a name that isn't exported. */
int sim_fail_always(const char *name, int code);

/* Forget every injected failure, those of SIM_FAIL as well. */
void sim_fail_clear(void);

/* Write 0xA5 into the first out-parameter of every failing call (1) or leave it alone (0, the default). */
void sim_set_garbage(int on);

/* Spend this long in every call before it does anything. */
void sim_set_latency(unsigned long long nanoseconds);

/* How often `name` was called since the start or the last sim_reset_counters. */
unsigned long long sim_calls(const char *name);
void sim_reset_counters(void);

/* What other processes hold on the card.  sim_set_free chooses that figure so that exactly `bytes` stay free. */
void sim_other_process_bytes(int device, unsigned long long bytes);
void sim_set_free(int device, unsigned long long bytes);

/* Bytes taken on the card by this process: contexts, whole 2 MiB pages, what pools reserve. */
unsigned long long sim_device_used(int device);

/* What other processes hold on the card, and how large it is for CUDA. */
unsigned long long sim_device_others(int device);
unsigned long long sim_device_total(int device);

/* Bytes and number of device allocations as requested: linear, pitched, arrays, pool pointers, VMM, running graphs. */
unsigned long long sim_live_bytes(int device);
unsigned long long sim_live_count(int device);

/* Bytes of page-locked memory that the driver allocated; memory registered by the program isn't in it. */
unsigned long long sim_pinned_bytes(void);

/* Contexts that exist in this process, on all devices. */
unsigned int sim_contexts(void);

#ifdef __cplusplus
}
#endif
#endif
