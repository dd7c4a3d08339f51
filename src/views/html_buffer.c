/*
 * Text that is kept until it is known how much of it there is: the parts of the page grow side by side within one budget.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "views/html.h"

static bool make_room(struct vt_page_buffer *b, size_t bytes)
{
    size_t room = b->room ? b->room : 4096;
    char *grown;

    while (room < b->used + bytes + 1)
        room *= 2;
    if (room != b->room) {
        if (b->failed || !(grown = realloc(b->text, room))) {
            b->failed = true;
            return false;
        }
        b->text = grown;
        b->room = room;
    }
    return true;
}

static void put_bytes(struct vt_page_buffer *b, const char *text, size_t bytes)
{
    if (!bytes || !make_room(b, bytes))
        return;
    memcpy(b->text + b->used, text, bytes);
    b->used += bytes;
}

void vt_page_put(struct vt_page_buffer *b, const char *format, ...)
{
    char text[512];
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (bytes > 0)
        put_bytes(b, text, (size_t)bytes < sizeof text ? (size_t)bytes : sizeof text - 1);
}

/* jansson's callback. A '<' stands in strings alone, where it may be written as any character may. */
static int sink(const char *text, size_t bytes, void *buffer)
{
    const char *open;

    while ((open = memchr(text, '<', bytes))) {
        put_bytes(buffer, text, (size_t)(open - text));
        put_bytes(buffer, "\\u003c", 6);
        bytes -= (size_t)(open + 1 - text);
        text = open + 1;
    }
    put_bytes(buffer, text, bytes);
    return 0;
}

/* Cuts long strings, between characters. */
static json_t *cut(json_t *value)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), at, index;
    json_t *element, *copy;
    const char *key;
    void *next;

    if (json_is_string(value) && length > VT_PAGE_TEXT) {
        for (at = VT_PAGE_TEXT; at && ((unsigned char)text[at] & 0xc0) == 0x80; at--)
            ;
        copy = json_sprintf("%.*s...", (int)at, text);
        return copy ? copy : json_string("...");
    }
    if (json_is_array(value))
        json_array_foreach(value, index, element) json_array_set_new(value, index, cut(element));
    if (json_is_object(value))
        json_object_foreach_safe(value, next, key, element) json_object_set_new(value, key, cut(element));
    return json_incref(value);
}

void vt_page_put_json(struct vt_page_buffer *b, json_t *value)
{
    json_t *shorter = cut(value);

    if (!shorter || json_dump_callback(shorter, sink, b, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII))
        b->failed = true;
    json_decref(shorter);
    json_decref(value);
}

void vt_page_append(struct vt_page_buffer *b, struct vt_page_buffer *more)
{
    put_bytes(b, more->text, more->used);
    b->failed |= more->failed;
    free(more->text);
    memset(more, 0, sizeof *more);
}

void vt_page_put_key(struct vt_page *page, const char *key, json_t *value)
{
    struct vt_page_buffer b = {0};

    vt_page_put(&b, ",\n\"%s\":", key);
    vt_page_put_json(&b, value);
    vt_page_flush(page, &b);
}

void vt_page_put_list(struct vt_page *page, const char *key, uint64_t count, size_t most,
                      json_t *(*element)(const void *of, uint32_t index), const void *of)
{
    struct vt_page_buffer b = {0};
    size_t before;
    uint32_t i;

    for (i = 0; i < count && !b.failed; i++) {
        before = b.used;
        vt_page_put(&b, "%s", i ? ",\n" : "\n");
        vt_page_put_json(&b, element(of, i));
        if (b.used > most) {
            b.used = before;
            break;
        }
    }
    vt_page_lacks(page, key, count - i);
    vt_page_flush_list(page, key, &b);
}

void vt_page_flush_list(struct vt_page *page, const char *key, struct vt_page_buffer *b)
{
    vt_out_format(&page->x.out, ",\n\"%s\":[", key);
    vt_page_flush(page, b);
    vt_out_text(&page->x.out, "]");
}

void vt_page_flush(struct vt_page *page, struct vt_page_buffer *b)
{
    if (b->failed)
        vt_export_fail(&page->x, -ENOMEM);
    vt_out_bytes(&page->x.out, b->text, b->used);
    free(b->text);
    memset(b, 0, sizeof *b);
}

void vt_page_lacks(struct vt_page *page, const char *name, uint64_t count)
{
    if (count)
        vt_page_put(&page->left_out, "%s\"%s\":%llu", page->left_out.used ? "," : "", name, (unsigned long long)count);
}
