/*
 * What the Python stack of a tensor says: PyTorch's own functions on it, known by file and name. The names are those of
 * torch 1.13 to 2.15 (torch/nn/modules/module.py, torch/nn/parameter.py, torch/optim, torch/autograd, torch/utils/
 * checkpoint.py) and of transformers' loading; a name that is gone only makes a category unknown.
 */
#include <string.h>

#include "analysis/category.h"

static const struct {
    const char *function; /* the last part of a qualified name */
    const char *file;     /* a part of the path */
    unsigned flag;
} known[] = {
    {"_call_impl", "torch/nn/modules/module.py", VT_CODE_MODULE},
    {"_wrapped_call_impl", "torch/nn/modules/module.py", VT_CODE_MODULE},

    {"_apply", "torch/nn/modules/module.py", VT_CODE_PARAMETER},
    {"to_empty", "torch/nn/modules/module.py", VT_CODE_PARAMETER},
    {"load_state_dict", "torch/nn/modules/module.py", VT_CODE_PARAMETER},
    {"_load_from_state_dict", "torch/nn/modules/module.py", VT_CODE_PARAMETER},
    {"reset_parameters", "", VT_CODE_PARAMETER},
    {"_reset_parameters", "", VT_CODE_PARAMETER},
    {"__init__", "torch/nn/modules/", VT_CODE_PARAMETER},
    {"__new__", "torch/nn/parameter.py", VT_CODE_PARAMETER},
    {"__deepcopy__", "torch/nn/parameter.py", VT_CODE_PARAMETER},
    {"materialize", "torch/nn/parameter.py", VT_CODE_PARAMETER},
    {"from_pretrained", "transformers/", VT_CODE_PARAMETER},
    {"_load_pretrained_model", "transformers/", VT_CODE_PARAMETER},

    {"_init_group", "torch/optim/", VT_CODE_STATE},

    {"flatten_dense_tensors_aligned", "deepspeed/runtime/", VT_CODE_PARAMETER},
    {"defragment", "deepspeed/runtime/zero/", VT_CODE_PARAMETER},
    {"_create_fp16_partitions_with_defragmentation", "deepspeed/runtime/zero/", VT_CODE_PARAMETER},
    {"_create_fp32_partitions", "deepspeed/runtime/zero/",
     VT_CODE_STATE}, /* parameters again, for the optimizer alone */
    {"__init__", "deepspeed/runtime/zero/stage_1_and_2.py", VT_CODE_STATE},
    {"_setup_for_real_optimizer", "deepspeed/runtime/bf16_optimizer.py", VT_CODE_STATE},
};

/* Backward or the optimizer's step was entered here: what lies further out called it and says nothing about what it does. */
static bool enters(const char *function, const char *file)
{
    return (!strcmp(function, "_engine_run_backward") && strstr(file, "torch/autograd/")) ||
           ((!strcmp(function, "backward") || !strcmp(function, "grad")) &&
            strstr(file, "torch/autograd/__init__.py")) ||
           (strstr(file, "torch/optim/") && strcmp(function, "_init_group"));
}

static bool is_torch(const char *file)
{
    return strstr(file, "/torch/") || strstr(file, "/torchvision/") || strstr(file, "/transformers/") || file[0] == '<';
}

static const char *last_part(const char *qualified)
{
    const char *dot = strrchr(qualified, '.');

    return dot ? dot + 1 : qualified;
}

static unsigned flags_of(const char *function, const char *file)
{
    unsigned flags = 0;
    size_t i;

    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        if (function[0] == known[i].function[0] && !strcmp(function, known[i].function) && strstr(file, known[i].file))
            flags |= known[i].flag;
    if (strstr(file, "torch/distributed/") || strstr(file, "torch/nn/parallel/"))
        flags |= VT_CODE_SHARDING;
    if (strstr(file, "torch/distributed/fsdp/") || strstr(file, "torch/distributed/_composable/fsdp"))
        flags |= VT_CODE_FSDP;
    if (strstr(file, "deepspeed/runtime/"))
        flags |= VT_CODE_SHARDING | VT_CODE_ZERO;
    return flags;
}

unsigned vt_category_code(const struct vt_reading *r, uint32_t stack)
{
    const struct vt_frame *frame;
    const struct vt_code *code;
    unsigned flags = 0, of;
    uint32_t n;

    for (n = 0; n < VT_STACK_FRAMES_MAX && (frame = vt_reading_frame(r, stack)); n++) {
        if ((code = vt_reading_frame_code(r, frame))) {
            const char *function = last_part(vt_reading_chars(r, code->function)),
                       *file = vt_reading_chars(r, code->file);

            if (!flags)
                flags = VT_CODE_KNOWN | (is_torch(file) ? 0 : VT_CODE_USER);
            if (enters(function, file))
                break;
            if (!strcmp(function, "setup_buckets") && strstr(file, "deepspeed/runtime/")) {
                flags |= VT_CODE_SHARDING; /* gradients pass through it, whoever called it */
                break;
            }
            of = flags_of(function, file);
            if (of & VT_CODE_PARAMETER && flags & VT_CODE_MODULE) /* it stands around the call, it does not make it */
                of &= ~VT_CODE_PARAMETER;
            if (of & VT_CODE_MODULE && flags & VT_CODE_PARAMETER) /* and the other way round */
                of &= ~VT_CODE_MODULE;
            if (of & VT_CODE_SHARDING &&
                flags & VT_CODE_MODULE) /* the wrapper around a model, not what it makes itself */
                of &= ~(VT_CODE_SHARDING | VT_CODE_FSDP | VT_CODE_ZERO);
            if (of & VT_CODE_STATE && flags & VT_CODE_PARAMETER) /* DeepSpeed's optimizer flattens them itself */
                of &= ~VT_CODE_STATE;
            flags |= of;
        }
        if (frame->parent >= stack)
            break;
        stack = frame->parent;
    }
    return flags;
}
