/*
 * Findings from calls that failed: for which reason an allocation was refused, out-of-memory failures that repeat
 * themselves, and what an incomplete recording may claim.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/format.h"
#include "test_analysis_fixture.h"

#define GIB (1024 * MIB)

static struct vt_failure refused(int code, uint32_t api, uint32_t stack)
{
    return (struct vt_failure){.kind = VT_FAILURE_FAILED_ALLOC,
                               .code = code,
                               .api = api,
                               .device = -1,
                               .count = 2,
                               .requested_bytes = 8 * MIB,
                               .stack = stack,
                               .moment = VT_NONE};
}

/* In a forked child the runtime says "initialization error": that is misuse, and never "nothing found". */
static void test_used_before_fork(void **state)
{
    const struct vt_finding *finding;
    struct vt_failure failure;
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FAILURES)->count = 0;
    failure = refused(3, fixture_string(&f, "cudaMalloc"), s.app_stack);
    fixture_add(&f, VT_FAILURES, &failure);
    open_at(&o, &f, "peak");
    finding = find(&o, VT_FAMILY_MISUSE, VT_LIKELY);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "2 allocations failed: CUDA was used before fork, and does not work in the child.");
    assert_non_null(strstr(finding->advice[0].text, "Start workers with spawn"));
    assert_non_null(strstr(finding->evidence[0], "demo+0x1234: cudaMalloc of 8.00 MiB returned 3"));
    assert_false(has_family(&o, VT_FAMILY_NONE));
    close_it(&o);
    fixture_end(&f);
}

/* One finding per code; what a library tries is possible at most. */
static void test_other_refusals(void **state)
{
    struct vt_failure failure;
    struct opened o;
    struct fixture f;
    struct sample s;
    uint32_t api;

    (void)state;
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FAILURES)->count = 0;
    api = fixture_string(&f, "cuMemCreate");
    failure = refused(801, api, s.app_stack);
    fixture_add(&f, VT_FAILURES, &failure);
    failure = refused(1, api, s.cublas_stack);
    fixture_add(&f, VT_FAILURES, &failure);
    failure = refused(12345, api, s.app_stack);
    fixture_add(&f, VT_FAILURES, &failure);
    open_at(&o, &f, "peak");
    assert_int_equal(o.a.findings.count, 3);
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_POSSIBLE));
    assert_non_null(find(&o, VT_FAMILY_MISUSE, VT_POSSIBLE)); /* cuBLAS passed an invalid value, and went on */
    assert_null(find(&o, VT_FAMILY_MISUSE, VT_LIKELY));
    close_it(&o);

    failure = refused(1, api, s.app_stack2);
    fixture_add(&f, VT_FAILURES, &failure);
    open_at(&o, &f, "peak");
    assert_int_equal(o.a.findings.count, 3);
    assert_int_equal(find(&o, VT_FAMILY_MISUSE, VT_LIKELY)->evidence_count, 2);
    close_it(&o);
    fixture_end(&f);
}

static void test_repeated_oom(void **state)
{
    struct vt_failure oom = {.kind = VT_FAILURE_OOM,
                             .code = 2,
                             .memory_kind = VT_KIND_DEVICE,
                             .count = 1,
                             .total_bytes = 8 * GIB,
                             .free_bytes = 512 * MIB,
                             .reserved_bytes = 7 * GIB,
                             .moment = VT_NONE};
    const struct vt_finding *finding;
    struct vt_oom_group group;
    struct opened o;
    struct fixture f;
    struct sample s;
    unsigned i;

    (void)state;
    fixture_sample(&f, &s);
    fixture_section(&f, VT_FAILURES)->count = 0;
    oom.stack = s.app_stack;
    for (i = 0; i < 31; i++) {
        oom.requested_bytes = (1024 + i) * MIB;
        oom.free_bytes -= MIB;
        fixture_add(&f, VT_FAILURES, &oom);
    }
    oom.stack = s.app_stack2;
    fixture_add(&f, VT_FAILURES, &oom);
    open_at(&o, &f, "end");
    group = vt_model_oom_group(&o.a.model, 0);
    assert_true(group.first && group.times == 31 && group.low == 1024 * MIB && group.high == 1054 * MIB);
    assert_false(vt_model_oom_group(&o.a.model, 17).first);
    assert_true(vt_model_oom_group(&o.a.model, 31).first);
    finding = find(&o, VT_FAMILY_CAPACITY, VT_LIKELY);
    assert_string_equal(finding->title, "GPU 0 was full: 1.00 GiB did not fit."); /* the first one */
    assert_string_equal(finding->evidence[0], "511.00 MiB were free of 8.00 GiB: 513.00 MiB more were needed.");
    assert_string_equal(finding->evidence[finding->evidence_count - 1],
                        "1.00 to 1.03 GiB were requested by demo+0x1234, 31 times.");
    close_it(&o);
    fixture_end(&f);
}

