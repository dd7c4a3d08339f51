/*
 * Lines that fit a screen; see top_lines.h. Width is counted in columns: a terminal shows some characters in two, some in
 * none, and one line that is too long would push the rest of the screen down.
 */
#include "views/top_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

struct vt_line vt_line_begin(const struct vt_top_screen *screen)
{
    return (struct vt_line){.width = screen->width, .utf8 = screen->utf8};
}

/* Adds one character that takes `columns`. False: there is no room. */
static bool put(struct vt_line *line, const char *text, size_t bytes, unsigned columns)
{
    if (line->full || line->columns + columns > line->width || line->used + bytes + 1 >= sizeof line->text) {
        line->full = true;
        return false;
    }
    memcpy(line->text + line->used, text, bytes);
    line->used += bytes;
    line->columns += columns;
    return true;
}

void vt_line_format(struct vt_line *line, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    size_t at = 0, length;
    unsigned size;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (length = strlen(text); at < length; at += size) {
        size = vt_utf8_sequence(text + at, length - at);
        size = size ? size : 1;
        if (!put(line, text + at, size, 1))
            return;
    }
}

/* The code point of a valid sequence. */
static wchar_t decode(const char *text, unsigned size)
{
    const unsigned char *s = (const unsigned char *)text;
    wchar_t c = size == 1 ? s[0] : s[0] & (0x7f >> size);

    for (unsigned i = 1; i < size; i++)
        c = c << 6 | (s[i] & 0x3f);
    return c;
}

/* How the character at `text` is shown: its bytes, and the columns that they take. Returns the bytes that it has. */
static unsigned shown_as(const struct vt_line *line, const char *text, size_t length, char *shown, int *columns)
{
    unsigned taken, size = vt_escaped(shown, text, length, false, &taken);

    shown[size] = '\0';
    *columns = 1;
    if (size == taken && size > 1 && !line->utf8)
        strcpy(shown, "?"); /* harmless, but this terminal knows ASCII alone */
    else if (size == taken && size > 1)
        *columns = wcwidth(decode(text, taken));
    if (size == taken && *columns >= 0)
        return taken;
    snprintf(shown, VT_ESCAPED, "\\x%02x", (unsigned char)*text); /* byte by byte: a name may be cut anywhere */
    *columns = 4;
    return 1;
}

/* Columns of a name, and in *fits the bytes of it that take at most `most`. */
static unsigned measure(const struct vt_line *line, const char *name, size_t length, unsigned most, size_t *fits)
{
    unsigned columns = 0;
    char shown[VT_ESCAPED];
    int one;

    *fits = 0;
    for (size_t at = 0; at < length && columns <= line->width + 8;) {
        at += shown_as(line, name + at, length - at, shown, &one);
        columns += (unsigned)one;
        if (columns <= most)
            *fits = at;
    }
    return columns;
}

void vt_line_bytes(struct vt_line *line, const char *name, size_t length, unsigned most)
{
    unsigned room = line->width > line->columns ? line->width - line->columns : 0;
    bool cut;
    char shown[VT_ESCAPED];
    size_t fits;
    int columns;

    most = most < room ? most : room;
    cut = measure(line, name, length, most, &fits) > most;
    if (cut)
        measure(line, name, length, most > 3 ? most - 3 : 0, &fits);
    for (size_t at = 0; at < fits;) {
        at += shown_as(line, name + at, length - at, shown, &columns);
        if (!put(line, shown, strlen(shown), (unsigned)columns))
            return;
    }
    if (cut)
        vt_line_format(line, "%.*s", (int)(most < 3 ? most : 3), "...");
}

void vt_line_name(struct vt_line *line, const char *name, unsigned most)
{
    vt_line_bytes(line, name, strlen(name), most);
}

static void append(struct vt_top_lines *lines, const char *text, enum vt_top_style style)
{
    struct vt_top_line *grown = realloc(lines->list, (lines->count + 1) * sizeof *grown);

    lines->list = grown ? grown : lines->list;
    if (!grown || !(grown[lines->count].text = strdup(text))) {
        lines->failed = true;
        return;
    }
    grown[lines->count++].style = style;
}

void vt_line_end(struct vt_line *line, struct vt_top_lines *lines, enum vt_top_style style)
{
    while (line->used && line->text[line->used - 1] == ' ')
        line->used--;
    line->text[line->used] = '\0';
    append(lines, line->text, style);
}

void vt_lines_cut(struct vt_top_lines *lines, uint32_t most)
{
    while (lines->count > most)
        free(lines->list[--lines->count].text);
}

uint32_t vt_lines_first(uint32_t first, uint32_t selected, uint32_t count, uint32_t room)
{
    if (selected != VT_NONE && room) {
        if (selected < first)
            first = selected;
        else if (selected - first >= room)
            first = selected - room + 1;
    }
    if (first + room > count)
        first = count > room ? count - room : 0;
    return first;
}

void vt_lines_scroll(struct vt_top_lines *lines, const struct vt_top_screen *screen, uint32_t fixed, uint32_t *rows,
                     uint32_t *shown)
{
    uint32_t head = fixed < lines->count ? fixed : lines->count, others = lines->count - head, first,
             room = !screen->height             ? others
                    : screen->height > head + 1 ? screen->height - head - 1
                                                : 0;

    first = vt_lines_first(screen->first, VT_NONE, others, room);
    for (uint32_t i = 0; i < first; i++)
        free(lines->list[head + i].text);
    if (first)
        memmove(lines->list + head, lines->list + head + first, (others - first) * sizeof *lines->list);
    lines->count -= first;
    vt_lines_cut(lines, head + room);
    if (rows)
        *rows = others;
    if (shown)
        *shown = room;
}

void vt_lines_message(struct vt_top_lines *lines, const struct vt_top_screen *screen)
{
    struct vt_line line = vt_line_begin(screen);

    if (!screen->height)
        return;
    vt_lines_cut(lines, screen->height - 1);
    while (lines->count + 1 < screen->height && !lines->failed)
        append(lines, "", VT_TOP_PLAIN);
    vt_line_name(&line, screen->message ? screen->message : "", screen->width);
    vt_line_end(&line, lines, VT_TOP_HEAD);
}

void vt_top_lines_free(struct vt_top_lines *lines)
{
    for (uint32_t i = 0; i < lines->count; i++)
        free(lines->list[i].text);
    free(lines->list);
    memset(lines, 0, sizeof *lines);
}
