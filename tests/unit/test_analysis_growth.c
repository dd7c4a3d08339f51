/*
 * What grows and what does not, on recordings shaped like programs that people reported: it is found, with the place and the
 * confidence that the evidence allows; parameters, optimizer states, caches and workspaces raise no alarm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_scene.h"

/* Validation without no_grad: 16 batches whose graphs are kept, beside temporaries. Likely without steps: nothing else keeps
 * several tensors from inside of modules in each round. */
static void test_validation_keeps_graphs(void **state)
{
    uint32_t weights, workspace, input, relu, output, square, total, i;
    const struct vt_finding *finding;

    (void)state;
    begin_with_segment();
    weights = library_place("make_model", 22, MODULE_PY, "Module._apply");
    workspace = tensor_place(&t, "warm_up", 27);
    site_record(&t.f, workspace)->api = fixture_string(&t.f, "torch.cublas_workspace");
    input = tensor_place(&t, "validate", 33);
    relu = library_place("validate", 34, MODULE_PY, "Module._call_impl");
    output = library_place("validate", 34, MODULE_PY, "Module._wrapped_call_impl");
    square = tensor_place(&t, "validate", 34);
    total = tensor_place(&t, "validate", 35);
    for (i = 0; i < 6; i++)
        keep(weights, 16 * MIB);
    for (i = 0; i < 4; i++)
        keep(workspace, 8 * MIB);
    for (i = 0; i < 16; i++) {
        keep(input, 16 * MIB);
        keep(relu, 16 * MIB);
        keep(relu, 16 * MIB);
        book(&t, square, 16 * MIB, false);
        keep(output, 16 * MIB);
        book(&t, total, 512, false);
    }
    finalize(&t);
    site_record(&t.f, input)->free_calls = 16; /* when the interpreter dropped its globals */
    look(NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "1.00 GiB in tensors of 2 places"));
    assert_non_null(strstr(finding->title, "graphs are kept, round by round"));
    assert_non_null(strstr(finding->advice[0].text, "loss.item()"));
    assert_true(names(finding, input) && names(finding, relu) && names(finding, output));
    assert_false(names(finding, weights) || names(finding, workspace) || names(finding, square) ||
                 names(finding, total));
    assert_int_equal(finding->advice[0].saves_bytes, GIB);
    assert_int_equal(vt_model_site(&o.a.model, input)->growth.bytes, 256 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, input)->growth.allocs, 16);
    assert_int_equal(vt_model_site(&o.a.model, input)->growth.steps, 0);
    assert_string_equal(vt_model_site(&o.a.model, input)->verdict, "growth");
    assert_false(has_family(&o, VT_FAMILY_LEAK));
}

/* Adam makes its state in the first step, and PyTorch's own code the parameters before: neither grows. `steps` of them. */
static void train_with_adam(uint32_t *weights, uint32_t *adam, unsigned steps)
{
    uint32_t activation, gradient;
    unsigned step, i;

    begin_with_segment();
    *weights = tensor_place(&t, "make_model", 18); /* nothing says that they are parameters */
    *adam = tensor_place(&t, "train_step", 26);
    activation = tensor_place(&t, "train_step", 24);
    gradient = tensor_place(&t, "train_step", 25);
    for (i = 0; i < 16; i++)
        keep(*weights, 16 * MIB);
    for (step = 0; step < steps; step++) {
        for (i = 0; i < 16; i++) {
            book(&t, activation, 512, false);
            book(&t, gradient, 16 * MIB, false);
        }
        for (i = 0; !step && i < 32; i++)
            keep(*adam, 16 * MIB);
        step_ends(&t);
    }
    finalize(&t);
}

static void test_optimizer_state(void **state)
{
    static const unsigned steps[] = {6, 40};
    uint32_t weights, adam;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        train_with_adam(&weights, &adam, steps[i]);
        look(NULL);
        check_no_alarm();
        assert_false(has_family(&o, VT_FAMILY_GROWTH)); /* not even possible */
        assert_int_equal(vt_model_site(&o.a.model, adam)->growth.bytes, 0);
        assert_int_equal(vt_model_site(&o.a.model, adam)->growth.steps, steps[i] / 2);
        assert_int_equal(vt_model_site(&o.a.model, weights)->growth.bytes, 0);
    }
}

/* Steps that keep something: every step, or every second one. */
static void test_growth_with_steps(void **state)
{
    uint32_t every, second, temporary, between, step;
    const struct vt_finding *finding;
    const struct vt_site_row *row;

    (void)state;
    begin_with_segment();
    every = tensor_place(&t, "train_step", 10);
    between = tensor_place(&t, "log_loss", 13);
    second = tensor_place(&t, "train_step", 11);
    temporary = tensor_place(&t, "train_step", 12);
    for (step = 0; step < 24; step++) {
        keep(every, 16 * MIB);
        if (step % 2)
            keep(second, 8 * MIB);
        book(&t, temporary, 64 * MIB, false);
        step_ends(&t);
        keep(between, 4 * MIB); /* behind the step's end: 24 of them belong to 24 steps all the same */
    }
    /* What the place with less held in time: intervals of 16 ms, of which the run has 7. */
    site_record(&t.f, second)->history_shift = 24;
    site_record(&t.f, second)->history_count = 10;
    for (step = 0; step < 10; step++)
        site_record(&t.f, second)->history[step] = step < 6 ? 0 : (step - 5) * 24 * MIB;
    finalize(&t);
    look(NULL);
    finding = find(&o, VT_FAMILY_GROWTH, VT_LIKELY);
    assert_non_null(finding);
    assert_true(names(finding, every));
    assert_false(names(finding, temporary));
    row = vt_model_site(&o.a.model, every);
    assert_int_equal(row->growth.bytes, 384 * MIB);
    assert_int_equal(row->growth.steps, 24);
    assert_true(row->growth.bytes_per_step == 16.0 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, between)->growth.steps, 24);
    assert_true(vt_model_site(&o.a.model, between)->growth.bytes_per_step == 4.0 * MIB);
    assert_non_null(strstr(finding->evidence[0], "16.00 MiB more per step over 24 steps"));
    row = vt_model_site(&o.a.model, second);
    assert_int_equal(row->growth.steps, 23);
    assert_true(names(finding, second));
    assert_false(has_family(&o, VT_FAMILY_LEAK)); /* the segment that they lie in is none */
}

