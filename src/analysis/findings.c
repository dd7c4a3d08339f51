/*
 * Findings: runs the rules and keeps their results; see findings.h. The rules themselves are in the other files
 * named findings_*.c.
 */
#include "analysis/findings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/stack.h"

/* Grows an array by one element. NULL when memory ran out (noted); the array stays as it was. */
static void *grow(struct vt_finding_builder *b, void *array, uint32_t count, size_t bytes)
{
    void *grown = (count & (count - 1)) ? array : realloc(array, (count ? count * 2 : 1) * bytes);

    if (!grown)
        b->no_memory = true;
    return grown;
}

static char *formatted(struct vt_finding_builder *b, const char *format, va_list arguments)
{
    char *text = NULL;

    if (vasprintf(&text, format, arguments) < 0) {
        b->no_memory = true;
        return NULL;
    }
    return text;
}

static void free_finding(struct vt_finding *f)
{
    uint32_t i;

    for (i = 0; i < f->evidence_count; i++)
        free(f->evidence[i]);
    for (i = 0; i < f->advice_count; i++)
        free(f->advice[i].text);
    free(f->evidence);
    free(f->advice);
    free(f->sites);
    free(f->title);
    memset(f, 0, sizeof *f);
}

struct vt_finding *vt_new_finding(struct vt_finding_builder *b, enum vt_family family, enum vt_confidence confidence,
                                  const char *title, ...)
{
    struct vt_findings *all = b->findings;
    struct vt_finding *grown = grow(b, all->list, all->count, sizeof *grown), *f;
    va_list arguments;

    if (!grown) {
        free_finding(&b->spare);
        return &b->spare;
    }
    all->list = grown;
    f = &all->list[all->count++];
    memset(f, 0, sizeof *f);
    f->family = family;
    f->confidence = confidence;
    va_start(arguments, title);
    f->title = formatted(b, title, arguments);
    va_end(arguments);
    return f;
}

void vt_retitle(struct vt_finding_builder *b, struct vt_finding *f, enum vt_confidence confidence, const char *title,
                ...)
{
    va_list arguments;

    free(f->title);
    f->confidence = confidence;
    va_start(arguments, title);
    f->title = formatted(b, title, arguments);
    va_end(arguments);
}

void vt_add_evidence(struct vt_finding_builder *b, struct vt_finding *f, const char *text, ...)
{
    char **grown = grow(b, f->evidence, f->evidence_count, sizeof *grown);
    va_list arguments;

    if (!grown)
        return;
    f->evidence = grown;
    va_start(arguments, text);
    if ((f->evidence[f->evidence_count] = formatted(b, text, arguments)))
        f->evidence_count++;
    va_end(arguments);
}

void vt_add_advice(struct vt_finding_builder *b, struct vt_finding *f, uint64_t saves_bytes, const char *text, ...)
{
    struct vt_advice *grown = grow(b, f->advice, f->advice_count, sizeof *grown);
    va_list arguments;

    if (!grown)
        return;
    f->advice = grown;
    va_start(arguments, text);
    f->advice[f->advice_count] = (struct vt_advice){formatted(b, text, arguments), saves_bytes, false};
    f->advice_count += f->advice[f->advice_count].text != NULL;
    va_end(arguments);
}

void vt_add_site(struct vt_finding_builder *b, struct vt_finding *f, uint32_t site)
{
    uint32_t *grown = grow(b, f->sites, f->site_count, sizeof *grown);

    if (!grown)
        return;
    f->sites = grown;
    f->sites[f->site_count++] = site;
}

const char *vt_place_of(struct vt_finding_builder *b, char *buffer, uint32_t stack, uint32_t python_stack)
{
    struct vt_trace trace;

    if (vt_trace_build(&trace, b->model->reading, b->symbols, b->style, stack, python_stack))
        b->no_memory = true;
    vt_format_place(buffer, VT_PLACE_BYTES, vt_trace_user(&trace));
    vt_trace_free(&trace);
    return buffer;
}

bool vt_is_suppressed(struct vt_finding_builder *b, struct vt_site_row *row)
{
    struct vt_trace trace;

    if (row->suppression != VT_SUPPRESSION_UNKNOWN || !b->suppressions.count)
        return row->suppression == VT_SUPPRESSED;
    if (vt_trace_build(&trace, b->model->reading, b->symbols, b->style, row->record->stack, row->record->python_stack))
        b->no_memory = true;
    row->suppression = vt_suppressions_match(&b->suppressions, &trace) ? VT_SUPPRESSED : VT_NOT_SUPPRESSED;
    vt_trace_free(&trace);
    if (row->suppression == VT_SUPPRESSED) {
        b->suppressions.places++;
        b->suppressions.bytes += row->live_bytes;
    }
    return row->suppression == VT_SUPPRESSED;
}

static void warn_in_note(void *model, const char *sentence)
{
    vt_model_note(model, "%s", sentence);
}

