/*
 * One list from the native and the Python stack of one instant.
 *
 * The native stack holds runs of the interpreter's frames: neighbours that all belong to it. Inside a run the evaluation
 * loop (_PyEval_EvalFrameDefault) ran Python frames, one per native frame up to CPython 3.10, one or more since. Between
 * runs stands what called back into Python: pybind11, an autograd node, a ctypes callback.
 *
 *   native   E a I I I b I I start      I the interpreter's, E and a below it, b calls back into Python
 *   Python         p q     r
 *   merged   E a p q b r start          with the I behind the Python frames, hidden
 *
 * Which Python frame belongs to which run is told where it can be: if the recording says where each call of the evaluation
 * loop began (VT_PYTHON_ENTRY); up to 3.10, where each evaluation is one frame; if evaluations and Python frames are equal
 * in number; and if only one run evaluates anything. Otherwise all Python frames stand at the innermost run, and the
 * native frames behind it follow them. Without the interpreter's symbols, runs of unnamed frames count, and each is taken
 * for one evaluation if that fits. If there is no run at all (a stripped program with the interpreter inside, a native stack cut
 * short), the Python frames stand behind the native ones, before start-up code: what is innermost is what they called.
 * No Python frame is ever lost, repeated or moved against another one: the two counts need not agree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

/* Neighbouring frames of the interpreter. */
struct run {
    uint32_t first, end;
    uint32_t evaluations;
    bool unnamed;  /* holds frames without a name, which may be evaluations */
    uint32_t take; /* Python frames that belong here */
};

