/*
 * What a recording lacks of what reports rest on: totals, places, peaks, failures. Single events, live slots and stack
 * frames may be missing within the size limit without making any figure wrong, so they count only in a truncated file.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/format.h"
#include "analysis/frameworks.h"

static void add(struct vt_model *m, const char *what)
{
    size_t used = strlen(m->missing);

    snprintf(m->missing + used, sizeof m->missing - used, "%s%s", used ? ", " : "", what);
}

/* Frameworks whose memory is not told apart, and why: in the library's own words. */
static void note_unseen(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_ALLOCATORS);

    for (i = 0; i < count; i++) {
        const struct vt_allocator *a = vt_reading_allocator(m->reading, i);

        if (a && a->flags & VT_ALLOCATOR_UNSEEN)
            vt_model_note(m, "JAX's arrays are not seen, only the memory they are made from: %s.",
                          vt_reading_chars(m->reading, a->name));
    }
}

/* Where a framework's own figures and the sum of its reports disagree, readers must know: theirs or ours are off. */
static void note_disagreements(struct vt_model *m)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_ALLOCATORS);
    char name[VT_FRAMEWORKS_NAME], bytes[VT_FORMAT_BYTES];

    for (i = 0; i < count; i++) {
        const struct vt_allocator *a = vt_reading_allocator(m->reading, i);

        if (!a || a->flags & VT_ALLOCATOR_UNSEEN)
            continue;
        vt_frameworks_name(name, a->framework < 8 ? 1u << a->framework : 0);
        if (a->mismatches)
            vt_model_note(
                m,
                "%s's own figure for GPU %d and the sum of what it reported differed in %llu of %llu reports, by "
                "up to %s: figures of tensors may be off by that.",
                name, a->device, (unsigned long long)a->mismatches, (unsigned long long)a->reports,
                vt_format_bytes(bytes, a->worst_bytes));
        if (a->base_bytes && a->framework == VT_FRAMEWORK_TORCH)
            vt_model_note(
                m, "%s had handed out %s on GPU %d before the first report was seen: these tensors are in no list.",
                name, vt_format_bytes(bytes, a->base_bytes), a->device);
        if (a->unknown_frees)
            vt_model_note(m, "%s took back %llu tensors (%s) on GPU %d whose allocation was not seen.", name,
                          (unsigned long long)a->unknown_frees, vt_format_bytes(bytes, a->unknown_bytes), a->device);
    }
}

void vt_model_find_gaps(struct vt_model *m)
{
    static const struct {
        enum vt_section section;
        const char *name;
    } needed[] = {{VT_TOTALS, "totals"},
                  {VT_SITES, "places"},
                  {VT_SCOPES, "peaks"},
                  {VT_FAILURES, "failures"},
                  {VT_DEVICES, "devices"}};
    size_t i;

    for (i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (vt_reading_incomplete(m->reading, needed[i].section))
            add(m, needed[i].name);
    if (vt_reading_header(m->reading)->flags & VT_FLAG_STOPPED)
        add(m, "what came after recording stopped");
    if (!m->missing[0] && vt_reading_truncated(m->reading))
        add(m, "what was cut off");
    note_unseen(m);
    note_disagreements(m);
}
