/*
 * The short report: what a user sees on the terminal when a process ran out of GPU memory or ended. At most 25 lines:
 * what failed, who holds the memory, where the recording is, and what to type next.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/modules.h"
#include "views/common.h"

#define HOLDERS 6 /* default number of sites */
#define HOLDERS_MAX 12
#define FINDINGS 3
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

/* Where tensors are known, a framework's pools are shown by what is in them, not as driver calls. */
static bool is_holder(const struct vt_site_row *site, bool tensors)
{
    if (!site->live_bytes || !vt_kind_is_memory(site->record->kind))
        return false;
    if (site->record->level == VT_LEVEL_TENSOR)
        return true;
    return !tensors || site->owner != VT_OWNER_FRAMEWORK;
}

/* What one line of the list adds up: sites of one kind whose user frame is the same line of code. */
struct holder {
    uint64_t bytes, count;
    const struct vt_site *site;
    struct vt_trace trace; /* of the first of them */
};

#define HOLDERS_MERGED 128 /* sites looked at one by one; they come largest first, so what is left is small */

static bool same_place(const struct vt_display_frame *a, const struct vt_display_frame *b)
{
    char left[512], right[512];

    return a && b && !strcmp(vt_format_place(left, sizeof left, a), vt_format_place(right, sizeof right, b));
}

static void add_holder(struct holder *holders, unsigned *count, const struct vt_analysis *a,
                       const struct vt_site_row *site)
{
    struct holder new = {site->live_bytes, site->live_count, site->record, {0}};
    unsigned i;

    vt_view_trace(a, &new.trace, site->record->stack, site->record->python_stack);
    for (i = 0; i < *count; i++)
        if (holders[i].site->kind == site->record->kind && holders[i].site->level == site->record->level &&
            same_place(vt_trace_user(&holders[i].trace), vt_trace_user(&new.trace))) {
            holders[i].bytes += new.bytes;
            holders[i].count += new.count;
            vt_trace_free(&new.trace);
            return;
        }
    holders[(*count)++] = new;
}

static int more_bytes_first(const void *left, const void *right)
{
    const struct holder *a = left, *b = right;

    return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : 0;
}

static void write_holders(struct vt_out *out, const struct vt_analysis *a, unsigned top)
{
    const struct vt_model *m = &a->model;
    bool tensors = live_of_process(m, VT_LEVEL_TENSOR) > 0;
    unsigned most = top && top < HOLDERS_MAX ? top : top ? HOLDERS_MAX : HOLDERS, count = 0, looked = 0;
    struct holder *holders = calloc(HOLDERS_MERGED, sizeof *holders);
    uint64_t left_bytes = 0;
    uint32_t i, left = 0;
    char bytes[VT_FORMAT_BYTES];

    for (i = 0; holders && i < m->site_count; i++) {
        if (!is_holder(&m->sites[i], tensors))
            continue;
        if (looked++ < HOLDERS_MERGED)
            add_holder(holders, &count, a, &m->sites[i]);
        else {
            left++;
            left_bytes += m->sites[i].live_bytes;
        }
    }
    if (count)
        qsort(holders, count, sizeof *holders, more_bytes_first);
    for (i = 0; i < count; i++) {
        if (i < most) {
            vt_out_format(out, "  %12s in %-6llu ", vt_format_bytes(bytes, holders[i].bytes),
                          (unsigned long long)holders[i].count);
            vt_view_place(out, vt_trace_user(&holders[i].trace));
            vt_out_format(out, " [%s%s]\n", vt_kind_name(holders[i].site->kind),
                          holders[i].site->level == VT_LEVEL_TENSOR ? " tensor" : "");
        } else {
            left++;
            left_bytes += holders[i].bytes;
        }
        vt_trace_free(&holders[i].trace);
    }
    if (left)
        vt_out_format(out, "  %12s in %u more places\n", vt_format_bytes(bytes, left_bytes), left);
    free(holders);
}

/* The families worth a line on the terminal. */
static bool is_loud(const struct vt_finding *finding)
{
    return finding->family != VT_FAMILY_NONE && finding->family != VT_FAMILY_OVERHEAD &&
           finding->confidence != VT_POSSIBLE;
}

