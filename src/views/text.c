/*
 * The full report as text: what ran, the account of each GPU, what failed, what was found, totals, sites, notes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "analysis/format.h"
#include "analysis/modules.h"
#include "views/common.h"

#define SITES 20       /* default number of sites */
#define STACK_LINES 24 /* visible frames of a stack */
#define OTHERS 5       /* processes that are named one by one */
#define DIAGNOSES 2    /* findings told first; with the header they fit into 15 lines */
#define MEASURES 3     /* what to try against the first of them */

static void heading(struct vt_out *out, const char *text)
{
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, text);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

static void write_start(struct vt_out *out, const struct vt_header *h)
{
    time_t seconds = (time_t)(h->start_unix_ns / 1000000000u);
    struct tm parts;

    if (gmtime_r(&seconds, &parts))
        vt_out_format(out, "%04d-%02d-%02d %02d:%02d:%02d UTC", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                      parts.tm_hour, parts.tm_min, parts.tm_sec);
}

static void write_end(struct vt_out *out, const struct vt_model *m, const struct vt_report_request *request)
{
    char time[VT_FORMAT_BYTES], words[VT_END_WORDS];

    vt_out_format(out, ", %s %s", m->end == VT_PROCESS_RUNNING ? "running for" : "ran for",
                  vt_format_seconds(time, m->duration_ns));
    if (m->end != VT_PROCESS_RUNNING)
        vt_out_format(out, ", %s", vt_model_end_words(words, m, request->status_known, request->status));
}

static void write_header(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    const struct vt_header *h = vt_reading_header(m->reading);
    char time[VT_FORMAT_BYTES];
    bool refused;
    const char *python = vt_model_python(m->reading, &refused);
    uint32_t i;

    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, "GPU memory of ");
    vt_view_name(out, h->program, 0);
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " (pid %d on ", h->pid);
    vt_view_name(out, h->host, 0);
    if (h->rank >= 0)
        vt_out_format(out, ", rank %d of %d", h->rank, h->world_size);
    vt_out_text(out, ")\n  command    ");
    vt_view_command(out, m->reading, 400);
    vt_out_text(out, "\n  started    ");
    write_start(out, h);
    write_end(out, m, request);
    vt_out_text(out, "\n  moment     ");
    vt_view_name(out, m->moment, 0);
    vt_out_format(out, ", at %s; there are", vt_format_seconds(time, m->moment_ns));
    for (i = 0; i < m->moment_count && i < 12; i++) {
        vt_out_text(out, i ? ", " : " ");
        vt_view_name(out, m->moments[i].name, 0);
    }
    vt_out_text(out, m->moment_count > 12 ? " ...\n" : "\n");
    if (python) {
        vt_out_text(out, "  python     ");
        vt_view_name(out, python, 300);
        vt_out_text(out, "\n");
    }
    if (request->recording_path) {
        vt_out_text(out, "  recording  ");
        vt_view_name(out, request->recording_path, 0);
        vt_out_text(out, "\n");
    }
    if (m->missing[0]) {
        vt_out_colour(out, VT_RED);
        vt_out_format(out, "  incomplete %s are missing: what follows may be too little", m->missing);
        vt_out_colour(out, VT_PLAIN);
        vt_out_text(out, "\n");
    }
}

