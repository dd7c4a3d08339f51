/*
 * The table of the merged report: a line per process with what its memory consists of, what is odd first, and what was folded
 * away. Columns that say nothing of any process are left out: the terminal's width is short.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"
#include "views/job.h"

#define RANKS 64 /* lines; what is odd comes first */

enum column { PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, OTHER, CACHED, REST, COLUMNS };
static const char *const names[COLUMNS] = {"parameters", "gradients", "optimizer",  "activations",
                                           "other",      "cached",    "not tensors"};

struct table {
    struct vt_out *out;
    const struct vt_job *job;
    bool hosts, ranks, programs, marks;
    bool has[COLUMNS];
    int first, last; /* of the columns that are there; -1: none is */
};

/* "Other" has the inputs too: they are mostly too small for a column. */
static uint64_t value_of(const struct vt_job_parts *p, enum column column)
{
    uint64_t other = p->part[VT_PART_OTHER] + p->part[VT_PART_INPUTS];
    const uint64_t values[COLUMNS] = {[PARAMETERS] = p->part[VT_PART_PARAMETERS],
                                      [GRADIENTS] = p->part[VT_PART_GRADIENTS],
                                      [OPTIMIZER] = p->part[VT_PART_OPTIMIZER],
                                      [ACTIVATIONS] = p->part[VT_PART_ACTIVATIONS],
                                      [OTHER] = other < p->part[VT_PART_OTHER] ? UINT64_MAX : other,
                                      [CACHED] = p->cached,
                                      [REST] = p->rest};

    return values[column];
}

bool vt_job_has_ranks(const struct vt_job *job)
{
    uint32_t i;

    for (i = 0; i < job->process_count; i++)
        if (job->ranks[i].rank >= 0)
            return true;
    return false;
}

static struct table look_at(struct vt_out *out, const struct vt_job *job)
{
    struct table t = {.out = out, .job = job, .first = -1, .last = -1};
    uint32_t i;
    int c;

    t.hosts = vt_job_several_hosts(job);
    t.ranks = vt_job_has_ranks(job);
    t.programs = vt_job_programs(job) > 1;
    t.marks = job->skew_count || job->compared >= VT_SKEW_RANKS; /* of two even ranks neither is worth a mark */
    for (i = 0; i < job->process_count; i++)
        for (c = 0; c < COLUMNS; c++)
            t.has[c] |= job->ranks[i].parts.known && value_of(&job->ranks[i].parts, c);
    for (c = 0; c < COLUMNS; c++)
        if (t.has[c]) {
            t.first = t.first < 0 ? c : t.first;
            t.last = c;
        }
    return t;
}

/* The rank's column marks what the findings are about. */
static const char *mark_of(const struct table *t, uint32_t index)
{
    uint32_t i;

    for (i = 0; i < t->job->skew_count; i++)
        if (t->job->skews[i].rank == index)
            return t->job->skews[i].bytes[1] > t->job->skews[i].bytes[0] ? "+" : "-";
    return t->marks && index == t->job->median[VT_JOB_PEAK] ? "=" : " ";
}

/* --- what stands above --- */

/* Which processes' parts are at which of their moments: with several kinds a line for each, below one another. */
static void write_when(const struct table *t)
{
    static const char *const alone[] = {"what the peak consists of, at each one's own",
                                        "what was held where memory ran out", "what was held last",
                                        "what is live at the moment"};
    static const char *const among[] = {"what the peak consists of, at each one's own",
                                        "ran out of memory: what was held then",
                                        "killed or still running: what was held last", "what is live at the moment"};
    const unsigned count = sizeof alone / sizeof *alone;
    unsigned seen = 0, when;
    uint32_t i;
    int indent;

    if (t->first < 0)
        return;
    for (i = 0; i < t->job->process_count; i++)
        seen |= 1u << t->job->ranks[i].parts.when;
    indent = (int)strlen(names[t->first]);
    vt_out_format(t->out, "  %s", names[t->first]);
    if (t->last > t->first) {
        vt_out_format(t->out, " to %s", names[t->last]);
        indent += (int)strlen(names[t->last]) + 4;
    }
    vt_out_text(t->out, ": ");
    for (when = 0, i = 0; when < count; when++)
        if (seen & 1u << when)
            vt_out_format(t->out, "%*s%s\n", i++ ? indent + 4 : 0, "", (seen & (seen - 1) ? among : alone)[when]);
}

static void write_names(const struct table *t)
{
    int c;

    vt_out_text(t->out, t->ranks ? "   rank  " : "  ");
    vt_out_format(t->out, "%s%8s %3s %11s %11s", t->hosts ? "host             " : "", "pid", "GPU", "peak", "live");
    for (c = 0; c < COLUMNS; c++)
        if (t->has[c])
            vt_out_format(t->out, " %11s", names[c]);
    vt_out_text(t->out, t->programs ? "  end, program\n" : "  end\n");
}