/* The interpreter's functions by name, for programs that it is linked into and for what hooks its evaluation loop. */
static bool is_interpreter_function(const char *function)
{
    static const char *const prefixes[] = {
        "_PyEval_",
        "PyEval_Eval",
        "_TAIL_CALL_",
        "_PyFunction_",
        "_PyObject_Call",
        "PyObject_Call",
        "PyObject_Vectorcall",
        "_PyObject_Vectorcall",
        "_PyObject_Fast",
        "_PyObject_MakeTpCall",
        "PyVectorcall_Call",
        "_PyVectorcall_Call",
        "method_vectorcall",
        "cfunction_call",
        "cfunction_vectorcall",
        "slot_tp_",
        "_PyMethodDef_Raw",
        "_PyCFunction_",
        "Py_RunMain",
        "Py_BytesMain",
        "pymain_",
        "PyRun_",
        "_PyRun_",
        "object_vacall",
        "gen_send_ex",
        "dynamo_custom_eval",
        "dynamo__custom_eval",
        "dynamo_eval_frame",
    };
    size_t i;

    for (i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (vt_starts(function, prefixes[i]))
            return true;
    return !strcmp(function, "type_call");
}

static bool is_interpreter(const struct vt_display_frame *frame)
{
    if (frame->lang != VT_LANG_NATIVE || frame->ours)
        return false;
    return (frame->module && vt_module_is_interpreter(frame->module)) ||
           (frame->function && is_interpreter_function(frame->function));
}

/* Code without a module between two frames of the interpreter is its own: its JIT, the trampolines of -X perf. */
static void mark_generated(struct vt_trace *native)
{
    uint32_t i, j;

    for (i = 1; i < native->count; i++) {
        if (!native->frames[i - 1].interpreter || native->frames[i].interpreter || native->frames[i].module)
            continue;
        for (j = i; j < native->count && !native->frames[j].interpreter && !native->frames[j].module; j++)
            ;
        if (j < native->count && native->frames[j].interpreter)
            for (; i < j; i++)
                native->frames[i].interpreter = native->frames[i].lang == VT_LANG_NATIVE;
        i = j;
    }
}

/* Inlined frames go with the function that they are inlined in: a recorded frame is the interpreter's or it is not. */
void vt_mark_interpreter(struct vt_trace *native)
{
    uint32_t i, first;

    for (i = first = 0; i < native->count; i++) {
        if (native->frames[i].inlined)
            continue;
        for (; first <= i; first++)
            native->frames[first].interpreter = is_interpreter(&native->frames[i]);
    }
    mark_generated(native);
}

/* Is this function the named one, or a part that the compiler split off it? Names that end in '_' are prefixes. */
static bool is_named(const char *function, const char *name)
{
    size_t length = strlen(name);

    return function && !strncmp(function, name, length) &&
           (name[length - 1] == '_' || !function[length] || function[length] == '.');
}

/* Counts the recorded frames of a run in which a function is. */
static uint32_t count_named(const struct vt_trace *native, const struct run *run, const char *name)
{
    uint32_t i, count = 0;
    bool seen = false;

    for (i = run->first; i < run->end; i++) {
        seen |= is_named(native->frames[i].function, name);
        if (native->frames[i].inlined)
            continue;
        count += seen;
        seen = false;
    }
    return count;
}

/* Finds the evaluations of all runs by the first of the loop's names that occurs; returns how many there are. */
static uint32_t count_evaluations(const struct vt_trace *native, struct run *runs, uint32_t count)
{
    static const char *const names[] = {"_PyEval_EvalFrameDefault", "_TAIL_CALL_", "_PyEval_EvalFrame",
                                        "_PyEval_Vector", "PyEval_EvalFrameEx"};
    uint32_t i, all = 0;
    size_t n;

    for (n = 0; n < sizeof names / sizeof names[0] && !all; n++)
        for (i = 0; i < count; i++)
            all += runs[i].evaluations = count_named(native, &runs[i], names[n]);
    return all;
}

static uint32_t find_runs(const struct vt_trace *native, struct run *runs)
{
    uint32_t i, count = 0;

    for (i = 0; i < native->count; i++) {
        if (!native->frames[i].interpreter)
            continue;
        if (!i || !native->frames[i - 1].interpreter)
            runs[count++] = (struct run){.first = i};
        runs[count - 1].end = i + 1;
        runs[count - 1].unnamed |= !native->frames[i].function;
    }
    return count;
}

/* Keeps the runs in which Python frames can have run; returns how many. */
static uint32_t keep_possible(struct run *runs, uint32_t count, uint32_t evaluations)
{
    uint32_t i, kept = 0, unnamed = 0;

    for (i = 0; i < count; i++)
        unnamed += runs[i].unnamed;
    if (!evaluations && !unnamed)
        return count;
    for (i = 0; i < count; i++)
        if (evaluations ? runs[i].evaluations > 0 : runs[i].unnamed)
            runs[kept++] = runs[i];
    return kept;
}

/* A Python stack while its frames are dealt out to evaluations, innermost first. */
struct deal {
    const struct vt_trace *python;
    bool one_each; /* each frame is an evaluation of its own */
    uint32_t dealt;
    uint32_t empty; /* evaluations without a frame before the next one */
};

static void look_ahead(struct deal *d)
{
    d->empty = d->dealt < d->python->count ? d->python->frames[d->dealt].empty : 0;
}

/* How many frames belong to the next evaluation. */
static uint32_t deal_one(struct deal *d)
{
    uint32_t first = d->dealt;
    bool last = false;

    if (d->empty) {
        d->empty--;
        return 0;
    }
    for (; d->dealt < d->python->count && !last; d->dealt++)
        last = d->one_each || d->python->frames[d->dealt].entry;
    look_ahead(d);
    return d->dealt - first;
}

/* How many evaluations the recording tells of; 0: it does not say. */
static uint32_t count_recorded(const struct vt_trace *python)
{
    uint32_t i, entries = 0, empty = 0;

    for (i = 0; i < python->count; i++) {
        entries += python->frames[i].entry;
        empty += python->frames[i].empty;
    }
    return entries ? entries + empty : 0;
}

/* Says how many Python frames belong to each run; see the top of this file. */
static void share(struct run *runs, uint32_t count, uint32_t evaluations, const struct vt_trace *python, unsigned minor)
{
    uint32_t recorded = count_recorded(python), i, k;
    bool one_each = !recorded && ((minor && minor <= 10) || evaluations == python->count);
    struct deal deal = {python, one_each, 0, 0};

    if (!evaluations && recorded == count)
        for (i = 0; i < count; i++, evaluations++)
            runs[i].evaluations = 1;
    look_ahead(&deal);
    for (i = 0; evaluations && (recorded || one_each) && i + 1 < count; i++)
        for (k = 0; k < runs[i].evaluations; k++)
            runs[i].take += deal_one(&deal);
    if (count)
        runs[i].take += python->count -
                        deal.dealt; /* what is left; all of it, to the innermost run, if it can't be told */
}

/* Where Python frames go when no frame of the interpreter is there. */
static uint32_t behind_natives(const struct vt_trace *native)
{
    uint32_t at = native->count;

    while (at && vt_fold_is_start(&native->frames[at - 1]))
        at--;
    return at;
}

static void copy(struct vt_trace *to, const struct vt_trace *from, uint32_t first, uint32_t count)
{
    if (count)
        memcpy(to->frames + to->count, from->frames + first, count * sizeof *to->frames);
    to->count += count;
}

int vt_trace_merge(struct vt_trace *merged, struct vt_trace *native, const struct vt_trace *python, unsigned minor)
{
    struct run *runs = calloc((uint64_t)native->count + 1, sizeof *runs);
    uint32_t i, count, evaluations, natives = 0, pythons = 0;

    if (!runs || !(merged->frames = calloc((uint64_t)native->count + python->count + 1, sizeof *merged->frames))) {
        free(runs);
        return -ENOMEM;
    }
    for (i = 0; i < native->count; i++)
        native->frames[i].replaced = native->frames[i].interpreter;
    count = find_runs(native, runs);
    evaluations = count_evaluations(native, runs, count);
    count = keep_possible(runs, count, evaluations);
    if (!count)
        runs[count++] = (struct run){.first = behind_natives(native)};
    share(runs, count, evaluations, python, minor);
    for (i = 0; i < count; i++) {
        copy(merged, native, natives, runs[i].first - natives);
        copy(merged, python, pythons, runs[i].take);
        natives = runs[i].first;
        pythons += runs[i].take;
    }
    copy(merged, native, natives, native->count - natives);
    free(runs);
    return 0;
}
