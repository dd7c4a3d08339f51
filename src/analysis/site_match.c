/*
 * The table of places; see site_match.h. Text is interned: the ranks of a job repeat the same few hundred names.
 */
#include "analysis/site_match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "analysis/format.h"
#include "analysis/modules.h"

struct text {
    UT_hash_handle hh;
    char chars[];
};

#define OUTWARDS_MAX 8 /* callers looked at for one that differs */
#define CALLER_BYTES 96

/* One interned key leads to its place. */
struct entry {
    const char *exact;
    uint32_t index;
    UT_hash_handle hh;
};

struct vt_spots {
    struct text *texts;
    struct entry *entries; /* by exact key */
    struct vt_spot *list;
    uint32_t count, room;
    bool all_frames, full, no_memory;
};

/* Text that grows; once memory ran out it stays NULL. */
struct buffer {
    char *text;
    size_t used, room;
    bool failed;
};

static void put(struct buffer *b, const char *text)
{
    size_t length = strlen(text), need = b->used + length + 1;
    char *grown;

    if (b->failed)
        return;
    if (need > b->room) {
        if (!(grown = realloc(b->text, need * 2))) {
            b->failed = true;
            return;
        }
        b->text = grown;
        b->room = need * 2;
    }
    memcpy(b->text + b->used, text, length + 1);
    b->used += length;
}

struct vt_spots *vt_spots_open(bool all_frames)
{
    struct vt_spots *p = calloc(1, sizeof *p);

    if (p)
        p->all_frames = all_frames;
    return p;
}

void vt_spots_close(struct vt_spots *p)
{
    struct text *text, *next_text;
    struct entry *entry, *next_entry;
    uint32_t i;

    if (!p)
        return;
    for (i = 0; i < p->count; i++)
        free(p->list[i].trace.frames);
    entry = p->entries;
    HASH_CLEAR(hh, p->entries); /* the table; its elements are still a list */
    for (; entry; entry = next_entry) {
        next_entry = entry->hh.next;
        free(entry);
    }
    text = p->texts;
    HASH_CLEAR(hh, p->texts);
    for (; text; text = next_text) {
        next_text = text->hh.next;
        free(text);
    }
    free(p->list);
    free(p);
}

/* The table's copy of a text; NULL for NULL, and if memory ran out (noted). */
static const char *intern(struct vt_spots *p, const char *chars)
{
    size_t length;
    struct text *text;

    if (!chars)
        return NULL;
    length = strlen(chars);
    HASH_FIND(hh, p->texts, chars, length, text);
    if (text)
        return text->chars;
    if (!(text = calloc(1, sizeof *text + length + 1))) {
        p->no_memory = true;
        return NULL;
    }
    memcpy(text->chars, chars, length);
    HASH_ADD_KEYPTR(hh, p->texts, text->chars, length, text);
    if (!text->hh.tbl) {
        free(text);
        p->no_memory = true;
        return NULL;
    }
    return text->chars;
}

/* A frame as a line of a key. Names that are not in the file's symbols are no names: `nearest` goes by the offset. */
static void put_frame(struct buffer *b, const struct vt_display_frame *f, bool with_lines)
{
    char number[32];

    put(b, f->lang == VT_LANG_PYTHON ? "p" : "n");
    if (f->function) {
        put(b, f->function);
        put(b, "\t");
        put(b, f->file ? vt_basename(f->file) : "");
        snprintf(number, sizeof number, ":%u", f->line);
    } else if (f->file) {
        put(b, vt_basename(f->file));
        snprintf(number, sizeof number, ":%u", f->line);
    } else if (f->module) {
        put(b, vt_basename(f->module));
        snprintf(number, sizeof number, "+%llx", (unsigned long long)f->offset);
    } else {
        put(b, f->origin ? f->origin : "?"); /* generated code lies elsewhere in every process */
        number[0] = '\0';
    }
    if (with_lines)
        put(b, number);
    put(b, "\n");
}

static char *key_of(const struct vt_trace *trace, const struct vt_site *site, const char *api, int device,
                    bool with_lines)
{
    struct buffer b = {NULL, 0, 0, false};
    char head[64];
    uint32_t i;

    snprintf(head, sizeof head, "%u %u %d ", site->level, site->kind, device);
    put(&b, head);
    put(&b, api);
    put(&b, "\n");
    for (i = 0; i < trace->count; i++)
        if (!trace->frames[i].hidden)
            put_frame(&b, &trace->frames[i], with_lines);
    if (b.failed) {
        free(b.text);
        return NULL;
    }
    return b.text;
}

