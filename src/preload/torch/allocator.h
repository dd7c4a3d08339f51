/*
 * PyTorch's tensors, as its allocator for CUDA hands them out.
 *
 * The caching allocator (libc10_cuda) tells a function of libc10 about every block that it hands out or takes back, and
 * about requests that it refuses, whether a profiler is there or not. We export these functions (table.h), book what
 * they are told at level tensor, and call the real ones. Other backends hand on what the driver gives them; then the
 * driver's allocation, made by a call from libc10_cuda, is the tensor (VT_SLOT_DIRECT).
 *
 * The allocator's lock is held during its reports, and whoever waits for it may hold Python's GIL. So inside them no CUDA
 * function is called, no library is opened, the GIL is not asked for, and no report is written: that waits until
 * vt_torch_report (failure.h, vt_failure_due).
 */
#ifndef VT_PRELOAD_TORCH_ALLOCATOR_H
#define VT_PRELOAD_TORCH_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

struct vt_alloc;
struct vt_failing;
struct vt_taken_stack;

/* vt_tls.torch: what the call that is running has to do with PyTorch's allocator. */
enum vt_torch_call {
    VT_TORCH_NO,
    VT_TORCH_CALLS, /* it made the call */
    VT_TORCH_PROBES /* it asks how much could be had: neither a tensor nor, if it is refused, a failure */
};

/* In cudaMalloc and its kin, called by PyTorch's allocator for so many bytes: decides vt_tls.torch. */
void vt_torch_asks(uint64_t bytes);

/* Around the record of a driver call, which nothing tells apart from other calls but its return address: decides vt_tls.torch.
 * Not for calls that runtime calls end in. */
void vt_torch_enter(const void *caller);
void vt_torch_leave(void);

/* What cudaMemGetInfo told PyTorch's allocator. */
void vt_torch_told(uint64_t free_bytes, uint64_t total_bytes);

/* The driver's allocation `a`, made at the stack `t` in a call of PyTorch's allocator and booked already: the tensor too,
 * if the backend in use caches nothing. */
void vt_torch_direct(const struct vt_alloc *a, struct vt_taken_stack *t);

/* Are there such tensors in this process? For short cuts. */
bool vt_torch_is_direct(void);

/* With the state lock held: one of them came (back) to a site, or left it. */
void vt_torch_direct_changed(uint32_t site, int64_t bytes);

/* Fills in what a refusal by the driver has to do with PyTorch: inside an allocator that will say what became of it (told),
 * or a tensor itself (direct, api). The stack's objects are known. */
void vt_torch_claims(struct vt_failing *f, const struct vt_taken_stack *t);

/* With the state lock held: PyTorch's allocator of a device has refused a request because the driver refused it. */
void vt_torch_gave_up(int16_t device);

/* Writes the report of an out-of-memory that could not be written when PyTorch told of it. From places where no lock of
 * a framework is held; without a lock of ours. Nearly free if there is none. */
void vt_torch_report(void);

#endif
