/*
 * Scopes, stretches, steps and names of ranges (src/preload/phase.c, step.c, range.c), and what they make of sites.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "preload/range.h"
#include "test_ledger_fixture.h"

/* The same stack in another phase, or another named range, is another place. */
static void test_sites_by_phase_and_range(void **state)
{
    (void)state;
    open_writer(64u << 20);
    struct vt_site_key k = {VT_LEVEL_TENSOR, VT_KIND_DEVICE, 0, 1};
    uint32_t plain = vt_site_add(&k, vt_site_hash(&k, 7), 3, 4);
    vt_scope_enter(VT_SCOPE_MARK, 0, VT_PHASE_NONE, vt_range_number("encoder 1"));
    assert_int_equal(vt_site_find(vt_site_hash(&k, 7)), VT_NONE);
    uint32_t in_range = vt_site_add(&k, vt_site_hash(&k, 7), 3, 4);
    vt_scope_enter(VT_SCOPE_FRAMEWORK, 1, VT_PHASE_OPTIMIZER, 0);
    assert_int_equal(vt_site_find(vt_site_hash(&k, 7)), VT_NONE);
    uint32_t in_phase = vt_site_add(&k, vt_site_hash(&k, 7), 3, 4);
    assert_int_equal(vt_scope_leave(VT_SCOPE_FRAMEWORK, 1), VT_PHASE_OPTIMIZER);
    assert_int_equal(vt_site_find(vt_site_hash(&k, 7)), in_range);
    assert_int_equal(vt_scope_leave(VT_SCOPE_MARK, 0), VT_PHASE_NONE);
    assert_int_equal(vt_site_find(vt_site_hash(&k, 7)), plain);
    const struct vt_site *a = record(VT_SITES, plain), *b = record(VT_SITES, in_range), *c = record(VT_SITES, in_phase);
    const struct vt_string *range = (const void *)(record(VT_STRINGS, b->range));
    assert_int_equal(a->phase, VT_PHASE_NONE);
    assert_int_equal(a->range, 0);
    assert_int_equal(b->phase, VT_PHASE_NONE);
    assert_string_equal(range->text, "encoder N");
    assert_int_equal(c->phase, VT_PHASE_OPTIMIZER);
    assert_int_not_equal(c->range, 0);
    close_writer();
}

/* Scopes end in any order: each takes out its own, and what is left counts. */
static void test_scopes_out_of_order(void **state)
{
    (void)state;
    open_writer(64u << 20);
    vt_scope_enter(VT_SCOPE_FRAMEWORK, 1, VT_PHASE_OPTIMIZER, 0);
    vt_scope_enter(VT_SCOPE_NVTX, 5, VT_PHASE_NONE, vt_range_number("a"));
    vt_scope_enter(VT_SCOPE_BACKWARD, 0, VT_PHASE_BACKWARD, 0);
    assert_int_equal(vt_phase_now(), VT_PHASE_BACKWARD);
    assert_int_equal(vt_scope_leave(VT_SCOPE_FRAMEWORK, 1), VT_PHASE_OPTIMIZER);
    assert_int_equal(vt_phase_now(), VT_PHASE_BACKWARD);
    assert_false(vt_scope_inside(VT_PHASE_OPTIMIZER));
    assert_int_equal(vt_scope_leave(VT_SCOPE_FRAMEWORK, 1), VT_PHASE_NONE); /* once more: nothing */
    assert_int_equal(vt_phase_backward, 1);
    assert_int_equal(vt_scope_leave(VT_SCOPE_BACKWARD, 0), VT_PHASE_BACKWARD);
    assert_int_equal(vt_phase_backward, 0);
    assert_int_equal(vt_phase_now(), VT_PHASE_NONE);
    assert_string_equal(vt_range_name(vt_phase_tls.range), "a");
    vt_scope_leave(VT_SCOPE_NVTX, 5);
    assert_int_equal(vt_phase_tls.range, 0);
    close_writer();
}

