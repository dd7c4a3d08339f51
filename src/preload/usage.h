/*
 * When a card is asked what it holds, and by whom (VT_USAGES, from NVML): around the first context of each device, at an
 * out-of-memory, when the interpreter or the process ends; and what the program itself is told by CUDA.
 *
 * Nothing here runs for a process that makes no context. No function may be called with the state lock held unless it
 * says so, or from a signal handler; all keep errno. The number of readings is bounded.
 */
#ifndef VT_PRELOAD_USAGE_H
#define VT_PRELOAD_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "vramtrack/recording.h"

/* Around a call that may make the first context of a device: what the creation took is measured. The first call of a
 * process costs milliseconds, calls for a device that has its context a load. `made`: the call succeeded. */
void vt_usage_before_context(int device);
void vt_usage_after_context(int device, bool made);

/* With the state lock held: the device's record was just made, and gets what was measured before there was a recording. */
void vt_usage_note_device(int device);

/* The failure (index in VT_FAILURES) was an out-of-memory. Seldom enough, whatever the program does. */
void vt_usage_oom(uint32_t failure);

/* At a moment of this kind (FINALIZE, END), for the devices whose context was seen being made. `moment`: VT_NONE if it is
 * none of the recording's. END: once, and never inside a signal handler, where it does nothing. */
void vt_usage_at(enum vt_usage_cause cause, uint32_t moment);

/* The program was told what is free on the current device. Costs a lock. */
void vt_usage_program(uint64_t free_bytes, uint64_t total_bytes);

/* In the child of a fork. */
void vt_usage_forget(void);

#endif
