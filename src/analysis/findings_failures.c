/*
 * Findings from frees that were wrong (misuse). Why allocations failed is in findings_oom.c and findings_calls.c.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define SITES_MAX 64

/* A free that came after the driver or the runtime had shut down is harmless: everything was given back already. */
static bool is_late_at_exit(const struct vt_failure *f)
{
    return f->kind == VT_FAILURE_FAILED_FREE && f->code == 4;
}

static const struct {
    uint32_t kind;
    const char *what, *advice;
} misuses[] = {
    {VT_FAILURE_DOUBLE_FREE, "memory that had been freed already",
     "Let one owner free it: copies of a handle class need a copy constructor, or must be forbidden."},
    {VT_FAILURE_INTERIOR_POINTER, "a pointer into the middle of an allocation",
     "Keep the pointer that the allocation returned, and free that."},
    {VT_FAILURE_WRONG_API, "memory of another kind than the function is for",
     "Use the free function that belongs to the allocating one (cudaFreeHost for cudaMallocHost, ...)."},
    {VT_FAILURE_UNKNOWN_POINTER, "a pointer that CUDA did not allocate",
     "Check where the pointer comes from: host memory, an uninitialized variable, or another process's."},
    {VT_FAILURE_FAILED_FREE, "memory that was gone already, or could not be freed",
     "Free before the context is reset or destroyed, and check the result of cudaFree."},
};

/* Sites that allocated what was freed wrongly. */
static void name_sites(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *f)
{
    uint32_t i;

    if (!f->allocated_at && !f->allocated_python)
        return;
    for (i = 0; i < b->model->site_count && finding->site_count < SITES_MAX; i++) {
        const struct vt_site *site = b->model->sites[i].record;

        if (site->stack == f->allocated_at && (!f->allocated_python || site->python_stack == f->allocated_python))
            vt_add_site(b, finding, b->model->sites[i].index);
    }
}

static void describe_misuse(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *f)
{
    char where[VT_PLACE_BYTES], made[VT_PLACE_BYTES], freed[VT_PLACE_BYTES];
    const char *code = vt_code_name(f->code, vt_reading_chars(b->model->reading, f->api));

    vt_place_of(b, where, f->stack, f->python_stack);
    made[0] = freed[0] = '\0';
    if (f->allocated_at || f->allocated_python)
        vt_place_of(b, made, f->allocated_at, f->allocated_python);
    if (f->freed_at || f->freed_python)
        vt_place_of(b, freed, f->freed_at, f->freed_python);
    vt_add_evidence(b, finding, "%llu time%s in %s: pointer 0x%llx, result %d%s%s%s%s%s%s.",
                    (unsigned long long)f->count, f->count == 1 ? "" : "s", where, (unsigned long long)f->pointer,
                    f->code, code ? " " : "", code ? code : "", *made ? ", allocated by " : "", made,
                    *freed ? ", freed before by " : "", freed);
    name_sites(b, finding, f);
}

void vt_find_misuses(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    size_t k;
    uint32_t i;

    for (k = 0; k < sizeof misuses / sizeof misuses[0]; k++) {
        struct vt_finding *finding = NULL;
        uint64_t times = 0;
        bool harmless = true;

        for (i = 0; i < m->failure_count; i++)
            if (m->failures[i].record->kind == misuses[k].kind) {
                times += m->failures[i].record->count;
                harmless &= is_late_at_exit(m->failures[i].record);
            }
        if (!times)
            continue;
        finding = vt_new_finding(b, VT_FAMILY_MISUSE, harmless ? VT_POSSIBLE : VT_CERTAIN, "%llu free%s of %s.",
                                 (unsigned long long)times, times == 1 ? "" : "s", misuses[k].what);
        for (i = 0; i < m->failure_count && finding->evidence_count < 8; i++)
            if (m->failures[i].record->kind == misuses[k].kind)
                describe_misuse(b, finding, m->failures[i].record);
        vt_add_advice(b, finding, 0, "%s", misuses[k].advice);
    }
}