static void account_bytes(struct vt_out *out, uint64_t bytes)
{
    char text[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s  ", vt_format_bytes(text, bytes));
}

static void account_line(struct vt_out *out, uint64_t bytes, const char *label)
{
    account_bytes(out, bytes);
    vt_view_name(out, label, 0);
}

/* The largest other processes, and the rest in one line. */
static void write_others(struct vt_out *out, const struct vt_device_row *d)
{
    uint64_t rest = 0;
    uint32_t i;

    for (i = 0; i < d->other_count; i++) {
        if (i >= OTHERS && d->other_count > OTHERS + 1) {
            rest += d->others[i].bytes;
            continue;
        }
        account_bytes(out, d->others[i].bytes);
        vt_view_name(out, d->others[i].name[0] ? d->others[i].name : "another process", 64);
        vt_out_format(out, " (pid %u)\n", d->others[i].pid);
    }
    if (d->other_count > OTHERS + 1) {
        account_bytes(out, rest);
        vt_out_format(out, "%u more processes\n", d->other_count - OTHERS);
    }
}

static void write_device(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *d)
{
    char total[VT_FORMAT_BYTES];
    uint32_t i;

    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_format(out, "GPU %d: ", d->record->ordinal);
    vt_out_name(out, d->record->name, strnlen(d->record->name, sizeof d->record->name), 0);
    if (d->record->total_bytes)
        vt_out_format(out, ", %s", vt_format_bytes(total, d->record->total_bytes));
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
    vt_view_account(out, d);
    for (i = 0; i < d->library_count; i++) {
        const struct vt_module *module = vt_reading_module(m->reading, d->libraries[i].module);

        account_line(out, d->libraries[i].bytes,
                     module ? vt_basename(vt_reading_chars(m->reading, module->path)) : "?");
        vt_out_text(out, "\n");
    }
    if (d->context_known) {
        account_line(out, d->context, "CUDA context and code");
        vt_out_text(out, "\n");
    }
    write_others(out, d);
    if (d->reserved) {
        account_line(out, d->reserved, "reserved by the driver");
        vt_out_text(out, "\n");
    }
    if (d->unaccounted_known) {
        account_line(out, d->unaccounted, d->others_known ? "unaccounted" : "other processes and unaccounted");
        vt_out_text(out, "\n");
    }
    if (d->free_known) {
        account_line(out, d->free, d->free_computed ? "free (computed)" : "free");
        vt_out_text(out, "\n");
    }
    if (d->card_known && d->card_reserved > d->reserved) {
        account_line(out, d->card_reserved - d->reserved, "more are reserved by the driver, beyond what CUDA offers");
        vt_out_text(out, "\n");
    }
    vt_view_reserved(out, m, d);
}

/* How many visible frames from `at` on look the same as that one, hidden ones between them included in `*end`. */
static uint32_t run_of_frames(const struct vt_trace *trace, uint32_t at, bool all, uint32_t *end)
{
    char first[512], next[512];
    uint32_t count = 1, i;

    *end = at + 1;
    vt_format_place(first, sizeof first, &trace->frames[at]);
    for (i = at + 1; i < trace->count; i++) {
        if (trace->frames[i].hidden && !all)
            continue;
        if (strcmp(first, vt_format_place(next, sizeof next, &trace->frames[i])))
            break;
        count++;
        *end = i + 1;
    }
    return count;
}

static void write_frame(struct vt_out *out, const struct vt_trace *trace, uint32_t i, const char *indent)
{
    vt_out_text(out, indent);
    vt_out_colour(out, i == trace->user ? VT_BOLD : VT_PLAIN);
    vt_view_place(out, &trace->frames[i]);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

static void write_trace(struct vt_out *out, const struct vt_report_request *request, const char *indent,
                        const struct vt_trace *trace, uint32_t depth)
{
    uint32_t i, same, end, shown = 0;

    for (i = 0; i < trace->count; i = end) {
        end = i + 1;
        if (trace->frames[i].hidden && !request->all_frames)
            continue;
        if (shown++ == STACK_LINES && !request->all_frames) {
            vt_out_format(out, "%s...\n", indent);
            break;
        }
        write_frame(out, trace, i, indent);
        same = run_of_frames(trace, i, request->all_frames, &end);
        if (same > 2)
            vt_out_format(out, "%s... %u more of the same\n", indent, same - 1);
        else
            end = i + 1;
    }
    if (!trace->count)
        vt_out_format(out, "%s(no stack)\n", indent);
    vt_view_cut(out, indent, trace, depth);
}

static void write_stack(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                        const char *indent, uint32_t stack, uint32_t python_stack)
{
    struct vt_trace trace;

    vt_view_trace(a, &trace, stack, python_stack);
    write_trace(out, request, indent, &trace, vt_reading_header(a->model.reading)->stack_depth);
    vt_trace_free(&trace);
}

static void write_failure(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                          const struct vt_failure *f, const struct vt_oom_group *group)
{
    const char *api = vt_reading_chars(a->model.reading, f->api), *code = vt_code_name(f->code, api);
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], range[VT_FORMAT_RANGE];

    vt_out_text(out, "  ");
    vt_out_colour(out, VT_RED);
    vt_out_text(out, vt_failure_name(f->kind));
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_view_name(out, *api ? api : "?", 64);
    if (f->code || f->driver_visible)
        vt_out_format(out, " returned %d%s%s on ", f->code, code ? " " : "", code ? code : "");
    else
        vt_out_text(out, " refused, without a call of the driver, on ");
    vt_view_failure_device(out, f);
    vt_out_format(out, ", %llu time%s", (unsigned long long)group->times, group->times == 1 ? "" : "s");
    if (f->requested_bytes)
        vt_out_format(out, ", %s requested", vt_format_range(range, group->low, group->high));
    if (f->total_bytes)
        vt_out_format(out, ", %s%s free of %s", group->low < group->high ? "at first " : "",
                      vt_format_bytes(one, f->free_bytes), vt_format_bytes(two, f->total_bytes));
    if (f->kind == VT_FAILURE_INTERIOR_POINTER)
        vt_out_format(out, ", %llu bytes into its allocation", (unsigned long long)f->pointer_offset);
    vt_out_text(out, "\n");
    write_stack(out, a, request, "      ", f->stack, f->python_stack);
    if (f->allocated_at || f->allocated_python) {
        vt_out_text(out, "    allocated at\n");
        write_stack(out, a, request, "      ", f->allocated_at, f->allocated_python);
    }
    if (f->freed_at || f->freed_python) {
        vt_out_text(out, "    freed before at\n");
        write_stack(out, a, request, "      ", f->freed_at, f->freed_python);
    }
}

static void write_failures(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint32_t i, most = request->top ? request->top : SITES, shown = 0;

    if (!m->failure_count)
        return;
    heading(out, "Failed calls");
    for (i = 0; i < m->failure_count && shown < most; i++) {
        struct vt_oom_group group = vt_model_oom_group(m, i);

        if (group.first)
            write_failure(out, a, request, m->failures[i].record, &group);
        shown += group.first;
    }
    if (i < m->failure_count)
        vt_out_format(out, "  and %u more\n", m->failure_count - i);
}

static void write_findings(struct vt_out *out, const struct vt_findings *findings)
{
    uint32_t i, j;

    heading(out, "Findings");
    for (i = 0; i < findings->count; i++) {
        const struct vt_finding *f = &findings->list[i];

        vt_out_text(out, "  ");
        vt_out_colour(out, f->family == VT_FAMILY_NONE ? VT_GREEN : VT_YELLOW);
        vt_out_text(out, vt_family_name(f->family));
        vt_out_colour(out, VT_PLAIN);
        vt_out_format(out, " (%s): ", vt_confidence_name(f->confidence));
        vt_view_name(out, f->title, 0);
        vt_out_text(out, "\n");
        for (j = 0; j < f->evidence_count; j++) {
            vt_out_text(out, "      - ");
            vt_view_name(out, f->evidence[j], 0);
            vt_out_text(out, "\n");
        }
        vt_view_advice(out, f, "      ", f->advice_count);
    }
}

/* What happened and what to do about it, before any figures: nobody should have to read on for that. */
static void write_diagnosis(struct vt_out *out, const struct vt_findings *findings)
{
    uint32_t i, shown = 0;

    for (i = 0; i < findings->count && shown < DIAGNOSES; i++) {
        const struct vt_finding *f = &findings->list[i];

        if (!vt_finding_is_loud(f))
            continue;
        if (!shown)
            heading(out, "Diagnosis");
        vt_out_text(out, "  ");
        vt_out_colour(out, VT_YELLOW);
        vt_out_text(out, vt_family_name(f->family));
        vt_out_colour(out, VT_PLAIN);
        vt_out_text(out, ": ");
        vt_view_name(out, f->title, 300);
        vt_out_text(out, "\n");
        vt_view_advice(out, f, "      ", shown ? 1 : MEASURES);
        shown++;
    }
}

static void write_totals(struct vt_out *out, const struct vt_model *m)
{
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], device[16];
    uint32_t i;

    heading(out, "Totals");
    vt_out_format(out, "  %-7s %-16s %-7s %12s %9s %12s %12s %12s %7s\n", "level", "kind", "where", "live", "count",
                  "peak", "allocations", "frees", "failed");
    for (i = 0; i < m->total_count; i++) {
        const struct vt_total *t = m->totals[i].record;

        snprintf(device, sizeof device, t->device < 0 ? "host" : "GPU %d", t->device);
        vt_out_format(out, "  %-7s %-16s %-7s %12s %9llu %12s %12llu %12llu %7llu\n", vt_level_name(t->level),
                      vt_kind_name(t->kind), device, vt_format_bytes(live, m->totals[i].live_bytes),
                      (unsigned long long)m->totals[i].live_count, vt_format_bytes(peak, t->peak_bytes),
                      (unsigned long long)t->alloc_calls, (unsigned long long)t->free_calls,
                      (unsigned long long)(t->failed_allocs + t->failed_frees));
    }
    if (m->total_count && m->recorded && m->recorded->kind != VT_MOMENT_END)
        vt_out_text(out, "  (peak, allocations, frees and failed: of the whole run; live and count: at the moment)\n");
    if (!m->total_count)
        vt_out_text(out, *m->missing ? "  not in the recording\n" : "  nothing was allocated\n");
}

