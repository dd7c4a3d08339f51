/*
 * Strings, frames and stacks of the page, each once. Stacks are one tree from the outermost frame inwards: a node is its
 * parent and a frame, and a stack is the node of its innermost frame. So the page is small, and a flame graph is nearly made.
 *
 *   strings  ["...", ...]                       number 1 is the first
 *   frames   [[lang, label, file, line, module], ...]   0 native, 1 Python; numbers of strings; 0 where nothing is known
 *   nodes    [back, frame * 2 + hidden, ...]    number 1 is the first; its parent is `back` nodes before it, 0: none
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "analysis/format.h"
#include "views/html.h"
#include "views/json.h"

struct vt_page_strings {
    uint32_t number;
    UT_hash_handle hh;
    char text[];
};

struct vt_page_nodes {
    uint64_t key; /* parent << 32 | frame */
    uint32_t number;
    UT_hash_handle hh;
};

uint32_t vt_page_string(struct vt_page *page, const char *text)
{
    struct vt_page_strings *found;
    size_t length = text ? strlen(text) : 0;

    if (!text)
        return 0;
    if (length > VT_PAGE_TEXT) /* what differs later is one string to the page */
        length = VT_PAGE_TEXT;
    HASH_FIND(hh, page->string_table, text, length, found);
    if (found)
        return found->number;
    if (!(found = calloc(1, sizeof *found + length + 1)))
        return 0;
    memcpy(found->text, text, length);
    HASH_ADD_KEYPTR(hh, page->string_table, found->text, length, found);
    if (!found->hh.tbl) { /* no memory */
        free(found);
        return 0;
    }
    found->number = ++page->string_count;
    vt_page_put(&page->strings, found->number > 1 ? ",\n" : "\n");
    vt_page_put_json(&page->strings, vt_json_chars(found->text));
    return found->number;
}

/* The number of a frame, from 0; VT_NONE: no memory. */
static uint32_t frame_of(struct vt_page *page, const struct vt_display_frame *frame)
{
    struct vt_display_frame place = *frame;
    uint32_t before = page->frame_table.count, number;
    char label[VT_EXPORT_LABEL];

    if (place.function && place.lang == VT_LANG_NATIVE) /* one line of code is one frame, wherever in it the call was */
        place.offset = 0;
    number = vt_export_frame(&page->frame_table, &place);
    if (number == before && number != VT_NONE) {
        vt_export_label(label, frame);
        vt_page_put(&page->frames, "%s[%d,%u,", number ? ",\n" : "\n", frame->lang == VT_LANG_PYTHON,
                    vt_page_string(page, label));
        vt_page_put(&page->frames, "%u,%u,", vt_page_string(page, frame->file), frame->line);
        vt_page_put(&page->frames, "%u]", vt_page_string(page, frame->module));
    }
    return number;
}

static uint32_t node_of(struct vt_page *page, uint32_t parent, uint32_t frame)
{
    struct vt_page_nodes *found;
    uint64_t key = (uint64_t)parent << 32 | frame;

    HASH_FIND(hh, page->node_table, &key, sizeof key, found);
    if (found)
        return found->number;
    if (!(found = calloc(1, sizeof *found)))
        return 0;
    found->key = key;
    HASH_ADD(hh, page->node_table, key, sizeof found->key, found);
    if (!found->hh.tbl) {
        free(found);
        return 0;
    }
    found->number = ++page->node_count;
    vt_page_put(&page->nodes, "%s%u,%u", found->number > 1 ? "," : "", parent ? found->number - parent : 0, frame);
    return found->number;
}

size_t vt_page_stack_bytes(const struct vt_page *page)
{
    return page->strings.used + page->frames.used + page->nodes.used + page->sites.used + page->failures.used;
}

struct vt_page_stack vt_page_trace(struct vt_page *page, const struct vt_trace *trace, size_t most)
{
    struct vt_page_stack stack = {.user = -1, .cut = trace->cut_native || trace->cut_python, .whole = true};
    uint32_t i, frame, shown = 0, user = VT_NONE;

    for (i = trace->count; i-- > 0 && stack.whole;) {
        const struct vt_display_frame *f = &trace->frames[i];

        if (f->ours || f->replaced)
            continue;
        if (i == trace->user)
            user = shown;
        shown++;
        frame = frame_of(page, f);
        if (frame == VT_NONE || !(stack.node = node_of(page, stack.node, frame * 2 + f->hidden))) {
            vt_export_fail(&page->x, -ENOMEM);
            stack.whole = false;
        } else if (vt_page_stack_bytes(page) > most) {
            stack.whole = false;
        }
    }
    if (user != VT_NONE)
        stack.user = (int)(shown - 1 - user);
    return stack;
}

struct vt_page_stack vt_page_stack(struct vt_page *page, uint32_t native, uint32_t python, size_t most)
{
    struct vt_page_stack stack;
    struct vt_trace trace;

    vt_view_trace(&page->x.a, &trace, native, python);
    stack = vt_page_trace(page, &trace, most);
    vt_trace_free(&trace);
    return stack;
}

void vt_page_write_tables(struct vt_page *page)
{
    vt_page_flush_list(page, "strings", &page->strings);
    vt_page_flush_list(page, "frames", &page->frames);
    vt_page_flush_list(page, "nodes", &page->nodes);
}

void vt_page_stacks_free(struct vt_page *page)
{
    struct vt_page_strings *string = page->string_table, *next_string;
    struct vt_page_nodes *node = page->node_table, *next_node;

    HASH_CLEAR(hh, page->string_table); /* the table; its elements are a list all the same */
    HASH_CLEAR(hh, page->node_table);
    for (; string; string = next_string) {
        next_string = string->hh.next;
        free(string);
    }
    for (; node; node = next_node) {
        next_node = node->hh.next;
        free(node);
    }
    vt_export_frames_free(&page->frame_table);
}
