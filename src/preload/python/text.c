/*
 * Python strings as UTF-8 (Include/cpython/unicodeobject.h). The characters of a string never change; what is read here
 * is not what PyUnicode_AsUTF8 reads, which allocates and writes a cache into the object.
 */
#include <string.h>

#include "preload/python/interpreter.h"

/* Appends one character; false if there is no room for all of it and the NUL. */
static bool put(char **out, const char *end, uint32_t c)
{
    unsigned char b[4];
    size_t n = 0;
    if (c == 0)
        c = '?';                      /* the text ends at a NUL */
    if (c >= 0xdc80 && c <= 0xdcff) { /* surrogateescape (PEP 383): a byte that wasn't UTF-8 */
        b[n++] = (unsigned char)(c - 0xdc00);
    } else if (c < 0x80) {
        b[n++] = (unsigned char)c;
    } else if (c < 0x800) {
        b[n++] = (unsigned char)(0xc0 | c >> 6);
        b[n++] = (unsigned char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        if (c >= 0xd800 && c <= 0xdfff)
            c = 0xfffd; /* half of a pair has no UTF-8 */
        b[n++] = (unsigned char)(0xe0 | c >> 12);
        b[n++] = (unsigned char)(0x80 | (c >> 6 & 63));
        b[n++] = (unsigned char)(0x80 | (c & 63));
    } else {
        b[n++] = (unsigned char)(0xf0 | (c >> 18 & 7));
        b[n++] = (unsigned char)(0x80 | (c >> 12 & 63));
        b[n++] = (unsigned char)(0x80 | (c >> 6 & 63));
        b[n++] = (unsigned char)(0x80 | (c & 63));
    }
    if ((size_t)(end - *out) <= n)
        return false;
    memcpy(*out, b, n);
    *out += n;
    return true;
}

static uint32_t character(const void *data, unsigned kind, size_t i)
{
    if (kind == 1)
        return ((const uint8_t *)data)[i];
    if (kind == 4)
        return vt_py_get32(data, (unsigned)(4 * i));
    uint16_t c;
    memcpy(&c, (const char *)data + 2 * i, sizeof c);
    return c;
}

void vt_py_text(const struct vt_py_layout *at, const void *text, char *out, size_t size)
{
    if (!size)
        return;
    const char *end = out + size;
    uint32_t state = vt_py_get32(text, at->text_state) >> at->text_kind_bit;
    unsigned kind = state & 7;
    bool compact = state & 8, ascii = state & 16;
    uint64_t length = vt_py_get64(text, at->text_length);
    const void *data = compact ? (const char *)text + (ascii ? at->text_ascii : at->text_compact)
                               : vt_py_get(text, at->text_compact);
    if ((kind != 1 && kind != 2 && kind != 4) || !data) { /* kind 0: wchar_t only, up to 3.11 */
        data = "?";
        kind = 1;
        length = 1;
    }
    if (length >= size)
        length = size - 1; /* a character takes a byte at least */
    for (size_t i = 0; i < length && put(&out, end, character(data, kind, i)); i++)
        ;
    *out = 0;
}
