/*
 * What the parts of building a stack share: which frames are the interpreter's, which are hidden, which is the user's.
 * Pure functions over display frames; internal to stack*.c and their tests.
 */
#ifndef VRAMTRACK_STACK_RULES_H
#define VRAMTRACK_STACK_RULES_H

#include <stdbool.h>

#include "analysis/stack.h"

/* stack_generated.c: sets `origin` of the frames of a native stack, and `function` where there is no better name.
 * `generated` is set already. */
void vt_name_generated(struct vt_trace *trace, const struct vt_reading *reading);

/* stack_fold.c: sets `hidden` of the frames of a native stack. `interpreter` and `ours` are set already. */
void vt_fold_native(struct vt_trace *trace);

/* The same for a Python stack. */
void vt_fold_python(struct vt_trace *trace);

/* Hiding must leave something to see: shows more, step by step, if it does not. */
void vt_fold_less(struct vt_trace *trace);

/* Start-up code of programs and threads, outside everything that anybody wrote. */
bool vt_fold_is_start(const struct vt_display_frame *frame);

/* Headers that come with a compiler or with CUDA: their inline functions are not the user's code. */
bool vt_fold_is_foreign(const char *file);

/* stack_merge.c: sets `interpreter` of the frames of a native stack. */
void vt_mark_interpreter(struct vt_trace *native);

/*
 * Merges a marked native stack and a Python stack of the same instant into `merged`, which must be empty.
 * minor: the x of CPython 3.x, 0 if it is not known. Returns 0 or -ENOMEM. `native` gets its replaced frames marked.
 */
int vt_trace_merge(struct vt_trace *merged, struct vt_trace *native, const struct vt_trace *python, unsigned minor);

/* stack_user.c: sets trace->user. paths as in struct vt_stack_style. */
void vt_choose_user(struct vt_trace *trace, const char *paths);

/* Python code that came with the interpreter or was installed for it, or is a framework's wherever it lies. */
bool vt_is_python_library(const char *file);

static inline bool vt_starts(const char *text, const char *with)
{
    for (; *with; text++, with++)
        if (*text != *with)
            return false;
    return true;
}

#endif