/* What is missing is said, and nothing is claimed to be certain. */
static void test_incomplete(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    fixture_section(&f, VT_FAILURES)->lost = 3;
    fixture_section(&f, VT_EVENTS)->lost = 3; /* no figure rests on these */
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.missing, "failures");
    assert_int_equal(o.a.findings.count, 1);
    finding = find(&o, VT_FAMILY_NONE, VT_POSSIBLE);
    assert_string_equal(finding->title, "The recording is incomplete: nothing can be said about failures.");
    close_it(&o);

    fixture_section(&f, VT_FAILURES)->lost = 0;
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_NONE, VT_CERTAIN));
    close_it(&o);

    fixture_header(&f)->used_bytes = f.bytes + VT_PAGE; /* cut off behind everything that counts */
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.missing, "what was cut off");
    assert_null(find(&o, VT_FAMILY_NONE, VT_CERTAIN));
    close_it(&o);
    fixture_end(&f);
}

/* A killed process holds everything: no advice to free it. */
static void test_no_advice_after_kill(void **state)
{
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    fixture_header(&f)->end = VT_END_RUNNING;
    fixture_header(&f)->pid = 0x7fffffff;
    fixture_section(&f, VT_LIVE)->lost = 1; /* the sums are the truth */
    open_at(&o, &f, NULL);
    assert_int_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->advice_count, 0);
    close_it(&o);
    fixture_end(&f);
}

static void test_end_words(void **state)
{
    char words[VT_END_WORDS];
    struct opened o;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    fixture_header(&f)->exit_code = 3;
    open_at(&o, &f, NULL);
    assert_string_equal(vt_model_end_words(words, &o.a.model, false, 0), "exit status 3");
    close_it(&o);
    fixture_header(&f)->end = VT_END_RUNNING;
    fixture_header(&f)->pid = 0x7fffffff;
    open_at(&o, &f, NULL);
    assert_string_equal(vt_model_end_words(words, &o.a.model, false, 0), "was killed or crashed");
    assert_string_equal(vt_model_end_words(words, &o.a.model, true, 11), "ended by signal 11 (Segmentation fault)");
    assert_string_equal(vt_model_end_words(words, &o.a.model, true, 50), "ended by signal 50");
    assert_string_equal(vt_model_end_words(words, &o.a.model, true, 7 << 8), "exit status 7");
    close_it(&o);
    fixture_end(&f);
}

static void test_ranges(void **state)
{
    char range[VT_FORMAT_RANGE];

    (void)state;
    assert_string_equal(vt_format_range(range, GIB, GIB + 1), "1.00 GiB");
    assert_string_equal(vt_format_range(range, GIB, 2 * GIB), "1.00 to 2.00 GiB");
    assert_string_equal(vt_format_range(range, 1023 * MIB, 2 * GIB), "1023.00 MiB to 2.00 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_used_before_fork),
        cmocka_unit_test(test_other_refusals),
        cmocka_unit_test(test_repeated_oom),
        cmocka_unit_test(test_incomplete),
        cmocka_unit_test(test_no_advice_after_kill),
        cmocka_unit_test(test_end_words),
        cmocka_unit_test(test_ranges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
