/*
 * Records of failures, and which of them are the same; see failure_record.h.
 */
#include "preload/failure_record.h"

#include <string.h>

#include "preload/arena.h"
#include "preload/ledger.h"
#include "preload/moment.h"

struct failure_entry {
    UT_hash_handle hh;
    struct {
        uint64_t requested;
        uint32_t kind, api, stack, python_stack, allocated_at, freed_at;
        int32_t code;
    } key;
    uint32_t index;
};
static struct failure_entry *failures;
static uint32_t withdrawn; /* index + 1 of a record to use again */

struct vt_failure *vt_failure_record(uint32_t i)
{
    return vt_writer_at(&vt_state.writer, VT_FAILURES, i);
}

/* The entry of the key that a failure has. add: if there is none, one is made that stands for the record `index`. */
static struct failure_entry *known(const struct vt_failure *f, bool add, uint32_t index)
{
    struct failure_entry probe, *e = NULL;
    memset(&probe, 0, sizeof probe);
    probe.key.requested = f->requested_bytes;
    probe.key.kind = f->kind;
    probe.key.api = f->api;
    probe.key.stack = f->stack;
    probe.key.python_stack = f->python_stack;
    probe.key.allocated_at = f->allocated_at;
    probe.key.freed_at = f->freed_at;
    probe.key.code = f->code;
    HASH_FIND(hh, failures, &probe.key, sizeof probe.key, e);
    if (e || !add || !(e = vt_arena_take(sizeof *e)))
        return e;
    e->key = probe.key;
    e->index = index;
    HASH_ADD(hh, failures, key, sizeof e->key, e);
    return e;
}

uint32_t vt_failure_record_add(const struct vt_failure *content)
{
    uint64_t index = withdrawn ? withdrawn - 1 : 0;
    bool fresh = !withdrawn;
    struct vt_failure *f = fresh ? vt_writer_append(&vt_state.writer, VT_FAILURES, &index)
                                 : vt_failure_record((uint32_t)index);
    if (!f)
        return VT_NONE;
    withdrawn = 0;
    *f = *content;
    if (fresh)
        vt_writer_publish(&vt_state.writer, VT_FAILURES);
    return (uint32_t)index;
}

uint32_t vt_failure_record_count(const struct vt_failure *f)
{
    struct failure_entry *e = known(f, false, 0);
    if (!e) {
        uint32_t index = vt_failure_record_add(f);
        if (index != VT_NONE)
            known(f, true, index);
        return index;
    }
    struct vt_failure *to = vt_failure_record(e->index);
    to->count++;
    to->last_ns = f->last_ns;
    to->free_bytes = f->free_bytes;
    return e->index;
}

static bool is_oom(uint32_t kind)
{
    return kind == VT_FAILURE_OOM || kind == VT_FAILURE_FRAMEWORK_OOM;
}

uint32_t vt_failure_record_conclude(uint32_t index, uint32_t kind)
{
    struct vt_failure *f = vt_failure_record(index);
    uint32_t moment = f->moment;
    f->kind = kind;
    struct failure_entry *e = known(f, false, 0);
    if (kind == VT_FAILURE_RETRY)
        vt_moment_withdraw(moment);
    if (e && e->index != index) {
        struct vt_failure *to = vt_failure_record(e->index);
        to->count++;
        to->last_ns = f->last_ns;
        to->free_bytes = f->free_bytes;
        to->allocated_bytes = f->allocated_bytes;
        to->reserved_bytes = f->reserved_bytes;
        if (kind != VT_FAILURE_RETRY)
            to->moment = moment;
        f->count = 0; /* withdrawn: readers pass over it */
        f->moment = VT_NONE;
        withdrawn = index + 1;
        index = e->index;
    } else if (!e)
        known(f, true, index);
    if (is_oom(kind)) {
        vt_header()->oom_count++;
        vt_moment_name_oom(moment, vt_header()->oom_count);
    } else
        vt_failure_record(index)->moment = VT_NONE;
    return index;
}

void vt_failure_record_forget(void)
{
    failures = NULL;
    withdrawn = 0;
}