/* --- a line each --- */

static void write_who(const struct table *t, uint32_t index)
{
    const struct vt_job_rank *r = &t->job->ranks[index];
    char number[16] = "-", host[17];

    if (r->rank >= 0)
        snprintf(number, sizeof number, "%d", r->rank);
    if (t->ranks)
        vt_out_format(t->out, "  %5s%s ", number, mark_of(t, index));
    else
        vt_out_text(t->out, "  ");
    if (t->hosts) {
        snprintf(host, sizeof host, "%.16s", r->host);
        vt_out_name(t->out, host, strlen(host), 0);
        vt_out_format(t->out, "%*s ", 16 - (int)strlen(host), "");
    }
    vt_out_format(t->out, "%8d ", r->pid);
    if (r->main == VT_NONE)
        vt_out_text(t->out, "  - ");
    else
        vt_out_format(t->out, "%3d ", r->devices[r->main].ordinal);
}

static void write_row(const struct table *t, uint32_t index)
{
    const struct vt_job_rank *r = &t->job->ranks[index];
    char text[VT_FORMAT_BYTES];
    int c;

    write_who(t, index);
    vt_out_colour(t->out, *mark_of(t, index) == '+' ? VT_YELLOW : VT_PLAIN);
    vt_out_format(t->out, "%11s", vt_format_bytes(text, r->peak));
    vt_out_colour(t->out, VT_PLAIN);
    vt_out_format(t->out, " %11s", vt_format_bytes(text, r->live));
    for (c = 0; c < COLUMNS; c++)
        if (t->has[c])
            vt_out_format(t->out, " %11s", r->parts.known ? vt_format_bytes(text, value_of(&r->parts, c)) : "-");
    vt_out_text(t->out, "  ");
    vt_out_colour(t->out, r->oom || r->failed ? VT_RED : VT_PLAIN);
    vt_out_text(t->out, r->oom ? "ran out of memory, " : "");
    vt_out_text(t->out, r->words);
    vt_out_colour(t->out, VT_PLAIN);
    if (r->missing[0])
        vt_out_text(t->out, ", recording incomplete");
    if (t->programs) {
        vt_out_text(t->out, "  ");
        vt_view_name(t->out, r->program, 64);
    }
    vt_out_text(t->out, "\n");
}

/* Is it worth a line where not all fit? */
static bool is_odd(const struct table *t, uint32_t index)
{
    const struct vt_job_rank *r = &t->job->ranks[index];

    return r->oom || r->failed || r->missing[0] || *mark_of(t, index) != ' ';
}

/* --- what stands below --- */

static void write_left_out(const struct table *t, uint32_t shown, uint64_t low, uint64_t high)
{
    char range[VT_FORMAT_RANGE];

    if (shown < t->job->process_count)
        vt_out_format(t->out, "  %u more, peak %s (--top N shows more)\n", t->job->process_count - shown,
                      vt_format_range(range, low, high));
}

static void write_helpers(const struct table *t)
{
    const struct vt_job *job = t->job;
    uint64_t most = 0;
    uint32_t i;
    char text[VT_FORMAT_BYTES];

    for (i = job->process_count; i < job->rank_count; i++)
        most = job->ranks[i].peak > most ? job->ranks[i].peak : most;
    if (job->helper_count)
        vt_out_format(t->out, "  %u helper process%s not listed, at most %s each\n", job->helper_count,
                      job->helper_count == 1 ? "" : "es", vt_format_bytes(text, most));
}

static void write_legend(const struct table *t)
{
    if (t->marks)
        vt_out_text(t->out, "  = the median rank; + more than that, - less, by 10 % and more\n");
    if (t->has[REST])
        vt_out_text(t->out, "  not tensors: what libraries and the program itself took from CUDA\n");
}

void vt_job_table_write(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view)
{
    const struct table t = look_at(out, job);
    uint32_t most = view->top ? view->top : RANKS, shown = 0, i, odd = 0, others;
    uint64_t low = UINT64_MAX, high = 0;

    vt_view_job_heading(out, t.ranks ? "Ranks" : "Processes");
    write_when(&t);
    write_names(&t);
    for (i = 0; i < job->process_count; i++)
        odd += is_odd(&t, i);
    others = most > odd ? most - odd : 0;
    for (i = 0; i < job->process_count; i++) {
        bool fits = is_odd(&t, i) ? shown < most : others > 0;

        if (fits) {
            others -= !is_odd(&t, i);
            write_row(&t, i);
            shown++;
        } else {
            low = job->ranks[i].peak < low ? job->ranks[i].peak : low;
            high = job->ranks[i].peak > high ? job->ranks[i].peak : high;
        }
    }
    write_left_out(&t, shown, low, high);
    write_helpers(&t);
    write_legend(&t);
}
