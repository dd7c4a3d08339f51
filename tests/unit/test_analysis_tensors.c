/*
 * Findings about tensors, on recordings shaped like programs that people reported: what grows is found, with the place and
 * the confidence that the evidence allows; parameters, optimizer states, caches and workspaces raise no alarm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_tensor_fixture.h"

#define MODULE_PY "/env/lib/python3.12/site-packages/torch/nn/modules/module.py"

static bool names(const struct vt_finding *finding, uint32_t site)
{
    uint32_t i;

    for (i = 0; finding && i < finding->site_count; i++)
        if (finding->sites[i] == site)
            return true;
    return false;
}

static void check_no_alarm(const struct opened *o)
{
    assert_false(has_family(o, VT_FAMILY_LEAK));
    assert_null(find(o, VT_FAMILY_GROWTH, VT_LIKELY));
    assert_null(find(o, VT_FAMILY_GROWTH, VT_CERTAIN));
}

/* A place in PyTorch's code, called from a line of the program: a module's forward, or its moving of parameters. */
static uint32_t library_place(struct tensors *t, const char *function, uint32_t line, const char *file,
                              const char *inner)
{
    uint32_t own = python_line(t, python_line(t, 0, "<module>", 99), function, line);

    return place(t, t->tensor, 0, fixture_python(&t->f, own, file, inner, 100));
}

/* The segment that everything lies in. */
static void begin(struct tensors *t)
{
    tensors_begin(t);
    hold(t, segment_place(t, "main", 1), BASE, 8 * GIB);
}

static uint64_t next; /* address of the next tensor */

static uint32_t keep(struct tensors *t, uint32_t site, uint64_t bytes)
{
    next += bytes;
    return hold(t, site, BASE + next - bytes, bytes);
}

/* Validation without no_grad: 16 batches whose graphs are kept, beside temporaries. Likely without steps: nothing else keeps
 * several tensors from inside of modules in each round. */
static void test_validation_keeps_graphs(void **state)
{
    uint32_t weights, workspace, input, relu, output, square, total, i;
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    weights = library_place(&t, "make_model", 22, MODULE_PY, "Module._apply");
    workspace = tensor_place(&t, "warm_up", 27);
    site_record(&t.f, workspace)->api = fixture_string(&t.f, "torch.cublas_workspace");
    input = tensor_place(&t, "validate", 33);
    relu = library_place(&t, "validate", 34, MODULE_PY, "Module._call_impl");
    output = library_place(&t, "validate", 34, MODULE_PY, "Module._wrapped_call_impl");
    square = tensor_place(&t, "validate", 34);
    total = tensor_place(&t, "validate", 35);
    for (i = 0; i < 6; i++)
        keep(&t, weights, 16 * MIB);
    for (i = 0; i < 4; i++)
        keep(&t, workspace, 8 * MIB);
    for (i = 0; i < 16; i++) {
        keep(&t, input, 16 * MIB);
        keep(&t, relu, 16 * MIB);
        keep(&t, relu, 16 * MIB);
        book(&t, square, 16 * MIB, false);
        keep(&t, output, 16 * MIB);
        book(&t, total, 512, false);
    }
    finalize(&t);
    site_record(&t.f, input)->free_calls = 16; /* when the interpreter dropped its globals */
    open_at(&o, &t.f, NULL);
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
    close_it(&o);
    tensors_end(&t);
}

/* Adam makes its state in the first step, and PyTorch's own code the parameters before: neither grows. `steps` of them. */
static void train_with_adam(struct tensors *t, uint32_t *weights, uint32_t *adam, unsigned steps)
{
    uint32_t activation, gradient;
    unsigned step, i;

    next = 0;
    begin(t);
    *weights = tensor_place(t, "make_model", 18); /* nothing says that they are parameters */
    *adam = tensor_place(t, "train_step", 26);
    activation = tensor_place(t, "train_step", 24);
    gradient = tensor_place(t, "train_step", 25);
    for (i = 0; i < 16; i++)
        keep(t, *weights, 16 * MIB);
    for (step = 0; step < steps; step++) {
        for (i = 0; i < 16; i++) {
            book(t, activation, 512, false);
            book(t, gradient, 16 * MIB, false);
        }
        for (i = 0; !step && i < 32; i++)
            keep(t, *adam, 16 * MIB);
        step_ends(t);
    }
    finalize(t);
}

