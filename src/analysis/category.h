/*
 * What a tensor is to a training program: a parameter, a gradient, optimizer state, an activation, an input, or none of
 * these. Judged per site by the phase in which it allocates, by when what it allocated ended (fates), and by its Python
 * stack (category_code.c); docs/categories.md gives the rules and their reasons.
 *
 * No state but what vt_category_prepare() leaves in the model; usable from any thread that may use the model.
 */
#ifndef VRAMTRACK_CATEGORY_H
#define VRAMTRACK_CATEGORY_H

#include "analysis/model.h"
#include "analysis/symbols.h"

enum vt_category {
    VT_CATEGORY_UNKNOWN,    /* nothing says what it is; the account counts it under "other" */
    VT_CATEGORY_PARAMETERS, /* and the buffers of modules */
    VT_CATEGORY_GRADIENTS,
    VT_CATEGORY_OPTIMIZER,
    VT_CATEGORY_ACTIVATIONS,
    VT_CATEGORY_INPUTS,
    VT_CATEGORY_OTHER, /* temporaries, workspaces, results that the program keeps */
    VT_CATEGORY_COUNT
};

/* "parameters", "gradients", "optimizer", "activations", "inputs", "other", "unknown". */
const char *vt_category_name(enum vt_category category);

struct vt_category_split {
    enum vt_category main;             /* of the largest part; of the site as a whole if nothing is live */
    uint64_t bytes[VT_CATEGORY_COUNT]; /* of row->live_bytes, whose sum they are */
    const char *reason;                /* a literal: which rule said so, for people */
};

/*
 * The categories of what the site of `row` held at the model's moment. Sites of level driver, and tensors of other
 * frameworks than PyTorch, are UNKNOWN as a whole. `symbols` is not used yet and may be NULL.
 */
struct vt_category_split vt_category_of(const struct vt_model *model, const struct vt_site_row *row,
                                        struct vt_symbols *symbols);

/* The same for all sites of level tensor on one device (-1: all) whose memory is the card's: what device.account.tensors
 * shows. UNKNOWN stays apart in `bytes`; callers that have no place for it add it to OTHER. */
void vt_category_sums(const struct vt_model *model, int device, struct vt_symbols *symbols,
                      uint64_t bytes[VT_CATEGORY_COUNT]);

/* Part of vt_model_build(), once the sites are there: sets model->parameters_ns. */
void vt_category_prepare(struct vt_model *model);

/* --- category_code.c: what the Python stack says. Internal; declared for the tests. --- */

#define VT_CODE_KNOWN 1u     /* there is a Python stack */
#define VT_CODE_MODULE 2u    /* inside the call of a module: forward, or its recomputation */
#define VT_CODE_PARAMETER 4u /* makes, moves or loads what modules hold */
#define VT_CODE_STATE 8u     /* sets up an optimizer's state */
#define VT_CODE_USER 16u     /* the innermost frame is the program's own */
#define VT_CODE_SHARDING 32u /* gathers or reduces for data parallel training */
#define VT_CODE_FSDP 64u     /* with SHARDING: PyTorch's kind that divides parameters and gradients among the ranks */
#define VT_CODE_ZERO 128u    /* with SHARDING: DeepSpeed's kind, which divides what it says by name and gradients */

/* Flags of the Python stack `stack` (frame id; 0: none). Frames outside of a backward that runs are not looked at. */
unsigned vt_category_code(const struct vt_reading *reading, uint32_t stack);

#endif
