/*
 * Findings about tensors other than growth: what an exception that is kept holds, segments that tensors lie in, and what the
 * allocator says of itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_scene.h"

/* Makes a Python frame one of the same function as another one. */
static void same_code(uint32_t frame, uint32_t other)
{
    struct vt_frame *to = (struct vt_frame *)fixture_record(&t.f, VT_FRAMES, frame - 1);

    to->where = (((struct vt_frame *)fixture_record(&t.f, VT_FRAMES, other - 1))->where & ~0xffffffffull) |
                (uint32_t)to->where;
}

/* A call runs out of memory; the exception is kept, and with it the call's tensors. */
static void test_kept_exception(void **state)
{
    uint32_t module, main_first, main_second, main_own, big, acts, own, slots[2];
    const struct vt_finding *finding;

    (void)state;
    begin_with_segment();
    module = python_line(&t, 0, "<module>", 56);
    main_first = python_line(&t, module, "main", 37);
    main_second = python_line(&t, module, "main", 45);
    main_own = python_line(&t, module, "main", 30);
    acts = place(&t, t.tensor, 0, python_line(&t, main_first, "big_forward", 21));
    big = python_line(&t, main_first, "big_forward", 22);
    /* Frames of one function share their code object. */
    same_code(big, site_record(&t.f, acts)->python_stack);
    same_code(main_second, main_first);
    same_code(main_own, main_first);
    own = place(&t, t.tensor, 0, main_own);
    keep(own, GIB); /* of a call that goes on */
    slots[0] = keep(acts, GIB);
    slots[1] = keep(acts, GIB);
    refused(&t, big, 1536 * MIB, "oom-1");
    refused(&t, python_line(&t, main_second, "retry_small", 27), 1280 * MIB, "oom-2");
    look("oom-1"); /* the call is running: its variables are its own */
    assert_false(has_family(&o, VT_FAMILY_PENDING));
    look("oom-2");
    finding = find(&o, VT_FAMILY_PENDING, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], acts);
    assert_int_equal(finding->advice[0].saves_bytes, 2 * GIB);
    assert_non_null(strstr(finding->title, "2.00 GiB are still held by a call that ran out of memory before"));
    assert_non_null(strstr(finding->evidence[finding->evidence_count - 1], "failed in big_forward (train.py:22)"));

    /* A place that allocates in other calls as well may hold its memory for another reason. */
    site_record(&t.f, acts)->alloc_calls = 9;
    look("oom-2");
    assert_null(find(&o, VT_FAMILY_PENDING, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE));
    site_record(&t.f, acts)->alloc_calls = 2;

    /* The exception is dropped, and the program ends well. */
    unlive(&t, slots[0]);
    unlive(&t, slots[1]);
    finalize(&t);
    look("oom-2"); /* not freed yet, then */
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_LIKELY)->evidence[0], ": 2 allocated, 0 freed."));
    look(NULL); /* gone, but it is why memory ran out again */
    finding = find(&o, VT_FAMILY_PENDING, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], acts);
    assert_ptr_equal(finding, &o.a.findings.list[1]); /* between the verdicts on the two failures */
    assert_string_equal(
        finding->title,
        "2.00 GiB were still held by a call that ran out of memory before, when memory ran out again (oom-2): an "
        "exception that is kept keeps the variables of its frames alive.");
    assert_non_null(strstr(finding->evidence[0], "2.00 GiB in 2 (device) by big_forward (train.py:21)"));
    assert_non_null(strstr(finding->evidence[1], "That call failed in big_forward (train.py:22)"));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_int_equal(find(&o, VT_FAMILY_LIMIT, VT_LIKELY)->site_count, 2); /* the first failure: who held memory then */
}

/* A loop fills a list of the program's until memory is out; the exception is caught, and the program goes on. */
static void test_filled_list(void **state)
{
    uint32_t module, fill, held, later, layers, slots[4], i;

    (void)state;
    begin_with_segment();
    module = python_line(&t, 0, "<module>", 19);
    fill = python_line(&t, module, "fill", 15);
    held = place(&t, t.tensor, 0, fill);
    for (i = 0; i < 4; i++)
        slots[i] = keep(held, GIB);
    refused(&t, fill, GIB, "oom-1");
    later = place(&t, t.tensor, 0, python_line(&t, 0, "<module>", 25)); /* that call is over */
    same_code(site_record(&t.f, later)->python_stack, module);
    keep(later, MIB);
    finalize(&t);
    look(NULL);
    assert_null(find(&o, VT_FAMILY_PENDING, VT_LIKELY));
    assert_true(names(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE), held)); /* the list may be a variable of fill() */
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE)->title,
                           "4.00 GiB may still be held by a call that ran out of memory before"));
    assert_non_null(strstr(find(&o, VT_FAMILY_PENDING, VT_POSSIBLE)->title, "so does a list that the call filled."));

    /* The same in a module's forward: layers, and what their graph keeps. */
    layers = fixture_python(&t.f, fill, MODULE_PY, "_call_impl", 100);
    layers = fixture_python(&t.f, layers, "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py", "forward",
                            125);
    site_record(&t.f, held)->python_stack = layers;
    failure_record(0)->python_stack = layers;
    look(NULL);
    assert_true(names(find(&o, VT_FAMILY_PENDING, VT_LIKELY), held));

    /* Some of it is freed while the call does not run: its frames can't have held that, nor the rest. */
    moment_record(1)->name[0] = 'x';
    moment_record(1)->kind = VT_MOMENT_NAMED;
    unlive(&t, slots[2]);
    unlive(&t, slots[3]);
    finalize(&t);
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_PENDING));
}

/* A driver's allocation without a stack that tensors lie in belongs to whoever keeps them. */
static void test_segments_do_not_leak(void **state)
{
    uint32_t arena;

    (void)state;
    begin();
    arena = place(&t, t.driver, 0, python_line(&t, 0, "serve", 3));
    hold(&t, arena, BASE, GIB);
    hold(&t, arena, BASE + GIB, GIB);
    look(NULL);
    assert_true(names(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE), arena));
    hold(&t, tensor_place(&t, "serve", 4), BASE, MIB);
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    assert_true(names(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE), arena));
}

/* What the allocator says of itself is compared, and the difference is shown. */
static void test_disagreement(void **state)
{
    struct vt_allocator *allocator;

    (void)state;
    begin();
    allocator = allocator_record();
    look(NULL);
    assert_int_equal(o.a.model.note_count, 0);
    allocator->mismatches = 3;
    allocator->worst_bytes = 2 * MIB;
    allocator->base_bytes = MIB;
    allocator->unknown_frees = 2;
    allocator->unknown_bytes = 1024;
    look(NULL);
    assert_int_equal(o.a.model.note_count, 3);
    assert_string_equal(o.a.model.notes[0],
                        "PyTorch's own figure for GPU 0 and the sum of what it reported differed in 3 of 100 "
                        "reports, by up to 2.00 MiB: figures of tensors may be off by that.");
    assert_non_null(strstr(o.a.model.notes[1], "had handed out 1.00 MiB on GPU 0 before the first report"));
    assert_non_null(strstr(o.a.model.notes[2], "took back 2 tensors (1.00 KiB)"));
    assert_string_equal(o.a.model.missing, ""); /* nothing is missing from the file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_kept_exception),
        SCENE(test_filled_list),
        SCENE(test_segments_do_not_leak),
        SCENE(test_disagreement),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
