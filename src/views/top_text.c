/*
 * The screens of `vramtrack top` as lines of text that fit a width; see top.h. Names come from a recording that anybody may
 * have made: what a terminal could act on is shown as \xNN, and what it can't show as '?'.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"
#include "views/top_lines.h"

#define DEVICES_MAX 8 /* shown, each with up to three lines */
#define WIDE 140      /* columns from which on there is room for more figures */
#define FILTER_SHOWN 40

/* "12345", "123.4k", "12.3M": at most 7 columns. Returns buffer (16 long). */
static const char *short_count(char *buffer, double count)
{
    static const char units[] = {'k', 'M', 'G', 'T', 'P', 'E'};
    unsigned unit = 0;

    if (count < 99999.5) {
        snprintf(buffer, 16, "%.0f", count);
        return buffer;
    }
    for (count /= 1000; count >= 999.95 && unit < sizeof units - 1; unit++)
        count /= 1000;
    snprintf(buffer, 16, "%.1f%c", count, units[unit]);
    return buffer;
}

/* "0", "0.25", "17", "1234", "12.3k" a second. */
static const char *short_rate(char *buffer, double rate)
{
    if (rate > 0 && rate < 10)
        snprintf(buffer, 16, "%.2f", rate);
    else
        short_count(buffer, rate);
    return buffer;
}

void vt_top_put_process(struct vt_top *top, struct vt_line *line)
{
    const struct vt_model *m = &vt_top_analysis(top)->model;
    const struct vt_header *h = vt_reading_header(m->reading);
    char time[VT_FORMAT_BYTES], words[VT_END_WORDS], rank[VT_VIEW_RANK];

    vt_line_name(line, h->program, 30);
    vt_line_format(line, "  pid %d on ", h->pid);
    vt_line_name(line, h->host, 24);
    if (h->rank >= 0)
        vt_line_format(line, "  %s", vt_view_rank(rank, h));
    if (m->duration_ns < 60000000000u)
        snprintf(time, sizeof time, "%.1f s", (double)(m->duration_ns / 100000000u) / 10);
    else
        vt_format_seconds(time, m->duration_ns);
    if (m->end == VT_PROCESS_RUNNING)
        vt_line_format(line, "  running %s", time);
    else if (m->end == VT_PROCESS_KILLED)
        vt_line_format(line, "  ended: killed after %s", time);
    else
        vt_line_format(line, "  ended: %s after %s", vt_model_end_words(words, m, false, 0), time);
    if (h->steps)
        vt_line_format(line, "  step %llu", (unsigned long long)h->steps);
    if (m->end == VT_PROCESS_RUNNING && h->phase && h->phase < VT_PHASE_COUNT)
        vt_line_format(line, "  %s", vt_phase_name(h->phase));
}

/* What one class of memory of a level holds on a device, and held at most. */
struct held {
    uint64_t live, peak;
};

static struct held held_of(const struct vt_model *m, unsigned level, unsigned class, int device)
{
    struct held held = {0, 0};
    uint64_t i, count = vt_reading_count(m->reading, VT_SCOPES);

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == level && m->totals[i].record->device == device &&
            vt_class_of(m->totals[i].record->kind) == class)
            held.live += m->totals[i].live_bytes;
    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i);

        if (scope && scope->level == level && scope->class_ == class && scope->device == device)
            held.peak = scope->peak_bytes;
    }
    return held;
}

static void put_held(struct vt_line *line, const char *what, struct held held)
{
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES];

    vt_line_format(line, "  %s %s (peak %s)", what, vt_format_bytes(live, held.live), vt_format_bytes(peak, held.peak));
}

static void draw_parts(struct vt_top_lines *lines, const struct vt_top_screen *screen, const struct vt_device_row *d)
{
    static const char *const names[VT_PART_COUNT] = {"parameters",  "gradients", "optimizer",
                                                     "activations", "inputs",    "other"};
    struct vt_line line = vt_line_begin(screen);
    char bytes[VT_FORMAT_BYTES];
    bool any = false;

    vt_line_format(&line, "      ");
    for (unsigned part = 0; part < VT_PART_COUNT; part++)
        if (d->tensor_part[part]) {
            vt_line_format(&line, "%s%s %s", any ? ", " : "", names[part],
                           vt_format_bytes(bytes, d->tensor_part[part]));
            any = true;
        }
    if (any)
        vt_line_end(&line, lines, VT_TOP_PLAIN);
}

