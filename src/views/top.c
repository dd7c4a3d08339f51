/*
 * The figures of `vramtrack top`: a model per refresh, and what only several of them tell: rates and growth. See top.h.
 */
#include "views/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/account.h"
#include "analysis/format.h"
#include "recording/follow.h"
#include "recording/utf8.h"
#include "views/common.h"

#define WINDOW 6             /* refreshes that rates and growth look back */
#define NAMING_NS 100000000u /* the longest that a filter may look for names at a time */
#define PLACE_BYTES 512
#define JOINED_MAX 400 /* rows that are compared with each other */

struct past {
    uint64_t live[WINDOW], calls[WINDOW];
};

struct vt_top {
    struct vt_follow *follow;
    struct vt_analysis a;
    bool shown, final; /* there is a model; it is the last one */
    char *path;
    const char *user_paths;
    struct past *past; /* by site */
    char **names;      /* by site; NULL: not looked up yet */
    uint64_t sites;    /* room in both */
    uint64_t past_ns[WINDOW];
    uint64_t refreshes;
    struct vt_top_row *rows;       /* one per site */
    struct vt_top_row *shown_rows; /* what vt_top_rows() hands out */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *vt_top_sort_name(enum vt_top_sort sort)
{
    static const char *const names[VT_TOP_SORTS] = {"live", "at peak", "rate", "count"};

    return names[sort];
}

struct vt_top *vt_top_open(const char *path, int32_t pid, const char *user_paths, char *error, size_t error_bytes)
{
    struct vt_top *top = calloc(1, sizeof *top);

    if (!top || !(top->path = strdup(path)) || !(top->a.symbols = vt_symbols_open())) {
        vt_top_close(top);
        snprintf(error, error_bytes, "out of memory");
        return NULL;
    }
    top->user_paths = user_paths;
    if ((top->follow = vt_follow_open(path, pid, false, error, error_bytes)))
        return top;
    vt_top_close(top);
    return NULL;
}

/* Lets go of the model and of what the symbolizer keeps of its reading. */
static void drop_model(struct vt_top *top)
{
    if (!top->shown)
        return;
    vt_symbols_forget(top->a.symbols, top->a.model.reading);
    vt_findings_free(&top->a.findings);
    memset(&top->a.findings, 0, sizeof top->a.findings);
    vt_model_free(&top->a.model);
    memset(&top->a.model, 0, sizeof top->a.model);
    free(top->rows);
    free(top->shown_rows);
    top->rows = top->shown_rows = NULL;
    top->shown = false;
}

void vt_top_close(struct vt_top *top)
{
    uint64_t i;

    if (!top)
        return;
    drop_model(top);
    if (top->a.symbols)
        vt_symbols_close(top->a.symbols);
    vt_follow_close(top->follow);
    for (i = 0; i < top->sites; i++)
        free(top->names[i]);
    free(top->names);
    free(top->past);
    free(top->path);
    free(top);
}

/* Room for what is remembered of `count` sites. */
static bool make_room(struct vt_top *top, uint64_t count)
{
    struct past *past;
    char **names;

    if (count <= top->sites)
        return true;
    if (!(past = realloc(top->past, count * sizeof *past)))
        return false;
    top->past = past;
    if (!(names = realloc(top->names, count * sizeof *names)))
        return false;
    top->names = names;
    memset(past + top->sites, 0, (count - top->sites) * sizeof *past);
    memset(names + top->sites, 0, (count - top->sites) * sizeof *names);
    top->sites = count;
    return true;
}

/* What everybody else of the site's level and class holds on its device as well. */
static uint64_t held_by_all(const struct vt_model *m, const struct vt_site *site)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == site->level && m->totals[i].record->device == site->device &&
            vt_class_of(m->totals[i].record->kind) == vt_class_of(site->kind))
            sum += m->totals[i].live_bytes;
    return sum;
}

static void compare_with_past(const struct vt_top *top, struct vt_top_row *row, uint64_t now)
{
    uint64_t back = top->refreshes < WINDOW ? 0 : top->refreshes % WINDOW; /* the oldest one that is kept */
    const struct past *past = &top->past[row->site->index];
    double seconds = (double)(now - top->past_ns[back]) / 1e9;

    if (!top->refreshes || top->final) /* what has ended does nothing any more */
        return;
    row->growth = (int64_t)(row->site->live_bytes - past->live[back]);
    if (seconds > 0 && row->site->record->alloc_calls >= past->calls[back])
        row->allocs_per_s = (double)(row->site->record->alloc_calls - past->calls[back]) / seconds;
}

