/*
 * Categories of tensors (src/analysis/category.c, category_code.c): each rule on a recording made for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_category_fixture.h"

static void test_by_phase_and_fate(void **state)
{
    const struct {
        unsigned phase;
        const uint64_t *ended;
        enum vt_category category;
    } table[] = {
        {VT_PHASE_BACKWARD, LATER, VT_CATEGORY_GRADIENTS},
        {VT_PHASE_BACKWARD, ENDED(0, 0, 5, 0), VT_CATEGORY_GRADIENTS},
        {VT_PHASE_BACKWARD, NOTHING, VT_CATEGORY_GRADIENTS},             /* never zeroed */
        {VT_PHASE_BACKWARD, IN_BACKWARD, VT_CATEGORY_ACTIVATIONS},       /* the graph of a second backward */
        {VT_PHASE_BACKWARD, ENDED(900, 0, 0, 1), VT_CATEGORY_GRADIENTS}, /* outside backward no temporary is left */
        {VT_PHASE_OPTIMIZER, NOTHING, VT_CATEGORY_OPTIMIZER},
        {VT_PHASE_OPTIMIZER, AT_ONCE, VT_CATEGORY_OPTIMIZER}, /* live outside of the step: it outlived it */
        {VT_PHASE_DATA, LATER, VT_CATEGORY_INPUTS},
        {VT_PHASE_DATA, NOTHING, VT_CATEGORY_INPUTS},
        {VT_PHASE_ZERO_GRAD, NOTHING, VT_CATEGORY_OTHER},
        {VT_PHASE_NONE, IN_BACKWARD, VT_CATEGORY_ACTIVATIONS},
        {VT_PHASE_NONE, LATER, VT_CATEGORY_UNKNOWN}, /* without a stack: an input or a result */
        {VT_PHASE_NONE, AT_ONCE, VT_CATEGORY_OTHER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof table / sizeof *table; i++) {
        begin();
        expect(site(table[i].phase, 0, CACHING, table[i].ended), table[i].category);
        fixture_end(&f);
    }
}

static void test_by_code(void **state)
{
    const struct {
        enum vt_category category;
        unsigned phase;
        const uint64_t *ended;
        uint32_t stack;
    } table[] = {
        {VT_CATEGORY_PARAMETERS, 0, NOTHING, 1},
        {VT_CATEGORY_PARAMETERS, 0, NOTHING, 2},
        {VT_CATEGORY_PARAMETERS, 0, NOTHING, 3},
        {VT_CATEGORY_PARAMETERS, 0, NOTHING, 4},
        {VT_CATEGORY_PARAMETERS, 0, LATER, 1},
        {VT_CATEGORY_ACTIVATIONS, 0, IN_BACKWARD, 5},
        {VT_CATEGORY_ACTIVATIONS, 0, NOTHING, 5},
        {VT_CATEGORY_OTHER, 0, LATER, 5},
        {VT_CATEGORY_OTHER, 0, AT_ONCE, 5},
        {VT_CATEGORY_INPUTS, 0, LATER, 6},
        {VT_CATEGORY_UNKNOWN, 0, NOTHING, 6},
        {VT_CATEGORY_UNKNOWN, 0, LATER, 7},
        {VT_CATEGORY_ACTIVATIONS, 0, IN_BACKWARD, 7},
        {VT_CATEGORY_ACTIVATIONS, VT_PHASE_BACKWARD, AT_ONCE, 8},
        {VT_CATEGORY_GRADIENTS, VT_PHASE_BACKWARD, NOTHING, 9},
        {VT_CATEGORY_OPTIMIZER, VT_PHASE_OPTIMIZER, ENDED(90, 0, 0, 0), 10},
        {VT_CATEGORY_ACTIVATIONS, VT_PHASE_OPTIMIZER, IN_BACKWARD, 11},
        {VT_CATEGORY_OPTIMIZER, VT_PHASE_OPTIMIZER, NOTHING, 12},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof table / sizeof *table; i++) {
        uint32_t at = 0;

        begin();
        switch (table[i].stack) {
        case 1:
            at = stack(LOOP, "Module.to", TORCH "nn/modules/module.py", "Module._apply", TORCH "nn/modules/module.py",
                       "Module.to.<locals>.convert", TORCH "nn/modules/module.py", NULL);
            break;
        case 2:
            at = stack(LOOP, "Net.__init__", "/home/me/net.py", "Linear.__init__", TORCH "nn/modules/linear.py", NULL);
            break;
        case 3: /* before 3.11 names are not qualified */
            at = stack(LOOP, "from_pretrained", "/env/lib/python3.8/site-packages/transformers/modeling_utils.py",
                       NULL);
            break;
        case 4: /* a module is made inside of another one's forward */
            at = stack(LOOP, FORWARD, "Linear.__init__", TORCH "nn/modules/linear.py", "Linear.reset_parameters",
                       TORCH "nn/modules/linear.py", NULL);
            break;
        case 5:
            at = stack(LOOP, FORWARD, "relu", TORCH "nn/functional.py", NULL);
            break;
        case 6:
            at = stack(LOOP, NULL);
            break;
        case 7:
            at = stack(LOOP, "cross_entropy", TORCH "nn/functional.py", NULL);
            break;
        case 8: /* a checkpoint computes forward again */
            at = stack(LOOP, BACKWARD, "unpack_hook", TORCH "utils/checkpoint.py", FORWARD, NULL);
            break;
        case 9: /* a trainer that is a module itself calls backward */
            at = stack(LOOP, FORWARD, BACKWARD, NULL);
            break;
        case 10:
            at = stack(LOOP, STEP, "AdamW._init_group", TORCH "optim/adamw.py", NULL);
            break;
        case 11: /* a closure */
            at = stack(LOOP, STEP, "closure", "/home/me/train.py", FORWARD, NULL);
            break;
        case 12: /* such a trainer calls the optimizer */
            at = stack(LOOP, FORWARD, STEP, "_multi_tensor_adamw", TORCH "optim/adamw.py", NULL);
            break;
        }
        expect(site(table[i].phase, at, CACHING, table[i].ended), table[i].category);
        fixture_end(&f);
    }
}