static void draw_device(struct vt_top_lines *lines, const struct vt_top_screen *screen, const struct vt_model *m,
                        const struct vt_device_row *d)
{
    struct vt_line line = vt_line_begin(screen);
    int device = d->record->ordinal;
    struct held tensors = held_of(m, VT_LEVEL_TENSOR, VT_CLASS_DEVICE, device);
    uint64_t total = d->record->total_bytes;
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES];

    vt_line_format(&line, "GPU %d ", device);
    vt_line_bytes(&line, d->record->name, strnlen(d->record->name, sizeof d->record->name), 32);
    if (d->free_known && total)
        vt_line_format(&line, "  used %s of %s", vt_format_bytes(one, d->free < total ? total - d->free : 0),
                       vt_format_bytes(two, total));
    else if (total)
        vt_line_format(&line, "  of %s", vt_format_bytes(two, total));
    vt_line_end(&line, lines, VT_TOP_BOLD);
    line = vt_line_begin(screen);
    vt_line_format(&line, "    ");
    put_held(&line, "driver", held_of(m, VT_LEVEL_DRIVER, VT_CLASS_DEVICE, device));
    if (tensors.peak)
        put_held(&line, "tensors", tensors);
    if (d->cached_unused)
        vt_line_format(&line, "  cached unused %s", vt_format_bytes(one, d->cached_unused));
    vt_line_end(&line, lines, VT_TOP_PLAIN);
    if (d->tensors_known && tensors.live)
        draw_parts(lines, screen, d);
}

/* What is on no card's account: page-locked and managed memory. */
static void draw_others(struct vt_top_lines *lines, const struct vt_top_screen *screen, const struct vt_model *m)
{
    struct vt_line line = vt_line_begin(screen);
    struct held pinned = held_of(m, VT_LEVEL_DRIVER, VT_CLASS_HOST, -1);
    uint32_t i;

    vt_line_format(&line, "host  ");
    if (pinned.peak)
        put_held(&line, "page-locked", pinned);
    for (i = 0; i < m->total_count; i++) {
        const struct vt_total *t = m->totals[i].record;

        if (t->level == VT_LEVEL_DRIVER && t->kind == VT_KIND_MANAGED)
            put_held(&line, "managed", (struct held){m->totals[i].live_bytes, t->peak_bytes});
    }
    if (line.columns > 6)
        vt_line_end(&line, lines, VT_TOP_PLAIN);
}

/* Failures of a sort in one part of a line: "out of memory 2 times, the newest 3.2 s ago". */
static void draw_failures(struct vt_top_lines *lines, const struct vt_top_screen *screen, const struct vt_model *m)
{
    struct vt_line line = vt_line_begin(screen);
    uint64_t ooms = 0, newest = 0, wrong = 0, retries = 0;
    char time[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *f = m->failures[i].record;

        if (vt_failure_is_oom(f->kind)) {
            ooms += f->count;
            newest = f->last_ns > newest ? f->last_ns : newest;
        } else if (f->kind == VT_FAILURE_RETRY) {
            retries += f->count;
        } else {
            wrong += f->count;
        }
    }
    if (ooms)
        vt_line_format(&line, "OUT OF MEMORY %llu time%s, the newest %s ago  ", (unsigned long long)ooms,
                       ooms == 1 ? "" : "s",
                       vt_format_seconds(time, m->duration_ns > newest ? m->duration_ns - newest : 0));
    if (wrong)
        vt_line_format(&line, "%llu wrong or refused call%s  ", (unsigned long long)wrong, wrong == 1 ? "" : "s");
    if (retries)
        vt_line_format(&line, "%llu retr%s", (unsigned long long)retries, retries == 1 ? "y" : "ies");
    if (line.columns)
        vt_line_end(&line, lines, ooms ? VT_TOP_BAD : VT_TOP_WARN);
    line = vt_line_begin(screen);
    if (*m->missing) {
        vt_line_format(&line, "incomplete: %s %s from the recording", m->missing, vt_view_are_missing(m));
        vt_line_end(&line, lines, VT_TOP_WARN);
    }
}