static void write_site(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request,
                       const struct vt_joined *group)
{
    const struct vt_site_row *site = &group->row;
    const struct vt_site *s = site->record;
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], own[VT_FORMAT_BYTES];
    int threads = __builtin_popcountll(group->threads);
    struct vt_trace trace;

    vt_view_trace(a, &trace, s->stack, s->python_stack);
    vt_out_format(out, "  #%-5u ", site->index);
    vt_out_colour(out, VT_BOLD);
    vt_out_format(out, "%12s", vt_format_bytes(live, site->live_bytes));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " in %llu, ", (unsigned long long)site->live_count);
    vt_view_place(out, vt_trace_user(&trace));
    vt_view_leaf(out, &trace);
    vt_out_format(out, "\n    %s%s on ", vt_kind_name(s->kind), s->level == VT_LEVEL_TENSOR ? " (tensor)" : "");
    vt_view_device(out, s->device);
    vt_out_text(out, " by ");
    vt_view_name(out, vt_reading_chars(a->model.reading, s->api), 64);
    vt_out_format(out, "; at the peak %s", vt_format_bytes(peak, site->at_peak_bytes));
    if (group->sites == 1)
        vt_out_format(out, ", own peak %s", vt_format_bytes(own, s->peak_bytes));
    vt_out_format(out, "; %llu allocated, %llu freed, %d%s thread%s", (unsigned long long)group->alloc_calls,
                  (unsigned long long)group->free_calls, threads, threads == 64 ? " or more" : "", /* bits of a set */
                  threads == 1 ? "" : "s");
    if (group->retired)
        vt_out_format(out, ", %llu ended with their context or graph", (unsigned long long)group->retired);
    if (group->sites > 1)
        vt_out_format(out, "; %u sites that look the same", group->sites);
    if (site->verdict)
        vt_out_format(out, " [%s]", site->verdict);
    vt_out_text(out, "\n");
    write_trace(out, request, "      ", &trace, vt_reading_header(a->model.reading)->stack_depth);
    vt_trace_free(&trace);
}

