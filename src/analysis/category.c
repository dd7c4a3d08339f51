/*
 * The rules; see category.h and docs/categories.md.
 *
 * A site has one rule: what its allocations are by how they end (a fate), and what those are that nobody has seen the end
 * of. At the peak the ends are on record; at other moments the live bytes are divided as the site's freed ones were: a
 * temporary is rarely live, so the history of temporaries counts only if there is no other.
 */
#include "analysis/category.h"

#include <string.h>

#include "analysis/births.h"

/*
 * An input is gone after its step or the next, a prefetched one some steps later. What a place holds for longer than this, on
 * the average (by how many it makes in a step, and how many are live), is something that the program collects.
 */
#define KEPT_STEPS 6
#define KEPT_MIN 8 /* live; without steps */

#define U VT_CATEGORY_UNKNOWN
#define P VT_CATEGORY_PARAMETERS
#define G VT_CATEGORY_GRADIENTS
#define S VT_CATEGORY_OPTIMIZER
#define A VT_CATEGORY_ACTIVATIONS
#define I VT_CATEGORY_INPUTS
#define O VT_CATEGORY_OTHER

struct rule {
    enum vt_category of[VT_FATE_COUNT]; /* stretch, backward, step, later */
    enum vt_category open;              /* of what has not ended */
    const char *reason;
};

static const struct rule not_torch = {{U, U, U, U}, U, "no tensor of PyTorch"};
static const struct rule workspace = {{O, O, O, O}, O, "a workspace of cuBLAS"};
static const struct rule parameter = {{P, P, P, P}, P, "made, moved or loaded by a module"};
static const struct rule sharding = {{O, O, O, O}, O, "a buffer of data parallel training"};
static const struct rule shard = {{P, P, P, P}, P, "this rank's part of parameters"};
static const struct rule gradient_shard = {{O, O, G, G}, G, "allocated by FSDP or ZeRO in backward; outlives it"};
static const struct rule gradient = {{O, A, G, G}, G, "allocated in backward; outlives it"};
static const struct rule recomputed = {{A, A, O, O}, A, "forward, computed again in backward"};
static const struct rule state = {{O, A, S, S}, S, "allocated in the optimizer's step; outlives it"};
static const struct rule initial = {{S, S, S, S}, S, "set up by the optimizer"};
static const struct rule zeroing = {{O, O, O, O}, O, "allocated while gradients were zeroed"};
static const struct rule data = {{O, A, I, I}, I, "allocated while data was fetched"};
static const struct rule forward = {{O, A, O, O}, A, "allocated in a module's forward; ends in backward"};
static const struct rule kept = {{O, A, O, O}, O, "allocated in a module's forward; kept since an earlier step"};
static const struct rule loop = {{O, A, I, I}, U, "allocated by the program itself; replaced in a later step"};
static const struct rule first_inputs = {{O, A, I, I}, I, "allocated by the program itself after the parameters"};
static const struct rule collected = {{O, A, O, O}, O, "allocated by the program itself again and again, and kept"};
static const struct rule library_code = {{O, A, U, U}, U, "allocated by a function of PyTorch outside of modules"};
static const struct rule no_python = {{O, A, U, U}, U, "without a Python stack"};
static const struct rule persistent = {
    {O, A, U, U}, P, "without a Python stack; allocated before the first step and kept"};

#undef U
#undef P
#undef G
#undef S
#undef A
#undef I
#undef O

/* What the recording says of the instant that the model shows. */
struct instant {
    uint64_t step_ns, steps;
    uint32_t phase;
    bool at_peak;
};

static struct instant instant_of(const struct vt_model *m, const struct vt_site *site)
{
    const struct vt_header *h = vt_reading_header(m->reading);
    const struct vt_scope *scope = vt_reading_scope(m->reading, site->scope);
    struct instant now = {h->step_ns, h->steps, h->phase, false};

    if (m->recorded)
        now = (struct instant){m->recorded->step_ns, m->recorded->steps, m->recorded->phase, false};
    else if (!strcmp(m->moment, "peak") && scope) {
        now = (struct instant){0, vt_model_steps_until(m->reading, scope->peak_ns), scope->peak_phase, true};
        now.step_ns = now.steps ? vt_model_step_end(m->reading, now.steps - 1) : 0;
    }
    return now;
}

