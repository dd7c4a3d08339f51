/*
 * Sites that look the same to a person: equal but for code addresses that symbols do not tell apart.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define LOOKED_AT 1024 /* sites, largest first: what is behind them can't change the top of the list by much */

static char *stack_text(const struct vt_analysis *a, const struct vt_site *site)
{
    struct vt_trace trace;
    char *text, place[512];
    size_t used = 0;
    uint32_t i;

    vt_view_trace(a, &trace, site->stack, site->python_stack);
    text = malloc(trace.count * sizeof place + 1);
    for (i = 0; text && i < trace.count; i++)
        if (!trace.frames[i].hidden) {
            size_t length = strlen(vt_format_place(place, sizeof place, &trace.frames[i]));

            memcpy(text + used, place, length);
            text[used + length] = '\n';
            used += length + 1;
        }
    if (text)
        text[used] = '\0';
    vt_trace_free(&trace);
    return text;
}

static bool looks_same(const struct vt_joined *group, const struct vt_site *site, const char *stack)
{
    const struct vt_site *other = group->row.record;

    return other->level == site->level && other->kind == site->kind && other->device == site->device &&
           other->api == site->api && group->stack && stack && !strcmp(group->stack, stack);
}

static void join(struct vt_joined *group, const struct vt_site_row *row)
{
    if (group->sites) {
        group->row.live_bytes += row->live_bytes;
        group->row.live_count += row->live_count;
        group->row.at_peak_bytes += row->at_peak_bytes;
    } else {
        group->row = *row;
    }
    group->alloc_calls += row->record->alloc_calls;
    group->free_calls += row->record->free_calls;
    group->retired += row->record->retired;
    group->threads |= row->record->threads;
    group->sites++;
}

static int larger_first(const void *left, const void *right)
{
    const struct vt_site_row *a = &((const struct vt_joined *)left)->row, *b = &((const struct vt_joined *)right)->row;

    if (a->live_bytes != b->live_bytes)
        return a->live_bytes < b->live_bytes ? 1 : -1;
    if (a->at_peak_bytes != b->at_peak_bytes)
        return a->at_peak_bytes < b->at_peak_bytes ? 1 : -1;
    if (a->record->total_bytes != b->record->total_bytes)
        return a->record->total_bytes < b->record->total_bytes ? 1 : -1;
    return a->index < b->index ? -1 : 1;
}

uint32_t vt_view_join_sites(const struct vt_analysis *a, struct vt_joined *groups, uint32_t most, uint32_t *shown)
{
    const struct vt_model *m = &a->model;
    uint32_t count = 0, i, g;

    *shown = 0;
    for (i = 0; i < m->site_count && (i < LOOKED_AT || count < most); i++) {
        char *stack;

        if (!vt_view_is_shown(a, &m->sites[i]))
            continue;
        stack = i < LOOKED_AT ? stack_text(a, m->sites[i].record) : NULL;
        for (g = 0; g < count && !looks_same(&groups[g], m->sites[i].record, stack);)
            g++;
        if (g < most) {
            join(&groups[g], &m->sites[i]);
            ++*shown;
        }
        if (g == count && g < most)
            groups[count++].stack = stack;
        else
            free(stack);
    }
    if (count)
        qsort(groups, count, sizeof *groups, larger_first);
    return count;
}
