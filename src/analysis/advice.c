/*
 * Measures against too little memory, with the bytes that each would have saved; see advice.h. How large a share a measure
 * reaches is what its makers and practice say, on the cautious side; each constant tells.
 */
#include "analysis/advice.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"

/* Half of the batch: activations and inputs are in proportion to it. */
#define BATCH_DIVISOR 2

/* Checkpointing keeps about 2 * sqrt(n) of n layers; of the 16 layers of a small network that is a half, of more less. */
#define CHECKPOINT_DIVISOR 2

/* bf16 and fp16 have two bytes instead of four. */
#define HALF_PRECISION_DIVISOR 2

/* Of a context with all kernels loaded at once; PyTorch measured 667 MB, and 287 MB without (its pull request 86509). */
#define LAZY_DIVISOR 2

/* One byte of state instead of four. */
#define EIGHT_BIT_SAVES(bytes) ((bytes) / 4 * 3)

#define RANKS_SUPPOSED 2 /* where the program has one rank: what two GPUs would bring */
#define CODES_MAX 100000 /* looked at for what is in use already */

/* What the recorded code shows to be in use. */
#define USES_CHECKPOINT 1u
#define USES_AUTOCAST 2u
#define USES_SHARDING 4u
#define USES_LIGHT_OPTIMIZER 8u

static const struct {
    const char *file;
    unsigned use;
} uses[] = {
    {"/torch/utils/checkpoint.py", USES_CHECKPOINT},
    {"/torch/amp/autocast_mode.py", USES_AUTOCAST},
    {"/torch/distributed/fsdp/", USES_SHARDING},
    {"/torch/distributed/_composable/fsdp/", USES_SHARDING},
    {"/torch/distributed/optim/zero_redundancy_optimizer.py", USES_SHARDING},
    {"/deepspeed/runtime/zero/", USES_SHARDING},
    {"/bitsandbytes/optim/", USES_LIGHT_OPTIMIZER},
    {"/adafactor.py", USES_LIGHT_OPTIMIZER},
    {"/_adafactor.py", USES_LIGHT_OPTIMIZER},
};

static unsigned uses_of(const struct vt_reading *reading)
{
    const struct vt_code *code;
    unsigned found = 0;
    uint64_t i;
    size_t k;

    for (i = 0; i < CODES_MAX && (code = vt_reading_record(reading, VT_CODES, i)); i++)
        for (k = 0; k < sizeof uses / sizeof uses[0]; k++)
            if (strstr(vt_reading_chars(reading, code->file), uses[k].file))
                found |= uses[k].use;
    return found;
}

/* What tensors held by category, and how the program trains. */
struct holdings {
    uint64_t weights, gradients, optimizer, activations, inputs;
    bool trains; /* else nothing shows it */
    unsigned uses;
    unsigned phase;
    uint64_t steps;
};

static struct holdings holdings_of(const struct vt_refusal *r)
{
    const uint64_t *part = r->device->tensor_part;
    const struct vt_moment *moment = r->then->recorded;
    struct holdings h = {part[VT_PART_PARAMETERS],  part[VT_PART_GRADIENTS],
                         part[VT_PART_OPTIMIZER],   part[VT_PART_ACTIVATIONS],
                         part[VT_PART_INPUTS],      false,
                         uses_of(r->then->reading), moment ? moment->phase : VT_PHASE_NONE,
                         moment ? moment->steps : 0};

    h.trains = h.gradients || h.optimizer || h.steps || h.phase == VT_PHASE_BACKWARD || h.phase == VT_PHASE_OPTIMIZER;
    return h;
}

static void advise_activations(struct vt_finding_builder *b, struct vt_finding *finding, const struct holdings *h)
{
    char bytes[VT_FORMAT_BYTES];
    uint64_t batch = h->activations + h->inputs;

    if (batch / BATCH_DIVISOR >= VT_WORTH)
        vt_add_advice(b, finding, batch / BATCH_DIVISOR,
                      "Halve the batch (or the sequence length, the resolution): %s of activations and inputs are in "
                      "proportion to it.%s",
                      vt_format_bytes(bytes, batch),
                      h->trains ? " Accumulating gradients over 2 steps trains on as many samples." : "");
    if (h->activations / CHECKPOINT_DIVISOR >= VT_WORTH && !(h->uses & USES_CHECKPOINT) && h->trains)
        vt_add_advice(b, finding, h->activations / CHECKPOINT_DIVISOR,
                      "Activation checkpointing (torch.utils.checkpoint): activations from O(layers) towards "
                      "O(sqrt(layers)), for about 30 %% more compute.");
    if (h->activations / HALF_PRECISION_DIVISOR >= VT_WORTH && !(h->uses & USES_AUTOCAST))
        vt_add_advice(b, finding, h->activations / HALF_PRECISION_DIVISOR,
                      "Mixed precision (torch.autocast with bfloat16): about half of the activations, if they are fp32 "
                      "so far (the recording doesn't say).");
}

