/*
 * For whom TensorFlow's own threads allocate.
 *
 * Python asks for an operation or a compiled function by TFE_Execute and waits in it, while threads of TensorFlow's run the
 * kernels and allocate. Such a thread has no Python stack. While exactly one thread of the program is inside, what they
 * allocate is its doing: it gets that thread's Python stack beside its own native one. With two at once nobody can tell,
 * and nothing is claimed; what is allocated after the call has returned is nobody's.
 *
 * All of it keeps errno and may be called from any thread and from a signal handler, without the state lock.
 */
#ifndef VT_PRELOAD_TENSORFLOW_CALLER_H
#define VT_PRELOAD_TENSORFLOW_CALLER_H

#include <stdint.h>

struct vt_taken_stack;

/* Threads of the program inside TFE_Execute. Read at every allocation by CUDA calls. */
extern uint32_t vt_tensorflow_callers;

/* Around each call; they nest. `frame`: the caller's frame address, by which a call is known that longjmp has ended. What an
 * exception or pthread_exit ends, its frame has to say by vt_tensorflow_leave. */
void vt_tensorflow_enter(const void *frame);
void vt_tensorflow_leave(void);

/* Functions of TensorFlow's libraries: of up to two of them it is remembered where they lie. NULL is passed over. */
void vt_tensorflow_note_code(const void *first, const void *second);

/* Gives a stack that was taken on a thread without Python frames to the caller that the thread works for, if that is known:
 * of a request to TensorFlow's allocator, and of a call of CUDA's, which may be another library's (then its native frames
 * have to show TensorFlow). */
void vt_tensorflow_adopt(struct vt_taken_stack *stack);
void vt_tensorflow_adopt_cuda(struct vt_taken_stack *stack);

#endif
