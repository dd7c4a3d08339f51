/*
 * Words to bits, and bits against the model's failures and findings.
 */
#include "cli/fail_on.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "analysis/analysis.h"
#include "cli/cli.h"
#include "recording/reader.h"
#include "views/out.h"

#define VERB "report"

#define BIT(n) (1u << (n))
#define OOM (BIT(VT_FAILURE_PENDING) | BIT(VT_FAILURE_OOM) | BIT(VT_FAILURE_FRAMEWORK_OOM))
#define MISUSE                                                                                      \
    (BIT(VT_FAILURE_FAILED_FREE) | BIT(VT_FAILURE_DOUBLE_FREE) | BIT(VT_FAILURE_INTERIOR_POINTER) | \
     BIT(VT_FAILURE_UNKNOWN_POINTER) | BIT(VT_FAILURE_WRONG_API))

/* Families that there are rules for (src/analysis/findings_*.c): to accept another would be to promise that it is absent. */
#define LOOKED_FOR                                                                                       \
    (BIT(VT_FAMILY_LEAK) | BIT(VT_FAMILY_GROWTH) | BIT(VT_FAMILY_FRAGMENTATION) | BIT(VT_FAMILY_CACHE) | \
     BIT(VT_FAMILY_WASTE) | BIT(VT_FAMILY_PENDING) | BIT(VT_FAMILY_CAPACITY) | BIT(VT_FAMILY_LIMIT) |    \
     BIT(VT_FAMILY_MISUSE) | BIT(VT_FAMILY_OVERHEAD))

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && !memcmp(text, word, length);
}

static bool add_word(struct vt_fail_on *fail_on, const char *text, size_t length)
{
    struct vt_fail_on before = *fail_on;

    if (is_word(text, length, "oom"))
        fail_on->failures |= OOM;
    if (is_word(text, length, "misuse"))
        fail_on->failures |= MISUSE;
    for (unsigned kind = 0; kind < VT_FAILURE_KIND_COUNT; kind++)
        if (is_word(text, length, vt_failure_name(kind)))
            fail_on->failures |= BIT(kind);
    for (unsigned family = 0; family < VT_FAMILY_NONE; family++)
        if (LOOKED_FOR & BIT(family) && is_word(text, length, vt_family_name((enum vt_family)family)))
            fail_on->families |= BIT(family);
    return before.failures != fail_on->failures || before.families != fail_on->families;
}

/* The words that add_word() knows, in a static buffer. */
static const char *all_words(void)
{
    static char words[512];
    size_t used = 0;

    for (unsigned family = 0; family < VT_FAMILY_NONE; family++)
        if (LOOKED_FOR & BIT(family))
            used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%s", used ? ", " : "",
                                     vt_family_name((enum vt_family)family));
    for (unsigned kind = VT_FAILURE_OOM; kind < VT_FAILURE_KIND_COUNT; kind++) /* in front of it: pending, an oom too */
        used += (size_t)snprintf(words + used, sizeof(words) - used, ", %s", vt_failure_name(kind));
    return words;
}

int vt_fail_on_parse(struct vt_fail_on *fail_on, const char *list)
{
    for (const char *word = list;; word++) {
        size_t length = strcspn(word, ",");
        struct vt_fail_on alone = {0, 0};

        if (!add_word(&alone, word, length))
            return vt_fail(VERB, "--fail-on: there is no '%.*s' (there are %s)", (int)length, word, all_words());
        fail_on->failures |= alone.failures;
        fail_on->families |= alone.families;
        word += length;
        if (!*word)
            return 0;
    }
}

static uint32_t failures_found(const struct vt_model *model)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < model->failure_count; i++)
        if (model->failures[i].record->kind < VT_FAILURE_KIND_COUNT)
            found |= BIT(model->failures[i].record->kind);
    return found;
}

/* Growth that is merely possible (a list that a program fills once) is no reason to fail. */
static uint32_t families_found(const struct vt_findings *findings)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < findings->count; i++)
        if (findings->list[i].family != VT_FAMILY_GROWTH || findings->list[i].confidence != VT_POSSIBLE)
            found |= BIT(findings->list[i].family);
    return found;
}

static void say(const char *path, uint32_t failures, uint32_t families)
{
    const char *separator = "";
    struct vt_out out;

    fputs("vramtrack report: found ", stderr);
    for (unsigned kind = 0; kind < VT_FAILURE_KIND_COUNT; kind++)
        if (failures & BIT(kind)) {
            fprintf(stderr, "%s%s", separator, vt_failure_name(kind));
            separator = ", ";
        }
    for (unsigned family = 0; family < VT_FAMILY_COUNT; family++)
        if (families & BIT(family)) {
            fprintf(stderr, "%s%s", separator, vt_family_name((enum vt_family)family));
            separator = ", ";
        }
    fputs(" in ", stderr);
    fflush(stderr);
    vt_out_open(&out, STDERR_FILENO, false);
    vt_out_name(&out, path, strlen(path), 0);
    vt_out_close(&out);
    fputs(" (--fail-on)\n", stderr);
}

int vt_fail_on_check(const struct vt_fail_on *fail_on, struct vt_reading *reading, const char *moment,
                     struct vt_symbols *symbols, const struct vt_stack_style *style)
{
    struct vt_analysis analysis;
    uint32_t failures, families;

    if (!fail_on->failures && !fail_on->families)
        return VT_EXIT_OK;
    /* With names: what VRAMTRACK_SUPPRESSIONS leaves out goes by them, and so do places that read alike. */
    if (vt_analysis_open(&analysis, reading, moment, true, symbols, style))
        return vt_fail(VERB, "out of memory");
    if (analysis.model.missing[0]) {
        vt_fail(VERB, "%s is incomplete (%s), so --fail-on has no answer", vt_reading_name(reading),
                analysis.model.missing);
        vt_analysis_close(&analysis);
        return VT_EXIT_ERROR;
    }
    failures = fail_on->failures & failures_found(&analysis.model);
    families = fail_on->families & families_found(&analysis.findings);
    vt_analysis_close(&analysis);
    if (!failures && !families)
        return VT_EXIT_OK;
    say(vt_reading_name(reading), failures, families);
    return VT_EXIT_FOUND;
}