static uint64_t sharded(uint64_t bytes, uint64_t ranks)
{
    return bytes - bytes / ranks;
}

/* ZeRO and FSDP: what each of `ranks` GPUs keeps no more. */
static void advise_sharding(struct vt_finding_builder *b, struct vt_finding *finding, const struct holdings *h,
                            const struct vt_header *header)
{
    bool several = header->world_size > 1;
    uint64_t ranks = several ? (uint64_t)header->world_size : RANKS_SUPPOSED,
             all = h->weights + h->gradients + h->optimizer;
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES];

    if (h->uses & USES_SHARDING || !h->trains || sharded(all, ranks) < VT_WORTH)
        return;
    vt_add_advice(b, finding, sharded(all, ranks),
                  "Shard over %s%llu GPUs: ZeRO-1 saves %s on each, ZeRO-2 %s, ZeRO-3 or FSDP %s.",
                  several ? "the " : "", (unsigned long long)ranks, vt_format_bytes(one, sharded(h->optimizer, ranks)),
                  vt_format_bytes(two, sharded(h->optimizer + h->gradients, ranks)),
                  vt_format_bytes(three, sharded(all, ranks)));
}

static void advise_optimizer(struct vt_finding_builder *b, struct vt_finding *finding, const struct holdings *h)
{
    if (h->optimizer >= VT_WORTH)
        vt_add_advice(
            b, finding, h->optimizer,
            "Keep the optimizer's state in host memory (offload_optimizer of DeepSpeed, CPUOffloadOptimizer of "
            "torchao): costs as much page-locked memory, and time on PCIe.");
    if (EIGHT_BIT_SAVES(h->optimizer) >= VT_WORTH && !(h->uses & USES_LIGHT_OPTIMIZER))
        vt_add_advice(
            b, finding, EIGHT_BIT_SAVES(h->optimizer),
            "A lighter optimizer: 8-bit states (bitsandbytes' Adam8bit) or factored ones (Adafactor) instead of "
            "fp32.");
    /* The loop over all parameters at once has temporaries as large as these (PyTorch's notes on foreach). */
    if (h->phase == VT_PHASE_OPTIMIZER && h->weights >= VT_WORTH)
        vt_add_advice(
            b, finding, h->weights,
            "foreach=False (or fused=True) of the optimizer: no temporaries as large as the parameters in its "
            "step.");
}

static void advise_gradients(struct vt_finding_builder *b, struct vt_finding *finding, const struct holdings *h)
{
    /* Live gradients in a forward pass: zeroed instead of dropped, or accumulated on purpose. */
    if (h->gradients >= VT_WORTH && h->steps && (h->phase == VT_PHASE_NONE || h->phase == VT_PHASE_DATA))
        vt_add_advice(b, finding, h->gradients,
                      "zero_grad(set_to_none=True) right after the optimizer's step: gradients were held during the "
                      "forward pass (needed there only if they are accumulated).");
}

static void advise_weights(struct vt_finding_builder *b, struct vt_finding *finding, const struct holdings *h)
{
    if (h->trains || h->weights / 2 < VT_WORTH)
        return;
    vt_add_advice(b, finding, h->weights / 2,
                  "Load the weights with half the bits: bf16 if they are fp32, 8 bits if they are bf16.");
    vt_add_advice(b, finding, h->weights / 2, "Spread the layers over a second GPU or the host (device_map=\"auto\").");
}

/* cuBLAS's workspaces that PyTorch makes as tensors: one per handle and stream. */
static void advise_workspaces(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    uint64_t bytes = 0;
    uint32_t i;

    for (i = 0; i < r->then->site_count; i++)
        if (r->then->sites[i].record->device == r->failure->device &&
            !strcmp(vt_reading_chars(r->then->reading, r->then->sites[i].record->api), "torch.cublas_workspace"))
            bytes += r->then->sites[i].live_bytes;
    if (bytes >= VT_WORTH && !vt_setting_has(r->then->reading, "CUBLAS_WORKSPACE_CONFIG", ""))
        vt_add_advice(b, finding, bytes,
                      "Smaller workspaces of cuBLAS: CUBLAS_WORKSPACE_CONFIG=:16:8 (they are kept per handle and "
                      "stream).");
}

/* A framework gives back what it can before it gives up; for other code's requests nobody asks it to. */
static void advise_cache(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    if (r->pools && r->pools->known && r->frameworks & 1u << VT_FRAMEWORK_TORCH &&
        !vt_asked_by_framework(b->model, r) && r->pools->releasable >= VT_WORTH)
        vt_add_advice(b, finding, r->pools->releasable,
                      "torch.cuda.empty_cache() before this call: it does not come from PyTorch, which kept unused "
                      "segments.");
}

