/*
 * What a recording lacks of what reports rest on: totals, places, peaks, failures. Single events, live slots and stack
 * frames may be missing within the size limit without making any figure wrong, so they count only in a truncated file.
 */
#include <stdio.h>
#include <string.h>

#include "analysis/model.h"

static void add(struct vt_model *m, const char *what)
{
    size_t used = strlen(m->missing);

    snprintf(m->missing + used, sizeof m->missing - used, "%s%s", used ? ", " : "", what);
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
}
