/*
 * Numbers and places as text, the same everywhere. Pure functions into the caller's buffer.
 */
#ifndef VRAMTRACK_FORMAT_H
#define VRAMTRACK_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "analysis/stack.h"

/* Room for any result of vt_format_bytes() and vt_format_seconds(). */
#define VT_FORMAT_BYTES 24

/* "512 B", "1.50 KiB", "16.00 MiB", "2.00 GiB", "1.00 TiB". Returns buffer (VT_FORMAT_BYTES long). */
const char *vt_format_bytes(char *buffer, uint64_t bytes);

/* "1.00 GiB", "1.00 to 1.03 GiB", "900.00 MiB to 1.03 GiB". Returns buffer (VT_FORMAT_RANGE long). */
#define VT_FORMAT_RANGE 64
const char *vt_format_range(char *buffer, uint64_t low, uint64_t high);

/* "12.345 s", "5 min 12 s", "3 h 20 min". Returns buffer (VT_FORMAT_BYTES long). */
const char *vt_format_seconds(char *buffer, uint64_t nanoseconds);

/* "function (file.cu:12)", "function (libfoo.so)" or "libfoo.so+0x1234"; of Python "function (file.py:12)", with "?" for
 * what is not known; NULL: "(no stack)". Cut to the buffer. Not
 * escaped: names are as the files have them. Returns buffer. */
const char *vt_format_place(char *buffer, size_t bytes, const struct vt_display_frame *frame);

#endif
