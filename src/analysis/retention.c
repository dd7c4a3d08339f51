/*
 * Kinds of retention; see retention.h.
 */
#include "analysis/retention.h"

#include <string.h>

#include "analysis/category.h"
#include "analysis/frameworks.h"

static const struct {
    const char *words, *advice;
} known[VT_RETENTION_COUNT] = {
    [VT_RETAINED_GRAPH] =
        {"made in a module's forward and kept beyond it, as what is saved for backward is",
         "Something keeps autograd graphs alive: add up losses as numbers (loss.item()), carry states "
         "on with .detach(), validate under torch.no_grad(), and drop outputs (del) when they are "
         "used up."},
    [VT_RETAINED_BACKWARD] = {"made in backward and kept",
                              "Something keeps what backward made: check retain_graph=True and create_graph=True, and "
                              "gradients that are stored (clone them to the host, or detach())."},
    [VT_RETAINED_HOOK] = {"made in a hook and kept",
                          "A hook stores tensors: keep .detach().cpu() copies or numbers, and remove the hook "
                          "(handle.remove()) when it is done."},
    [VT_RETAINED_COPY] = {"copies of what modules hold",
                          "Copies of a model are kept: move them to the host (.cpu()) or to a file, and keep the best "
                          "one alone."},
    [VT_RETAINED_DATA] =
        {"made while data was fetched, and kept",
         "Batches are kept: leave the data on the host, move one batch at a time, and drop it after its "
         "step."},
    [VT_RETAINED_RESULT] = {"made by the program itself and kept",
                            "Look for what keeps them: a list or dict that grows, losses summed up as tensors (.item() "
                            "gives the number), a state that is not detached (.detach()), validation without "
                            "torch.no_grad(), a view of a large result (.clone() keeps the part alone). Results that "
                            "are meant to be kept can go to the host (.cpu())."},
    [VT_RETAINED_MEMORY] = {"allocated by the program's own calls", "Free what these places allocate in each round."},
};

const char *vt_retention_words(enum vt_retention retention)
{
    return known[retention].words;
}

static const char in_tensorflow[] =
    "Look for what keeps them: a list or dict that grows, losses summed up as tensors (float() gives the number), a "
    "GradientTape that is persistent, a tf.function that is traced anew for each Python argument (each trace keeps its "
    "constants). Results that are meant to be kept can go to the host (.numpy()).";

const char *vt_retention_advice(enum vt_retention retention, unsigned frameworks)
{
    if (retention == VT_RETAINED_RESULT && frameworks == 1u << VT_FRAMEWORK_TENSORFLOW)
        return in_tensorflow;
    return known[retention].advice;
}

/* Does a function on the Python stack call itself a hook? torch's own (torch/utils/hooks.py) stand between the caller and
 * one; those of users mostly have it in their name. */
static bool in_hook(const struct vt_reading *r, uint32_t stack)
{
    const struct vt_frame *frame;
    const struct vt_code *code;
    uint32_t frames[VT_STACK_FRAMES_MAX], count = vt_reading_stack(r, stack, frames, VT_STACK_FRAMES_MAX), i;

    for (i = 0; i < count; i++) {
        if (!(frame = vt_reading_frame(r, frames[i])) || !(code = vt_reading_frame_code(r, frame)))
            continue;
        if (strstr(vt_reading_chars(r, code->file), "torch/utils/hooks.py") ||
            strstr(vt_reading_chars(r, code->function), "hook"))
            return true;
        if (strstr(vt_reading_chars(r, code->file), "torch/nn/modules/"))
            return false; /* hooks further out called this module, and do not hold what it makes */
    }
    return false;
}

enum vt_retention vt_retention_of(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;
    unsigned code;

    if (site->level != VT_LEVEL_TENSOR)
        return VT_RETAINED_MEMORY;
    code = vt_category_code(m->reading, site->python_stack);
    if (in_hook(m->reading, site->python_stack))
        return VT_RETAINED_HOOK;
    if (site->phase == VT_PHASE_BACKWARD)
        return VT_RETAINED_BACKWARD;
    if (code & VT_CODE_PARAMETER)
        return VT_RETAINED_COPY;
    if (code & VT_CODE_MODULE)
        return VT_RETAINED_GRAPH;
    return site->phase == VT_PHASE_DATA ? VT_RETAINED_DATA : VT_RETAINED_RESULT;
}
