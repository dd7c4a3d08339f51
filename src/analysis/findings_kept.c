/*
 * Memory that a call which ran out of memory has left behind: a kept exception keeps its traceback, this the frames of the
 * failed call, and these the tensors in their variables. So the next attempt finds no more room than the first.
 *
 * It shows in the stacks. A frame stands for one running call: callers and line are part of it. Tensors that were made
 * inside a call that failed, are still live although that call is over, are kept by something. That need not be the
 * exception (the call may have stored them):
 * - the finding is likely only where the place never ran before or after;
 * - a place of which some was freed since is none: the frames of a call that is over let go of nothing, or of everything;
 * - a loop that failed at the line that made them collects them, and the list may be anybody's: possible only. But in a
 *   module's forward the layers of a network are such a loop, and what they made is kept by the graph in their frames.
 *
 * What is kept often goes with the exception, and is gone when the program ends. So a report of the whole run looks at the later
 * failures' own moments as well: what was held when memory ran out again is why it did.
 */
#include <string.h>

#include "analysis/account.h"
#include "analysis/category.h"
#include "analysis/finding_rules.h"
#include "analysis/format.h"

#define EVIDENCE_MAX 4
#define KEPT_WORTH (1ull << 20)
#define KEPT_LEAST (64ull << 10) /* of a place: shapes and scalars beside the tensors are not worth a word */
#define FAILURES_MAX 8           /* looked at, the newest first, */
#define LATER_MAX 4              /* and moments of so many later ones, the oldest first */

struct chain {
    uint32_t frames[VT_STACK_FRAMES_MAX];
    uint32_t count;
};

static void take_chain(const struct vt_reading *r, struct chain *chain, uint32_t python_stack)
{
    chain->count = vt_reading_stack(r, python_stack, chain->frames, VT_STACK_FRAMES_MAX);
}

/*
 * Index in `failed` of the innermost call that both stacks are inside of; failed->count if they share none. It is the same
 * call if function, callers and their lines are the same: the innermost frame that they share, or the next one of each, where
 * one function stands at two lines.
 */
static uint32_t shared_call(const struct vt_reading *r, const struct chain *failed, const struct chain *other)
{
    uint32_t same = 0, most = failed->count < other->count ? failed->count : other->count;
    const struct vt_frame *a, *b;

    while (same < most && failed->frames[failed->count - 1 - same] == other->frames[other->count - 1 - same])
        same++;
    if (same < most) {
        a = vt_reading_frame(r, failed->frames[failed->count - 1 - same]);
        b = vt_reading_frame(r, other->frames[other->count - 1 - same]);
        if (vt_reading_frame_code(r, a) && vt_reading_frame_code(r, a) == vt_reading_frame_code(r, b))
            return failed->count - 1 - same;
    }
    return failed->count - same;
}

/*
 * How many calls, from the innermost, are known to be over: those inside of any call that went on after the failure. What
 * shows it is the stack that runs now, later failures, and places that were new after it. 0: nothing shows it.
 */
static uint32_t calls_over(const struct vt_model *m, const struct vt_failure *failure, const struct chain *failed,
                           uint32_t running_stack)
{
    struct chain chain;
    uint32_t over, shared, i;

    take_chain(m->reading, &chain, running_stack);
    over = shared_call(m->reading, failed, &chain);
    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *later = m->failures[i].record;

        if (later->first_ns <= failure->last_ns || later->first_ns > m->moment_ns || !later->python_stack)
            continue;
        take_chain(m->reading, &chain, later->python_stack);
        shared = shared_call(m->reading, failed, &chain);
        over = shared < over ? shared : over;
    }
    for (i = 0; i < m->site_count; i++) {
        const struct vt_site *site = m->sites[i].record;

        if (site->first_ns <= failure->last_ns || site->first_ns > m->moment_ns || !site->python_stack)
            continue;
        take_chain(m->reading, &chain, site->python_stack);
        shared = shared_call(m->reading, failed, &chain);
        over = shared < over ? shared : over;
    }
    return over < failed->count ? over : 0;
}

/* Was a site's stack inside a call that is over? A module's own variables live as long as it does. */
static bool is_left_behind(const struct vt_reading *r, const struct chain *failed, uint32_t over,
                           const struct chain *site)
{
    uint32_t shared = shared_call(r, failed, site);

    return shared < over && vt_reading_frame(r, failed->frames[shared])->parent;
}

