/*
 * A card that is full of tensors: what they are (or that each step kept some), and what would help, with its bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_verdict_fixture.h"

/* Twelve steps; each keeps a GiB, or the first one makes all of it. */
static void twelve_steps(bool grows)
{
    uint32_t outputs, temporary, step, i;

    begin();
    hold(&t, segment_place(&t, "main", 1), next, 15 * GIB);
    keep(tensor_place(&t, "main", 2), 3 * GIB);
    outputs = tensor_place(&t, "train_step", 12);
    temporary = tensor_place(&t, "train_step", 13);
    for (step = 0; step < 12; step++) {
        for (i = 0; i < (grows ? 1 : step ? 0 : 12); i++)
            keep(outputs, GIB);
        book(&t, temporary, 64 * MIB, false);
        step_ends(&t);
    }
    driver_refuses(GIB, 512 * MIB);
    moment_record(0)->steps = 12;
    moment_record(0)->step_ns = fixture_header(&t.f)->step_ns;
}

static void test_growth(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    twelve_steps(true);
    look("oom-1");
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(
        finding->title,
        "GPU 0 filled up step by step: 12.00 GiB of the 15.00 GiB in tensors came in 12 steps and stayed.");
    assert_true(says(finding, "12.00 GiB in 12 by train_step (train.py:12): 1.00 GiB more per step."));
    check_advice(finding, ".item()", 12 * GIB, true);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    twelve_steps(false);
    look("oom-1");
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
}

/* What tensors are, in GiB: the card is full of that. */
struct parts {
    uint32_t weights, gradients, optimizer, activations;
};

/* A place in a module of PyTorch's, called from a line of the training step. */
static uint32_t module_place(const char *inner, uint32_t line)
{
    return library_place("train_step", line, MODULE_PY, inner);
}

static struct vt_failure *full_of(struct parts parts, enum vt_phase phase)
{
    uint64_t sum = parts.weights + parts.gradients + parts.optimizer + parts.activations;
    uint32_t site;
    struct vt_failure *failure;

    begin();
    fixture_header(&t.f)->world_size = -1;
    hold(&t, segment_place(&t, "main", 1), next, sum * GIB);
    if (parts.weights)
        keep(module_place("Module._apply", 10), parts.weights * GIB);
    if (parts.gradients) {
        site = tensor_place(&t, "train_step", 25);
        site_record(&t.f, site)->phase = VT_PHASE_BACKWARD;
        keep(site, parts.gradients * GIB);
    }
    if (parts.optimizer) {
        site = tensor_place(&t, "train_step", 26);
        site_record(&t.f, site)->phase = VT_PHASE_OPTIMIZER;
        keep(site, parts.optimizer * GIB);
    }
    if (parts.activations)
        keep(module_place("Module._call_impl", 24), parts.activations * GIB);
    failure = driver_refuses(GIB, 512 * MIB);
    moment_record(0)->phase = phase;
    return failure;
}

static void test_activations(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    full_of((struct parts){.weights = 2, .gradients = 2, .optimizer = 3, .activations = 8}, VT_PHASE_BACKWARD);
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "GPU 0 was full: 1.00 GiB did not fit. Most of it were activations: 8.00 GiB of "
                        "15.00 GiB in tensors.");
    assert_true(says(finding, "Of 15.00 GiB in tensors: 2.00 GiB parameters, 2.00 GiB gradients, 3.00 GiB optimizer "
                              "state, 8.00 GiB activations."));
    assert_int_equal(finding->advice_count, 5);
    assert_non_null(strstr(finding->advice[0].text, "Halve the batch"));
    assert_non_null(strstr(finding->advice[0].text, "Accumulating gradients over 2 steps"));
    check_advice(finding, "Halve the batch", 4 * GIB, true);
    check_advice(finding, "torch.utils.checkpoint", 4 * GIB, true);
    check_advice(finding, "torch.autocast", 4 * GIB, true);
    check_advice(finding, "over 2 GPUs: ZeRO-1 saves 1.50 GiB on each, ZeRO-2 2.50 GiB, ZeRO-3 or FSDP 3.50 GiB",
                 3584 * MIB, true);
    check_advice(finding, "offload_optimizer", 3 * GIB, true);
    assert_null(advice(finding, "set_to_none")); /* gradients have to be there in backward */

    /* Measures that are in use already are not named; ranks are those of the run. */
    fixture_python(&t.f, 0, "/env/torch/utils/checkpoint.py", "checkpoint", 1);
    fixture_python(&t.f, 0, "/env/torch/amp/autocast_mode.py", "decorate_autocast", 1);
    fixture_header(&t.f)->world_size = 4;
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_null(advice(finding, "torch.utils.checkpoint"));
    assert_null(advice(finding, "torch.autocast"));
    check_advice(finding, "over the 4 GPUs", 5376 * MIB, true);
    check_advice(finding, "Adam8bit", 2304 * MIB, true);
}