static void test_optimizer_state(void **state)
{
    static const unsigned steps[] = {6, 40};
    uint32_t weights, adam;
    struct opened o;
    struct tensors t;
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        train_with_adam(&t, &weights, &adam, steps[i]);
        open_at(&o, &t.f, NULL);
        check_no_alarm(&o);
        assert_false(has_family(&o, VT_FAMILY_GROWTH)); /* not even possible */
        assert_int_equal(vt_model_site(&o.a.model, adam)->growth.bytes, 0);
        assert_int_equal(vt_model_site(&o.a.model, adam)->growth.steps, steps[i] / 2);
        assert_int_equal(vt_model_site(&o.a.model, weights)->growth.bytes, 0);
        close_it(&o);
        tensors_end(&t);
    }
}

/* Steps that keep something: every step, or every second one. */
static void test_growth_with_steps(void **state)
{
    uint32_t every, second, temporary, between, step;
    const struct vt_finding *finding;
    const struct vt_site_row *row;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    every = tensor_place(&t, "train_step", 10);
    between = tensor_place(&t, "log_loss", 13);
    second = tensor_place(&t, "train_step", 11);
    temporary = tensor_place(&t, "train_step", 12);
    for (step = 0; step < 24; step++) {
        keep(&t, every, 16 * MIB);
        if (step % 2)
            keep(&t, second, 8 * MIB);
        book(&t, temporary, 64 * MIB, false);
        step_ends(&t);
        keep(&t, between, 4 * MIB); /* behind the step's end: 24 of them belong to 24 steps all the same */
    }
    /* What the place with less held in time: intervals of 16 ms, of which the run has 7. */
    site_record(&t.f, second)->history_shift = 24;
    site_record(&t.f, second)->history_count = 10;
    for (step = 0; step < 10; step++)
        site_record(&t.f, second)->history[step] = step < 6 ? 0 : (step - 5) * 24 * MIB;
    finalize(&t);
    open_at(&o, &t.f, NULL);
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
    close_it(&o);
    tensors_end(&t);
}

/* Frees do not hide growth, and a sawtooth is none. Histories of 16 intervals; 16 steps, one per interval. */
static void test_growth_with_frees(void **state)
{
    uint32_t growing, sawtooth, step, i;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    growing = tensor_place(&t, "train_step", 10);
    sawtooth = tensor_place(&t, "train_step", 11);
    for (step = 0; step < 16; step++) {
        t.now = ((uint64_t)step << 26) + 1000;
        keep(&t, growing, 4 * MIB);
        book(&t, growing, 4 * MIB, false);
        book(&t, sawtooth, 64 * MIB, false);
        t.now = ((uint64_t)(step + 1) << 26) - SECOND / 1000;
        step_ends(&t);
    }
    for (i = 0; i < 8; i++)
        keep(&t, sawtooth, 64 * MIB);
    for (i = 0; i < 16; i++) {
        site_record(&t.f, growing)->history[i] = (i + 1) * 4 * MIB;
        site_record(&t.f, sawtooth)->history[i] = i % 2 ? 64 * MIB : 512 * MIB;
    }
    site_record(&t.f, growing)->history_shift = site_record(&t.f, sawtooth)->history_shift = 26;
    site_record(&t.f, growing)->history_count = site_record(&t.f, sawtooth)->history_count = 16;
    t.now = 17ull << 26;
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), growing));
    assert_false(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), sawtooth));
    assert_int_equal(vt_model_site(&o.a.model, growing)->growth.bytes, 32 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, growing)->growth.steps, 8);
    close_it(&o);
    tensors_end(&t);
}

