/*
 * The Python stack of the calling thread, read from the interpreter's own frames: by offset, without the GIL, without
 * touching a reference count and without a call that could run Python code (docs/how-it-works.md says why).
 *
 * What can't be read safely is left out, never guessed: an interpreter of an unknown version, or one whose first stack
 * does not look as it should, is not read at all, and vt_python_status() says why.
 */
#ifndef VT_PRELOAD_PYTHON_PYTHON_H
#define VT_PRELOAD_PYTHON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/hot.h"

#define VT_PYTHON_FRAMES 128
#define VT_PYTHON_NOWHERE INT32_MIN /* which instruction runs can't be told */

/* One frame. The pointers are only good while the thread is inside the call that took the stack; together the fields tell
 * a code object from another one that later lies at the same address. */
struct vt_python_frame {
    const void *code;
    const void *file,
        *table;     /* co_filename, co_linetable (co_lnotab): identity, and where to read from; these and first_line
                                 are there after vt_python_complete() */
    int32_t offset; /* byte offset of the current instruction; negative: not started, or VT_PYTHON_NOWHERE */
    int32_t first_line;
    uint32_t version;    /* co_version; where the interpreter has none: a mark made of its names and its table */
    uint32_t evaluation; /* VT_PYTHON_ENTRY and VT_PYTHON_EMPTY of vramtrack/recording.h */
};

struct vt_python_stack {
    unsigned count; /* innermost first; 0: no Python on this thread */
    uint64_t hash;  /* of all frames, as they are told apart */
    struct vt_python_frame frame[VT_PYTHON_FRAMES];
};

/* Looks for an interpreter in the process. Cheap when there is none, or when it was found before. Calls dlsym (through
 * vt_real_dlsym) and, where libpython was opened RTLD_LOCAL, dlopen(RTLD_NOLOAD): from a place where that is allowed
 * (the wrappers of cuInit and of context creation; the first allocation), never with a lock held. */
void vt_python_prepare(void);

/* The calling thread's Python stack, at most `depth` frames; count 0 if there is none or it can't be read. No lock, no
 * malloc, no system call but for a thread's first stacks, which are read through process_vm_readv and checked. Keeps errno. */
void vt_python_take(struct vt_python_stack *stack, unsigned depth);

enum vt_python_quick {
    VT_PYTHON_TAKE,       /* vt_python_take has to be asked */
    VT_PYTHON_NO_FRAMES,  /* it would find none */
    VT_PYTHON_FRAMES_SEEN /* it would find frames with this hash */
};

/* The hash that vt_python_take would find, without the frames, which a stack that is known needs no more: a third of its
 * instructions. Frames can't be read this way before 3.12, nor where each thread runs copies of the instructions (free-threaded
 * since 3.14). A frame that is being set up counts as one of `depth` here, so a deeper stack that has one can be hashed
 * differently; it is then taken as often as it comes. As safe as vt_python_take, keeps errno, makes no system call for a thread
 * whose stacks were checked. */
VT_HOT enum vt_python_quick vt_python_quick(unsigned depth, uint64_t *hash);

/* Reads what the walk left out of a frame. Only while the call that took the stack has not returned. False: not readable. */
bool vt_python_complete(struct vt_python_frame *frame);

/* Names and line of a frame, as UTF-8 with a NUL, cut to the sizes given. Only while the call that took the stack has not
 * returned. *line is 0 if the instruction has none. False: not readable. No lock, no malloc. */
bool vt_python_describe(const struct vt_python_frame *frame, char *file, size_t file_size, char *function,
                        size_t function_size, int32_t *line);

/* Is the interpreter shutting down (Py_Finalize has begun)? False if there is none. A plain function call, no lock. */
VT_HOT bool vt_python_finalizing(void);

/* "CPython 3.12.3", or why no frames are read: one line for the recording. Never NULL. */
const char *vt_python_status(void);

#endif
