/* Would the newest out-of-memory have fit, had what was free been in one piece? See fragmentation.h. */
#include <errno.h>
#include <string.h>

#include "analysis/frameworks.h"
#include "analysis/model.h"

static const struct vt_failure *newest_oom(const struct vt_model *m, int device)
{
    const struct vt_failure *newest = NULL;
    uint32_t i;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *failure = m->failures[i].record;
        bool own = m->recorded && m->recorded->kind == VT_MOMENT_OOM && m->recorded->failure == m->failures[i].index;

        if (!vt_failure_is_oom(failure->kind) || failure->device != device ||
            vt_class_of((enum vt_kind)failure->memory_kind) == VT_CLASS_HOST)
            continue;
        if (own)
            return failure;
        if (failure->last_ns <= m->moment_ns && (!newest || failure->last_ns >= newest->last_ns))
            newest = failure;
    }
    return newest;
}

int vt_fragmentation_oom(struct vt_oom_fit *oom, const struct vt_model *m, int device)
{
    const struct vt_fragmentation *then = &m->fragmentation;
    struct vt_fragmentation built = {0};
    const struct vt_moment *moment;
    const struct vt_pools *pools;
    int error;

    memset(oom, 0, sizeof *oom);
    if (!(oom->failure = newest_oom(m, device)) || !(moment = vt_reading_moment(m->reading, oom->failure->moment)))
        return 0;
    if (moment != m->recorded) {
        if ((error = vt_fragmentation_build(&built, m->reading, moment)))
            return error;
        then = &built;
    }
    pools = vt_fragmentation_of(then, device);
    oom->known = pools && pools->known;
    oom->fit = vt_fragmentation_fit(pools, oom->failure);
    if (oom->known)
        oom->usable = vt_fragmentation_usable(pools, oom->failure->requested_bytes, &oom->largest);
    if (oom->fit == VT_FIT_YES && vt_frameworks_cannot_grow(m, oom->failure) &&
        oom->usable < oom->failure->requested_bytes)
        oom->fit = VT_FIT_NO;
    vt_fragmentation_free(&built);
    return 0;
}