/* Each change of phase of the thread that trains begins a stretch; entering the phase that it is in does not. */
static void test_stretches(void **state)
{
    (void)state;
    open_writer(64u << 20);
    now = 100;
    vt_scope_enter(VT_SCOPE_BACKWARD, 0, VT_PHASE_BACKWARD, 0);
    assert_int_equal(vt_header()->stretch_ns, 100);
    assert_int_equal(vt_header()->phase, VT_PHASE_BACKWARD);
    now = 200;
    vt_scope_enter(VT_SCOPE_BACKWARD, 0, VT_PHASE_BACKWARD, 0);
    vt_scope_leave(VT_SCOPE_BACKWARD, 0);
    assert_int_equal(vt_header()->stretch_ns, 100);
    now = 300;
    vt_scope_leave(VT_SCOPE_BACKWARD, 0);
    assert_int_equal(vt_header()->stretch_ns, 300);
    assert_int_equal(vt_header()->phase, VT_PHASE_NONE);
    now = 400;
    vt_step_end(VT_STEP_MARK, NULL);
    assert_int_equal(vt_header()->steps, 1);
    assert_int_equal(vt_header()->step_ns, 400);
    assert_int_equal(vt_header()->stretch_ns, 400);
    const struct vt_event *e = record(VT_EVENTS, 0);
    assert_int_equal(vt_header()->section[VT_EVENTS].count, 3);
    assert_int_equal(e[0].type, VT_EVENT_PHASE);
    assert_int_equal(e[0].address, VT_PHASE_BACKWARD);
    assert_int_equal(e[2].type, VT_EVENT_STEP);
    close_writer();
}

/* Every second record goes when there is no room: what stays is evenly spread, whatever the number of steps. */
static void test_steps_thinned_out(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < 200000; count = count * 7 + 1) {
        open_writer(64u << 20);
        for (uint64_t i = 0; i < count; i++) {
            now = (i + 1) * 10;
            vt_step_end(VT_STEP_MARK, NULL);
        }
        const struct vt_header *h = vt_header();
        uint64_t kept = h->section[VT_STEPS].count, shift = h->step_shift;
        assert_int_equal(h->steps, count);
        assert_int_equal(kept, (count + (1ull << shift) - 1) >> shift);
        assert_true(kept <= 8192 && (shift == 0 || kept > 4096));
        for (uint64_t i = 0; i < kept; i++)
            assert_int_equal(((const struct vt_step *)record(VT_STEPS, i))->end_ns, ((i << shift) + 1) * 10);
        close_writer();
    }
}

/* Numbers of their own are folded, numbers inside of words are not (while there are few names). */
static void test_range_names(void **state)
{
    static const char *const names[][2] = {
        {"step 12", "step N"},
        {"iteration_17", "iteration_N"},
        {"ProfilerStep#3", "ProfilerStep#N"},
        {"layer3", "layer3"},
        {"fp16", "fp16"},
        {"h.12.attn", "h.N.attn"},
        {"12", "N"},
        {"epoch=3/step=14", "epoch=N/step=N"},
        {"conv2d_1x1", "conv2d_Nx1"},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        uint16_t n = vt_range_number(names[i][0]);
        assert_int_not_equal(n, 0);
        assert_string_equal(vt_range_name(n), names[i][1]);
        assert_int_equal(vt_range_number(names[i][0]), n);
    }
    assert_int_equal(vt_range_number(NULL), 0);
    assert_int_equal(vt_range_number(""), 0);
    assert_string_equal(vt_range_name(0), "");
    assert_string_equal(vt_range_name(UINT16_MAX), "");
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[199] = 0;
    assert_int_equal(strlen(vt_range_name(vt_range_number(longer))), 63);
    for (unsigned i = 0; i < 3; i++) { /* a cut falls between characters, wherever they stand */
        static const char face[] = "\xf0\x9f\x98\x80";
        memset(longer, 'a', i);
        for (unsigned j = 0; j < 40; j++)
            memcpy(longer + i + 4 * j, face, 4);
        longer[i + 160] = 0;
        assert_int_equal(strlen(vt_range_name(vt_range_number(longer))), i + 60);
        assert_int_equal(strlen(vt_range_name(vt_range_exact(longer))), i + 60);
    }
    memset(longer, 0xbf, sizeof longer - 1); /* no UTF-8 at all */
    assert_int_equal(strlen(vt_range_name(vt_range_exact(longer))), 63);
}

/* Inside our own work (a signal handler has interrupted it) no new name is added; a known one is found. */
static void test_range_in_signal_handler(void **state)
{
    (void)state;
    uint16_t known = vt_range_number("known");
    vt_tls.busy = 1;
    assert_int_equal(vt_range_number("known"), known);
    assert_int_equal(vt_range_number("never seen"), 0);
    vt_tls.busy = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sites_by_phase_and_range),
        cmocka_unit_test(test_scopes_out_of_order),
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_steps_thinned_out),
        cmocka_unit_test(test_range_names),
        cmocka_unit_test(test_range_in_signal_handler),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