static void draw_heading(struct vt_top_lines *lines, const struct vt_top_screen *screen)
{
    struct vt_line line = vt_line_begin(screen);

    vt_line_format(&line, "%11s %6s %7s %7s ", "LIVE", "SHARE", "COUNT", "ALLOC/S");
    if (screen->width >= WIDE)
        vt_line_format(&line, "%11s  %11s  %-12s", "GROWTH", "AT PEAK", "KIND");
    else
        vt_line_format(&line, "  ");
    vt_line_format(&line, "PLACE (by %s)", vt_top_sort_name(screen->sort));
    if (screen->filter && *screen->filter) {
        vt_line_format(&line, " with \"");
        vt_line_name(&line, screen->filter, FILTER_SHOWN);
        vt_line_format(&line, "\"");
    }
    vt_line_end(&line, lines, VT_TOP_HEAD);
}

/* How much it grew where there is room, and whether it did. */
static void put_growth(struct vt_line *line, const struct vt_top_screen *screen, int64_t growth)
{
    uint64_t size = growth < 0 ? 0 - (uint64_t)growth : (uint64_t)growth;
    char bytes[VT_FORMAT_BYTES];

    if (screen->width >= WIDE)
        vt_line_format(line, "%11s", growth ? vt_format_bytes(bytes, size) : "");
    vt_line_format(line, "%s ",
                   growth > 0   ? (screen->utf8 ? "\xe2\x86\x91" : "+")
                   : growth < 0 ? (screen->utf8 ? "\xe2\x86\x93" : "-")
                                : " ");
}

static void draw_row(struct vt_top *top, struct vt_top_lines *lines, const struct vt_top_screen *screen,
                     const struct vt_top_row *row, bool selected)
{
    struct vt_line line = vt_line_begin(screen);
    char bytes[VT_FORMAT_BYTES], count[16], rate[16], kind[32];
    const struct vt_site *s = row->site->record;

    vt_line_format(&line, "%11s %5.1f%% %7s %7s ", vt_format_bytes(bytes, row->live_bytes), row->share * 100,
                   short_count(count, (double)row->live_count),
                   vt_top_has_rates(top) ? short_rate(rate, row->allocs_per_s) : "-");
    put_growth(&line, screen, row->growth);
    if (screen->width >= WIDE) {
        snprintf(kind, sizeof kind, "%s", s->level == VT_LEVEL_TENSOR ? "tensor" : vt_kind_name(s->kind));
        vt_line_format(&line, "%11s  %-12s", vt_format_bytes(bytes, row->at_peak_bytes), kind);
    }
    vt_line_name(&line, vt_top_place(top, row->site), screen->width);
    vt_line_end(&line, lines, selected ? VT_TOP_SELECTED : VT_TOP_PLAIN);
}

static void draw_head(struct vt_top *top, const struct vt_top_screen *screen, struct vt_top_lines *lines)
{
    const struct vt_model *m = &vt_top_analysis(top)->model;
    struct vt_line line = vt_line_begin(screen);

    vt_top_put_process(top, &line);
    vt_line_end(&line, lines, m->end == VT_PROCESS_RUNNING ? VT_TOP_BOLD : VT_TOP_BAD);
    for (uint32_t i = 0; i < m->device_count && i < DEVICES_MAX; i++)
        draw_device(lines, screen, m, &m->devices[i]);
    draw_others(lines, screen, m);
    draw_failures(lines, screen, m);
}

static void draw_nothing(struct vt_top *top, const struct vt_top_screen *screen, struct vt_top_lines *lines,
                         uint32_t unnamed)
{
    struct vt_line line = vt_line_begin(screen);

    if (unnamed)
        vt_line_format(&line, "  looking up names ...");
    else if (screen->filter && *screen->filter)
        vt_line_format(&line, "  no place has this in its name");
    else
        vt_line_format(&line, "  nothing is held%s", vt_top_analysis(top)->model.site_count ? " now" : "");
    vt_line_end(&line, lines, VT_TOP_PLAIN);
}

/* What a list of so many places leaves out: who reads it must not take it for all. */
static void draw_rest(struct vt_top_lines *lines, const struct vt_top_screen *screen, const struct vt_top_row *rows,
                      uint32_t count)
{
    struct vt_line line = vt_line_begin(screen);
    char bytes[VT_FORMAT_BYTES];
    uint64_t live = 0;

    for (uint32_t i = 0; i < count; i++)
        live += rows[i].live_bytes;
    vt_line_format(&line, "%11s in %u more place%s", vt_format_bytes(bytes, live), count, count == 1 ? "" : "s");
    vt_line_end(&line, lines, VT_TOP_PLAIN);
}