static unsigned write_findings(struct vt_out *out, const struct vt_analysis *a)
{
    unsigned shown = 0;
    uint32_t i;

    for (i = 0; i < a->findings.count && shown < FINDINGS; i++) {
        const struct vt_finding *finding = &a->findings.list[i];

        if (!is_loud(finding))
            continue;
        vt_out_text(out, PREFIX);
        vt_out_colour(out, VT_YELLOW);
        vt_out_format(out, "%s", vt_family_name(finding->family));
        vt_out_colour(out, VT_PLAIN);
        vt_out_format(out, " (%s): ", vt_confidence_name(finding->confidence));
        vt_view_name(out, finding->title, 300);
        vt_out_text(out, "\n");
        if (finding->advice_count) {
            vt_out_text(out, "  try: ");
            vt_view_name(out, finding->advice[0].text, 300);
            vt_out_text(out, "\n");
        }
        shown++;
    }
    return shown;
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

static void write_oom(struct vt_out *out, const struct vt_analysis *a, const struct vt_failure *failure)
{
    const struct vt_reading *reading = a->model.reading;
    const char *api = vt_reading_chars(reading, failure->api);
    char asked[VT_FORMAT_BYTES], left[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES];
    struct vt_trace trace;

    vt_out_text(out, PREFIX);
    vt_out_colour(out, VT_RED);
    vt_out_text(out, "out of memory");
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_view_name(out, *api ? api : "an allocation", 64);
    vt_out_format(out, " could not get %s on ", vt_format_bytes(asked, failure->requested_bytes));
    vt_view_device(out, failure->device);
    if (failure->total_bytes)
        vt_out_format(out, ": %s free of %s", vt_format_bytes(left, failure->free_bytes),
                      vt_format_bytes(total, failure->total_bytes));
    vt_out_text(out, "\n  requested by ");
    vt_view_trace(a, &trace, failure->stack, failure->python_stack);
    vt_view_place(out, vt_trace_user(&trace));
    vt_trace_free(&trace);
    vt_out_text(out, "\n");
}

/* The highest peak of each device's memory as the driver saw it: "peak 1.25 GiB on GPU 0, 2.00 GiB on GPU 1". */
static void write_peaks(struct vt_out *out, const struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_SCOPES);
    unsigned shown = 0;
    char bytes[VT_FORMAT_BYTES];

    for (i = 0; i < count && shown < 8; i++) {
        const struct vt_scope *scope = vt_reading_scope(m->reading, i);

        if (!scope || scope->level != VT_LEVEL_DRIVER || !scope->peak_bytes ||
            (scope->class_ != VT_CLASS_DEVICE && scope->class_ != VT_CLASS_HOST && scope->class_ != VT_CLASS_MANAGED))
            continue;
        vt_out_format(out, "%s%s ", shown++ ? ", " : "peak ", vt_format_bytes(bytes, scope->peak_bytes));
        if (scope->class_ == VT_CLASS_HOST)
            vt_out_text(out, "page-locked");
        else
            vt_out_format(out, "%son ", scope->class_ == VT_CLASS_MANAGED ? "managed " : "");
        if (scope->class_ != VT_CLASS_HOST)
            vt_view_device(out, scope->device);
    }
    if (!shown)
        vt_out_text(out, "nothing was allocated");
}

/* One line says it all: nothing failed, nothing is live, nothing was found. */
static bool is_quiet(const struct vt_analysis *a)
{
    uint32_t i;

    for (i = 0; i < a->findings.count; i++)
        if (is_loud(&a->findings.list[i]))
            return false;
    for (i = 0; i < a->model.failure_count; i++)
        if (a->model.failures[i].record->kind != VT_FAILURE_RETRY)
            return false;
    return !live_of_process(&a->model, VT_LEVEL_DRIVER) && a->model.end != VT_PROCESS_KILLED;
}

static void write_exit(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    uint64_t live = live_of_process(m, VT_LEVEL_DRIVER);
    char bytes[VT_FORMAT_BYTES], time[VT_FORMAT_BYTES];

    vt_out_text(out, PREFIX);
    write_peaks(out, m);
    if (is_quiet(a)) {
        vt_out_text(out, ", all of it given back");
        if (request->recording_path) {
            vt_out_text(out, "; recording: ");
            vt_view_name(out, request->recording_path, 0);
        }
        vt_out_text(out, "\n");
        return;
    }
    vt_out_format(
        out, "; %s %s after %s\n", m->end == VT_PROCESS_KILLED ? "the process was killed" : "the process ended",
        live ? "with memory still allocated" : "with everything given back", vt_format_seconds(time, m->moment_ns));
    write_findings(out, a);
    if (live) {
        vt_out_format(out, PREFIX "%s still allocated", vt_format_bytes(bytes, live));
        if (strcmp(m->moment, "end")) {
            vt_out_text(out, " at ");
            vt_view_name(out, m->moment, 0);
        }
        vt_out_text(out, ", by:\n");
        write_holders(out, a, request->top);
    }
    write_where(out, request);
}

int vt_summary_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    struct vt_analysis a;
    struct vt_out out;
    int error = vt_view_open(&a, reading, request);
    char bytes[VT_FORMAT_BYTES];

    if (error)
        return error;
    vt_out_open(&out, request->fd, request->colour);
    if (request->cause == VT_REPORT_OOM) {
        write_oom(&out, &a, vt_reading_failure(reading, request->failure));
        write_findings(&out, &a);
        vt_out_format(&out, PREFIX "this process held %s, by:\n",
                      vt_format_bytes(bytes, live_of_process(&a.model, VT_LEVEL_DRIVER)));
        write_holders(&out, &a, request->top);
        write_where(&out, request);
    } else {
        write_exit(&out, &a, request);
    }
    vt_analysis_close(&a);
    return vt_out_close(&out);
}
