/*
 * NCCL's communicators: which one a call works for, and for whom NCCL's own threads allocate.
 *
 * NCCL sets communicators up, and connects them, on threads that it starts for that and waits for. Such a thread has no
 * Python stack. While exactly one thread of the program is inside a call of NCCL's, what a thread without Python frames
 * allocates is its doing: it gets that call's Python stack, and the range "NCCL communicator 2, 8 ranks". With two at
 * once nobody can tell, and nothing is claimed.
 */
#ifndef VT_PRELOAD_NCCL_COMMUNICATOR_H
#define VT_PRELOAD_NCCL_COMMUNICATOR_H

#include <stdbool.h>
#include <stdint.h>

struct vt_taken_stack;

/* Threads of the program inside NCCL. Read at every allocation by CUDA calls. */
extern uint32_t vt_nccl_callers;

/* One call of NCCL's, on the caller's stack. */
struct vt_nccl_call {
    uint16_t number; /* of the communicator, from 1; 0: not known */
    bool put_off;    /* to the end of its group */
};

/* A communicator of `ranks` ranks will be made. To be ended by vt_nccl_made with what the real function stored. */
void vt_nccl_making(struct vt_nccl_call *call, int ranks);
void vt_nccl_made(struct vt_nccl_call *call, const void *communicator);

/* A call for a communicator. Inside a group NCCL only takes note of it. */
void vt_nccl_enter(struct vt_nccl_call *call, const void *communicator);

/* Groups nest; what was called in one is carried out when the outermost ends. */
void vt_nccl_group_start(void);
void vt_nccl_group_end(struct vt_nccl_call *call);

/* After vt_nccl_enter or vt_nccl_group_end. */
void vt_nccl_leave(struct vt_nccl_call *call);

/* If vt_nccl_callers: gives a stack that was taken on a thread without Python frames to the caller that the thread works
 * for, and puts the thread into its range until vt_nccl_adopted(). Returns what to hand to that. Without the state lock. */
uint16_t vt_nccl_adopt(struct vt_taken_stack *stack);
void vt_nccl_adopted(uint16_t before);

#endif
