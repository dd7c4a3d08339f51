/*
 * The short report: what a user sees on the terminal when a process ran out of GPU memory or ended. At most 25 lines:
 * what failed, who holds the memory, where the recording is, and what to type next.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/format.h"
#include "analysis/modules.h"
#include "views/common.h"

#define LINES 25
#define HOLDERS 6 /* default number */
#define FINDINGS 3
#define MEASURES 3 /* against the first finding; one against others */
#define PREFIX "vramtrack: "

static uint64_t live_of_process(const struct vt_model *m, unsigned level)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].record->level == level && vt_kind_is_memory(m->totals[i].record->kind))
            bytes += m->totals[i].live_bytes;
    return bytes;
}

/* What the recording lacks. Returns the lines written. */
static unsigned write_gaps(struct vt_out *out, const struct vt_model *m)
{
    if (!m->missing[0])
        return 0;
    vt_out_text(out, PREFIX);
    vt_out_colour(out, VT_RED);
    vt_out_text(out, "the recording is incomplete");
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, ": %s %s, what follows may be too little\n", m->missing, vt_view_are_missing(m));
    return 1;
}

/* The rest of the list, at most as long as the report may still get after `lines`, its heading and its end. */
static void write_holders(struct vt_out *out, const struct vt_analysis *a, unsigned top, unsigned lines)
{
    unsigned room = LINES - lines - 5,
             most = top ? top : HOLDERS; /* heading, the rest, what is cached, two at the end */

    vt_view_holders(out, a, most < room ? most : room);
}

/* What it is, where, and what to do about it, at most `measures` lines of that. Returns the lines written. */
static unsigned write_finding(struct vt_out *out, const struct vt_finding *finding, unsigned measures)
{
    bool placed = finding->evidence_count && vt_finding_is_placed(finding);

    vt_out_text(out, PREFIX);
    vt_view_finding(out, finding);
    if (placed) {
        vt_out_text(out, "  ");
        vt_view_name(out, finding->evidence[0], 300);
        vt_out_text(out, "\n");
    }
    return 1 + placed + vt_view_advice(out, finding, "  ", measures);
}

/* Returns the lines written: at most FINDINGS * 3 + MEASURES. */
static unsigned write_findings(struct vt_out *out, const struct vt_analysis *a)
{
    unsigned shown = 0, left = 0, lines = 0;
    uint32_t i;

    for (i = 0; i < a->findings.count; i++) {
        if (!vt_finding_is_loud(&a->findings.list[i]))
            continue;
        if (shown < FINDINGS) {
            lines += write_finding(out, &a->findings.list[i], shown ? 1 : MEASURES);
            shown++;
        } else {
            left++;
        }
    }
    if (left)
        vt_out_format(out, PREFIX "and %u more finding%s\n", left, left == 1 ? "" : "s");
    return lines + (left > 0);
}

static void write_where(struct vt_out *out, const struct vt_report_request *request)
{
    if (request->recording_path) {
        vt_out_text(out, PREFIX "recording: ");
        vt_view_name(out, request->recording_path, 0);
        vt_out_text(out, "\n");
    } else {
        vt_out_text(out, PREFIX "no recording could be written\n");
    }
    if (request->next_command || request->recording_path) {
        vt_out_text(out, PREFIX "next: ");
        vt_out_colour(out, VT_BOLD);
        vt_view_next(out, request);
        vt_out_colour(out, VT_PLAIN);
        vt_out_text(out, "\n");
    }
}

/* Who holds most of the card beside this process, if that is known. Returns the lines written. */
static unsigned write_largest_other(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *f)
{
    const struct vt_device_row *d = NULL;
    char bytes[VT_FORMAT_BYTES];
    uint32_t i;

    for (i = 0; i < a->model.device_count; i++)
        if (a->model.devices[i].record->ordinal == f->device)
            d = &a->model.devices[i];
    if (!d || !d->other_count)
        return 0;
    vt_out_text(out, PREFIX);
    vt_view_name(out, d->others[0].name[0] ? d->others[0].name : "another process", 64);
    vt_out_format(out, " (pid %u) holds %s of it", d->others[0].pid, vt_format_bytes(bytes, d->others[0].bytes));
    if (d->other_count > 1)
        vt_out_format(out, ", the most of %u", d->other_count);
    vt_out_text(out, "\n");
    return 1;
}

/* If others hold more of the card than this process, the list of holders says little. Returns the lines written. */
static unsigned write_others(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *f)
{
    uint64_t own = f->reserved_bytes, others = 0;
    char bytes[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES], mine[VT_FORMAT_BYTES];
    uint32_t i;

    if (f->total_bytes >= f->free_bytes && f->total_bytes - f->free_bytes > own)
        others = f->total_bytes - f->free_bytes - own;
    for (i = 0; i < a->model.device_count; i++)
        if (a->model.devices[i].record->ordinal == f->device)
            others -= a->model.devices[i].context < others ? a->model.devices[i].context : others;
    if (others <= own || others < f->total_bytes / 4)
        return 0;
    vt_out_format(out, PREFIX "other processes and what is unaccounted for hold %s of %s, this process %s\n",
                  vt_format_bytes(bytes, others), vt_format_bytes(total, f->total_bytes), vt_format_bytes(mine, own));
    return 1 + write_largest_other(out, a, f);
}