static void write_sites(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint32_t most = request->top ? request->top : SITES, shown = 0, looked = 0, all = 0, i;
    struct vt_joined *groups;

    heading(out, "Who holds it");
    if (!m->site_count)
        vt_out_text(out, *m->missing ? "  not in the recording\n" : "  nothing was allocated\n");
    for (i = 0; i < m->site_count; i++)
        all += vt_view_is_shown(a, &m->sites[i]);
    if (most > all)
        most = all;
    if ((groups = calloc(most ? most : 1, sizeof *groups)))
        shown = vt_view_join_sites(a, groups, most, &looked);
    if (looked < all)
        vt_out_format(out, "  the largest %u of %u places (--top N shows more)\n", looked, all);
    vt_view_cached(out, a);
    for (i = 0; i < shown; i++) {
        write_site(out, a, request, &groups[i]);
        free(groups[i].stack);
    }
    free(groups);
}

static void write_notes(struct vt_out *out, struct vt_analysis *a)
{
    uint32_t i;

    vt_analysis_take_notes(a);
    if (!a->model.note_count)
        return;
    heading(out, "Notes");
    for (i = 0; i < a->model.note_count; i++) {
        vt_out_text(out, "  - ");
        vt_view_name(out, a->model.notes[i], 0);
        vt_out_text(out, "\n");
    }
}

int vt_text_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    struct vt_analysis a;
    struct vt_out out;
    int error = vt_view_open(&a, reading, request);
    uint32_t i;

    if (error)
        return error;
    vt_out_open(&out, request->fd, request->colour);
    write_header(&out, &a, request);
    write_diagnosis(&out, &a.findings);
    for (i = 0; i < a.model.device_count; i++)
        write_device(&out, &a.model, &a.model.devices[i]);
    write_failures(&out, &a, request);
    write_findings(&out, &a.findings);
    vt_view_fragmentation(&out, &a);
    write_totals(&out, &a.model);
    vt_view_programs(&out, a.model.reading);
    write_sites(&out, &a, request);
    write_notes(&out, &a);
    vt_analysis_close(&a);
    return vt_out_close(&out);
}
