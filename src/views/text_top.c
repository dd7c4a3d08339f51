/*
 * The first screen of the text report: who lost a night's run should have to read no further for what happened and what to
 * do. Everything that is left out here is told in a section below.
 */
#include <string.h>

#include "analysis/format.h"
#include "views/text.h"

#define DIAGNOSES 2 /* findings told first; with the lines above them they fit into 15 */
#define EVIDENCE 3  /* lines of evidence for the first of them, */
#define SECOND 3    /* and, if it is alone, as many more as the second one would take, */
#define MEASURES 3  /* and of what to try; one each for the second */

static void write_end(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_model *m = &a->model;
    const struct vt_header *h = vt_reading_header(m->reading);
    char time[VT_FORMAT_BYTES], words[VT_END_WORDS], rank[VT_VIEW_RANK];

    vt_out_colour(out, VT_BOLD);
    vt_out_text(out, "GPU memory of ");
    vt_view_name(out, h->program, 0);
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, " (pid %d on ", h->pid);
    vt_view_name(out, h->host, 0);
    if (h->rank >= 0)
        vt_out_format(out, ", %s", vt_view_rank(rank, h));
    /* What was before it is not recorded: without the words, a program that sleeps first would seem to have crashed early. */
    vt_out_format(out, "): %s %s from its first CUDA call", m->end == VT_PROCESS_RUNNING ? "running for" : "ran for",
                  vt_format_seconds(time, m->duration_ns));
    if (m->end != VT_PROCESS_RUNNING)
        vt_out_format(out, ", %s", vt_model_end_words(words, m, request->status_known, request->status));
    vt_out_text(out, "\n");
    if (!m->missing[0]) {
        vt_view_peaks(out, m);
        vt_out_text(out, "\n");
    } else {
        vt_out_colour(out, VT_RED);
        vt_out_format(out, "the recording is incomplete: %s %s, what follows may be too little", m->missing,
                      vt_view_are_missing(m));
        vt_out_colour(out, VT_PLAIN);
        vt_out_text(out, "\n");
    }
}

/* The first request that failed for want of memory and was not helped: index of its row; *others: how many more there are. */
static uint32_t first_oom(const struct vt_model *m, uint32_t *others)
{
    uint32_t i, found = VT_NONE;

    for (*others = 0, i = 0; i < m->failure_count; i++) {
        if (!vt_failure_is_oom(m->failures[i].record->kind) || !vt_model_oom_group(m, i).first)
            continue;
        if (found == VT_NONE)
            found = i;
        else
            ++*others;
    }
    return found;
}

static void write_oom(struct vt_out *out, const struct vt_analysis *a)
{
    const struct vt_model *m = &a->model;
    char range[VT_FORMAT_RANGE], left[VT_FORMAT_BYTES], total[VT_FORMAT_BYTES];
    uint32_t others, row = first_oom(m, &others);
    const struct vt_failure *f;
    struct vt_oom_group group;

    if (row == VT_NONE)
        return;
    f = m->failures[row].record;
    group = vt_model_oom_group(m, row);
    vt_out_colour(out, VT_RED);
    vt_out_text(out, "out of memory");
    vt_out_colour(out, VT_PLAIN);
    vt_out_text(out, ": ");
    vt_view_requester(out, m->reading, f);
    vt_out_format(out, " could not get %s on ", vt_format_range(range, group.low, group.high));
    vt_view_failure_device(out, f);
    if (f->total_bytes)
        vt_out_format(out, ": %s%s free of %s", group.low < group.high ? "at first " : "",
                      vt_format_bytes(left, f->free_bytes), vt_format_bytes(total, f->total_bytes));
    if (group.times > 1)
        vt_out_format(out, ", %llu times", (unsigned long long)group.times);
    vt_out_text(out, "\n  requested by ");
    vt_view_requested_by(out, a, f);
    if (others)
        vt_out_format(out, "; %u more request%s failed (see Failed calls)", others, others == 1 ? "" : "s");
    vt_out_text(out, "\n");
}

/* The request has a line of its own at the top; as evidence (findings_oom.c) it would be told twice. */
static bool is_request(const char *evidence)
{
    return strstr(evidence, " were requested by ") != NULL;
}

static void write_evidence(struct vt_out *out, const struct vt_finding *f, uint32_t most)
{
    uint32_t i, number = 0;

    for (i = 0; i < f->evidence_count; i++) {
        if (is_request(f->evidence[i]) || number++ >= most)
            continue;
        vt_out_text(out, "  - ");
        vt_view_name(out, f->evidence[i], 0);
        vt_out_text(out, "\n");
    }
}

static void write_finding(struct vt_out *out, const struct vt_finding *f, uint32_t evidence, uint32_t measures)
{
    vt_view_finding(out, f);
    write_evidence(out, f, evidence);
    vt_view_advice(out, f, "  ", measures);
}

