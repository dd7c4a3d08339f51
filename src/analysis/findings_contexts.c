/*
 * Several processes of one sort on a card: each has a CUDA context of its own, some hundred MiB of it before the first
 * allocation. Workers that only wait have one as well, once they have touched CUDA. What a context takes is known of this
 * process (account.h), with the code of all libraries that it loaded; the others run the same executable, so theirs is no
 * larger, nor larger than all that they hold.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define SAME_MIN 2 /* others; two ranks on one card are mostly meant */
#define EVIDENCE_MAX 5
#define CONTEXT_PART 2 /* of a context: less is none; versions and libraries differ by less than that */

/* The name of a file in a word of the command line, or the program's. */
static bool is_called(const struct vt_reading *r, const char *name)
{
    const struct vt_header *h = vt_reading_header(r);
    struct vt_text line = vt_reading_string(r, h->cmdline);
    const char *base = vt_basename(name);

    if (!*base)
        return false;
    if (!strncmp(base, h->program, sizeof h->program))
        return true;
    return line.length && strnlen(line.text, line.length) < line.length && !strcmp(base, vt_basename(line.text));
}

/* Does it hold enough for one? Else it is about to make its context, or to end it. */
static bool has_context(const struct vt_device_row *d, uint32_t i)
{
    return d->others[i].bytes >= d->context / CONTEXT_PART;
}

uint32_t vt_same_executable(const struct vt_reading *r, const struct vt_device_row *d, const char **name,
                            uint64_t *contexts)
{
    uint32_t i, count = 0;

    for (*contexts = 0, i = 0; i < d->other_count; i++) {
        if (!is_called(r, d->others[i].name) || !has_context(d, i))
            continue;
        *name = vt_basename(d->others[i].name);
        *contexts += d->others[i].bytes < d->context ? d->others[i].bytes : d->context;
        count++;
    }
    return count;
}

/*
 * All scripts of an interpreter are called alike, and nothing in a recording tells which of them belong together: the other
 * ranks of a job mostly run on GPUs of their own, and what shares this one may be of any other program.
 */
static bool may_be_strangers(const char *name)
{
    return !strncmp(name, "python", 6);
}

static void show(struct vt_finding_builder *b, const struct vt_device_row *d)
{
    char each[VT_FORMAT_BYTES], all[VT_FORMAT_BYTES];
    const char *name = "";
    uint64_t contexts;
    uint32_t same = vt_same_executable(b->model->reading, d, &name, &contexts), i, shown = 0;
    struct vt_finding *finding;

    if (same < SAME_MIN || may_be_strangers(name))
        return;
    finding = vt_new_finding(b, VT_FAMILY_OVERHEAD, VT_POSSIBLE,
                             "%u processes on GPU %d run %s, each with a CUDA context of its own: at most %s each, %s "
                             "together, of what they hold.",
                             same + 1, d->record->ordinal, name, vt_format_bytes(each, d->context),
                             vt_format_bytes(all, d->context + contexts));
    for (i = 0; i < d->other_count && shown < EVIDENCE_MAX; i++)
        if (is_called(b->model->reading, d->others[i].name) && has_context(d, i)) {
            vt_add_evidence(b, finding, "pid %u holds %s.", d->others[i].pid,
                            vt_format_bytes(each, d->others[i].bytes));
            shown++;
        }
    vt_add_advice(b, finding, contexts,
                  "If they belong together: one process per GPU, or CUDA MPS, and workers that don't touch CUDA.");
}

void vt_find_contexts(struct vt_finding_builder *b)
{
    uint32_t i;

    for (i = 0; vt_is_final(b->model) && i < b->model->device_count; i++)
        if (b->model->devices[i].others_known && b->model->devices[i].context_known && b->model->devices[i].context)
            show(b, &b->model->devices[i]);
}