static void load_suppressions(struct vt_finding_builder *b)
{
    if (vt_suppressions_load(&b->suppressions, getenv("VRAMTRACK_SUPPRESSIONS"), warn_in_note, b->model))
        b->no_memory = true;
}

static void say_suppressed(struct vt_finding_builder *b)
{
    char bytes[VT_FORMAT_BYTES];

    if (b->suppressions.places)
        vt_model_note(b->model,
                      "%llu place%s with %s would be called a leak or growth, but VRAMTRACK_SUPPRESSIONS names %s.",
                      (unsigned long long)b->suppressions.places, b->suppressions.places == 1 ? "" : "s",
                      vt_format_bytes(bytes, b->suppressions.bytes), b->suppressions.places == 1 ? "it" : "them");
}

bool vt_is_final(const struct vt_model *m)
{
    if (m->recorded)
        return m->recorded->kind == VT_MOMENT_FINALIZE || m->recorded->kind == VT_MOMENT_END;
    return !strcmp(m->moment, "end");
}

/* Most certain first; otherwise as the rules found them. Few enough for an insertion sort, which keeps that order. */
static void sort(struct vt_findings *all)
{
    uint32_t i, j;

    for (i = 1; i < all->count; i++)
        for (j = i; j && all->list[j - 1].confidence > all->list[j].confidence; j--) {
            struct vt_finding other = all->list[j];

            all->list[j] = all->list[j - 1];
            all->list[j - 1] = other;
        }
}

/* Families that say what a site's memory is; the others name sites as witnesses only. */
static bool judges_sites(enum vt_family family)
{
    return family != VT_FAMILY_CAPACITY && family != VT_FAMILY_LIMIT && family != VT_FAMILY_OTHER_PROCESS &&
           family != VT_FAMILY_MISUSE && family != VT_FAMILY_NONE;
}

/* A site's verdict is the family of the first finding that judges it. `row_of` maps indices to rows. */
static void set_verdicts(struct vt_findings *all, struct vt_model *m)
{
    uint64_t sites = vt_reading_count(m->reading, VT_SITES);
    struct vt_site_row **row_of = calloc(sites ? sites : 1, sizeof *row_of);
    uint32_t i, j;

    if (!row_of)
        return; /* verdicts are a convenience */
    for (i = 0; i < m->site_count; i++)
        row_of[m->sites[i].index] = &m->sites[i];
    for (i = 0; i < all->count; i++)
        for (j = 0; judges_sites(all->list[i].family) && j < all->list[i].site_count; j++) {
            struct vt_site_row *row = row_of[all->list[i].sites[j]];

            if (row && !row->verdict)
                row->verdict = vt_family_name(all->list[i].family);
        }
    free(row_of);
}

bool vt_finding_is_loud(const struct vt_finding *finding)
{
    return finding->family != VT_FAMILY_NONE && finding->confidence != VT_POSSIBLE;
}

bool vt_finding_is_placed(const struct vt_finding *finding)
{
    return finding->family == VT_FAMILY_LEAK || finding->family == VT_FAMILY_GROWTH ||
           finding->family == VT_FAMILY_MISUSE || finding->family == VT_FAMILY_PENDING ||
           (finding->family == VT_FAMILY_FRAGMENTATION && finding->site_count);
}

int vt_findings_build(struct vt_findings *findings, struct vt_model *model, struct vt_symbols *symbols,
                      const struct vt_stack_style *style)
{
    struct vt_finding_builder b = {.findings = findings, .model = model, .symbols = symbols, .style = style};

    memset(findings, 0, sizeof *findings);
    load_suppressions(&b);
    vt_find_ooms(&b);
    vt_find_misuses(&b);
    vt_find_failed_calls(&b);
    vt_find_kept(&b);
    vt_find_leaks(&b);
    vt_find_growth(&b);
    vt_find_replaced(&b);
    vt_find_unreleased(&b);
    vt_find_waste(&b);
    vt_find_pools(&b);
    vt_find_contexts(&b);
    if (model->missing[0])
        vt_new_finding(&b, VT_FAMILY_NONE, VT_POSSIBLE, "The recording is incomplete: nothing can be said about %s.",
                       model->missing);
    else if (!findings->count && !vt_model_is_end(model))
        vt_new_finding(&b, VT_FAMILY_NONE, VT_POSSIBLE, VT_JUDGED_AT_END);
    else if (!findings->count)
        vt_new_finding(&b, VT_FAMILY_NONE, VT_CERTAIN, "Nothing suspicious was found%s.",
                       b.suppressions.places ? " beside what is suppressed" : "");
    say_suppressed(&b);
    vt_suppressions_free(&b.suppressions);
    free_finding(&b.spare);
    if (b.no_memory) {
        vt_findings_free(findings);
        return -ENOMEM;
    }
    sort(findings);
    set_verdicts(findings, model);
    return 0;
}

void vt_findings_free(struct vt_findings *findings)
{
    uint32_t i;

    for (i = 0; i < findings->count; i++)
        free_finding(&findings->list[i]);
    free(findings->list);
    memset(findings, 0, sizeof *findings);
}