/* What the recording's other programs have is none of it: other frameworks, the driver, workspaces. */
static void test_by_allocator(void **state)
{
    uint32_t jax, workspace, driver;

    (void)state;
    begin();
    jax = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), "jax", IN_BACKWARD);
    workspace = site(VT_PHASE_BACKWARD, 0, "torch.cublas_workspace", NOTHING);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 10 * MIB, 1, 10 * MIB, 1, 0);
    driver = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), "cudaMalloc", NOTHING);
    expect(jax, VT_CATEGORY_UNKNOWN);
    expect(workspace, VT_CATEGORY_OTHER);
    expect(driver, VT_CATEGORY_UNKNOWN);
    fixture_end(&f);
}

/* A place with several kinds of tensors: divided as those that have ended were. */
static void test_mixture(void **state)
{
    struct vt_category_split split;
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), CACHING, ENDED(500, 60, 0, 20));
    split = split_at(index, NULL);
    assert_int_equal(split.main, VT_CATEGORY_ACTIVATIONS);
    assert_int_equal(split.bytes[VT_CATEGORY_ACTIVATIONS], 10 * MIB * 3 / 4);
    assert_int_equal(split.bytes[VT_CATEGORY_OTHER], 10 * MIB / 4);
    fixture_end(&f);
}

/* At the peak it is on record what became of each byte. */
static void test_peak(void **state)
{
    struct vt_category_split split;
    struct vt_site *s;
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_BACKWARD, 0, CACHING, ENDED(900, 0, 0, 50));
    s = site_record(&f, index);
    s->at_peak_bytes = 10 * MIB;
    s->ended[VT_FATE_STRETCH].at_peak_bytes = 3 * MIB;
    s->ended[VT_FATE_LATER].at_peak_bytes = 5 * MIB;
    ((struct vt_scope *)fixture_record(&f, VT_SCOPES, s->scope))->peak_phase = VT_PHASE_BACKWARD;
    split = split_at(index, "peak");
    assert_int_equal(split.bytes[VT_CATEGORY_OTHER], 3 * MIB);
    assert_int_equal(split.bytes[VT_CATEGORY_GRADIENTS], 7 * MIB); /* 2 MiB live still, and backward is over */
    fixture_end(&f);
}

