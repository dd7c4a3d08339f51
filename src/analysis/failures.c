/*
 * Out-of-memory failures of one place on one device, whatever their sizes: a program that goes on asking has failed once.
 */
#include <string.h>

#include "analysis/model.h"

static bool is_same(const struct vt_failure *a, const struct vt_failure *b)
{
    return vt_failure_is_oom(b->kind) && !strcmp(vt_failure_name(a->kind), vt_failure_name(b->kind)) &&
           a->device == b->device && a->memory_kind == b->memory_kind && a->stack == b->stack &&
           a->python_stack == b->python_stack && a->api == b->api;
}

struct vt_oom_group vt_model_oom_group(const struct vt_model *m, uint32_t row)
{
    const struct vt_failure *f = m->failures[row].record;
    struct vt_oom_group group = {0, f->requested_bytes, f->requested_bytes, true};
    uint32_t i;

    if (!vt_failure_is_oom(f->kind)) {
        group.times = f->count;
        return group;
    }
    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *same = m->failures[i].record;

        if (!is_same(f, same))
            continue;
        group.times += same->count;
        group.low = same->requested_bytes < group.low ? same->requested_bytes : group.low;
        group.high = same->requested_bytes > group.high ? same->requested_bytes : group.high;
        if (i < row) {
            group.first = false;
            break;
        }
    }
    return group;
}