/* What a site held at the failure's own moment. */
static struct vt_moment_site held_then(const struct vt_reading *r, const struct vt_failure *failure, uint32_t site)
{
    const struct vt_moment *moment = vt_reading_moment(r, failure->moment);
    const struct vt_moment_site *entry;
    uint64_t i;

    for (i = 0; moment && i < moment->sites; i++)
        if (!(entry = vt_reading_moment_site(r, moment->first_site + i)))
            break; /* the count is the file's word only */
        else if (entry->site == site)
            return *entry;
    return (struct vt_moment_site){.site = site};
}

struct kept {
    const struct vt_failure *failure;
    struct vt_finding *finding;
    uint64_t bytes;
    bool once;      /* nothing of it was made but by the failed call */
    bool collected; /* some of it may be in a list of the program's */
};

/* Made outside of modules, at the line at which the call failed: an earlier turn of a loop? */
static bool may_be_collected(const struct vt_reading *r, const struct vt_site *site, const struct chain *failed,
                             const struct chain *chain)
{
    uint32_t shared = shared_call(r, failed, chain), outer = failed->count - shared; /* frames from it outwards */

    return outer <= chain->count && failed->frames[shared] == chain->frames[chain->count - outer] &&
           !(vt_category_code(r, site->python_stack) & VT_CODE_MODULE);
}

/* Looks at one site; adds it to the finding. */
static void look(struct vt_finding_builder *b, struct kept *kept, const struct vt_site_row *row,
                 const struct chain *failed, uint32_t over)
{
    const struct vt_reading *r = b->model->reading;
    const struct vt_site *site = row->record;
    struct vt_moment_site then;
    struct chain chain;

    if (site->level != VT_LEVEL_TENSOR || row->live_bytes < KEPT_LEAST || !site->python_stack ||
        site->first_ns > kept->failure->last_ns || site->device != kept->failure->device)
        return;
    take_chain(r, &chain, site->python_stack);
    if (!is_left_behind(r, failed, over, &chain))
        return;
    then = held_then(r, kept->failure, row->index);
    if (!then.live_bytes || row->live_bytes < then.live_bytes)
        return;
    if (!kept->finding)
        kept->finding = vt_new_finding(b, VT_FAMILY_PENDING, VT_POSSIBLE, "%s", "");
    kept->bytes += then.live_bytes;
    kept->collected |= may_be_collected(r, site, failed, &chain);
    kept->once &= site->alloc_calls == then.live_count &&
                  vt_model_steps_until(r, site->first_ns) == vt_model_steps_until(r, kept->failure->last_ns);
    vt_add_site(b, kept->finding, row->index);
}

/* Looks for what a failed call keeps at the moment of the builder's model. again: the name of that moment, if it is a later failure's
 * and not the one that is shown; else NULL. Returns whether there is anything. */
static bool find_kept(struct vt_finding_builder *b, const struct vt_failure *failure, uint32_t running_stack,
                      const char *again)
{
    const struct vt_model *m = b->model;
    bool likely;
    struct kept kept = {.failure = failure, .once = true};
    char place[VT_PLACE_BYTES], bytes[VT_FORMAT_BYTES], time[VT_FORMAT_BYTES];
    struct chain failed;
    uint32_t over, i;

    take_chain(m->reading, &failed, failure->python_stack);
    over = calls_over(m, failure, &failed, running_stack);
    for (i = 0; i < m->site_count; i++)
        look(b, &kept, &m->sites[i], &failed, over);
    if (!kept.finding)
        return false;
    likely = kept.once && !kept.collected && kept.bytes >= KEPT_WORTH;
    vt_retitle(b, kept.finding, likely ? VT_LIKELY : VT_POSSIBLE,
               "%s %s held by a call that ran out of memory before%s%s%s: an exception that is kept keeps the "
               "variables of its frames alive%s.",
               vt_format_bytes(bytes, kept.bytes),
               again    ? likely ? "were still" : "may still have been"
               : likely ? "are still"
                        : "may still be",
               again ? ", when memory ran out again (" : "", again ? again : "", again ? ")" : "",
               kept.collected ? "; so does a list that the call filled" : "");
    vt_show_sites(b, kept.finding, EVIDENCE_MAX);
    vt_add_evidence(b, kept.finding, "That call failed in %s, %s after the start; it %s not running any more.",
                    vt_place_of(b, place, failure->stack, failure->python_stack),
                    vt_format_seconds(time, failure->last_ns), again ? "was" : "is");
    vt_add_advice(b, kept.finding, kept.bytes,
                  "Try again outside of the except block, and keep no reference to the exception (or to its "
                  "__traceback__).");
    return true;
}

