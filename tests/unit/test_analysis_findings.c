/*
 * Findings, on recordings made for each case: what must be found, with which confidence and sites, and what must not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recording/reader.h"
#include "test_analysis_fixture.h"

static void test_findings_of_sample(void **state)
{
    const struct vt_finding *finding;
    struct opened o;
    struct fixture f;
    struct sample s;
    uint32_t i;

    (void)state;
    fixture_sample(&f, &s);
    open_at(&o, &f, NULL);
    finding = find(&o, VT_FAMILY_LEAK, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], s.leak);
    assert_int_equal(finding->advice[0].saves_bytes, 64 * MIB);
    finding = find(&o, VT_FAMILY_LEAK, VT_POSSIBLE); /* once may be a buffer for the whole run */
    assert_int_equal(finding->site_count, 1);
    assert_int_equal(finding->sites[0], s.single);
    finding = find(&o, VT_FAMILY_CACHE, VT_POSSIBLE);
    assert_int_equal(finding->sites[0], s.pool);
    finding = find(&o, VT_FAMILY_OVERHEAD, VT_POSSIBLE);
    assert_int_equal(finding->sites[0], s.workspace);
    finding = find(&o, VT_FAMILY_CAPACITY, VT_CERTAIN); /* 16 GiB on a card of 8 GiB */
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "can never fit"));
    assert_int_equal(finding->site_count, 2); /* who held memory then, the largest first */
    assert_int_equal(finding->sites[0], s.leak);
    assert_int_equal(finding->sites[1], s.single);
    finding = find(&o, VT_FAMILY_MISUSE, VT_CERTAIN);
    assert_int_equal(finding->sites[0], s.leak);
    assert_false(has_family(&o, VT_FAMILY_NONE));
    for (i = 1; i < o.a.findings.count; i++)
        assert_true(o.a.findings.list[i - 1].confidence <= o.a.findings.list[i].confidence);
    assert_string_equal(vt_model_site(&o.a.model, s.leak)->verdict, "leak");
    assert_string_equal(vt_model_site(&o.a.model, s.pool)->verdict, "cache");
    close_it(&o);
    fixture_end(&f);
}

/* A recording of one application site with nothing live: nothing may be found. */
static uint32_t begin_healthy(struct fixture *f, unsigned kind)
{
    uint32_t app, stack, total;

    fixture_begin(f);
    app = fixture_module(f, "/nowhere/demo", 0);
    stack = fixture_frame(f, 0, app, 0x1000);
    total = fixture_total(f, VT_LEVEL_DRIVER, kind, 0, 0, 0, 64 * MIB, 48, 48);
    return fixture_site(f, total, stack, "cudaMalloc", 0, 0, 48, 48);
}

static void test_healthy(void **state)
{
    struct opened o;
    struct fixture f;

    (void)state;
    begin_healthy(&f, VT_KIND_DEVICE);
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.findings.count, 1);
    assert_int_equal(o.a.findings.list[0].family, VT_FAMILY_NONE);
    close_it(&o);
    fixture_end(&f);
}

static void test_empty(void **state)
{
    struct opened o;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.model.site_count, 0);
    assert_int_equal(o.a.findings.count, 1);
    close_it(&o);
    fixture_end(&f);
}

static void test_pool_keeps(void **state)
{
    struct vt_pool pool = {.handle = 1,
                           .flags = VT_POOL_DEFAULT,
                           .release_threshold = UINT64_MAX,
                           .peak_bytes = 64 * MIB,
                           .after_trim_peak = 64 * MIB};
    const struct vt_finding *finding;
    struct opened o;
    struct fixture f;
    uint32_t site;

    (void)state;
    site = begin_healthy(&f, VT_KIND_ASYNC);
    site_record(&f, site)->peak_bytes = 64 * MIB;
    fixture_add(&f, VT_POOLS, &pool);
    open_at(&o, &f, NULL);
    finding = find(&o, VT_FAMILY_CACHE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_int_equal(finding->advice[0].saves_bytes, 64 * MIB);
    assert_int_equal(finding->site_count, 1);
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);

    ((struct vt_pool *)fixture_record(&f, VT_POOLS, 0))->release_threshold = 0; /* the default gives everything back */
    open_at(&o, &f, NULL);
    assert_false(has_family(&o, VT_FAMILY_CACHE));
    close_it(&o);

    ((struct vt_pool *)fixture_record(&f, VT_POOLS, 0))->release_threshold = 16 * MIB; /* keeps no more than that */
    open_at(&o, &f, NULL);
    assert_int_equal(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE)->advice[0].saves_bytes, 16 * MIB);
    close_it(&o);

    ((struct vt_pool *)fixture_record(&f, VT_POOLS, 0))->flags |= VT_POOL_DESTROYED;
    open_at(&o, &f, NULL);
    assert_false(has_family(&o, VT_FAMILY_CACHE));
    close_it(&o);
    fixture_end(&f);
}

