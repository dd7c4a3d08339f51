/*
 * Findings from allocations that were refused for another reason than memory: one per result code.
 *
 * Libraries and frameworks try what a GPU may not support and go on without it, so their failed calls are possible
 * findings only; the same holds for codes that say more about the machine than about the program. Where such a library was
 * told that something is not to be had, and has allocated since, it is no finding at all.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define EVIDENCE_MAX 8
#define NOT_INITIALIZED 3
#define INVALID_CONTEXT 201
#define NOT_PERMITTED 800
#define NOT_SUPPORTED 801

static const struct cause {
    int code;
    enum vt_family family;
    enum vt_confidence confidence; /* at most */
    const char *why, *advice;
} causes[] = {
    {NOT_INITIALIZED, VT_FAMILY_MISUSE, VT_LIKELY, "CUDA was not initialized in this process.",
     "If CUDA was used before fork: start workers with spawn, or use CUDA in the children only. Else call cuInit "
     "first."},
    {1, VT_FAMILY_MISUSE, VT_LIKELY, "an argument was invalid.",
     "Check the size (zero, negative or overflown?), the flags and the handles that are passed."},
    {4, VT_FAMILY_MISUSE, VT_POSSIBLE, "CUDA was shutting down.", "Do not allocate in destructors of static objects."},
    {INVALID_CONTEXT, VT_FAMILY_MISUSE, VT_LIKELY, "there was no valid context.",
     "Set the device, or make a context current, first."},
    {709, VT_FAMILY_MISUSE, VT_LIKELY, "the context had been destroyed.", "Do not use a context after its end."},
    {400, VT_FAMILY_MISUSE, VT_LIKELY, "a handle was invalid.", "Check that stream, pool or graph still exist."},
    {700, VT_FAMILY_MISUSE, VT_LIKELY, "an earlier kernel had accessed an illegal address.",
     "The memory call only reports it: look for the kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1."},
    {702, VT_FAMILY_MISUSE, VT_LIKELY, "an earlier kernel had run into the time limit.",
     "The memory call only reports it: look for the kernel with CUDA_LAUNCH_BLOCKING=1."},
    {710, VT_FAMILY_MISUSE, VT_LIKELY, "an assertion in an earlier kernel had failed.",
     "The memory call only reports it: look for the kernel with CUDA_LAUNCH_BLOCKING=1."},
    {719, VT_FAMILY_MISUSE, VT_LIKELY, "an earlier kernel had failed.",
     "The memory call only reports it: look for the kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1."},
    {712, VT_FAMILY_MISUSE, VT_POSSIBLE, "the host memory was page-locked already.", "Register each range once."},
    {NOT_PERMITTED, VT_FAMILY_LIMIT, VT_POSSIBLE, "the operation was not permitted.",
     "Check the limits of the container, of MPS or MIG, and stream capture."},
    {NOT_SUPPORTED, VT_FAMILY_LIMIT, VT_POSSIBLE, "GPU or driver do not support the operation.",
     "Ask for the capability (cuDeviceGetAttribute) before using it."},
};
static const struct cause other = {0, VT_FAMILY_LIMIT, VT_POSSIBLE, "the call returned an error.",
                                   "Check the results of CUDA calls where they are made."};

/* In a forked child the runtime cannot initialize itself; anywhere else it does so at its first call. */
static const struct cause forked = {
    NOT_INITIALIZED, VT_FAMILY_MISUSE, VT_LIKELY, "CUDA was used before fork, and does not work in the child.",
    "Start workers with spawn (multiprocessing.set_start_method(\"spawn\")), or use CUDA in the children only."};

static const struct cause *cause_of(int code, const char *api)
{
    size_t i;

    if (code == NOT_INITIALIZED && !strncmp(api, "cuda", 4))
        return &forked;
    for (i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (causes[i].code == code)
            return &causes[i];
    return &other;
}

static bool is_probe(const struct vt_model *m, const struct vt_failure *f)
{
    enum vt_module_class class_ = vt_module_class_at(m->reading, vt_owner_module(m->reading, f->stack));

    return class_ == VT_MODULE_LIBRARY || class_ == VT_MODULE_FRAMEWORK;
}

/* What a GPU, a driver, a container or a thread without a context answers to whoever tries what it offers. */
static bool is_answer(int code)
{
    return code == NOT_PERMITTED || code == NOT_SUPPORTED || code == INVALID_CONTEXT;
}

/* Has the module made memory since, at a place that was new then or has only ever allocated? (Else its last call may be a
 * free.) */
static bool went_on(const struct vt_model *m, uint32_t module, uint64_t since)
{
    uint32_t i;

    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];
        const struct vt_site *site = row->record;

        if (row->module == module && site->level == VT_LEVEL_DRIVER && vt_kind_is_memory(site->kind) &&
            (site->first_ns > since || (site->last_ns > since && !site->free_calls && !site->retired)))
            return true;
    }
    return false;
}

/* A library asked what is possible, took the answer, and did it another way: that is how it works, and nobody's error. */
static bool is_settled(const struct vt_model *m, const struct vt_failure *f)
{
    return is_answer(f->code) && is_probe(m, f) && went_on(m, vt_owner_module(m->reading, f->stack), f->last_ns);
}

static void describe(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_failure *f)
{
    const char *api = vt_reading_chars(b->model->reading, f->api), *code = vt_code_name(f->code, api);
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES];

    vt_add_evidence(b, finding, "%s: %s of %s returned %d%s%s, %llu time%s.",
                    vt_place_of(b, place, f->stack, f->python_stack), api, vt_format_bytes(bytes, f->requested_bytes),
                    f->code, code ? " " : "", code ? code : "", (unsigned long long)f->count, f->count == 1 ? "" : "s");
}

static bool is_same(const struct vt_model *m, const struct vt_failure *f, const struct cause *cause, int code)
{
    return f->kind == VT_FAILURE_FAILED_ALLOC && f->code == code &&
           cause_of(f->code, vt_reading_chars(m->reading, f->api)) == cause && !is_settled(m, f);
}

/* One finding for all failures of one cause and code; `first` is the first of them. */
static void explain(struct vt_finding_builder *b, uint32_t first, const struct cause *cause)
{
    const struct vt_model *m = b->model;
    int code = m->failures[first].record->code;
    enum vt_confidence confidence = VT_POSSIBLE;
    struct vt_finding *finding;
    uint64_t times = 0;
    uint32_t i;

    for (i = first; i < m->failure_count; i++)
        if (is_same(m, m->failures[i].record, cause, code)) {
            times += m->failures[i].record->count;
            if (code == NOT_INITIALIZED || !is_probe(m, m->failures[i].record))
                confidence = cause->confidence;
        }
    finding = vt_new_finding(b, cause->family, confidence, "%llu allocation%s failed: %s", (unsigned long long)times,
                             times == 1 ? "" : "s", cause->why);
    for (i = first; i < m->failure_count && finding->evidence_count < EVIDENCE_MAX; i++)
        if (is_same(m, m->failures[i].record, cause, code))
            describe(b, finding, m->failures[i].record);
    vt_add_advice(b, finding, 0, "%s", cause->advice);
}

void vt_find_failed_calls(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    uint32_t i, j;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *f = m->failures[i].record;
        const struct cause *cause = cause_of(f->code, vt_reading_chars(m->reading, f->api));

        if (f->kind != VT_FAILURE_FAILED_ALLOC || is_settled(m, f))
            continue;
        for (j = 0; j < i && !is_same(m, m->failures[j].record, cause, f->code);)
            j++;
        if (j == i)
            explain(b, i, cause);
    }
}
