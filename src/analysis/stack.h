/*
 * Stacks for people: a site's frame ids become display frames with function, file and line, innermost first, native and
 * Python frames in one list.
 *
 * Every frame is kept; `hidden` marks those that a report leaves out by default (our own library, CUDA's driver and
 * runtime, the loader, start-up code, the interpreter, Python's import machinery, torch's call wrappers). If that would
 * hide all of them, fewer are hidden.
 * The `user` frame is the one to blame in one line: the innermost Python frame of the user's own code; without Python the
 * innermost visible frame, preferring one with a source file that is not a system or CUDA header (stack_user.c).
 *
 * Not thread-safe per symbolizer.
 */
#ifndef VRAMTRACK_STACK_H
#define VRAMTRACK_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/symbols.h"
#include "recording/reader.h"

enum vt_lang { VT_LANG_NATIVE, VT_LANG_PYTHON };

struct vt_display_frame {
    enum vt_lang lang;
    const char *function; /* Python: the qualified name; NULL: unknown */
    const char *file;     /* NULL: unknown */
    uint32_t line;        /* 0: unknown */
    const char *module;   /* path; NULL: none, and always for Python */
    uint64_t offset;      /* address in the module's file, or the absolute address without a module; Python: 0 */
    const char *nearest;  /* native, function NULL: the last exported name before the address, which is not in it */
    const char *origin;   /* native, what code is that is in no file, or in one that a program made: "JIT code (XLA)",
                             "Triton launcher". Without a name of its own, `function` is the same */
    bool hidden, ours, inlined;
    bool generated;   /* native: not in the file of a loaded object */
    bool interpreter; /* native: runs Python code, or is on the way to it */
    bool replaced;    /* an interpreter's frame that Python frames stand for */
    bool entry;       /* Python: the outermost frame of one call of the evaluation loop */
    uint8_t empty;    /* Python: calls of the loop without a frame between this one and the next inner one */
};

struct vt_trace {
    struct vt_display_frame *frames;
    uint32_t count;
    uint32_t user;               /* index; VT_NONE: no frames */
    bool cut_native, cut_python; /* as many frames as the recording keeps: what is outside of them is not known */
};

enum vt_show_stacks { VT_SHOW_MERGED, VT_SHOW_PYTHON, VT_SHOW_NATIVE };

/* How stacks are shown. All zero: merged, and nothing said about which files are the user's. */
struct vt_stack_style {
    enum vt_show_stacks stacks;
    const char
        *user_paths; /* prefixes of paths, separated by colons: the user's own files; NULL or "": the rules alone */
};

/* The style for a recording; user_paths NULL: what VRAMTRACK_USER_PATHS says in this process's environment, else what it
 * said in the recorded one's. */
struct vt_stack_style vt_stack_style_for(const struct vt_reading *reading, enum vt_show_stacks stacks,
                                         const char *user_paths);

/*
 * Builds the display frames of a native stack and the Python stack that belongs to it (ids; 0: none).
 * Merged (stack_merge.c): Python frames stand in the place of the interpreter's native frames that ran them.
 * symbols may be NULL: module and offset only. style may be NULL. Returns 0 or -ENOMEM (then `trace` is empty).
 * Strings belong to the reading and the symbolizer; vt_trace_free() releases the array.
 */
int vt_trace_build(struct vt_trace *trace, const struct vt_reading *reading, struct vt_symbols *symbols,
                   const struct vt_stack_style *style, uint32_t native, uint32_t python);
void vt_trace_free(struct vt_trace *trace);

/* The user frame, or NULL. */
const struct vt_display_frame *vt_trace_user(const struct vt_trace *trace);

/* The native frame that says what a Python line called: the innermost visible one below a Python user frame that has a
 * name and is no allocator's; or NULL. */
const struct vt_display_frame *vt_trace_leaf(const struct vt_trace *trace);

/* Are two frames the same line of code? NULL is no place. */
bool vt_same_place(const struct vt_display_frame *a, const struct vt_display_frame *b);

#endif