static void write_oom(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *failure)
{
    const struct vt_reading *reading = a->model.reading;
    char asked[VT_FORMAT_BYTES], left[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES];

    vt_out_text(out, PREFIX);
    vt_out_colour(out, VT_RED);
    vt_out_text(out, "out of memory");
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_view_requester(out, reading, failure);
    vt_out_format(out, " could not get %s on ", vt_format_bytes(asked, failure->requested_bytes));
    vt_view_failure_device(out, failure);
    if (failure->total_bytes)
        vt_out_format(out, ": %s free of %s", vt_format_bytes(left, failure->free_bytes),
                      vt_format_bytes(total, failure->total_bytes));
    vt_out_text(out, "\n  requested by ");
    vt_view_requested_by(out, a, failure);
    vt_out_text(out, "\n");
}

/* One line says it all: nothing failed, nothing is live, nothing was found. */
static bool is_quiet(const struct vt_analysis *a)
{
    uint32_t i;

    if (a->model.missing[0])
        return false;
    for (i = 0; i < a->findings.count; i++)
        if (vt_finding_is_loud(&a->findings.list[i]))
            return false;
    for (i = 0; i < a->model.failure_count; i++)
        if (a->model.failures[i].record->kind != VT_FAILURE_RETRY)
            return false;
    return !live_of_process(&a->model, VT_LEVEL_DRIVER) && a->model.end != VT_PROCESS_KILLED;
}

/* "the process ended with exit status 3", "the process was ended by signal 9 (Killed)", ... */
static void write_end(struct vt_out *out, const struct vt_model *m, const struct vt_report_request *request)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    char words[VT_END_WORDS];

    vt_model_end_words(words, m, request->status_known, request->status);
    if (m->end == VT_PROCESS_RUNNING && h->pid != getpid()) /* the process itself reports when it is about to end */
        vt_out_text(out, "the process still runs");
    else if (m->end != VT_PROCESS_KILLED && !(h->end == VT_END_EXIT && h->exit_code))
        vt_out_text(out, "the process ended");
    else if (!strncmp(words, "exit", 4))
        vt_out_format(out, "the process ended with %s", words);
    else
        vt_out_format(out, "the process %s%s", strncmp(words, "ended", 5) ? "" : "was ", words);
}

static void write_exit(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint64_t live = live_of_process(m, VT_LEVEL_DRIVER);
    char bytes[VT_FORMAT_BYTES], time[VT_FORMAT_BYTES];
    unsigned lines = 1;
    bool any;

    vt_out_text(out, PREFIX);
    if (is_quiet(a)) {
        if (vt_view_peaks(out, m))
            vt_out_text(out, ", all of it given back");
        if (request->recording_path) {
            vt_out_text(out, "; recording: ");
            vt_view_name(out, request->recording_path, 0);
        }
        vt_out_text(out, "\n");
        return;
    }
    any = vt_view_peaks(out, m);
    vt_out_text(out, "; ");
    write_end(out, m, request);
    vt_out_format(out, " %s after its first CUDA call", vt_format_seconds(time, m->moment_ns));
    if (live)
        vt_out_format(out, ", with %s allocated", vt_format_bytes(bytes, live));
    else if (any)
        vt_out_text(out, ", with everything given back");
    vt_out_text(out, "\n");
    lines += write_gaps(out, m);
    lines += write_findings(out, a);
    if (live) {
        vt_out_format(out, PREFIX "%s still allocated", vt_format_bytes(bytes, live));
        if (strcmp(m->moment, "end")) {
            vt_out_text(out, " at ");
            vt_view_name(out, m->moment, 0);
        }
        vt_out_text(out, ", by:\n");
        write_holders(out, a, request->top, lines);
    }
    write_where(out, request);
}

/* What frameworks have of the device. Returns the lines written. */
static unsigned write_reserved(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *f)
{
    unsigned lines = 0;
    uint32_t i;

    for (i = 0; i < a->model.device_count; i++)
        if (a->model.devices[i].record->ordinal == f->device)
            lines += vt_view_reserved(out, &a->model, &a->model.devices[i]);
    return lines;
}

static void write_oom_report(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_failure *failure = vt_reading_failure(a->model.reading, request->failure);
    uint64_t live = live_of_process(&a->model, VT_LEVEL_DRIVER);
    unsigned lines = 2;
    char bytes[VT_FORMAT_BYTES];

    write_oom(out, a, failure);
    lines += write_reserved(out, a, failure);
    lines += write_others(out, a, failure);
    lines += write_gaps(out, &a->model);
    lines += write_findings(out, a);
    if (live) {
        vt_out_format(out, PREFIX "this process held %s, by:\n", vt_format_bytes(bytes, live));
        write_holders(out, a, request->top, lines);
    } else {
        vt_out_text(out, PREFIX "this process held nothing\n");
    }
    write_where(out, request);
}

int vt_summary_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    struct vt_analysis a;
    struct vt_out out;
    int error = vt_view_open(&a, reading, request);

    if (error)
        return error;
    vt_out_open(&out, request->fd, request->colour);
    if (request->cause == VT_REPORT_OOM) {
        write_oom_report(&out, &a, request);
    } else {
        write_exit(&out, &a, request);
    }
    vt_analysis_close(&a);
    return vt_out_close(&out);
}