/* How much of finding `i` the first screen tells: false if nothing. `shown`: how many it has told before. */
static bool is_told(const struct vt_findings *all, uint32_t i, uint32_t shown, uint32_t *evidence, uint32_t *measures)
{
    uint32_t next = i + 1;

    while (next < all->count && !vt_finding_is_loud(&all->list[next]))
        next++;
    *evidence = shown ? 1 : next < all->count ? EVIDENCE : EVIDENCE + SECOND;
    *measures = shown ? 1 : MEASURES;
    return vt_finding_is_loud(&all->list[i]) && shown < DIAGNOSES;
}

static bool has_notable(const struct vt_findings *findings)
{
    return findings->count && findings->list[0].family != VT_FAMILY_NONE;
}

void vt_text_top(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_findings *all = &a->findings;
    uint32_t i, shown = 0, evidence, measures;

    write_end(out, a, request);
    write_oom(out, a);
    for (i = 0; i < all->count; i++) {
        if (!is_told(all, i, shown, &evidence, &measures))
            continue;
        vt_out_text(out, shown++ ? "" : "\n");
        write_finding(out, &all->list[i], evidence, measures);
    }
    if (!shown && !a->model.missing[0] && !vt_model_is_end(&a->model))
        vt_out_text(out, "\n" VT_JUDGED_AT_END "\n");
    else if (!shown && has_notable(all))
        vt_out_text(out, "\nNothing alarming was found in the GPU memory; what is worth knowing is under Findings.\n");
    else if (!shown)
        vt_out_format(out, "\n%s\n", all->count && !a->model.missing[0] ? all->list[0].title : "Nothing can be said.");
}

/* Does an earlier finding of the same family say it word by word? Two refusals in a row have the same holders. */
static bool is_said_before(const struct vt_findings *all, uint32_t index, const char *evidence)
{
    uint32_t i, j;

    for (i = 0; i < index; i++)
        for (j = 0; all->list[i].family == all->list[index].family && j < all->list[i].evidence_count; j++)
            if (!strcmp(all->list[i].evidence[j], evidence))
                return true;
    return false;
}

/* Lines of evidence from number `from` on that nothing before has said. Returns how many there are; out NULL: counts only. */
static uint32_t write_rest(struct vt_out *out, const struct vt_findings *all, uint32_t index, uint32_t from)
{
    const struct vt_finding *f = &all->list[index];
    uint32_t i, number = 0, count = 0;

    for (i = 0; i < f->evidence_count; i++) {
        if (is_request(f->evidence[i]) || number++ < from || is_said_before(all, index, f->evidence[i]))
            continue;
        count++;
        if (!out)
            continue;
        vt_out_text(out, "      - ");
        vt_view_name(out, f->evidence[i], 0);
        vt_out_text(out, "\n");
    }
    return count;
}

static bool is_only_one(const struct vt_findings *all, const struct vt_finding *f)
{
    uint32_t i, count = 0;

    for (i = 0; i < all->count; i++)
        count += all->list[i].family == f->family;
    return count == 1;
}

/* Of several that are called the same, the title says which one goes on here. */
static void write_beside(struct vt_out *out, const struct vt_findings *all, const struct vt_finding *f)
{
    vt_out_format(out, "%s (%s), beside what is said above:", vt_family_name(f->family),
                  vt_confidence_name(f->confidence));
    if (!is_only_one(all, f)) {
        vt_out_text(out, " ");
        vt_view_name(out, f->title, 400);
    }
    vt_out_text(out, "\n");
}

/* Title, evidence and advice; `from` and `measures`: as many of these have been told above. */
static void write_whole(struct vt_out *out, const struct vt_findings *all, uint32_t index, uint32_t from,
                        uint32_t measures)
{
    const struct vt_finding *f = &all->list[index];
    struct vt_finding rest = *f;

    vt_out_text(out, "  ");
    if (from || measures)
        write_beside(out, all, f);
    else
        vt_view_finding(out, f);
    write_rest(out, all, index, from);
    if (measures >= f->advice_count)
        return;
    rest.advice += measures;
    rest.advice_count -= measures;
    vt_view_advice(out, &rest, "      ", rest.advice_count);
}

void vt_text_findings(struct vt_out *out, const struct vt_findings *all)
{
    uint32_t i, shown = 0, written = 0, evidence, measures;

    for (i = 0; i < all->count; i++) {
        const struct vt_finding *f = &all->list[i];

        if (f->family == VT_FAMILY_NONE)
            continue;
        if (!is_told(all, i, shown, &evidence, &measures))
            evidence = measures = 0;
        else if (++shown && !write_rest(NULL, all, i, evidence) && f->advice_count <= measures)
            continue;
        if (!written++)
            vt_text_heading(out, "Findings");
        write_whole(out, all, i, evidence, measures);
    }
}
