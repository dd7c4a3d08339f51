/*
 * Recordings with places of PyTorch's tensors, for the tests of categories.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_CATEGORY_FIXTURE_H
#define VRAMTRACK_TEST_CATEGORY_FIXTURE_H

#include <stdarg.h>

#include "analysis/category.h"
#include "test_analysis_fixture.h"

#define TORCH "/env/lib/python3.12/site-packages/torch/"
#define CACHING "torch.caching_allocator"

static struct fixture f;
static uint32_t total;

/* Level tensor on GPU 0; the run is past step 10, in no phase, and the newest step and stretch are at 1.9 s. */
static inline void begin(void)
{
    struct vt_device device = {.ordinal = 0, .total_bytes = 1ull << 40, .name = "Test GPU"};

    fixture_begin(&f);
    fixture_add(&f, VT_DEVICES, &device);
    total = fixture_total(&f, VT_LEVEL_TENSOR, VT_KIND_DEVICE, 0, 100 * MIB, 10, 100 * MIB, 100, 50);
    fixture_header(&f)->steps = 10;
    fixture_header(&f)->step_ns = 1700000000;
    fixture_header(&f)->stretch_ns = 1900000000;
}

/* A Python stack of (function, file) pairs, outermost first, up to a NULL. */
static inline uint32_t stack(const char *function, ...)
{
    va_list arguments;
    uint32_t id = 0;

    va_start(arguments, function);
    for (; function; function = va_arg(arguments, const char *))
        id = fixture_python(&f, id, va_arg(arguments, const char *), function, 7);
    va_end(arguments);
    return id;
}

#define LOOP "main", "/home/me/train.py"
#define CALL \
    "Module._wrapped_call_impl", TORCH "nn/modules/module.py", "Module._call_impl", TORCH "nn/modules/module.py"
#define FORWARD CALL, "Net.forward", "/home/me/net.py"
#define BACKWARD                                                                                             \
    "Tensor.backward", TORCH "_tensor.py", "backward", TORCH "autograd/__init__.py", "_engine_run_backward", \
        TORCH "autograd/graph.py"
#define STEP "profile_hook_step.<locals>.wrapper", TORCH "optim/optimizer.py", "AdamW.step", TORCH "optim/adamw.py"

/* A site with 10 MiB live; ended: how many MiB were freed with each fate. */
static inline uint32_t site(unsigned phase, uint32_t python, const char *api, const uint64_t ended[VT_FATE_COUNT])
{
    uint32_t index = fixture_site(&f, total, 0, api, 10 * MIB, 1, 10, 9);
    struct vt_site *s = site_record(&f, index);
    unsigned fate;

    s->phase = (uint8_t)phase;
    s->python_stack = python;
    s->free_calls = 0;
    for (fate = 0; fate < VT_FATE_COUNT; fate++) {
        s->ended[fate].bytes = ended[fate] * MIB;
        s->ended[fate].count = ended[fate];
        s->free_calls += ended[fate];
    }
    return index;
}

#define ENDED(...) ((const uint64_t[VT_FATE_COUNT]){__VA_ARGS__})
#define NOTHING ENDED(0, 0, 0, 0)
#define AT_ONCE ENDED(90, 0, 0, 0)
#define IN_BACKWARD ENDED(0, 90, 0, 0)
#define LATER ENDED(0, 0, 0, 90)

static inline struct vt_category_split split_at(uint32_t index, const char *moment)
{
    struct vt_category_split split;
    struct opened o;

    open_at(&o, &f, moment);
    split = vt_category_of(&o.a.model, vt_model_site(&o.a.model, index), NULL);
    close_it(&o);
    return split;
}

/* All 10 MiB are of this category. */
static inline void expect(uint32_t index, enum vt_category category)
{
    struct vt_category_split split = split_at(index, NULL);

    assert_string_equal(vt_category_name(split.main), vt_category_name(category));
    assert_int_equal(split.bytes[category], 10 * MIB);
    assert_non_null(split.reason);
}

#endif