/* A pool keeps no more than the card's own reading leaves for it, and what is live at the moment shown is in use. */
static void test_pool_keeps_what_the_card_allows(void **state)
{
    struct vt_pool pool = {.handle = 1,
                           .flags = VT_POOL_DEFAULT,
                           .release_threshold = UINT64_MAX,
                           .peak_bytes = 64 * MIB,
                           .after_trim_peak = 64 * MIB};
    struct vt_device card = {.total_bytes = 8192 * MIB, .context_bytes = 512 * MIB};
    struct vt_usage usage = {.time_ns = 1,
                             .moment = VT_NONE,
                             .cause = VT_USAGE_END,
                             .total_bytes = 8192 * MIB,
                             .reserved_bytes = VT_UNKNOWN_BYTES,
                             .free_bytes = 7660 * MIB, /* 512 of the context, 20 more */
                             .own_bytes = 0};
    struct vt_moment moment = {.kind = VT_MOMENT_FINALIZE, .failure = VT_NONE, .name = "finalize"};
    struct vt_moment_site held = {.live_bytes = 48 * MIB, .live_count = 3};
    struct vt_usage *record;
    struct opened o;
    struct fixture f;
    uint32_t site;

    (void)state;
    site = begin_healthy(&f, VT_KIND_ASYNC);
    fixture_add(&f, VT_POOLS, &pool);
    fixture_add(&f, VT_DEVICES, &card);
    record = (struct vt_usage *)fixture_record(&f, VT_USAGES, fixture_add(&f, VT_USAGES, &usage));
    open_at(&o, &f, NULL);
    assert_int_equal(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE)->advice[0].saves_bytes, 20 * MIB);
    close_it(&o);
    record->free_bytes = 7680 * MIB;
    open_at(&o, &f, NULL);
    assert_false(has_family(&o, VT_FAMILY_CACHE));
    close_it(&o);

    /* 48 MiB of the pool were live when the program's own code had ended, and are freed by the interpreter. */
    record->free_bytes = 7000 * MIB;
    held.site = site;
    moment.first_site = fixture_section(&f, VT_MOMENT_SITES)->count;
    fixture_add(&f, VT_MOMENT_SITES, &held);
    moment.sites = 1;
    fixture_add(&f, VT_MOMENTS, &moment);
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    assert_int_equal(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE)->advice[0].saves_bytes, 16 * MIB);
    assert_non_null(strstr(find(&o, VT_FAMILY_CACHE, VT_POSSIBLE)->evidence[0], "Live in the pool: 48.00 MiB"));
    close_it(&o);
    fixture_end(&f);
}

static void test_oom_verdicts(void **state)
{
    struct vt_failure oom = {.kind = VT_FAILURE_OOM,
                             .code = 2,
                             .memory_kind = VT_KIND_DEVICE,
                             .count = 1,
                             .requested_bytes = 4096 * MIB,
                             .free_bytes = 1024 * MIB,
                             .total_bytes = 8192 * MIB,
                             .reserved_bytes = 6656 * MIB,
                             .moment = VT_NONE};
    struct vt_failure *record;
    struct opened o;
    struct fixture f;

    (void)state;
    begin_healthy(&f, VT_KIND_DEVICE);
    fixture_add(&f, VT_FAILURES, &oom);
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_CAPACITY, VT_LIKELY));
    assert_int_equal(o.a.findings.count, 1);
    close_it(&o);

    record = (struct vt_failure *)fixture_record(&f, VT_FAILURES, 0);
    record->free_bytes = 5000 * MIB; /* enough was free, by far */
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    close_it(&o);
    record->free_bytes = 4100 * MIB; /* a little more than enough: somebody may have given it back meanwhile */
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_POSSIBLE));
    close_it(&o);

    record->memory_kind = VT_KIND_PINNED; /* the host's memory */
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LIMIT, VT_LIKELY));
    close_it(&o);

    record->kind = VT_FAILURE_RETRY; /* the framework got it at the second attempt */
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_NONE, VT_CERTAIN));
    close_it(&o);
    fixture_end(&f);
}

/* Frees that come after the runtime has unloaded are harmless; other failed frees are not. */
static void test_late_frees(void **state)
{
    struct vt_failure failed = {.kind = VT_FAILURE_FAILED_FREE, .code = 4, .count = 3, .moment = VT_NONE};
    struct opened o;
    struct fixture f;

    (void)state;
    begin_healthy(&f, VT_KIND_DEVICE);
    fixture_add(&f, VT_FAILURES, &failed);
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_MISUSE, VT_POSSIBLE));
    close_it(&o);
    ((struct vt_failure *)fixture_record(&f, VT_FAILURES, 0))->code = 709;
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_MISUSE, VT_CERTAIN));
    assert_false(has_family(&o, VT_FAMILY_LEAK));
    close_it(&o);
    fixture_end(&f);
}

/* Buffers made at the start of a long run and kept to its end are not called a likely leak. */
static void test_kept_from_the_start(void **state)
{
    struct opened o;
    struct fixture f;
    uint32_t site;

    (void)state;
    site = begin_healthy(&f, VT_KIND_MANAGED);
    site_record(&f, site)->live_bytes = 64 * MIB;
    site_record(&f, site)->live_count = 4;
    site_record(&f, site)->free_calls = 0;
    fixture_header(&f)->end_ns = 100000000000;
    open_at(&o, &f, NULL);
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE));
    close_it(&o);
    site_record(&f, site)->last_ns = 90000000000; /* still allocating at the end */
    open_at(&o, &f, NULL);
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY));
    close_it(&o);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_findings_of_sample),
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_pool_keeps),
        cmocka_unit_test(test_pool_keeps_what_the_card_allows),
        cmocka_unit_test(test_oom_verdicts),
        cmocka_unit_test(test_late_frees),
        cmocka_unit_test(test_kept_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
