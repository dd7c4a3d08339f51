/* Which moments of a recording reports tell of, and when they were. See moments.h. */
#include "views/moments.h"

#include <string.h>

static bool is_peak(const struct vt_model *m)
{
    return !m->recorded && !strcmp(m->moment, "peak");
}

bool vt_view_is_earlier(const struct vt_model *m)
{
    return m->recorded ? m->recorded->kind != VT_MOMENT_END : is_peak(m);
}

const char *vt_view_when(const struct vt_model *m)
{
    if (is_peak(m))
        return "at the highest point";
    if (m->recorded && m->recorded->kind == VT_MOMENT_OOM)
        return "when memory ran out";
    if (m->recorded && m->recorded->kind == VT_MOMENT_FINALIZE)
        return "when the program's own code had ended";
    if (m->recorded && m->recorded->kind != VT_MOMENT_END)
        return "at a moment taken by name"; /* by the program, or by vramtrack snapshot */
    return m->end == VT_PROCESS_RUNNING ? "now" : "at the end";
}

const struct vt_moment *vt_view_oom_moment(const struct vt_model *m)
{
    const struct vt_moment *moment;
    uint32_t i;

    if (m->recorded && m->recorded->kind == VT_MOMENT_OOM)
        return NULL;
    for (i = 0; i < m->failure_count; i++)
        if (vt_failure_is_oom(m->failures[i].record->kind)) {
            moment = vt_reading_moment(m->reading, m->failures[i].record->moment);
            return moment && moment->name[0] && moment != m->recorded ? moment : NULL;
        }
    return NULL;
}

bool vt_view_holds_the_same(const struct vt_model *a, const struct vt_model *b)
{
    uint32_t i;

    if (a->device_count != b->device_count || a->total_count != b->total_count)
        return false;
    for (i = 0; i < a->device_count; i++)
        if (a->devices[i].cached_unused != b->devices[i].cached_unused)
            return false;
    for (i = 0; i < a->total_count; i++)
        if (a->totals[i].live_bytes != b->totals[i].live_bytes || a->totals[i].live_count != b->totals[i].live_count)
            return false;
    return true;
}
