/*
 * Tables of frames and stacks for formats that name each frame once: equal frames are found by hash (FNV-1a over what is
 * shown of them), because a recording has far fewer of them than places times depth. See export.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "views/export.h"

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;

    while (count--)
        hash = (hash ^ *at++) * 1099511628211u;
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return text ? hash_bytes(hash, text, strlen(text) + 1) : hash_bytes(hash, "\xff", 1);
}

static uint64_t hash_frame(const struct vt_display_frame *f)
{
    uint64_t hash = 14695981039346656037u;

    hash = hash_text(hash_text(hash_text(hash_text(hash, f->function), f->file), f->module), f->nearest);
    hash = hash_bytes(hash, &f->line, sizeof f->line);
    return hash_bytes(hash, &f->offset, sizeof f->offset);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_frame(const struct vt_display_frame *a, const struct vt_display_frame *b)
{
    return a->line == b->line && a->offset == b->offset && a->lang == b->lang && same_text(a->function, b->function) &&
           same_text(a->file, b->file) && same_text(a->module, b->module) && same_text(a->nearest, b->nearest);
}

/* Where the frame is in the table, or would be. */
static uint32_t *slot_of(struct vt_export_frames *f, const struct vt_display_frame *frame)
{
    uint32_t at = (uint32_t)hash_frame(frame) & (f->slots - 1);

    while (f->table[at] && !same_frame(&f->list[f->table[at] - 1], frame))
        at = (at + 1) & (f->slots - 1);
    return &f->table[at];
}

static bool grow(struct vt_export_frames *f)
{
    uint32_t room = f->room ? f->room * 2 : 1024, i;
    struct vt_display_frame *list = realloc(f->list, room * sizeof *list);
    uint32_t *table;

    if (!list)
        return false;
    f->list = list;
    if (!(table = calloc(room * 2, sizeof *table)))
        return false;
    free(f->table);
    f->table = table;
    f->room = room;
    f->slots = room * 2;
    for (i = 0; i < f->count; i++)
        *slot_of(f, &f->list[i]) = i + 1;
    return true;
}

uint32_t vt_export_frame(struct vt_export_frames *f, const struct vt_display_frame *frame)
{
    uint32_t *slot;

    if (f->count == f->room && (f->room >= 1u << 28 || !grow(f)))
        return VT_NONE;
    slot = slot_of(f, frame);
    if (!*slot) {
        f->list[f->count] = *frame;
        *slot = ++f->count;
    }
    return *slot - 1;
}

void vt_export_frames_free(struct vt_export_frames *f)
{
    free(f->list);
    free(f->table);
    memset(f, 0, sizeof *f);
}

static bool make_room(struct vt_export_stacks *s, uint32_t frames)
{
    size_t room = s->room ? s->room : 4096;
    uint32_t *grown;

    while (room < s->used + frames)
        room *= 2;
    if (room == s->room)
        return true;
    if (!(grown = realloc(s->numbers, room * sizeof *grown)))
        return false;
    s->numbers = grown;
    s->room = room;
    return true;
}

static int add(struct vt_export_stacks *s, const struct vt_export *x, const struct vt_site_row *row)
{
    struct vt_export_stack *stack = &s->stacks[s->count];
    struct vt_trace trace;
    uint32_t i, number = 0;

    vt_view_trace(&x->a, &trace, row->record->stack, row->record->python_stack);
    *stack = (struct vt_export_stack){row, s->used, 0};
    for (i = make_room(s, trace.count) ? 0 : VT_NONE; i < trace.count; i++)
        if (vt_export_has_frame(x, &trace.frames[i])) {
            if ((number = vt_export_frame(&s->frames, &trace.frames[i])) == VT_NONE)
                break;
            s->numbers[s->used++] = number;
            stack->count++;
        }
    vt_trace_free(&trace);
    if (i == VT_NONE || number == VT_NONE)
        return -ENOMEM;
    s->count++;
    return 0;
}

int vt_export_stacks_build(struct vt_export_stacks *s, const struct vt_export *x)
{
    const struct vt_model *m = &x->a.model;
    uint32_t i;
    int error = 0;

    memset(s, 0, sizeof *s);
    if (!(s->stacks = calloc((size_t)m->site_count + 1, sizeof *s->stacks)))
        return -ENOMEM;
    for (i = 0; i < m->site_count && !error; i++)
        if (vt_export_shows(x, &m->sites[i]))
            error = add(s, x, &m->sites[i]);
    return error;
}

void vt_export_stacks_free(struct vt_export_stacks *s)
{
    vt_export_frames_free(&s->frames);
    free(s->stacks);
    free(s->numbers);
    memset(s, 0, sizeof *s);
}
