/* Which sites read alike, and how they are named; see places.h. */
#include "analysis/places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"

#define OUTWARDS_MAX 8  /* callers looked at for one that differs: helpers in helpers; the rest is in the stacks */
#define CALLER_BYTES 96 /* of a name (VT_PLACE_NAME), for the shown caller */

/* The index of the next visible frame outside of `at`, or count. */
static uint32_t next_visible(const struct vt_trace *trace, uint32_t at)
{
    do
        at++;
    while (at < trace->count && trace->frames[at].hidden);
    return at;
}

/* The visible frame `steps` outside the user frame, or NULL. */
static const struct vt_display_frame *outwards(const struct vt_trace *trace, unsigned steps)
{
    uint32_t at = trace->user;

    while (steps-- && at < trace->count)
        at = next_visible(trace, at);
    return at < trace->count ? &trace->frames[at] : NULL;
}

static bool same_user(const struct vt_place *a, const struct vt_place *b)
{
    return a->site->kind == b->site->kind && a->site->level == b->site->level &&
           vt_same_place(vt_trace_user(&a->trace), vt_trace_user(&b->trace));
}

/* Of two places with the same user frame. */
static bool same_chain(const struct vt_trace *a, const struct vt_trace *b)
{
    uint32_t i = a->user, j = b->user;

    while (i < a->count && j < b->count) {
        if (!vt_same_place(&a->frames[i], &b->frames[j]))
            return false;
        i = next_visible(a, i);
        j = next_visible(b, j);
    }
    return i >= a->count && j >= b->count;
}

/* Two that have no caller to be shown are the same, too. */
static bool same_caller(const struct vt_place *a, const struct vt_place *b)
{
    return (!a->caller && !b->caller) || vt_same_place(a->caller, b->caller);
}

/* Sets the callers of all places with the user frame of list[first]: the innermost frame that differs, if one does. */
static void tell_apart(struct vt_places *p, uint32_t first)
{
    unsigned steps;
    uint32_t i;
    bool differ = false;

    for (steps = 1; steps <= OUTWARDS_MAX && !differ; steps++) {
        const struct vt_display_frame *caller = outwards(&p->list[first].trace, steps);

        for (i = first + 1; i < p->count && !differ; i++)
            if (p->list[i].user == first && (caller || outwards(&p->list[i].trace, steps)))
                differ = !vt_same_place(caller, outwards(&p->list[i].trace, steps));
    }
    for (i = first; differ && i < p->count; i++)
        if (p->list[i].user == first)
            p->list[i].caller = outwards(&p->list[i].trace, steps - 1);
}

/* Finds the first place that is the same, for each of the three ways to be the same. */
static void find_firsts(struct vt_places *p)
{
    uint32_t i, j;

    for (i = 0; i < p->count; i++) {
        struct vt_place *place = &p->list[i];

        for (j = 0; j < i && !(p->list[j].user == j && same_user(&p->list[j], place));)
            j++;
        place->user = j;
        for (j = place->user; j < i && !(p->list[j].user == place->user && p->list[j].chain == j &&
                                         same_chain(&p->list[j].trace, &place->trace));)
            j++;
        place->chain = j;
    }
    for (i = 0; i < p->count; i++)
        if (p->list[i].user == i)
            tell_apart(p, i);
    for (i = 0; i < p->count; i++) {
        for (j = p->list[i].user;
             j < i && !(p->list[j].user == p->list[i].user && same_caller(&p->list[j], &p->list[i]));)
            j++;
        p->list[i].name = j;
    }
}

int vt_places_build(struct vt_places *p, const struct vt_reading *reading, struct vt_symbols *symbols,
                    const struct vt_stack_style *style, const struct vt_site *const *sites, uint32_t count)
{
    *p = (struct vt_places){calloc(count ? count : 1, sizeof *p->list), 0};
    if (!p->list)
        return -ENOMEM;
    for (; p->count < count; p->count++) {
        struct vt_place *place = &p->list[p->count];

        place->site = sites[p->count];
        if (vt_trace_build(&place->trace, reading, symbols, style, place->site->stack, place->site->python_stack))
            return -ENOMEM;
    }
    find_firsts(p);
    return 0;
}

void vt_places_free(struct vt_places *p)
{
    uint32_t i;

    for (i = 0; i < p->count; i++)
        vt_trace_free(&p->list[i].trace);
    free(p->list);
    *p = (struct vt_places){NULL, 0};
}

const char *vt_place_name(char *buffer, const struct vt_place *place)
{
    char caller[CALLER_BYTES];
    size_t used = strlen(vt_format_place(buffer, VT_PLACE_NAME - CALLER_BYTES, vt_trace_user(&place->trace)));

    if (place->caller)
        snprintf(buffer + used, VT_PLACE_NAME - used, " < %s", vt_format_place(caller, sizeof caller, place->caller));
    return buffer;
}
