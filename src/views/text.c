/*
 * The full report as text. What happened and what to do about it comes first (text_top.c), then where the memory is and who
 * holds it (text_account.c), then all that was found; stacks, figures and the recording itself come last.
 */
#include "views/text.h"

#include <stdio.h>
#include <time.h>

#include "analysis/format.h"
#include "views/moments.h"

#define MOMENTS 12 /* named in the report */

void vt_text_heading(struct vt_out *out, const char *name)
{
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, name);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

static void write_totals(struct vt_out *out, const struct vt_model *m)
{
    char live[VT_FORMAT_BYTES], peak[VT_FORMAT_BYTES], device[16];
    uint32_t i;

    vt_text_heading(out, "Totals");
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
    if (m->total_count && vt_view_is_earlier(m))
        vt_out_text(out, "  (peak, allocations, frees and failed: of the whole run; live and count: at the moment)\n");
    if (!m->total_count)
        vt_out_text(out, *m->missing ? "  not in the recording\n" : "  nothing was allocated\n");
}

static void write_start(struct vt_out *out, const struct vt_header *h)
{
    time_t seconds = (time_t)(h->start_unix_ns / 1000000000u);
    struct tm parts;

    if (gmtime_r(&seconds, &parts))
        vt_out_format(out, "%04d-%02d-%02d %02d:%02d:%02d UTC (first CUDA call)", parts.tm_year + 1900,
                      parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

static void write_recording(struct vt_out *out, const struct vt_model *m, const struct vt_report_request *request)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    bool refused;
    const char *python = vt_model_python(m->reading, &refused);
    uint32_t i;

    vt_text_heading(out, "Recording");
    vt_out_text(out, "  command    ");
    vt_view_command(out, m->reading, 400);
    vt_out_text(out, "\n  started    ");
    write_start(out, h);
    vt_out_text(out, "\n  moments    ");
    for (i = 0; i < m->moment_count && i < MOMENTS; i++) {
        vt_out_text(out, i ? ", " : "");
        vt_view_name(out, m->moments[i].name, 0);
    }
    vt_out_text(out, m->moment_count > MOMENTS ? " ... (--moment NAME shows one)\n" : " (--moment NAME shows one)\n");
    if (python) {
        vt_out_text(out, "  python     ");
        vt_view_name(out, python, 300);
        vt_out_text(out, "\n");
    }
    if (request->recording_path) {
        vt_out_text(out, "  file       ");
        vt_view_name(out, request->recording_path, 0);
        vt_out_text(out, "\n");
    }
}

static void write_notes(struct vt_out *out, struct vt_analysis *a)
{
    uint32_t i;

    vt_analysis_take_notes(a);
    if (!a->model.note_count)
        return;
    vt_text_heading(out, "Notes");
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

    if (error)
        return error;
    vt_out_open(&out, request->fd, request->colour);
    vt_text_top(&out, &a, request);
    vt_text_accounts(&out, &a, request);
    vt_text_findings(&out, &a.findings);
    vt_view_fragmentation(&out, &a);
    vt_text_ranges(&out, &a.model);
    vt_text_failures(&out, &a, request);
    write_totals(&out, &a.model);
    vt_view_programs(&out, a.model.reading);
    vt_text_sites(&out, &a, request);
    write_recording(&out, &a.model, request);
    write_notes(&out, &a);
    vt_analysis_close(&a);
    return vt_out_close(&out);
}