static void remember(struct vt_top *top, uint64_t now)
{
    unsigned at = top->refreshes % WINDOW;
    uint32_t i;

    top->past_ns[at] = now;
    for (i = 0; i < top->a.model.site_count; i++) {
        const struct vt_site_row *site = &top->a.model.sites[i];

        top->past[site->index].live[at] = site->live_bytes;
        top->past[site->index].calls[at] = site->record->alloc_calls;
    }
    top->refreshes++;
}

/* The rows of all sites that a list of who holds memory shows. */
static bool take_rows(struct vt_top *top)
{
    const struct vt_model *m = &top->a.model;
    uint64_t now = now_ns(), all;
    uint32_t i;

    if (!make_room(top, vt_reading_count(m->reading, VT_SITES)) ||
        !(top->rows = calloc(m->site_count + 1u, sizeof *top->rows)) ||
        !(top->shown_rows = calloc(m->site_count + 1u, sizeof *top->rows)))
        return false;
    for (i = 0; i < m->site_count; i++) {
        struct vt_top_row *row = &top->rows[i];

        *row = (struct vt_top_row){.site = &m->sites[i],
                                   .row = i,
                                   .sites = 1,
                                   .live_bytes = m->sites[i].live_bytes,
                                   .live_count = m->sites[i].live_count,
                                   .at_peak_bytes = m->sites[i].at_peak_bytes};
        all = held_by_all(m, row->site->record);
        row->share = all ? (double)row->site->live_bytes / (double)all : 0;
        compare_with_past(top, row, now);
    }
    remember(top, now);
    return true;
}

static bool refresh(struct vt_top *top, bool ended, char *error, size_t error_bytes)
{
    struct vt_reading *reading;

    drop_model(top);
    if (!(reading = vt_follow_refresh(top->follow, ended, error, error_bytes)))
        return false;
    top->a.style = vt_stack_style_for(reading, VT_SHOW_MERGED, top->user_paths);
    if (vt_model_build(&top->a.model, reading, "end")) {
        snprintf(error, error_bytes, "%s: out of memory", top->path);
        return false;
    }
    top->shown = true;
    vt_account_add_parts(&top->a.model, top->a.symbols);
    return true;
}

bool vt_top_refresh(struct vt_top *top, char *error, size_t error_bytes)
{
    if (top->final)
        return true;
    if (!refresh(top, false, error, error_bytes))
        return false;
    if (top->a.model.end != VT_PROCESS_RUNNING) { /* it may have gone on after the copy was made; now it is over */
        if (!refresh(top, true, error, error_bytes))
            return false;
        top->final = true;
    }
    if (take_rows(top))
        return true;
    snprintf(error, error_bytes, "%s: out of memory", top->path);
    return false;
}

const struct vt_analysis *vt_top_analysis(const struct vt_top *top)
{
    return &top->a;
}

bool vt_top_judge(struct vt_top *top)
{
    return !vt_findings_build(&top->a.findings, &top->a.model, top->a.symbols, &top->a.style);
}

bool vt_top_ended(const struct vt_top *top)
{
    return top->final;
}

const char *vt_top_path(const struct vt_top *top)
{
    return top->path;
}

uint64_t vt_top_events(const struct vt_top *top)
{
    return vt_follow_events(top->follow);
}

uint64_t vt_top_torn(const struct vt_top *top)
{
    return vt_follow_torn(top->follow);
}

bool vt_top_has_rates(const struct vt_top *top)
{
    return top->refreshes > 1 && !top->final;
}

/* The visible frame outside of the user frame, or NULL. */
static const struct vt_display_frame *caller_of(const struct vt_trace *trace)
{
    uint32_t i = trace->user;

    while (i < trace->count && ++i < trace->count)
        if (!trace->frames[i].hidden && !vt_same_place(&trace->frames[i], &trace->frames[trace->user]))
            return &trace->frames[i];
    return NULL;
}

const char *vt_top_place(struct vt_top *top, const struct vt_site_row *site)
{
    char text[2 * PLACE_BYTES + 4], place[PLACE_BYTES];
    const struct vt_display_frame *caller;
    struct vt_trace trace;
    char **name = &top->names[site->index];

    if (*name)
        return *name;
    vt_view_trace(&top->a, &trace, site->record->stack, site->record->python_stack);
    vt_format_place(place, sizeof place, vt_trace_user(&trace));
    vt_utf8_mend(place, sizeof place);
    snprintf(text, sizeof text, "%s", place);
    if ((caller = caller_of(&trace)))
        snprintf(text + strlen(text), sizeof text - strlen(text), " < %s",
                 vt_format_place(place, sizeof place, caller));
    vt_trace_free(&trace);
    vt_utf8_mend(text, strlen(text) + 1);
    *name = strdup(text);
    return *name ? *name : "";
}