/* Copies of weights that one region caches: they climb layer by layer, and are gone at its end. */
static void test_autocast_cache(void **state)
{
    uint32_t weights, copies, activation, slots[24], i, pass;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    weights = tensor_place(&t, "make_model", 18);
    copies = tensor_place(&t, "infer", 25);
    activation = library_place(&t, "infer", 25, MODULE_PY, "Module._call_impl");
    for (i = 0; i < 24; i++)
        keep(&t, weights, 16 * MIB);
    for (pass = 0; pass < 3; pass++)
        for (i = 0; i < 24; i++) {
            if (!pass)
                slots[i] = keep(&t, copies, 8 * MIB);
            book(&t, activation, MIB, false);
        }
    for (i = 0; i < 24; i++)
        unlive(&t, slots[i]);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    check_no_alarm(&o);
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    assert_int_equal(vt_model_site(&o.a.model, copies)->record->peak_bytes, 192 * MIB);
    close_it(&o);
    tensors_end(&t);
}

/* One workspace per stream in the first round, none in the second: eight equal steps, but no trend. */
static void test_workspace_per_stream(void **state)
{
    uint32_t workspace, result[2], i, round;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    workspace = tensor_place(&t, "multiply_on", 19);
    for (round = 0; round < 2; round++) {
        result[round] = tensor_place(&t, round ? "second" : "first", 19);
        for (i = 0; i < 8; i++) {
            if (!round)
                keep(&t, workspace, 32 * MIB);
            book(&t, result[round], 4 * MIB, false);
            book(&t, result[round], 512, false);
        }
    }
    finalize(&t);
    open_at(&o, &t.f, NULL);
    check_no_alarm(&o);
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    close_it(&o);
    tensors_end(&t);
}

/* A list of views that keep large results, and nothing after it: found, if only as possible. An unfinished process has
 * not said its last word. */
static void test_views_keep_results(void **state)
{
    uint32_t logits, i;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    logits = tensor_place(&t, "last_logits", 18);
    for (i = 0; i < 16; i++)
        keep(&t, logits, 64 * MIB);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_POSSIBLE), logits));
    check_no_alarm(&o);
    close_it(&o);
    open_at(&o, &t.f, "peak");
    assert_false(has_family(&o, VT_FAMILY_GROWTH));
    close_it(&o);
    tensors_end(&t);
}

/* Without steps, growth over minutes until the end is likely. */
static void test_growth_over_minutes(void **state)
{
    uint32_t cache, i;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    cache = tensor_place(&t, "serve", 7);
    for (i = 0; i < 16; i++) {
        t.now = ((uint64_t)i << 35) + SECOND; /* 34 s each */
        keep(&t, cache, 16 * MIB);
        site_record(&t.f, cache)->history[i] = (i + 1) * 16 * MIB;
    }
    site_record(&t.f, cache)->history_shift = 35;
    site_record(&t.f, cache)->history_count = 15;
    fixture_header(&t.f)->last_ns = fixture_header(&t.f)->end_ns = t.now + SECOND;
    open_at(&o, &t.f, NULL);
    assert_true(names(find(&o, VT_FAMILY_GROWTH, VT_LIKELY), cache));
    close_it(&o);
    /* The same, but all of it in the first half: a model that was loaded. */
    for (i = 0; i < 16; i++) {
        site_record(&t.f, cache)->history[i] = 256 * MIB;
        slot_record(&t, i + 1)->time_ns = SECOND + i;
    }
    open_at(&o, &t.f, NULL);
    assert_null(find(&o, VT_FAMILY_GROWTH, VT_LIKELY));
    close_it(&o);
    tensors_end(&t);
}

/* Makes a Python frame one of the same function as another one. */
static void same_code(struct tensors *t, uint32_t frame, uint32_t other)
{
    struct vt_frame *to = (struct vt_frame *)fixture_record(&t->f, VT_FRAMES, frame - 1);

    to->where = (((struct vt_frame *)fixture_record(&t->f, VT_FRAMES, other - 1))->where & ~0xffffffffull) |
                (uint32_t)to->where;
}