/* A moment inside backward: what has only ever been temporary there is so again; what has no history stays. */
static void test_moment_inside_backward(void **state)
{
    struct vt_moment moment = {.name = "oom-1",
                               .kind = VT_MOMENT_OOM,
                               .failure = VT_NONE,
                               .time_ns = 1800000000,
                               .steps = 10,
                               .step_ns = 1700000000,
                               .stretch_ns = 1750000000,
                               .phase = VT_PHASE_BACKWARD,
                               .sites = 2};
    struct vt_moment_site held = {.live_bytes = 10 * MIB, .live_count = 1};
    uint32_t temporary, gradient;

    (void)state;
    begin();
    temporary = site(VT_PHASE_BACKWARD, 0, CACHING, AT_ONCE);
    gradient = site(VT_PHASE_BACKWARD, 0, CACHING, NOTHING);
    fixture_add(&f, VT_MOMENTS, &moment);
    held.site = temporary;
    fixture_add(&f, VT_MOMENT_SITES, &held);
    held.site = gradient;
    fixture_add(&f, VT_MOMENT_SITES, &held);
    assert_int_equal(split_at(temporary, "oom-1").main, VT_CATEGORY_OTHER);
    assert_int_equal(split_at(gradient, "oom-1").main, VT_CATEGORY_GRADIENTS);
    fixture_end(&f);
}

/* Before anything has ended: what the program itself makes after the model is the batch; before it, nobody knows. */
static void test_first_step(void **state)
{
    uint32_t before, after, parameters;

    (void)state;
    begin();
    before = site(VT_PHASE_NONE, stack(LOOP, NULL), CACHING, NOTHING);
    parameters = site(VT_PHASE_NONE, stack(LOOP, "Module._apply", TORCH "nn/modules/module.py", NULL), CACHING,
                      NOTHING);
    after = site(VT_PHASE_NONE, stack(LOOP, NULL), CACHING, NOTHING);
    site_record(&f, before)->first_ns = 100;
    site_record(&f, parameters)->first_ns = 200;
    site_record(&f, after)->first_ns = 300;
    expect(before, VT_CATEGORY_UNKNOWN);
    expect(parameters, VT_CATEGORY_PARAMETERS);
    expect(after, VT_CATEGORY_INPUTS);
    fixture_end(&f);
}

/* The steps of begin() ended at 0.1, 0.2 ... 1.0 s. */
static void add_steps(void)
{
    uint64_t i;

    for (i = 1; i <= 10; i++) {
        struct vt_step step = {.end_ns = i * 100000000};

        fixture_add(&f, VT_STEPS, &step);
    }
}

/* A place of the program itself that made `made` tensors from `from` to `to`, of which `live` (10 MiB together) are kept. */
static uint32_t collecting(uint64_t from, uint64_t to, uint64_t made, uint64_t live, const uint64_t *ended)
{
    uint32_t index = site(0, stack(LOOP, NULL), CACHING, ended);
    struct vt_site *s = site_record(&f, index);
    struct vt_slot slot = {.address = 0x7f0000000000ull,
                           .bytes = 10 * MIB / live,
                           .requested = 10 * MIB / live,
                           .time_ns = to,
                           .site = index,
                           .kind = VT_KIND_DEVICE};

    s->first_ns = from;
    s->last_ns = to;
    s->alloc_calls = made;
    s->live_count = live;
    fixture_add(&f, VT_LIVE, &slot);
    return index;
}

/* An input is gone after its step or the next; what a place makes step by step and keeps for many of them is none. */
static void test_collected(void **state)
{
    const struct {
        uint64_t from, to, made, live;
        const uint64_t *ended;
        enum vt_category category;
    } table[] = {
        {50000000, 950000000, 10, 10, NOTHING, VT_CATEGORY_OTHER},             /* one a step, all kept */
        {50000000, 950000000, 10, 9, ENDED(0, 0, 0, 1), VT_CATEGORY_OTHER},    /* so one was replaced */
        {50000000, 950000000, 20, 15, ENDED(0, 0, 5, 0), VT_CATEGORY_OTHER},   /* two a step */
        {50000000, 950000000, 10, 1, LATER, VT_CATEGORY_INPUTS},               /* replaced */
        {50000000, 950000000, 10, 3, LATER, VT_CATEGORY_INPUTS},               /* held two steps longer */
        {50000000, 950000000, 10, 5, LATER, VT_CATEGORY_INPUTS},               /* fetched four steps ahead */
        {50000000, 950000000, 80, 8, ENDED(0, 0, 72, 0), VT_CATEGORY_INPUTS},  /* eight parts of a step's batch */
        {50000000, 60000000, 100, 100, NOTHING, VT_CATEGORY_UNKNOWN},          /* a validation set, made at once */
        {850000000, 950000000, 10, 10, ENDED(0, 0, 0, 0), VT_CATEGORY_UNKNOWN} /* in two steps */
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof table / sizeof *table; i++) {
        begin();
        add_steps();
        expect(collecting(table[i].from, table[i].to, table[i].made, table[i].live, table[i].ended), table[i].category);
        fixture_end(&f);
    }
}

