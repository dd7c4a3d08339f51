/*
 * Stacks of a PyTorch snapshot. Each stack and each frame is written once and referred to after that: it keeps the file small,
 * and viewers share what they share. See export_torch.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "views/export_torch.h"

static uint32_t *stack_slot(struct vt_torch_stacks *w, uint64_t key)
{
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (w->room - 1);

    while (w->slots[at].memo && w->slots[at].key != key)
        at = (at + 1) & (w->room - 1);
    w->slots[at].key = key;
    return &w->slots[at].memo;
}

static bool grow_stacks(struct vt_torch_stacks *w)
{
    struct vt_torch_stacks grown = {.room = w->room ? w->room * 2 : 1024, .count = w->count};
    uint32_t i;

    if (!(grown.slots = calloc(grown.room, sizeof *grown.slots)))
        return false;
    for (i = 0; i < w->room; i++)
        if (w->slots[i].memo)
            *stack_slot(&grown, w->slots[i].key) = w->slots[i].memo;
    free(w->slots);
    *w = grown;
    return true;
}

/* The memo of a frame, or NULL. */
static uint32_t *frame_memo(struct vt_torch_frames *f, const struct vt_display_frame *frame)
{
    uint32_t number = vt_export_frame(&f->frames, frame), *grown;

    if (number == VT_NONE)
        return NULL;
    if (number >= f->memo_room) {
        if (!(grown = realloc(f->memos, f->frames.room * sizeof *grown)))
            return NULL;
        memset(grown + f->memo_room, 0, (f->frames.room - f->memo_room) * sizeof *grown);
        f->memos = grown;
        f->memo_room = f->frames.room;
    }
    return &f->memos[number];
}

static void put_frame(struct vt_torch_frames *f, const struct vt_display_frame *frame)
{
    uint32_t *memo = frame_memo(f, frame);
    char label[VT_EXPORT_LABEL];

    if (memo && *memo) {
        vt_pickle_again(f->p, *memo - 1);
        return;
    }
    vt_pickle_dict(f->p);
    vt_pickle_word(f->p, "filename");
    vt_pickle_text(f->p, frame->file ? frame->file : frame->module ? frame->module : "??");
    vt_pickle_entry(f->p, "line", frame->line);
    vt_pickle_word(f->p, "name");
    vt_pickle_text(f->p, frame->function ? frame->function : vt_export_label(label, frame));
    vt_pickle_dict_end(f->p);
    if (memo)
        *memo = vt_pickle_keep(f->p) + 1;
    else
        vt_export_fail(f->p->x, -ENOMEM);
}

void vt_torch_put_frames(struct vt_torch_frames *f, uint32_t native, uint32_t python)
{
    struct vt_pickle_list list;
    struct vt_trace trace;
    uint32_t i, *memo;

    vt_pickle_word(f->p, "frames");
    if (f->stacks.count * 2 >= f->stacks.room && !grow_stacks(&f->stacks)) {
        vt_export_fail(f->p->x, -ENOMEM);
        return;
    }
    memo = stack_slot(&f->stacks, (uint64_t)native << 32 | python);
    if (*memo) {
        vt_pickle_again(f->p, *memo - 1);
        return;
    }
    vt_view_trace(&f->p->x->a, &trace, native, python);
    vt_pickle_list(f->p, &list);
    for (i = 0; i < trace.count; i++)
        if (vt_export_has_frame(f->p->x, &trace.frames[i])) {
            vt_pickle_element(f->p, &list);
            put_frame(f, &trace.frames[i]);
        }
    vt_pickle_list_end(f->p);
    vt_trace_free(&trace);
    *memo = vt_pickle_keep(f->p) + 1;
    f->stacks.count++;
}

void vt_torch_frames_free(struct vt_torch_frames *f)
{
    vt_export_frames_free(&f->frames);
    free(f->memos);
    free(f->stacks.slots);
}
