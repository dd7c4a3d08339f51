/*
 * The merged report as text: what is wrong, a line per rank (job_table.c), the places that hold most.
 */
#include "views/job.h"

#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "views/common.h"

#define SITES 10 /* places */
#define EVIDENCE 8

void vt_view_job_heading(struct vt_out *out, const char *text)
{
    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, text);
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, "\n");
}

bool vt_job_several_hosts(const struct vt_job *job)
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

/* The moment at which "live" is: one for all, or in words what it is of each. */
static const char *moment_of(const struct vt_job *job)
{
    bool one = true, oom = false;
    uint32_t i;

    for (i = 0; i < job->process_count; i++) {
        one &= !strcmp(job->ranks[i].moment, job->ranks[0].moment);
        oom |= job->ranks[i].parts.when == VT_JOB_AT_OOM;
    }
    if (one)
        return job->ranks[0].moment;
    if (job->at_moment)
        return "the one asked for, where a process has it; else where it ran out of memory, or its end";
    return oom ? "of each its own: where it ran out of memory, or its end" : "the end of each";
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
    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, "GPU memory of ");
    vt_view_name(out, job->ranks[0].program, 64);
    vt_out_colour(out, VT_PLAIN);
    if (vt_job_programs(job) > 1)
        vt_out_format(out, " and %u more program%s", vt_job_programs(job) - 1, vt_job_programs(job) == 2 ? "" : "s");
    vt_out_format(out, ": %u process%s", job->process_count, job->process_count == 1 ? "" : "es");
    if (vt_job_world_size(job) > 0)
        vt_out_format(out, ", world size %d", vt_job_world_size(job));
    if (!vt_job_several_hosts(job)) {
        vt_out_text(out, ", on ");
        vt_view_name(out, job->ranks[0].host, 64);
    }
    vt_out_text(out, "\n  recordings ");
    vt_view_name(out, view->directory, 0);
    if (view->others)
        vt_out_format(out, " (%zu more there belong to other runs; --all shows every one)", view->others);
    vt_out_text(out, "\n  moment     ");
    vt_view_name(out, moment_of(job), 0);
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

/* Who of the processes holds how much of a place. */
static void write_share(struct vt_out *out, const struct vt_job *job, const struct vt_job_place *h)
{
    char median[VT_FORMAT_BYTES], high[VT_FORMAT_BYTES], name[VT_JOB_NAME];

    vt_job_rank_name(name, &job->ranks[h->most_rank]);
    if (h->ranks == 1)
        vt_out_format(out, "; in 1 of %u, %s\n", job->process_count, name);
    else if (h->sum / h->ranks == h->most && h->sum % h->ranks == 0)
        vt_out_format(out, "; in %u of %u, %s each\n", h->ranks, job->process_count, vt_format_bytes(high, h->most));
    else
        vt_out_format(out, "; in %u of %u, median %s, most %s (%s)\n", h->ranks, job->process_count,
                      vt_format_bytes(median, h->median), vt_format_bytes(high, h->most), name);
}

static void write_places(struct vt_out *out, const struct vt_job *job, const struct vt_job_view *view)
{
    uint32_t most = view->top ? view->top : SITES, i;
    char sum[VT_FORMAT_BYTES], place[VT_SPOT_NAME];

    vt_view_job_heading(out, "Who holds it, each at its own peak");
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
        write_share(out, job, h);
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
    uint32_t i, j, count, shown = 0, told = 0;
    char name[VT_JOB_NAME];

    while (told < job->process_count && !job->ranks[told].oom)
        told++; /* the finding of who ran out of memory first says it already */
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
        if (i == told && count == 1)
            continue;
        if (!shown++)
            vt_view_job_heading(out, "What their own reports say");
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
    vt_view_job_heading(&out, "Findings");
    vt_view_job_findings(&out, job, "  ", "      ", EVIDENCE, UINT32_MAX, false);
    vt_job_table_write(&out, job, view);
    write_verdicts(&out, job);
    write_places(&out, job, view);
    vt_out_format(&out, "\nThe whole report of a %s: vramtrack report ", vt_job_has_ranks(job) ? "rank" : "process");
    vt_out_word(&out, job->ranks[0].path, strlen(job->ranks[0].path));
    vt_out_text(&out, "\n");
    return vt_out_close(&out);
}
