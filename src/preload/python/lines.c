/*
 * From an instruction's offset to its line: the three formats that CPython has had. The tables are immutable bytes;
 * PyCode_Addr2Line is not called, because it may read caches that other threads build under the GIL (_co_linearray in
 * 3.11, _co_monitoring since 3.12).
 */
#include "preload/python/interpreter.h"

static int32_t clip(int64_t line)
{
    return line > 0 && line <= INT32_MAX ? (int32_t)line : 0;
}

/* co_lnotab, up to 3.9: pairs of (address increment, line increment), Objects/lnotab_notes.txt. */
static int32_t lnotab(const uint8_t *p, size_t size, int64_t line, int64_t offset)
{
    int64_t address = 0;
    for (const uint8_t *end = p + (size & ~(size_t)1); p < end; p += 2) {
        address += p[0];
        if (address > offset)
            break;
        line += (int8_t)p[1];
    }
    return clip(line);
}

/* co_linetable of 3.10 (PEP 626): pairs of (length of the range, line increment); -128 is a range without a line. */
static int32_t ranges(const uint8_t *p, size_t size, int64_t line, int64_t offset)
{
    int64_t address = 0;
    for (const uint8_t *end = p + (size & ~(size_t)1); p < end; p += 2) {
        int8_t delta = (int8_t)p[1];
        address += p[0];
        line += delta == -128 ? 0 : delta;
        if (address > offset)
            return delta == -128 ? 0 : clip(line);
    }
    return 0;
}

/* A signed number in groups of 6 bits, lowest first; bit 6: more follow; bit 0 of the number is its sign. */
static int32_t signed_varint(const uint8_t *p, const uint8_t *end)
{
    uint32_t value = 0;
    for (unsigned shift = 0; p < end && shift <= 30; shift += 6, p++) {
        value |= (uint32_t)(*p & 63) << shift;
        if (!(*p & 64))
            break;
    }
    return value & 1 ? -(int32_t)(value >> 1) : (int32_t)(value >> 1);
}

/* co_linetable since 3.11 (PEP 657, Objects/locations.md): entries whose first byte alone has bit 7; it holds a code
 * (3..6) and the length in code units minus one (0..2). */
static int32_t locations(const uint8_t *p, size_t size, int64_t line, int64_t offset)
{
    enum { ONE_LINE = 10, NO_COLUMNS = 13, LONG = 14, NO_LINE = 15 };
    const uint8_t *end = p + size;
    int64_t address = 0;
    while (p < end) {
        unsigned code = (*p >> 3) & 15;
        address += ((*p & 7) + 1) * 2;
        p++;
        if (code == NO_COLUMNS || code == LONG)
            line += signed_varint(p, end);
        else if (code > ONE_LINE && code < NO_COLUMNS)
            line += code - ONE_LINE;
        if (address > offset)
            return code == NO_LINE ? 0 : clip(line);
        while (p < end && !(*p & 0x80))
            p++;
    }
    return 0;
}

int32_t vt_py_line(unsigned minor, const uint8_t *table, size_t size, int32_t first_line, int32_t offset)
{
    if (offset < 0)
        return clip(first_line);
    if (minor <= 9)
        return lnotab(table, size, first_line, offset);
    return minor == 10 ? ranges(table, size, first_line, offset) : locations(table, size, first_line, offset);
}