/* The same phase as at the instant: what is live may be a temporary of it. */
static bool may_be_temporary(const struct vt_model *m, const struct vt_site *site, const struct instant *now)
{
    const struct vt_scope *scope = vt_reading_scope(m->reading, site->scope);

    if (now->at_peak && scope && vt_reading_header(m->reading)->stretch_ns > scope->peak_ns)
        return false; /* it is live still, and that stretch is over */
    return site->phase == now->phase;
}

/* Does a place make things step by step and keep them? What was made in one step (a validation set) may be inputs for long. */
static bool is_collected(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;
    uint64_t first, made, all, newest = row->newest_ns ? row->newest_ns : vt_model_last_ns(m, row);

    if (row->live_count < KEPT_STEPS || newest < site->first_ns || site->last_ns < newest)
        return false;
    if (!vt_reading_header(m->reading)->steps)
        return row->live_count >= KEPT_MIN && vt_model_never_freed(row) && vt_births_curve_rises(m, row);
    first = vt_model_steps_until(m->reading, site->first_ns);
    made = vt_model_steps_until(m->reading, newest) - first + 1;
    all = vt_model_steps_until(m->reading, site->last_ns) - first + 1;
    return made >= KEPT_STEPS && (double)row->live_count * (double)all >= KEPT_STEPS * (double)site->alloc_calls;
}

static const struct rule *rule_in_forward(const struct vt_model *m, const struct vt_site_row *row, unsigned code,
                                          const struct instant *now)
{
    const struct vt_site *site = row->record;

    if (code & VT_CODE_PARAMETER)
        return &parameter;
    if (code & VT_CODE_FSDP && !(code & VT_CODE_MODULE)) /* inside a module's call it gathers, around it it divides */
        return &shard;
    if (code & VT_CODE_STATE)
        return &initial;
    if (code & VT_CODE_SHARDING)
        return &sharding;
    if (code & VT_CODE_MODULE)
        return site->last_ns < now->step_ns ? &kept : &forward;
    if (!(code & VT_CODE_KNOWN))
        return now->steps && !site->free_calls && site->last_ns < now->step_ns ? &persistent : &no_python;
    if (!(code & VT_CODE_USER))
        return &library_code;
    if (is_collected(m, row))
        return &collected;
    return m->parameters_ns && site->first_ns > m->parameters_ns ? &first_inputs : &loop;
}

static bool is_torch(const struct vt_reading *r, const struct vt_site *site)
{
    return site->level == VT_LEVEL_TENSOR && !strncmp(vt_reading_chars(r, site->api), "torch.", 6);
}

static const struct rule *rule_of(const struct vt_model *m, const struct vt_site_row *row, const struct instant *now)
{
    const struct vt_site *site = row->record;
    unsigned code;

    if (!is_torch(m->reading, site))
        return &not_torch;
    if (!strcmp(vt_reading_chars(m->reading, site->api), "torch.cublas_workspace"))
        return &workspace;
    code = vt_category_code(m->reading, site->python_stack);
    switch (site->phase) {
    case VT_PHASE_BACKWARD:
        return code & (VT_CODE_FSDP | VT_CODE_ZERO) ? &gradient_shard
               : code & VT_CODE_SHARDING            ? &sharding
               : code & VT_CODE_MODULE              ? &recomputed
                                                    : &gradient;
    case VT_PHASE_OPTIMIZER: /* a closure runs forward inside the optimizer's step */
        return code & VT_CODE_STATE ? &initial : code & VT_CODE_MODULE ? rule_in_forward(m, row, code, now) : &state;
    case VT_PHASE_ZERO_GRAD:
        return &zeroing;
    case VT_PHASE_DATA:
        return &data;
    default:
        return rule_in_forward(m, row, code, now);
    }
}

/* Divides `bytes` among the categories of a rule as the site's freed bytes are, from fate `first` on. False: nothing was. */
static bool divide(struct vt_category_split *split, const struct rule *rule, const struct vt_fate_sum *ended,
                   unsigned first, uint64_t bytes)
{
    double sum = 0, share;
    uint64_t left = bytes, part;
    unsigned fate, last = VT_FATE_COUNT;

    for (fate = first; fate < VT_FATE_COUNT; fate++) {
        sum += (double)ended[fate].bytes;
        if (ended[fate].bytes)
            last = fate;
    }
    if (last == VT_FATE_COUNT)
        return false;
    for (fate = first; fate <= last; fate++) {
        share = (double)bytes * ((double)ended[fate].bytes / sum);
        part = fate == last || share >= (double)left ? left
                                                     : (uint64_t)share; /* what a damaged file says may not fit */
        split->bytes[rule->of[fate]] += part;
        left -= part;
    }
    return true;
}