/* Copies the frames that are to be kept, with their text. False: memory ran out. */
static bool keep_frames(struct vt_spots *p, struct vt_spot *place, const struct vt_trace *trace)
{
    struct vt_display_frame *f;
    uint32_t i;

    place->trace = (struct vt_trace){.user = VT_NONE, .cut_native = trace->cut_native, .cut_python = trace->cut_python};
    if (!(place->trace.frames = calloc(trace->count ? trace->count : 1, sizeof *f)))
        return false;
    for (i = 0; i < trace->count; i++) {
        if (trace->frames[i].hidden && !p->all_frames && i != trace->user)
            continue;
        if (i == trace->user)
            place->trace.user = place->trace.count;
        f = &place->trace.frames[place->trace.count++];
        *f = trace->frames[i];
        f->function = intern(p, f->function);
        f->file = intern(p, f->file);
        f->module = intern(p, f->module);
        f->nearest = intern(p, f->nearest);
        f->origin = trace->frames[i].function == trace->frames[i].origin ? f->function : intern(p, f->origin);
    }
    return true;
}

static struct vt_spot *room_for_one(struct vt_spots *p)
{
    struct vt_spot *grown;
    uint32_t room = p->room ? p->room * 2 : 64;

    if (p->count < p->room)
        return &p->list[p->count];
    if (!(grown = realloc(p->list, room * sizeof *grown)))
        return NULL;
    p->list = grown;
    p->room = room;
    return &grown[p->count];
}

/* Makes a new place. Its index, or VT_NONE: memory ran out (noted). */
static uint32_t make(struct vt_spots *p, const struct vt_trace *trace, const struct vt_spot *like, const char *exact,
                     const char *chain)
{
    struct vt_spot *place = room_for_one(p);
    struct entry *entry = place ? calloc(1, sizeof *entry) : NULL;

    if (entry) {
        *place = *like;
        place->exact = intern(p, exact);
        place->chain = intern(p, chain);
        if (place->exact && place->chain && keep_frames(p, place, trace)) {
            entry->exact = place->exact;
            entry->index = p->count;
            HASH_ADD_KEYPTR(hh, p->entries, entry->exact, strlen(entry->exact), entry);
            if (entry->hh.tbl && !p->no_memory)
                return p->count++;
            if (entry->hh.tbl)
                HASH_DEL(p->entries, entry);
            free(place->trace.frames);
        }
        free(entry);
    }
    p->no_memory = true;
    return VT_NONE;
}

static uint32_t find_or_make(struct vt_spots *p, const struct vt_trace *trace, const struct vt_spot *like,
                             const char *exact, const char *chain)
{
    struct entry *entry;

    if (!exact || !chain) {
        p->no_memory = true;
        return VT_NONE;
    }
    HASH_FIND(hh, p->entries, exact, strlen(exact), entry);
    if (entry)
        return entry->index;
    if (p->count == VT_SPOTS_MAX) {
        p->full = true;
        return VT_NONE;
    }
    return make(p, trace, like, exact, chain);
}

uint32_t vt_spots_add(struct vt_spots *p, const struct vt_reading *reading, struct vt_symbols *symbols,
                      const struct vt_stack_style *style, const struct vt_site *site, int device)
{
    const char *api = vt_reading_chars(reading, site->api);
    struct vt_spot like = {.level = site->level, .kind = site->kind, .device = (int16_t)device};
    struct vt_trace trace;
    char *exact, *chain;
    uint32_t index;

    if (vt_trace_build(&trace, reading, symbols, style, site->stack, site->python_stack)) {
        p->no_memory = true;
        return VT_NONE;
    }
    like.api = intern(p, api);
    like.depth = vt_reading_header(reading)->stack_depth;
    exact = key_of(&trace, site, api, device, true);
    chain = key_of(&trace, site, api, device, false);
    index = find_or_make(p, &trace, &like, exact, chain);
    free(exact);
    free(chain);
    vt_trace_free(&trace);
    return index;
}

bool vt_spots_full(const struct vt_spots *p)
{
    return p->full;
}

bool vt_spots_no_memory(const struct vt_spots *p)
{
    return p->no_memory;
}

const struct vt_spot *vt_spots_at(const struct vt_spots *p, uint32_t index)
{
    return &p->list[index];
}

uint32_t vt_spots_count(const struct vt_spots *p)
{
    return p->count;
}

bool vt_site_counts(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;

    if (!vt_kind_is_memory(site->kind))
        return false;
    if (site->level == VT_LEVEL_TENSOR)
        return true;
    return !(row->pool && vt_fragmentation_of(&m->fragmentation, site->device));
}

