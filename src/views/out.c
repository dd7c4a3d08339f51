/*
 * The output helper of the text views; see out.h.
 */
#include "views/out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void vt_out_open(struct vt_out *out, int fd, bool colour)
{
    out->fd = fd;
    out->error = 0;
    out->colour = colour;
    out->used = 0;
}

static void flush(struct vt_out *out)
{
    size_t done = 0;

    while (done < out->used && !out->error) {
        ssize_t written = write(out->fd, out->buffer + done, out->used - done);

        if (written > 0)
            done += (size_t)written;
        else if (!written)
            out->error = -EIO;
        else if (errno != EINTR)
            out->error = -errno;
    }
    out->used = 0;
}

int vt_out_close(struct vt_out *out)
{
    flush(out);
    return out->error;
}

void vt_out_bytes(struct vt_out *out, const void *bytes, size_t count)
{
    const char *from = bytes;

    while (count && !out->error) {
        size_t room = sizeof out->buffer - out->used, part = count < room ? count : room;

        memcpy(out->buffer + out->used, from, part);
        out->used += part;
        from += part;
        count -= part;
        if (out->used == sizeof out->buffer)
            flush(out);
    }
}

void vt_out_text(struct vt_out *out, const char *text)
{
    if (text)
        vt_out_bytes(out, text, strlen(text));
}

void vt_out_format(struct vt_out *out, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0)
        vt_out_bytes(out, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

unsigned vt_utf8_sequence(const char *text, size_t length)
{
    const unsigned char *t = (const unsigned char *)text;
    uint32_t code;
    unsigned size, i;

    if (!length)
        return 0;
    if (t[0] < 0x80)
        return 1;
    size = t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : 2;
    if (t[0] < 0xc2 || t[0] > 0xf4 || size > length)
        return 0;
    code = t[0] & (0x7fu >> size);
    for (i = 1; i < size; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (t[i] & 0x3f);
    }
    if ((size == 3 && code < 0x800) || (size == 4 && (code < 0x10000 || code > 0x10ffff)) ||
        (code >= 0xd800 && code < 0xe000))
        return 0;
    return size;
}

/* May the sequence go to a terminal as it is? Not C0 and C1 controls, nor what reorders text. */
static bool is_plain(const char *text, unsigned size)
{
    const unsigned char *t = (const unsigned char *)text;

    if (size == 1)
        return t[0] >= 0x20 && t[0] != 0x7f;
    if (size == 2)
        return !(t[0] == 0xc2 && t[1] < 0xa0);
    if (size == 3 && t[0] == 0xe2)
        return !((t[1] == 0x80 && ((t[2] >= 0xa8 && t[2] <= 0xae) || t[2] == 0x8e || t[2] == 0x8f)) ||
                 (t[1] == 0x81 && t[2] >= 0xa6 && t[2] <= 0xa9));
    return true;
}

bool vt_utf8_plain(const char *text, unsigned size)
{
    return is_plain(text, size);
}

unsigned vt_escaped(char *to, const char *text, size_t length, bool controls, unsigned *taken)
{
    unsigned size = vt_utf8_sequence(text, length), i;
    bool literal = text[0] == '\\' && length > 1 && text[1] == 'x';

    *taken = size ? size : 1;
    if (size && !literal && (controls || is_plain(text, size))) {
        memcpy(to, text, size);
        return size;
    }
    for (i = 0; i < *taken; i++)
        snprintf(to + (size_t)4 * i, 5, "\\x%02x", (unsigned char)text[i]);
    return 4 * *taken;
}

void vt_out_name(struct vt_out *out, const char *name, size_t length, size_t most)
{
    size_t at = 0, end = most && length > most ? (most > 3 ? most - 3 : 0) : length;

    while (at < end) {
        char shown[VT_ESCAPED];
        unsigned taken, size = vt_escaped(shown, name + at, length - at, false, &taken);

        if (at + taken > end)
            break;
        vt_out_bytes(out, shown, size);
        at += taken;
    }
    if (end < length)
        vt_out_text(out, "...");
}

/* How a word must be written for a shell. */
enum quoting { QUOTE_NONE, QUOTE_PLAIN, QUOTE_ESCAPED };

static enum quoting quoting_of(const char *word, size_t length)
{
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
    enum quoting quoting = length ? QUOTE_NONE : QUOTE_PLAIN;
    size_t at = 0;

    while (at < length) {
        unsigned size = vt_utf8_sequence(word + at, length - at);

        if (!size || !is_plain(word + at, size))
            return QUOTE_ESCAPED;
        if (size > 1 || !strchr(harmless, word[at]))
            quoting = QUOTE_PLAIN;
        at += size;
    }
    return quoting;
}

void vt_out_word(struct vt_out *out, const char *word, size_t length)
{
    enum quoting quoting = quoting_of(word, length);
    size_t at = 0;

    if (quoting == QUOTE_NONE) {
        vt_out_bytes(out, word, length);
        return;
    }
    vt_out_text(out, quoting == QUOTE_PLAIN ? "'" : "$'");
    while (at < length) {
        unsigned size = vt_utf8_sequence(word + at, length - at);

        if (!size || !is_plain(word + at, size)) {
            vt_out_format(out, "\\x%02x", (unsigned char)word[at]);
            size = 1;
        } else if (word[at] == '\'' || (word[at] == '\\' && quoting == QUOTE_ESCAPED)) {
            vt_out_format(out, quoting == QUOTE_PLAIN ? "'\\%c'" : "\\%c", word[at]);
        } else {
            vt_out_bytes(out, word + at, size);
        }
        at += size;
    }
    vt_out_text(out, "'");
}

void vt_out_colour(struct vt_out *out, enum vt_colour colour)
{
    static const char *const codes[] = {
        [VT_PLAIN] = "\033[0m",  [VT_BOLD] = "\033[1m",    [VT_RED] = "\033[1;31m",
        [VT_GREEN] = "\033[32m", [VT_YELLOW] = "\033[33m", [VT_DIM] = "\033[2m",
    };

    if (out->colour)
        vt_out_text(out, codes[colour]);
}