/* A call runs out of memory; the exception is kept, and with it the call's tensors. */
static void test_kept_exception(void **state)
{
    uint32_t module, main_first, main_second, main_own, big, acts, own, slots[2];
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    module = python_line(&t, 0, "<module>", 56);
    main_first = python_line(&t, module, "main", 37);
    main_second = python_line(&t, module, "main", 45);
    main_own = python_line(&t, module, "main", 30);
    acts = place(&t, t.tensor, 0, python_line(&t, main_first, "big_forward", 21));
    big = python_line(&t, main_first, "big_forward", 22);
    /* Frames of one function share their code object. */
    same_code(&t, big, site_record(&t.f, acts)->python_stack);
    same_code(&t, main_second, main_first);
    same_code(&t, main_own, main_first);
    own = place(&t, t.tensor, 0, main_own);
    keep(&t, own, GIB); /* of a call that goes on */
    slots[0] = keep(&t, acts, GIB);
    slots[1] = keep(&t, acts, GIB);
    refused(&t, big, 1536 * MIB, "oom-1");
    refused(&t, python_line(&t, main_second, "retry_small", 27), 1280 * MIB, "oom-2");
    open_at(&o, &t.f, "oom-1"); /* the call is running: its variables are its own */
    assert_false(has_family(&o, VT_FAMILY_PENDING));
    close_it(&o);
    open_at(&o, &t.f, "oom-2");
    finding = find(&o, VT_FAMILY_PENDING, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], acts);
    assert_int_equal(finding->advice[0].saves_bytes, 2 * GIB);
    assert_non_null(strstr(finding->title, "2.00 GiB are still held by a call that ran out of memory before"));
    assert_non_null(strstr(finding->evidence[finding->evidence_count - 1], "failed in big_forward (train.py:22)"));
    close_it(&o);

    /* A place that allocates in other calls as well may hold its memory for another reason. */
    site_record(&t.f, acts)->alloc_calls = 9;
    open_at(&o, &t.f, "oom-2");
    assert_null(find(&o, VT_FAMILY_PENDING, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE));
    close_it(&o);
    site_record(&t.f, acts)->alloc_calls = 2;

    /* The exception is dropped, and the program ends well. */
    unlive(&t, slots[0]);
    unlive(&t, slots[1]);
    finalize(&t);
    open_at(&o, &t.f, "oom-2"); /* not freed yet, then */
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_LIKELY)->evidence[0], ": 2 allocated, 0 freed."));
    close_it(&o);
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_PENDING));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_int_equal(find(&o, VT_FAMILY_LIMIT, VT_LIKELY)->site_count, 2); /* the first failure: who held memory then */
    close_it(&o);
    tensors_end(&t);
}

/* A loop fills a list of the program's until memory is out; the exception is caught, and the program goes on. */
static void test_filled_list(void **state)
{
    uint32_t module, fill, held, later, layers, slots[4], i;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    module = python_line(&t, 0, "<module>", 19);
    fill = python_line(&t, module, "fill", 15);
    held = place(&t, t.tensor, 0, fill);
    for (i = 0; i < 4; i++)
        slots[i] = keep(&t, held, GIB);
    refused(&t, fill, GIB, "oom-1");
    later = place(&t, t.tensor, 0, python_line(&t, 0, "<module>", 25)); /* that call is over */
    same_code(&t, site_record(&t.f, later)->python_stack, module);
    keep(&t, later, MIB);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_null(find(&o, VT_FAMILY_PENDING, VT_LIKELY));
    assert_true(names(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE), held)); /* the list may be a variable of fill() */
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE)->title,
                           "4.00 GiB may still be held by a call that ran out of memory before"));
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE)->title, "so does a list that the call filled."));
    close_it(&o);

    /* The same in a module's forward: layers, and what their graph keeps. */
    layers = fixture_python(&t.f, fill, MODULE_PY, "_call_impl", 100);
    layers = fixture_python(&t.f, layers, "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", "forward",
                            125);
    site_record(&t.f, held)->python_stack = layers;
    ((struct vt_failure *)fixture_record(&t.f, VT_FAILURES, 0))->python_stack = layers;
    open_at(&o, &t.f, NULL);
    assert_true(names(find(&o, VT_FAMILY_PENDING, VT_LIKELY), held));
    close_it(&o);

    /* Some of it is freed while the call does not run: its frames can't have held that, nor the rest. */
    ((struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 1))->name[0] = 'x';
    ((struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 1))->kind = VT_MOMENT_NAMED;
    unlive(&t, slots[2]);
    unlive(&t, slots[3]);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_PENDING));
    close_it(&o);
    tensors_end(&t);
}

