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
#define SPLITS 4 /* of them are told by GPU below the table */

enum column { PARAMETERS, GRADIENTS, OPTIMIZER, ACTIVATIONS, OTHER, CACHED, REST, COLUMNS };
static const char *const names[COLUMNS] = {"parameters", "gradients", "optimizer",  "activations",
                                           "other",      "cached",    "not tensors"};

struct table {
    struct vt_out *out;
    const struct vt_job *job;
    bool hosts, ranks, programs, marks;
    bool has[COLUMNS], parts; /* parts: it has one of them */
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

unsigned vt_job_gpus(const struct vt_job_rank *r)
{
    unsigned count = 0;
    uint32_t i;

    for (i = 0; i < r->device_count; i++)
        count += r->devices[i].peak > 0;
    return count;
}

bool vt_job_has_ranks(const struct vt_job *job)
{
    uint32_t i;

    for (i = 0; i < job->process_count; i++)
        if (job->ranks[i].rank >= 0)
            return true;
    return false;
}

/* Is it worth a column? A thousandth of what a process holds explains nothing. */
static bool is_worth(const struct vt_job_parts *p, enum column column)
{
    uint64_t value = value_of(p, column);

    return p->known && value && value >= p->bytes / 1024;
}

static struct table look_at(struct vt_out *out, const struct vt_job *job)
{
    struct table t = {.out = out, .job = job};
    uint32_t i;
    int c;

    t.hosts = vt_job_several_hosts(job);
    t.ranks = vt_job_has_ranks(job);
    t.programs = vt_job_programs(job) > 1;
    t.marks = job->skew_count || job->compared >= VT_SKEW_RANKS; /* of two even ranks neither is worth a mark */
    for (i = 0; i < job->process_count; i++)
        for (c = 0; c < COLUMNS; c++)
            t.has[c] |= is_worth(&job->ranks[i].parts, c);
    for (c = 0; c < COLUMNS; c++)
        t.parts |= t.has[c];
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

const char *vt_job_parts_when(char *buffer, const struct vt_job *job)
{
    const char *own = vt_job_has_ranks(job) ? "at each rank's own peak" : "at each process's own peak";
    unsigned seen = 0, count = 0, when;
    char *end = buffer;
    uint32_t i;

    for (i = 0; i < job->process_count; i++)
        seen |= 1u << job->ranks[i].parts.when;
    *buffer = 0;
    for (when = VT_JOB_AT_PEAK; when <= VT_JOB_AT_MOMENT; when++) {
        const char *const words[] = {
            [VT_JOB_AT_PEAK] = own,
            [VT_JOB_AT_OOM] = "where memory ran out",
            [VT_JOB_AT_END] = "at the end",
            [VT_JOB_AT_MOMENT] = "at the moment",
        };
        const char *const among_others[] = {
            [VT_JOB_AT_PEAK] = "",
            [VT_JOB_AT_OOM] = ", if it did",
            [VT_JOB_AT_END] = ", if killed or still running",
            [VT_JOB_AT_MOMENT] = "",
        };

        if (seen & 1u << when)
            end += snprintf(end, (size_t)(buffer + VT_JOB_WHEN - end), "%s%s%s", count++ ? "; " : "", words[when],
                            seen & (seen - 1) ? among_others[when] : "");
    }
    return buffer;
}

/* Above the columns of parts. */
static void write_when(const struct table *t)
{
    const int indent = (t->ranks ? 9 : 2) + (t->hosts ? 17 : 0) + 8 + 1 + 3 + 1 + 11 + 1 + 11 + 2;
    char text[VT_JOB_WHEN];

    if (t->parts)
        vt_out_format(t->out, "%*s%s\n", indent, "", vt_job_parts_when(text, t->job));
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
        snprintf(number, sizeof number, "-");
    else
        snprintf(number, sizeof number, "%d%s", r->devices[r->main].ordinal, vt_job_gpus(r) > 1 ? "*" : "");
    vt_out_format(t->out, "%3s ", number);
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

/* "rank 1: 4.83 GiB on GPU 1, 20.00 MiB on GPU 0": the main one first. */
static void write_split(const struct table *t, const struct vt_job_rank *r)
{
    char name[VT_JOB_NAME], bytes[VT_FORMAT_BYTES];
    uint32_t i;

    vt_out_format(t->out, "%s: %s on GPU %d", vt_job_rank_name(name, r),
                  vt_format_bytes(bytes, r->devices[r->main].peak), r->devices[r->main].ordinal);
    for (i = 0; i < r->device_count; i++)
        if (i != r->main && r->devices[i].peak)
            vt_out_format(t->out, ", %s on GPU %d", vt_format_bytes(bytes, r->devices[i].peak), r->devices[i].ordinal);
}

/* A peak that no single GPU had must not be taken for one. */
static void write_splits(const struct table *t)
{
    uint32_t i, count = 0;

    for (i = 0; i < t->job->process_count; i++) {
        if (t->job->ranks[i].main == VT_NONE || vt_job_gpus(&t->job->ranks[i]) < 2)
            continue;
        if (count++ >= SPLITS)
            continue;
        vt_out_text(t->out, count == 1 ? "  * and others, whose peaks are added: " : "; ");
        write_split(t, &t->job->ranks[i]);
    }
    if (count > SPLITS)
        vt_out_format(t->out, "; and %u more", count - SPLITS);
    if (count)
        vt_out_text(t->out, "\n");
}

static void write_legend(const struct table *t)
{
    write_splits(t);
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