void vt_top_draw(struct vt_top *top, const struct vt_top_screen *screen, struct vt_top_lines *lines, uint32_t *rows,
                 uint32_t *shown)
{
    const struct vt_top_row *row;
    uint32_t unnamed, count = vt_top_rows(top, screen->sort, screen->filter, true, &row, &unnamed), first, room, i;

    memset(lines, 0, sizeof *lines);
    draw_head(top, screen, lines);
    if (screen->height) /* however many GPUs there are, places are shown */
        vt_lines_cut(lines, screen->height > 8 ? screen->height - 6 : 2);
    draw_heading(lines, screen);
    room = !screen->height ? count : screen->height > lines->count + 1u ? screen->height - lines->count - 1u : 0;
    if (screen->most && room > screen->most)
        room = screen->most;
    first = vt_lines_first(screen->first, screen->selected, count, room);
    for (i = first; i < count && i - first < room; i++)
        draw_row(top, lines, screen, &row[i], i == screen->selected);
    if (!count)
        draw_nothing(top, screen, lines, unnamed);
    if (!screen->height && count > room)
        draw_rest(lines, screen, &row[room], count - room);
    if (rows)
        *rows = count;
    if (shown)
        *shown = room;
    vt_lines_message(lines, screen);
}

static void draw_process(const struct vt_top_process *p, const struct vt_top_screen *screen, struct vt_top_lines *lines,
                         bool selected)
{
    struct vt_line line = vt_line_begin(screen);
    const struct vt_header *h = p->reading ? vt_reading_header(p->reading) : NULL;
    struct held held[VT_LEVEL_COUNT] = {{0, 0}, {0, 0}};
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES], rank[16] = "";
    uint64_t i, count = p->reading ? vt_reading_count(p->reading, VT_SCOPES) : 0;

    for (i = 0; i < count; i++) {
        const struct vt_scope *scope = vt_reading_scope(p->reading, i);

        if (scope && scope->class_ == VT_CLASS_DEVICE && scope->level < VT_LEVEL_COUNT) {
            held[scope->level].live += scope->live_bytes;
            held[scope->level].peak += scope->peak_bytes;
        }
    }
    if (h && h->rank >= 0)
        snprintf(rank, sizeof rank, "%d", h->rank);
    vt_line_format(&line, "%8d %5s ", p->pid, rank);
    if (h)
        vt_line_format(&line, "%11s %11s %11s %4u  ", vt_format_bytes(one, held[VT_LEVEL_DRIVER].live),
                       vt_format_bytes(two, held[VT_LEVEL_DRIVER].peak),
                       held[VT_LEVEL_TENSOR].peak ? vt_format_bytes(three, held[VT_LEVEL_TENSOR].live) : "",
                       h->oom_count);
    vt_line_name(&line, h ? h->program : p->problem, screen->width);
    if (h && screen->width >= WIDE) {
        vt_line_format(&line, "  ");
        vt_line_name(&line, p->path, screen->width);
    }
    vt_line_end(&line, lines, selected ? VT_TOP_SELECTED : VT_TOP_PLAIN);
}

void vt_top_draw_processes(const struct vt_top_process *processes, uint32_t count, const struct vt_top_screen *screen,
                           struct vt_top_lines *lines)
{
    struct vt_line line = vt_line_begin(screen);
    uint32_t room = screen->height > 3 ? screen->height - 3 : screen->height ? 0 : count, first, i;

    memset(lines, 0, sizeof *lines);
    vt_line_format(&line, "%u recorded process%s", count, count == 1 ? "" : "es");
    vt_line_end(&line, lines, VT_TOP_BOLD);
    line = vt_line_begin(screen);
    vt_line_format(&line, "%8s %5s %11s %11s %11s %4s  %s", "PID", "RANK", "LIVE", "PEAK", "TENSORS", "OOM", "PROGRAM");
    vt_line_end(&line, lines, VT_TOP_HEAD);
    first = vt_lines_first(screen->first, screen->selected, count, room);
    for (i = first; i < count && i - first < room; i++)
        draw_process(&processes[i], screen, lines, i == screen->selected);
    vt_lines_message(lines, screen);
}

void vt_top_draw_text(const char *const *text, const struct vt_top_screen *screen, struct vt_top_lines *lines,
                      uint32_t *rows, uint32_t *shown)
{
    struct vt_line line;

    memset(lines, 0, sizeof *lines);
    for (; *text; text++) {
        line = vt_line_begin(screen);
        vt_line_format(&line, "%s", *text);
        vt_line_end(&line, lines, VT_TOP_PLAIN);
    }
    vt_lines_scroll(lines, screen, 0, rows, shown);
    vt_lines_message(lines, screen);
}