static double key(const struct vt_top_row *row, enum vt_top_sort sort)
{
    switch (sort) {
    case VT_TOP_AT_PEAK:
        return (double)row->at_peak_bytes;
    case VT_TOP_RATE:
        return row->allocs_per_s;
    case VT_TOP_COUNT:
        return (double)row->live_count;
    default:
        return (double)row->live_bytes;
    }
}

static int larger_first(const void *left, const void *right, void *argument)
{
    const struct vt_top_row *a = left, *b = right;
    enum vt_top_sort sort = *(const enum vt_top_sort *)argument;

    if (key(a, sort) < key(b, sort) || key(a, sort) > key(b, sort))
        return key(a, sort) < key(b, sort) ? 1 : -1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Is there something to show of the row in this order? Else a long run would show a thousand places that hold nothing. */
static bool is_wanted(const struct vt_top *top, const struct vt_top_row *row, enum vt_top_sort sort)
{
    return vt_view_is_shown(&top->a, row->site) && (row->live_bytes || key(row, sort) > 0);
}

/* The name, if it is known or there is time left to look for it; else NULL. */
static const char *name_of(struct vt_top *top, const struct vt_top_row *row, uint64_t until)
{
    return top->names[row->site->index] || now_ns() < until ? vt_top_place(top, row->site) : NULL;
}

/* Leaves the rows whose name has the filter in it. Returns their number. */
static uint32_t filter_rows(struct vt_top *top, uint32_t count, const char *filter, uint64_t until, uint32_t *unnamed)
{
    struct vt_top_row *rows = top->shown_rows;
    uint32_t left = 0, i;

    for (i = 0; i < count; i++) {
        const char *name = name_of(top, &rows[i], until);

        if (!name)
            (*unnamed)++;
        else if (strcasestr(name, filter))
            rows[left++] = rows[i];
    }
    return left;
}

static bool is_same_place(const struct vt_top *top, const struct vt_top_row *a, const struct vt_top_row *b)
{
    const struct vt_site *x = a->site->record, *y = b->site->record;
    const char *one = top->names[a->site->index], *other = top->names[b->site->index];

    return x->level == y->level && x->kind == y->kind && x->device == y->device && one && other && !strcmp(one, other);
}

static void add_up(struct vt_top_row *sum, const struct vt_top_row *row)
{
    sum->sites += row->sites;
    sum->live_bytes += row->live_bytes;
    sum->live_count += row->live_count;
    sum->at_peak_bytes += row->at_peak_bytes;
    sum->share += row->share;
    sum->allocs_per_s += row->allocs_per_s;
    sum->growth += row->growth;
}

/* Joins the first rows by their names. Returns how many rows are left. */
static uint32_t join_rows(struct vt_top *top, uint32_t count, enum vt_top_sort sort, uint64_t until)
{
    struct vt_top_row *rows = top->shown_rows;
    uint32_t most = count < JOINED_MAX ? count : JOINED_MAX, left = 0, i, j;

    for (i = 0; i < most; i++) {
        name_of(top, &rows[i], until);
        for (j = 0; j < left && !is_same_place(top, &rows[j], &rows[i]);)
            j++;
        if (j < left)
            add_up(&rows[j], &rows[i]);
        else
            rows[left++] = rows[i];
    }
    qsort_r(rows, left, sizeof *rows, larger_first, &sort);
    memmove(rows + left, rows + most, (count - most) * sizeof *rows);
    return left + count - most;
}

uint32_t vt_top_rows(struct vt_top *top, enum vt_top_sort sort, const char *filter, bool join,
                     const struct vt_top_row **rows, uint32_t *unnamed)
{
    uint64_t until = now_ns() + NAMING_NS;
    uint32_t count = 0, i;

    *unnamed = 0;
    *rows = top->shown_rows;
    for (i = 0; i < top->a.model.site_count; i++)
        if (is_wanted(top, &top->rows[i], sort))
            top->shown_rows[count++] = top->rows[i];
    qsort_r(top->shown_rows, count, sizeof *top->shown_rows, larger_first, &sort);
    if (filter && *filter)
        count = filter_rows(top, count, filter, until, unnamed);
    return join ? join_rows(top, count, sort, until) : count;
}
