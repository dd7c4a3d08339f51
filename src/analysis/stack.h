/*
 * Stacks for people: a site's frame ids become display frames with function, file and line, innermost first.
 *
 * Every frame is kept; `hidden` marks those that a report leaves out by default (our own library, CUDA's driver and
 * runtime, the loader, start-up code). If that would hide all of them, none but our own are hidden.
 * The `user` frame is the one to blame in one line: the innermost visible frame, preferring one with a source file that
 * is not a system or CUDA header.
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
    const char *function; /* NULL: unknown */
    const char *file;     /* NULL: unknown */
    uint32_t line;        /* 0: unknown */
    const char *module;   /* path; NULL: none */
    uint64_t offset;      /* address in the module's file, or the absolute address without a module */
    bool hidden, ours, inlined;
};

struct vt_trace {
    struct vt_display_frame *frames;
    uint32_t count;
    uint32_t user; /* index; VT_NONE: no frames */
};

/*
 * Builds the display frames of a native stack and the Python stack that belongs to it (ids; 0: none). This is where the
 * two are merged; this version of the format's Python frames are not read yet, so only native frames come out.
 * symbols may be NULL: module and offset only. Returns 0 or -ENOMEM (then `trace` is empty).
 * Strings belong to the reading and the symbolizer; vt_trace_free() releases the array.
 */
int vt_trace_build(struct vt_trace *trace, const struct vt_reading *reading, struct vt_symbols *symbols,
                   uint32_t native, uint32_t python);
void vt_trace_free(struct vt_trace *trace);

/* The user frame, or NULL. */
const struct vt_display_frame *vt_trace_user(const struct vt_trace *trace);

#endif