/* The failures of a run that have been told of. */
struct told {
    const struct vt_failure *failure[FAILURES_MAX];
    uint32_t count;
};

static bool was_told(const struct told *told, const struct vt_failure *failure)
{
    uint32_t i;

    for (i = 0; i < told->count; i++)
        if (told->failure[i] == failure)
            return true;
    return false;
}

/* What the failures before the builder's model's moment keep there. own: the failure of that moment, or NULL. */
static void look_back(struct vt_finding_builder *b, const struct vt_failure *own, const char *again, struct told *told)
{
    const struct vt_model *m = b->model;
    uint32_t i, looked = 0;

    for (i = m->failure_count; i-- && looked < FAILURES_MAX;) {
        const struct vt_failure *failure = m->failures[i].record;

        if (failure == own || !vt_failure_is_oom(failure->kind) || !failure->python_stack ||
            failure->last_ns >= m->moment_ns)
            continue;
        looked++;
        if (told->count < FAILURES_MAX && !was_told(told, failure) &&
            find_kept(b, failure, own ? own->python_stack : 0, again))
            told->failure[told->count++] = failure;
    }
}

/* Puts the findings from `from` on behind the first of all, the verdict on the first failure: what the first left behind comes before
 * what the second says of itself. */
static void bring_forward(struct vt_findings *all, uint32_t from)
{
    uint32_t i, j;

    for (i = from; from > 1 && i < all->count; i++)
        for (j = i; j > 1 + i - from; j--) {
            struct vt_finding other = all->list[j - 1];

            all->list[j - 1] = all->list[j];
            all->list[j] = other;
        }
}

/* At the moment of a failure, which is not the one that is shown. */
static void look_at(struct vt_finding_builder *b, const struct vt_failure *own, struct told *told)
{
    const struct vt_moment *moment = vt_reading_moment(b->model->reading, own->moment);
    char name[sizeof moment->name + 1] = "";
    struct vt_model *shown = b->model, then;
    uint32_t before = b->findings->count;

    if (!moment || !moment->name[0])
        return;
    memcpy(name, moment->name, sizeof moment->name);
    if (vt_model_build(&then, shown->reading, name)) {
        b->no_memory = true;
        return;
    }
    vt_account_add_parts(&then, b->symbols);
    b->model = &then;
    look_back(b, own, name, told);
    bring_forward(b->findings, before);
    b->model = shown;
    vt_model_free(&then);
}

/* Is there a failure before this one that may have left something? */
static bool is_later(const struct vt_model *m, const struct vt_failure *own)
{
    uint32_t i;

    for (i = 0; i < m->failure_count; i++) {
        const struct vt_failure *failure = m->failures[i].record;

        if (failure != own && vt_failure_is_oom(failure->kind) && failure->python_stack &&
            failure->last_ns < own->first_ns)
            return true;
    }
    return false;
}

/* At a later out-of-memory, or when a program that caught the first one has ended well; in a report of the end, at each later one's
 * own moment as well. */
void vt_find_kept(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    const struct vt_header *h = vt_reading_header(m->reading);
    struct told told = {.count = 0};
    uint32_t i, looked = 0;

    if (m->recorded && m->recorded->kind == VT_MOMENT_OOM) {
        look_back(b, vt_reading_failure(m->reading, m->recorded->failure), NULL, &told);
        return;
    }
    if (!vt_is_final(m))
        return;
    if (m->end == VT_PROCESS_EXIT && !h->exit_code)
        look_back(b, NULL, NULL, &told);
    for (i = 0; i < m->failure_count && looked < LATER_MAX; i++)
        if (vt_failure_is_oom(m->failures[i].record->kind) && is_later(m, m->failures[i].record)) {
            look_at(b, m->failures[i].record, &told);
            looked++;
        }
}
