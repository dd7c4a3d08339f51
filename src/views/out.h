/*
 * Buffered output for the text views: formatting, escaping and colours over write(2), without stdio streams, because
 * the views also run inside the recorded process, whose streams are not ours to touch.
 *
 * The first error is kept; everything after it is dropped. Not thread-safe per object; no global state.
 */
#ifndef VRAMTRACK_OUT_H
#define VRAMTRACK_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vt_out {
    int fd;
    int error; /* 0 or a negative errno */
    bool colour;
    size_t used;
    char buffer[4096];
};

enum vt_colour { VT_PLAIN, VT_BOLD, VT_RED, VT_GREEN, VT_YELLOW, VT_DIM };

void vt_out_open(struct vt_out *out, int fd, bool colour);

/* Writes what is buffered. Returns 0, or the first error as a negative errno. */
int vt_out_close(struct vt_out *out);

void vt_out_bytes(struct vt_out *out, const void *bytes, size_t count);
void vt_out_text(struct vt_out *out, const char *text); /* our own words; NULL writes nothing */

/* printf for our own words; what exceeds 1023 bytes is cut. Names go through vt_out_name(), never through %s. */
void vt_out_format(struct vt_out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The one rule for text that comes from outside: a byte that is no part of valid UTF-8, or of a character that would drive a
 * terminal or reorder text (unless `controls`: JSON writes these in its own way), becomes \xNN; and a backslash before an x
 * becomes \x5c. So every \xNN stands for one byte, and two names that differ look different.
 *
 * Writes what `text` (length: at least 1) begins with to `to` (VT_ESCAPED long) and returns how many bytes that is; *taken:
 * how many of `text`. No NUL is meant to be read behind it.
 */
#define VT_ESCAPED 17 /* a sequence of four bytes, and a NUL that is no part of it */
unsigned vt_escaped(char *to, const char *text, size_t length, bool controls, unsigned *taken);

/* A name from the recording or a file, escaped; longer than `most` bytes is cut with "..." (0: no limit). */
void vt_out_name(struct vt_out *out, const char *name, size_t length, size_t most);

/* A word as a POSIX shell with $'..' takes it (bash, zsh, ksh, dash 0.5.13): as it is, in quotes, or with escapes. */
void vt_out_word(struct vt_out *out, const char *word, size_t length);

/* Switches colour; nothing unless the output was opened with colour. */
void vt_out_colour(struct vt_out *out, enum vt_colour colour);

/* Length of the valid UTF-8 sequence at text (1..4), or 0 if the bytes there are not one. */
unsigned vt_utf8_sequence(const char *text, size_t length);

/* May this valid sequence of `size` bytes be shown as it is? Not control characters, nor what reorders text. */
bool vt_utf8_plain(const char *text, unsigned size);

#endif
