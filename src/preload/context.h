/*
 * Where a call happens: context, device, stream. These functions ask the driver (without a lock of ours), remember the
 * answers, and keep the recording's device and stream lists.
 */
#ifndef VT_PRELOAD_CONTEXT_H
#define VT_PRELOAD_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

struct vt_where {
    int16_t device;   /* -1: none */
    uint16_t context; /* index + 1; 0: no context is current */
};

/* The calling thread's current context. One driver call that reads a thread-local (cuCtxGetCurrent); the rest is
 * cached per thread. */
struct vt_where vt_where_now(void);

/* The device's identity, as NVML knows it too: a MIG instance's own where the device is one. May call the driver; needs no
 * context. False: it won't say. */
bool vt_device_uuid(int device, uint8_t uuid[16], bool *mig);

/* The device's entry in the recording, filled with name, size and identity at first sight. May call the driver. */
void vt_device_note(int device);

/* With the state lock held: the index + 1 of a context's handle, 0 if it was not seen. After vt_context_retire the handle
 * stands for a new context, with a new index; vt_context_revive takes that back. Index 0 is passed over. */
uint16_t vt_context_index_of(void *context);
void vt_context_retire(uint16_t index);
void vt_context_revive(uint16_t index);

/* The primary context of a device, as cuDevicePrimaryCtxRetain returned it; 0: not seen. */
void vt_context_set_primary(int device, void *context);
uint16_t vt_context_primary(int device);

/* Free and total bytes of the current device, asked from the driver; false if it won't say. Safe during capture. */
bool vt_memory_info(uint64_t *free_bytes, uint64_t *total_bytes);

/* Size of the allocation that starts at or contains a device address, asked from the driver; 0: unknown. For memory that
 * somebody else allocated (imports): never on the way of an ordinary allocation. */
uint64_t vt_size_behind(uint64_t address);

/* The stream of an allocation: its index + 1 in the recording, and its device. The driver is asked (with `address`, which
 * the stream just allocated; 0: none) only about a stream that is new to the recording; a thread that stays with one
 * stream asks for nothing at all. */
struct vt_stream_of {
    uint16_t number;
    int16_t device;
};
struct vt_stream_of vt_stream_note(void *stream, bool per_thread, uint64_t address);

/* A stream's handle may mean another stream from now on. */
void vt_stream_gone(void *stream);

#endif