int vt_spot_compare_chain(const struct vt_spot *a, const struct vt_spot *b)
{
    return strcmp(a->chain, b->chain);
}

static int compare_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

static int compare_name(const char *a, const char *b)
{
    return compare_text(a ? vt_basename(a) : NULL, b ? vt_basename(b) : NULL);
}

static int compare_number(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* As in the keys: by name, file and line; without a name by module and offset. */
static int compare_frame(const struct vt_display_frame *a, const struct vt_display_frame *b)
{
    int order = compare_number(a->lang, b->lang);

    order = order ? order : compare_text(a->function, b->function);
    order = order ? order : compare_name(a->file, b->file);
    order = order ? order : compare_number(a->line, b->line);
    if (order || a->function || a->file)
        return order;
    order = compare_name(a->module, b->module);
    return order || !a->module ? order : compare_number(a->offset, b->offset);
}

/* The next visible frame from *at on, up to the user frame and with it; NULL: there are no more. */
static const struct vt_display_frame *inner(const struct vt_trace *trace, uint32_t *at)
{
    while (*at < trace->count && *at < trace->user && trace->frames[*at].hidden)
        ++*at;
    return *at < trace->count && *at <= trace->user ? &trace->frames[(*at)++] : NULL;
}

int vt_spot_compare_inner(const struct vt_spot *a, const struct vt_spot *b)
{
    int order = compare_number(a->level, b->level);
    uint32_t i = 0, j = 0;

    order = order ? order : compare_number(a->kind, b->kind);
    order = order ? order : (a->device > b->device) - (a->device < b->device);
    order = order ? order : compare_text(a->api, b->api);
    while (!order) {
        const struct vt_display_frame *f = inner(&a->trace, &i), *g = inner(&b->trace, &j);

        if (!f || !g)
            return (f != NULL) - (g != NULL);
        order = compare_frame(f, g);
    }
    return order;
}

bool vt_spot_is_named(const struct vt_spot *place)
{
    const struct vt_display_frame *user = vt_trace_user(&place->trace);

    return user && user->function;
}

static const struct vt_display_frame *visible(const struct vt_trace *trace, uint32_t *at)
{
    while (*at && trace->frames[*at - 1].hidden)
        --*at;
    return *at ? &trace->frames[--*at] : NULL;
}

int vt_spot_compare_lines(const struct vt_spot *a, const struct vt_spot *b)
{
    uint32_t i = a->trace.count, j = b->trace.count;
    const struct vt_display_frame *f, *g;

    while ((f = visible(&a->trace, &i)) && (g = visible(&b->trace, &j))) {
        if (f->line != g->line)
            return f->line < g->line ? -1 : 1;
        if (!f->line && f->offset != g->offset)
            return f->offset < g->offset ? -1 : 1;
    }
    return 0;
}

/* The visible frame `steps` outside the user frame, or NULL. */
static const struct vt_display_frame *outwards(const struct vt_trace *trace, unsigned steps)
{
    uint32_t i = trace->user;

    while (steps && i < trace->count && ++i < trace->count)
        steps -= !trace->frames[i].hidden;
    return i < trace->count && !steps ? &trace->frames[i] : NULL;
}

/* Does a place of the same kind and user frame have another caller, `steps` outside? */
static bool others_differ(const struct vt_spots *p, const struct vt_spot *spot, unsigned steps)
{
    const struct vt_display_frame *caller = outwards(&spot->trace, steps), *other;
    uint32_t i;

    for (i = 0; i < p->count; i++) {
        if (p->list[i].kind != spot->kind || p->list[i].level != spot->level ||
            !vt_same_place(vt_trace_user(&p->list[i].trace), vt_trace_user(&spot->trace)))
            continue;
        other = outwards(&p->list[i].trace, steps);
        if ((caller || other) && !vt_same_place(caller, other))
            return true;
    }
    return false;
}

const char *vt_spot_name(char *buffer, const struct vt_spots *p, uint32_t index)
{
    const struct vt_spot *spot = &p->list[index];
    const struct vt_display_frame *user = vt_trace_user(&spot->trace), *caller;
    size_t used = strlen(vt_format_place(buffer, VT_SPOT_NAME - CALLER_BYTES, user));
    char text[CALLER_BYTES];
    unsigned steps = 1;

    if (!user)
        return buffer;
    while (steps <= OUTWARDS_MAX && !others_differ(p, spot, steps))
        steps++;
    if (steps <= OUTWARDS_MAX && (caller = outwards(&spot->trace, steps)))
        snprintf(buffer + used, VT_SPOT_NAME - used, " < %s", vt_format_place(text, sizeof text, caller));
    return buffer;
}
