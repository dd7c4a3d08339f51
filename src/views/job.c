/*
 * The merged report as text: what is wrong, a line per rank, what was folded away, the places that hold most.
 */
#include "views/job.h"

#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define RANKS 64 /* lines of the table; what is odd comes first */
#define SITES 10 /* places */
#define EVIDENCE 8

static void heading(struct vt_out *out, const char *text)
{
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, text);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

static bool several_hosts(const struct vt_job *job)
{
    uint32_t i;

    for (i = 1; i < job->rank_count; i++)
        if (strcmp(job->ranks[i].host, job->ranks[0].host) != 0)
            return true;
    return false;
}

int32_t vt_job_world_size(const struct vt_job *job)
{
    int32_t most = -1;
    uint32_t i;

    for (i = 0; i < job->rank_count; i++)
        most = job->ranks[i].world_size > most ? job->ranks[i].world_size : most;
    return most;
}

/* The moment at which "live" is, if it is one for all; else NULL. */
static const char *moment_of_all(const struct vt_job *job)
{
    uint32_t i;

    for (i = 1; i < job->process_count; i++)
        if (strcmp(job->ranks[i].moment, job->ranks[0].moment) != 0)
            return NULL;
    return job->ranks[0].moment;
}

static bool several_programs(const struct vt_job *job)
{
    uint32_t i;

    for (i = 1; i < job->process_count; i++)
        if (strcmp(job->ranks[i].program, job->ranks[0].program) != 0)
            return true;
    return false;
}

uint32_t vt_job_programs(const struct vt_job *job)
{
    uint32_t i, j, count = 0;

    for (i = 0; i < job->process_count; i++) {
        for (j = 0; j < i && strcmp(job->ranks[j].program, job->ranks[i].program) != 0; j++)
            ;
        count += j == i;
    }
    return count;
}

static void write_notes(struct vt_out *out, const struct vt_job *job)
{
    uint32_t i;

    for (i = 0; i < job->note_count; i++) {
        vt_out_text(out, "  note       ");
        vt_view_name(out, job->notes[i], 0);
        vt_out_text(out, "\n");
    }
    if (job->unreadable)
        vt_out_format(out, "  note       %u file%s there named *.vtr can not be read, and %s left out.\n",
                      job->unreadable, job->unreadable == 1 ? "" : "s", job->unreadable == 1 ? "is" : "are");
}

static void write_header(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view)
{
    const char *moment = moment_of_all(job);

    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, "GPU memory of ");
    vt_view_name(out, job->ranks[0].program, 64);
    vt_out_colour(out, VT_PLAIN);
    if (several_programs(job))
        vt_out_format(out, " and %u more program%s", vt_job_programs(job) - 1, vt_job_programs(job) == 2 ? "" : "s");
    vt_out_format(out, ": %u process%s", job->process_count, job->process_count == 1 ? "" : "es");
    if (vt_job_world_size(job) > 0)
        vt_out_format(out, ", world size %d", vt_job_world_size(job));
    if (!several_hosts(job)) {
        vt_out_text(out, ", on ");
        vt_view_name(out, job->ranks[0].host, 64);
    }
    vt_out_text(out, "\n  recordings ");
    vt_view_name(out, view->directory, 0);
    if (view->others)
        vt_out_format(out, " (%zu more there belong to other runs; --all shows every one)", view->others);
    vt_out_text(out, "\n  moment     ");
    vt_view_name(out, moment ? moment : "of each its own: out of memory, where it was; or its end", 0);
    vt_out_text(out, "\n");
    write_notes(out, job);
}

static const char *words_of(enum vt_job_family family)
{
    static const char *const words[VT_JOB_FAMILY_COUNT] = {
        "out of memory", "died", "rank skew", "stray context", "shared GPU", "missing ranks", "none"};

    return words[family];
}

unsigned vt_view_job_findings(struct vt_out *out, const struct vt_job *job, const char *prefix, const char *indent,
                              unsigned evidence, unsigned most, bool loud)
{
    unsigned lines = 0, shown = 0;
    uint32_t i, j;

    for (i = 0; i < job->finding_count && shown < most; i++) {
        const struct vt_job_finding *f = &job->findings[i];

        if (loud && (f->family == VT_JOB_NONE || f->family == VT_JOB_MISSING))
            continue;
        vt_out_text(out, prefix);
        vt_out_colour(out, f->family == VT_JOB_NONE ? VT_GREEN : VT_YELLOW);
        vt_out_text(out, words_of(f->family));
        vt_out_colour(out, VT_PLAIN);
        vt_out_format(out, " (%s): ", vt_confidence_name(f->confidence));
        vt_view_name(out, f->title ? f->title : "", 400);
        vt_out_text(out, "\n");
        for (j = 0; j < f->evidence_count && j < evidence; j++, lines++) {
            vt_out_format(out, "%s- ", indent);
            vt_view_name(out, f->evidence[j] ? f->evidence[j] : "", 400);
            vt_out_text(out, "\n");
        }
        if (f->advice && evidence) {
            vt_out_format(out, "%stry: ", indent);
            vt_view_name(out, f->advice, 400);
            vt_out_text(out, "\n");
            lines++;
        }
        lines++;
        shown++;
    }
    return lines;
}