static void test_optimizer_state(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure *failure;

    (void)state;
    failure = full_of((struct parts){.weights = 4, .gradients = 4, .optimizer = 7}, VT_PHASE_OPTIMIZER);
    failure->requested_bytes = 6 * GIB;
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were optimizer state: 7.00 GiB of 15.00 GiB"));
    check_advice(finding, "offload_optimizer", 7 * GIB, true);
    check_advice(finding, "Adam8bit", 5376 * MIB, false); /* 5.5 GiB were missing */
    check_advice(finding, "foreach=False", 4 * GIB, false);
    assert_null(advice(finding, "Halve the batch"));
    assert_null(advice(finding, "Load the weights"));
}

/* Gradients in a forward pass were zeroed instead of dropped. */
static void test_gradients(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    full_of((struct parts){.weights = 5, .gradients = 7, .activations = 3}, VT_PHASE_NONE);
    moment_record(0)->steps = 3;
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were gradients: 7.00 GiB"));
    check_advice(finding, "set_to_none=True", 7 * GIB, true);
    assert_null(advice(finding, "offload_optimizer"));
}

static void test_weights(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    full_of((struct parts){.weights = 15}, VT_PHASE_NONE);
    look("oom-1");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were weights: 15.00 GiB"));
    check_advice(finding, "Load the weights with half the bits", 7680 * MIB, true);
    check_advice(finding, "device_map", 7680 * MIB, true);
    assert_int_equal(finding->advice_count, 2); /* nothing is trained */
}

/* The report of the whole run looks at the failure as it was then. */
static void test_at_the_end(void **state)
{
    const struct vt_finding *finding;

    (void)state;
    full_of((struct parts){.weights = 2, .activations = 13}, VT_PHASE_NONE);
    unlive(&t, 2);
    finalize(&t);
    look(NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_non_null(strstr(finding->title, "Most of it were activations: 13.00 GiB of 15.00 GiB"));
    check_advice(finding, "Halve the batch", 6656 * MIB, true);
    assert_null(advice(finding, "Accumulating")); /* nothing shows that it trains */
}

/* The next attempt succeeded: nothing failed. */
static void test_retry(void **state)
{
    (void)state;
    full_of((struct parts){.activations = 15}, VT_PHASE_NONE)->kind = VT_FAILURE_RETRY;
    moment_record(0)->name[0] = '\0';
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_CAPACITY));
    assert_false(has_family(&o, VT_FAMILY_OTHER_PROCESS));
}

/* Counts that a damaged file claims cost no time. */
static void test_counts_that_lie(void **state)
{
    size_t i;
    static const char *const moments[] = {"oom-1", "end"};

    (void)state;
    full_of((struct parts){.activations = 15}, VT_PHASE_NONE);
    refused(&t, python_line(&t, 0, "again", 40), GIB, "oom-2");
    moment_record(0)->totals = moment_record(0)->sites = 1ull << 60;
    for (i = 0; i < 2; i++) {
        look(moments[i]);
        assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    }
}

/* PyTorch says what it had reserved. Libraries' memory beside that is this process's too: counted once, and the free memory that
 * was read at that instant stays what was read. */
static void test_libraries_beside_a_refusal(void **state)
{
    const struct vt_device_row *d;

    (void)state;
    begin();
    fill(4 * GIB);
    keep(native_place(t.driver, 0x900), GIB);
    refused(&t, python_line(&t, 0, "train_step", 31), 2 * GIB, "oom-1");
    failure_record(0)->reserved_bytes = 4 * GIB;
    failure_record(0)->total_bytes = 16 * GIB;
    failure_record(0)->free_bytes = 10 * GIB;
    assert_true(says(verdict(VT_FAMILY_LIMIT), "Of the 6.00 GiB in use, this process had allocated 5.00 GiB"));
    look_away();
    look("oom-1");
    d = &o.a.model.devices[0];
    assert_int_equal(d->free, 10 * GIB);
    assert_false(d->free_computed);
    assert_int_equal(d->unaccounted, GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_growth),    SCENE(test_activations),     SCENE(test_optimizer_state),
        SCENE(test_gradients), SCENE(test_weights),         SCENE(test_at_the_end),
        SCENE(test_retry),     SCENE(test_counts_that_lie), SCENE(test_libraries_beside_a_refusal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