/* All kernels of all libraries are loaded at once, if that was asked for; from CUDA 12.2 on, it is not the default. */
static void advise_loading(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    char bytes[VT_FORMAT_BYTES];

    if (r->device->context_known && r->device->context / LAZY_DIVISOR >= VT_WORTH &&
        vt_setting_has(b->model->reading, "CUDA_MODULE_LOADING", "EAGER"))
        vt_add_advice(b, finding, r->device->context / LAZY_DIVISOR,
                      "CUDA_MODULE_LOADING=LAZY instead of EAGER: kernels are loaded when they are used. Context and "
                      "code take %s.",
                      vt_format_bytes(bytes, r->device->context));
}

/* Programs whose tensors are not known: the place that holds most. */
static void advise_largest(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    const struct vt_site_row *row;
    char place[VT_PLACE_BYTES];
    uint32_t i;

    for (i = 0; i < r->then->site_count; i++) {
        row = &r->then->sites[i];
        if (!row->live_bytes || row->record->device != r->failure->device || !vt_kind_is_memory(row->record->kind) ||
            vt_class_of(row->record->kind) != VT_CLASS_DEVICE || (row->pool && r->pools))
            continue;
        vt_add_advice(b, finding, row->live_bytes, "Make the largest holder smaller, or free it before: %s.",
                      vt_place_of(b, place, row->record->stack, row->record->python_stack));
        return;
    }
}

void vt_advise_measures(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    struct holdings h;

    if (!r->then || !r->device)
        return;
    h = holdings_of(r);
    advise_activations(b, finding, &h);
    advise_optimizer(b, finding, &h);
    advise_gradients(b, finding, &h);
    advise_sharding(b, finding, &h, vt_reading_header(r->then->reading));
    advise_weights(b, finding, &h);
    advise_workspaces(b, finding, r);
    advise_cache(b, finding, r);
    advise_loading(b, finding, r);
    if (!finding->advice_count)
        advise_largest(b, finding, r);
}

static const struct {
    const char *name; /* how the module's name begins */
    uint64_t divisor; /* of its bytes, what the measure saves */
    const char *setting, *text;
} libraries[] = {
    {"libnccl", 2, "NCCL_BUFFSIZE",
     "NCCL: half the buffers (NCCL_BUFFSIZE=2097152), fewer channels (NCCL_MAX_NCHANNELS) and communicators that share "
     "(ncclCommSplit)."},
    {"libcublas", 1, "CUBLAS_WORKSPACE_CONFIG",
     "cuBLAS: smaller workspaces (CUBLAS_WORKSPACE_CONFIG=:16:8), fewer handles and streams."},
    {"libcufft", 1, NULL, "cuFFT: keep fewer plans (torch.backends.cuda.cufft_plan_cache.max_size, cufftDestroy)."},
    {"libcudnn", 1, NULL, "cuDNN: smaller workspaces (torch.backends.cudnn.benchmark = False)."},
};

void vt_advise_libraries(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    const struct vt_reading *reading = b->model->reading;
    uint64_t bytes, others = 0;
    uint32_t i;
    size_t k;

    for (k = 0; k < sizeof libraries / sizeof libraries[0]; k++) {
        for (bytes = 0, i = 0; i < r->device->library_count; i++) {
            const struct vt_module *module = vt_reading_module(reading, r->device->libraries[i].module);
            const char *name = module ? vt_basename(vt_reading_chars(reading, module->path)) : "";

            if (!strncmp(name, libraries[k].name, strlen(libraries[k].name)))
                bytes += r->device->libraries[i].bytes;
        }
        if (bytes / libraries[k].divisor >= VT_WORTH &&
            !(libraries[k].setting && vt_setting_has(reading, libraries[k].setting, "")))
            vt_add_advice(b, finding, bytes / libraries[k].divisor, "%s", libraries[k].text);
    }
    advise_loading(b, finding, r);
    others = r->device->application;
    if (others >= VT_WORTH)
        vt_add_advice(b, finding, others,
                      "Let the program's own driver calls take memory from %s instead, or free it before this point.",
                      r->framework);
}

void vt_advice_order(struct vt_finding *finding, uint64_t missing)
{
    uint32_t i, j;

    for (i = 1; i < finding->advice_count; i++)
        for (j = i; j && finding->advice[j - 1].saves_bytes < finding->advice[j].saves_bytes; j--) {
            struct vt_advice other = finding->advice[j];

            finding->advice[j] = finding->advice[j - 1];
            finding->advice[j - 1] = other;
        }
    for (i = 0; i < finding->advice_count; i++)
        finding->advice[i].enough = missing && finding->advice[i].saves_bytes >= missing;
    while (finding->advice_count > VT_ADVICE_MAX)
        free(finding->advice[--finding->advice_count].text);
}