/* Without steps: what rises evenly until the moment, and of which nothing was freed. */
static void test_collected_without_steps(void **state)
{
    uint32_t index, i, at_once;

    (void)state;
    for (at_once = 0; at_once < 2; at_once++) {
        begin();
        fixture_header(&f)->steps = 0;
        fixture_header(&f)->step_ns = 0;
        index = collecting(1 << 20, 1900000000, 16, 16, NOTHING);
        site_record(&f, index)->history_shift = 27;
        site_record(&f, index)->history_count = 14;
        for (i = 0; i < 14; i++)
            site_record(&f, index)->history[i] = at_once ? 10 * MIB : 10 * MIB * (i + 1) / 15;
        expect(index, at_once ? VT_CATEGORY_UNKNOWN : VT_CATEGORY_OTHER);
        fixture_end(&f);
    }
}

/* What a module's forward made in an earlier step and kept (a table, a cache) is no activation of this one. */
static void test_kept_by_forward(void **state)
{
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), CACHING, NOTHING);
    site_record(&f, index)->last_ns = 1600000000;
    expect(index, VT_CATEGORY_OTHER);
    fixture_end(&f);
}

/* A program in C++: memory from before the first step that nobody ever frees is the model. */
static void test_parameters_without_python(void **state)
{
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_NONE, 0, CACHING, NOTHING);
    site_record(&f, index)->last_ns = 1000;
    expect(index, VT_CATEGORY_PARAMETERS);
    fixture_header(&f)->steps = 0;
    fixture_header(&f)->step_ns = 0;
    expect(index, VT_CATEGORY_UNKNOWN);
    fixture_end(&f);
}

/* A site with nothing live has the category of what it mostly made. */
static void test_nothing_live(void **state)
{
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), CACHING, ENDED(10, 80, 0, 0));
    site_record(&f, index)->live_bytes = 0;
    assert_int_equal(split_at(index, NULL).main, VT_CATEGORY_ACTIVATIONS);
    fixture_end(&f);
}

/* Figures of a damaged recording: what is divided adds up, however large it is said to be. */
static void test_absurd_bytes(void **state)
{
    struct vt_category_split split;
    uint32_t index;

    (void)state;
    begin();
    index = site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), CACHING, ENDED(0, 1ull << 43, 0, 1));
    site_record(&f, index)->live_bytes = UINT64_MAX;
    site_record(&f, index)->ended[VT_FATE_LATER].bytes = 1;
    split = split_at(index, NULL);
    assert_int_equal(split.main, VT_CATEGORY_ACTIVATIONS);
    assert_int_equal(split.bytes[VT_CATEGORY_ACTIVATIONS] + split.bytes[VT_CATEGORY_OTHER], UINT64_MAX);
    fixture_end(&f);
}

/* Sums over sites are the model's total, and damaged records do no harm. */
static void test_sums(void **state)
{
    uint64_t bytes[VT_CATEGORY_COUNT], sum = 0;
    struct opened o;
    uint32_t index;
    unsigned c;

    (void)state;
    begin();
    site(VT_PHASE_NONE, stack(LOOP, FORWARD, NULL), CACHING, ENDED(0, 7, 2, 4));
    site(VT_PHASE_BACKWARD, 0, CACHING, LATER);
    index = site(200, 0, CACHING, ENDED(UINT64_MAX >> 20, UINT64_MAX >> 20, UINT64_MAX >> 20, UINT64_MAX >> 20));
    site_record(&f, index)->python_stack = 4000000;
    for (c = 0; c < VT_FATE_COUNT; c++)
        site_record(&f, index)->ended[c].at_peak_bytes = UINT64_MAX;
    open_at(&o, &f, "peak");
    vt_category_sums(&o.a.model, 0, NULL, bytes);
    for (c = 0; c < VT_CATEGORY_COUNT; c++)
        sum += bytes[c];
    assert_int_equal(sum, 30 * MIB);
    vt_category_sums(&o.a.model, 1, NULL, bytes);
    for (sum = 0, c = 0; c < VT_CATEGORY_COUNT; c++)
        sum += bytes[c];
    assert_int_equal(sum, 0);
    close_it(&o);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_phase_and_fate),
        cmocka_unit_test(test_by_code),
        cmocka_unit_test(test_by_allocator),
        cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_moment_inside_backward),
        cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_kept_by_forward),
        cmocka_unit_test(test_collected),
        cmocka_unit_test(test_collected_without_steps),
        cmocka_unit_test(test_parameters_without_python),
        cmocka_unit_test(test_nothing_live),
        cmocka_unit_test(test_absurd_bytes),
        cmocka_unit_test(test_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