/* --- the table --- */

static bool has_tensors(const struct vt_job *job)
{
    uint32_t i;

    for (i = 0; i < job->process_count; i++)
        if (job->ranks[i].tensors_known)
            return true;
    return false;
}

static const char *short_bytes(char *buffer, bool known, uint64_t bytes)
{
    if (!known)
        return "-";
    return vt_format_bytes(buffer, bytes);
}

/* The rank's column marks what the findings are about. */
static const char *mark_of(const struct vt_job *job, uint32_t index)
{
    uint32_t i;

    for (i = 0; i < job->skew_count; i++)
        if (job->skews[i].rank == index)
            return job->skews[i].bytes[1] > job->skews[i].bytes[0] ? "+" : "-";
    return index == job->median[VT_JOB_PEAK] ? "=" : " ";
}

static void write_row(struct vt_out *out, const struct vt_job *job, uint32_t index, bool hosts, bool tensors)
{
    const struct vt_job_rank *r = &job->ranks[index];
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], number[16];
    uint32_t i;

    if (r->rank >= 0)
        snprintf(number, sizeof number, "%d", r->rank);
    vt_out_format(out, "  %5s%s ", r->rank >= 0 ? number : "-", mark_of(job, index));
    if (hosts) {
        char host[17];

        snprintf(host, sizeof host, "%.16s", r->host);
        vt_out_name(out, host, strlen(host), 0);
        vt_out_format(out, "%*s ", 16 - (int)strlen(host), "");
    }
    vt_out_format(out, "%8d ", r->pid);
    if (r->main == VT_NONE)
        vt_out_text(out, "  - ");
    else
        vt_out_format(out, "%3d ", r->devices[r->main].ordinal);
    vt_out_colour(out, *mark_of(job, index) == '+' ? VT_YELLOW : VT_PLAIN);
    vt_out_format(out, "%11s", vt_format_bytes(one, r->peak));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " %11s", vt_format_bytes(two, r->live));
    for (i = 0; tensors && i < VT_PART_COUNT; i++) {
        uint64_t bytes = r->part[i] + (i == VT_PART_OTHER ? r->part[VT_PART_INPUTS] : 0);

        if (i != VT_PART_INPUTS)
            vt_out_format(out, " %11s", short_bytes(one, r->tensors_known, bytes));
    }
    if (tensors)
        vt_out_format(out, " %11s", short_bytes(one, r->tensors_known, r->cached));
    vt_out_text(out, "  ");
    vt_out_colour(out, r->oom || r->failed ? VT_RED : VT_PLAIN);
    vt_out_text(out, r->oom ? "ran out of memory, " : "");
    vt_out_text(out, r->words);
    vt_out_colour(out, VT_PLAIN);
    if (r->missing[0])
        vt_out_text(out, ", recording incomplete");
    if (several_programs(job)) {
        vt_out_text(out, "  ");
        vt_view_name(out, r->program, 64);
    }
    vt_out_text(out, "\n");
}

/* Is it worth a line where not all fit? */
static bool is_odd(const struct vt_job *job, uint32_t index)
{
    return job->ranks[index].oom || job->ranks[index].failed || job->ranks[index].missing[0] ||
           *mark_of(job, index) != ' ';
}

static void write_left_out(struct vt_out *out, const struct vt_job *job, uint32_t shown, uint64_t low, uint64_t high)
{
    char range[VT_FORMAT_RANGE];

    if (shown < job->process_count)
        vt_out_format(out, "  %u more, peak %s (--top N shows more)\n", job->process_count - shown,
                      vt_format_range(range, low, high));
}

static void write_helpers(struct vt_out *out, const struct vt_job *job)
{
    uint64_t most = 0;
    uint32_t i;
    char text[VT_FORMAT_BYTES];

    for (i = job->process_count; i < job->rank_count; i++)
        most = job->ranks[i].peak > most ? job->ranks[i].peak : most;
    if (job->helper_count)
        vt_out_format(out, "  %u helper process%s not listed, at most %s each\n", job->helper_count,
                      job->helper_count == 1 ? "" : "es", vt_format_bytes(text, most));
}