/* Page-locked buffers of PyTorch have sizes that are powers of two. */
static void test_pinned_rounding(void **state)
{
    uint32_t total, buffers, i;
    const struct vt_finding *finding;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    begin(&t);
    total = fixture_total(&t.f, VT_LEVEL_DRIVER, VT_KIND_PINNED, -1, 0, 0, 0, 0, 0);
    buffers = place(&t, total, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.torch, 0x90), t.ours, 0x77),
                    python_line(&t, 0, "load_weights", 20));
    for (i = 0; i < 8; i++)
        hold(&t, buffers, 0x10000000ull + i * 256 * MIB, 256 * MIB);
    hold(&t, tensor_place(&t, "<module>", 29), BASE, 4096);
    finalize(&t);
    open_at(&o, &t.f, NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_true(names(finding, buffers));
    assert_non_null(strstr(finding->title, "keeps 2.00 GiB of page-locked host memory"));
    assert_non_null(strstr(finding->title, "up to 1.00 GiB of it may never be used"));
    check_no_alarm(&o);
    close_it(&o);
    for (i = 0; i < 8; i++)
        site_record(&t.f, buffers)->live_bytes -= MIB; /* another allocator, which does not round */
    ((struct vt_moment *)fixture_record(&t.f, VT_MOMENTS, 0))->name[0] = '\0';
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_WASTE));
    close_it(&o);
    tensors_end(&t);
}

/* A driver's allocation without a stack that tensors lie in belongs to whoever keeps them. */
static void test_segments_do_not_leak(void **state)
{
    uint32_t arena;
    struct opened o;
    struct tensors t;

    (void)state;
    next = 0;
    tensors_begin(&t);
    arena = place(&t, t.driver, 0, python_line(&t, 0, "serve", 3));
    hold(&t, arena, BASE, GIB);
    hold(&t, arena, BASE + GIB, GIB);
    open_at(&o, &t.f, NULL);
    assert_true(names(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE), arena));
    close_it(&o);
    hold(&t, tensor_place(&t, "serve", 4), BASE, MIB);
    open_at(&o, &t.f, NULL);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_true(names(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE), arena));
    close_it(&o);
    tensors_end(&t);
}

/* What the allocator says of itself is compared, and the difference is shown. */
static void test_disagreement(void **state)
{
    struct vt_allocator *allocator;
    struct opened o;
    struct tensors t;

    (void)state;
    tensors_begin(&t);
    allocator = (struct vt_allocator *)fixture_record(&t.f, VT_ALLOCATORS, 0);
    open_at(&o, &t.f, NULL);
    assert_int_equal(o.a.model.note_count, 0);
    close_it(&o);
    allocator->mismatches = 3;
    allocator->worst_bytes = 2 * MIB;
    allocator->base_bytes = MIB;
    allocator->unknown_frees = 2;
    allocator->unknown_bytes = 1024;
    open_at(&o, &t.f, NULL);
    assert_int_equal(o.a.model.note_count, 3);
    assert_string_equal(o.a.model.notes[0],
                        "PyTorch's own figure for GPU 0 and the sum of what it reported differed in 3 of 100 "
                        "reports, by up to 2.00 MiB: figures of tensors may be off by that.");
    assert_non_null(strstr(o.a.model.notes[1], "had handed out 1.00 MiB on GPU 0 before the first report"));
    assert_non_null(strstr(o.a.model.notes[2], "took back 2 tensors (1.00 KiB)"));
    assert_string_equal(o.a.model.missing, ""); /* nothing is missing from the file */
    close_it(&o);
    tensors_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_validation_keeps_graphs),
        cmocka_unit_test(test_optimizer_state),
        cmocka_unit_test(test_growth_with_steps),
        cmocka_unit_test(test_growth_with_frees),
        cmocka_unit_test(test_autocast_cache),
        cmocka_unit_test(test_workspace_per_stream),
        cmocka_unit_test(test_views_keep_results),
        cmocka_unit_test(test_growth_over_minutes),
        cmocka_unit_test(test_kept_exception),
        cmocka_unit_test(test_filled_list),
        cmocka_unit_test(test_pinned_rounding),
        cmocka_unit_test(test_segments_do_not_leak),
        cmocka_unit_test(test_disagreement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