/* Frees do not hide growth, and a sawtooth is none. Histories of 16 intervals; 16 steps, one per interval. */
static void test_growth_with_frees(void **state)
{
    uint32_t growing, sawtooth, step, i;

    (void)state;
    begin_with_segment();
    growing = tensor_place(&t, "train_step", 10);
    sawtooth = tensor_place(&t, "train_step", 11);
    for (step = 0; step < 16; step++) {
        t.now = ((uint64_t)step << 26) + 1000;
        keep(growing, 4 * MIB);
        book(&t, growing, 4 * MIB, false);
        book(&t, sawtooth, 64 * MIB, false);
        t.now = ((uint64_t)(step + 1) << 26) - SECOND / 1000;
        step_ends(&t);
    }
    for (i = 0; i < 8; i++)
        keep(sawtooth, 64 * MIB);
    for (i = 0; i < 16; i++) {
        site_record(&t.f, growing)->history[i] = (i + 1) * 4 * MIB;
        site_record(&t.f, sawtooth)->history[i] = i % 2 ? 64 * MIB : 512 * MIB;
    }
    site_record(&t.f, growing)->history_shift = site_record(&t.f, sawtooth)->history_shift = 26;
    site_record(&t.f, growing)->history_count = site_record(&t.f, sawtooth)->history_count = 16;
    t.now = 17ull << 26;
    finalize(&t);
    look(NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), growing));
    assert_false(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), sawtooth));
    assert_int_equal(vt_model_site(&o.a.model, growing)->growth.bytes, 32 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, growing)->growth.steps, 8);
}

/* Copies of weights that one region caches: they climb layer by layer, and are gone at its end. */
static void test_autocast_cache(void **state)
{
    uint32_t weights, copies, activation, slots[24], i, pass;

    (void)state;
    begin_with_segment();
    weights = tensor_place(&t, "make_model", 18);
    copies = tensor_place(&t, "infer", 25);
    activation = library_place("infer", 25, MODULE_PY, "Module._call_impl");
    for (i = 0; i < 24; i++)
        keep(weights, 16 * MIB);
    for (pass = 0; pass < 3; pass++)
        for (i = 0; i < 24; i++) {
            if (!pass)
                slots[i] = keep(copies, 8 * MIB);
            book(&t, activation, MIB, false);
        }
    for (i = 0; i < 24; i++)
        unlive(&t, slots[i]);
    finalize(&t);
    look(NULL);
    check_no_alarm();
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    assert_int_equal(vt_model_site(&o.a.model, copies)->record->peak_bytes, 192 * MIB);
}

/* One workspace per stream in the first round, none in the second: eight equal steps, but no trend. */
static void test_workspace_per_stream(void **state)
{
    uint32_t workspace, result[2], i, round;

    (void)state;
    begin_with_segment();
    workspace = tensor_place(&t, "multiply_on", 19);
    for (round = 0; round < 2; round++) {
        result[round] = tensor_place(&t, round ? "second" : "first", 19);
        for (i = 0; i < 8; i++) {
            if (!round)
                keep(workspace, 32 * MIB);
            book(&t, result[round], 4 * MIB, false);
            book(&t, result[round], 512, false);
        }
    }
    finalize(&t);
    look(NULL);
    check_no_alarm();
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
}

/* A list of views that keep large results, and nothing after it: found, if only as possible. An unfinished process has
 * not said its last word. */
static void test_views_keep_results(void **state)
{
    uint32_t logits, i;

    (void)state;
    begin_with_segment();
    logits = tensor_place(&t, "last_logits", 18);
    for (i = 0; i < 16; i++)
        keep(logits, 64 * MIB);
    finalize(&t);
    look(NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE), logits));
    check_no_alarm();
    look("peak");
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
}

/* Without steps, growth over minutes until the end is likely. */
static void test_growth_over_minutes(void **state)
{
    uint32_t cache, i;

    (void)state;
    begin_with_segment();
    cache = tensor_place(&t, "serve", 7);
    for (i = 0; i < 16; i++) {
        t.now = ((uint64_t)i << 35) + SECOND; /* 34 s each */
        keep(cache, 16 * MIB);
        site_record(&t.f, cache)->history[i] = (i + 1) * 16 * MIB;
    }
    site_record(&t.f, cache)->history_shift = 35;
    site_record(&t.f, cache)->history_count = 15;
    fixture_header(&t.f)->last_ns = fixture_header(&t.f)->end_ns = t.now + SECOND;
    look(NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), cache));
    /* The same, but all of it in the first half: a model that was loaded. */
    for (i = 0; i < 16; i++) {
        site_record(&t.f, cache)->history[i] = 256 * MIB;
        slot_record(&t, i + 1)->time_ns = SECOND + i;
    }
    look(NULL);
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_validation_keeps_graphs), SCENE(test_optimizer_state),     SCENE(test_growth_with_steps),
        SCENE(test_growth_with_frees),       SCENE(test_autocast_cache),      SCENE(test_workspace_per_stream),
        SCENE(test_views_keep_results),      SCENE(test_growth_over_minutes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
