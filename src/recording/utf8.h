/*
 * Cutting text between characters: a name that is cut inside of one shows as \xf0\x9f for good. Header only, because the
 * recorder, the writer and the views all cut. No locale, no state; safe in a signal handler.
 */
#ifndef VT_RECORDING_UTF8_H
#define VT_RECORDING_UTF8_H

#include <stddef.h>
#include <string.h>

/* Bytes of `text` without a UTF-8 sequence that was begun at its end and cut. Bytes that are no UTF-8 at all stay. */
static inline size_t vt_utf8_whole(const char *text, size_t length)
{
    const unsigned char *t = (const unsigned char *)text;
    size_t behind = 0, wanted;

    while (behind < 3 && behind < length && (t[length - 1 - behind] & 0xc0) == 0x80)
        behind++;
    if (behind == length)
        return length;
    t += length - 1 - behind;
    wanted = *t >= 0xf5 ? 0 : *t >= 0xf0 ? 4 : *t >= 0xe0 ? 3 : *t >= 0xc2 ? 2 : 0;
    return wanted > behind + 1 ? length - behind - 1 : length;
}

/* For what snprintf() and the like have put into a buffer: shortens it if it fills the buffer, so that it may be cut. */
static inline void vt_utf8_mend(char *buffer, size_t bytes)
{
    size_t length = strnlen(buffer, bytes);

    if (length + 1 == bytes)
        buffer[vt_utf8_whole(buffer, length)] = 0;
}

#endif