/* What has not ended, as far as the recording goes: as the others ended, or as the rule says of what stays. */
static void split_open(struct vt_category_split *split, const struct rule *rule, const struct vt_site *site,
                       uint64_t bytes, bool may_be_temporary)
{
    if (rule != &collected && divide(split, rule, site->ended, VT_FATE_BACKWARD, bytes))
        return; /* how the few ended that were not kept says nothing of those that were */
    if (may_be_temporary && rule != &workspace && site->ended[VT_FATE_STRETCH].bytes >= bytes && bytes)
        split->bytes[rule->of[VT_FATE_STRETCH]] += bytes;
    else
        split->bytes[rule->open] += bytes;
}

static enum vt_category largest(const uint64_t *bytes)
{
    enum vt_category best = VT_CATEGORY_UNKNOWN;
    unsigned c;

    for (c = 0; c < VT_CATEGORY_COUNT; c++)
        if (bytes[c] > bytes[best])
            best = (enum vt_category)c;
    return best;
}

struct vt_category_split vt_category_of(const struct vt_model *m, const struct vt_site_row *row,
                                        struct vt_symbols *symbols)
{
    const struct vt_site *site = row->record;
    struct instant now = instant_of(m, site);
    const struct rule *rule = rule_of(m, row, &now);
    struct vt_category_split split = {.reason = rule->reason}, whole = {.reason = NULL};
    uint64_t left = row->live_bytes, part;
    unsigned fate;

    (void)symbols;
    for (fate = 0; now.at_peak && fate < VT_FATE_COUNT; fate++) {
        part = site->ended[fate].at_peak_bytes < left ? site->ended[fate].at_peak_bytes : left;
        split.bytes[rule->of[fate]] += part;
        left -= part;
    }
    if (left)
        split_open(&split, rule, site, left, may_be_temporary(m, site, &now));
    split.main = largest(split.bytes);
    if (!row->live_bytes)
        split.main = divide(&whole, rule, site->ended, 0, 1u << 20) ? largest(whole.bytes) : rule->open;
    return split;
}

void vt_category_sums(const struct vt_model *m, int device, struct vt_symbols *symbols,
                      uint64_t bytes[VT_CATEGORY_COUNT])
{
    struct vt_category_split split;
    uint32_t i, c;

    memset(bytes, 0, VT_CATEGORY_COUNT * sizeof *bytes);
    for (i = 0; i < m->site_count; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (row->record->level != VT_LEVEL_TENSOR || !row->live_bytes ||
            (device >= 0 && row->record->device != device) || !vt_kind_is_memory(row->record->kind) ||
            vt_class_of(row->record->kind) != VT_CLASS_DEVICE)
            continue;
        split = vt_category_of(m, row, symbols);
        for (c = 0; c < VT_CATEGORY_COUNT; c++)
            bytes[c] += split.bytes[c];
    }
}

void vt_category_prepare(struct vt_model *m)
{
    uint32_t i;

    m->parameters_ns = 0;
    for (i = 0; i < m->site_count; i++) {
        const struct vt_site *site = m->sites[i].record;

        if (is_torch(m->reading, site) && site->phase == VT_PHASE_NONE && site->first_ns > m->parameters_ns &&
            vt_category_code(m->reading, site->python_stack) & VT_CODE_PARAMETER)
            m->parameters_ns = site->first_ns;
    }
}

const char *vt_category_name(enum vt_category category)
{
    static const char *const names[VT_CATEGORY_COUNT] = {
        [VT_CATEGORY_UNKNOWN] = "unknown",
        [VT_CATEGORY_PARAMETERS] = "parameters",
        [VT_CATEGORY_GRADIENTS] = "gradients",
        [VT_CATEGORY_OPTIMIZER] = "optimizer",
        [VT_CATEGORY_ACTIVATIONS] = "activations",
        [VT_CATEGORY_INPUTS] = "inputs",
        [VT_CATEGORY_OTHER] = "other",
    };

    return (unsigned)category < VT_CATEGORY_COUNT ? names[category] : names[VT_CATEGORY_UNKNOWN];
}