static void write_table(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view)
{
    bool hosts = several_hosts(job), tensors = has_tensors(job);
    uint32_t most = view->top ? view->top : RANKS, shown = 0, i, odd = 0, others;
    uint64_t low = UINT64_MAX, high = 0;

    heading(out, "Ranks");
    vt_out_format(out, "  %5s  %s%8s %3s %11s %11s", "rank", hosts ? "host             " : "", "pid", "GPU", "peak",
                  "live");
    if (tensors)
        vt_out_format(out, " %11s %11s %11s %11s %11s %11s", "parameters", "gradients", "optimizer", "activations",
                      "other", "cached");
    vt_out_text(out, several_programs(job) ? "  end, program\n" : "  end\n");
    for (i = 0; i < job->process_count; i++)
        odd += is_odd(job, i);
    others = most > odd ? most - odd : 0;
    for (i = 0; i < job->process_count; i++) {
        bool fits = is_odd(job, i) ? shown < most : others > 0;

        if (fits) {
            others -= !is_odd(job, i);
            write_row(out, job, i, hosts, tensors);
            shown++;
        } else {
            low = job->ranks[i].peak < low ? job->ranks[i].peak : low;
            high = job->ranks[i].peak > high ? job->ranks[i].peak : high;
        }
    }
    write_left_out(out, job, shown, low, high);
    write_helpers(out, job);
    if (job->median[VT_JOB_PEAK] != VT_NONE && job->process_count > 2)
        vt_out_text(out, "  = the median rank; + more than that, - less, by 10 % and more\n");
}

static void write_places(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view)
{
    uint32_t most = view->top ? view->top : SITES, i;
    char sum[VT_FORMAT_BYTES], median[VT_FORMAT_BYTES], high[VT_FORMAT_BYTES], name[VT_JOB_NAME], place[VT_SPOT_NAME];

    heading(out, "Who holds it, each at its own peak");
    for (i = 0; i < job->held_count && i < most; i++) {
        const struct vt_job_place *h = &job->held[i];
        const struct vt_spot *p = vt_spots_at(job->places, h->place);

        vt_out_colour(out, VT_BOLD);
        vt_out_format(out, "  %12s", vt_format_bytes(sum, h->sum));
        vt_out_colour(out, VT_PLAIN);
        vt_out_text(out, " in all, ");
        vt_view_name(out, vt_spot_name(place, job->places, h->place), 0);
        vt_view_leaf(out, &p->trace);
        vt_out_format(out, "\n      %s%s by ", vt_kind_name(p->kind), p->level == VT_LEVEL_TENSOR ? " (tensor)" : "");
        vt_view_name(out, *p->api ? p->api : "?", 64);
        vt_out_format(out, "; in %u of %u, ", h->ranks, job->process_count);
        if (h->ranks == job->process_count && h->most == h->median && h->sum == h->most * h->ranks)
            vt_out_format(out, "%s each\n", vt_format_bytes(median, h->median));
        else
            vt_out_format(out, "median %s, most %s (%s)\n", vt_format_bytes(median, h->median),
                          vt_format_bytes(high, h->most), vt_job_rank_name(name, &job->ranks[h->most_rank]));
        vt_view_frames(out, "        ", &p->trace, p->depth, view->all_frames);
    }
    if (!job->held_count)
        vt_out_text(out, "  nothing was allocated\n");
    if (job->held_count > most)
        vt_out_format(out, "  and %u smaller places (--top N shows more)\n", job->held_count - most);
    if (vt_spots_full(job->places))
        vt_out_text(out, "  There are more places than can be compared: the smallest are left out.\n");
}

/* What each process's own report says first, once for all that say the same. */
static void write_verdicts(struct vt_out *out, const struct vt_job *job)
{
    uint32_t i, j, count, shown = 0;
    char name[VT_JOB_NAME];

    for (i = 0; i < job->process_count && shown < EVIDENCE; i++) {
        if (!job->ranks[i].finding)
            continue;
        for (j = 0; j < i; j++)
            if (job->ranks[j].finding && !strcmp(job->ranks[j].finding, job->ranks[i].finding))
                break;
        if (j < i)
            continue;
        for (count = 0, j = i; j < job->process_count; j++)
            count += job->ranks[j].finding && !strcmp(job->ranks[j].finding, job->ranks[i].finding);
        if (!shown++)
            heading(out, "What their own reports say");
        vt_out_format(out, "  %s", vt_job_rank_name(name, &job->ranks[i]));
        if (count > 1)
            vt_out_format(out, " and %u more", count - 1);
        vt_out_text(out, ": ");
        vt_view_name(out, job->ranks[i].finding, 300);
        vt_out_text(out, "\n");
    }
}

int vt_job_text_write(const struct vt_job *job, const struct vt_job_view *view)
{
    struct vt_out out;

    vt_out_open(&out, view->fd, view->colour);
    write_header(&out, job, view);
    heading(&out, "Findings");
    vt_view_job_findings(&out, job, "  ", "      ", EVIDENCE, UINT32_MAX, false);
    write_table(&out, job, view);
    write_verdicts(&out, job);
    write_places(&out, job, view);
    vt_out_text(&out, "\nThe whole report of a rank: vramtrack report ");
    vt_out_word(&out, job->ranks[0].path, strlen(job->ranks[0].path));
    vt_out_text(&out, "\n");
    return vt_out_close(&out);
}
