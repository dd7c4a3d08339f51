/*
 * Findings about memory that was not given back by the right call, or that nobody asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_scene.h"

/* A place of the program's own, of a kind. */
static uint32_t own_place(unsigned kind, uint64_t where)
{
    int device = kind == VT_KIND_REGISTERED ? -1 : 0;

    return native_place(driver_total(kind, device), where);
}

static void test_reset_with_live_memory(void **state)
{
    const struct vt_finding *finding;
    uint32_t site;

    (void)state;
    begin();
    site = own_place(VT_KIND_DEVICE, 0x500);
    book(&t, site, 16 * MIB, false);
    book(&t, site, 16 * MIB, false);
    book(&t, site, 16 * MIB, false);
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_MISUSE));
    site_record(&t.f, site)->free_calls = 1;
    site_record(&t.f, site)->retired = 2;
    look(NULL);
    finding = find(&o, VT_FAMILY_MISUSE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_string_equal(finding->title,
                        "2 allocations (about 32.00 MiB) were live when the context was reset or destroyed.");
    assert_non_null(strstr(finding->evidence[0], "2 of 3 (device) by demo"));
    assert_int_equal(finding->sites[0], site);
    site_record(&t.f, site)->kind = VT_KIND_GRAPH; /* ends with its graph, as it should */
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_MISUSE));
}

static void test_handles_and_registrations(void **state)
{
    const struct vt_finding *finding;
    uint32_t physical, registered, i;

    (void)state;
    begin();
    physical = own_place(VT_KIND_VMM_PHYSICAL, 0x500);
    registered = own_place(VT_KIND_REGISTERED, 0x600);
    for (i = 0; i < 3; i++)
        hold(&t, physical, i + 1, 2 * MIB);
    slot_record(&t, hold(&t, physical, 9, 32 * MIB))->flags = VT_SLOT_RELEASED;
    hold(&t, registered, 0x10000, 4 * MIB);
    look(NULL);
    finding = titled("by a handle that was never released");
    assert_non_null(finding);
    assert_string_equal(finding->title, "3 physical allocations hold 6.00 MiB by a handle that was never released.");
    assert_int_equal(finding->family, VT_FAMILY_MISUSE);
    assert_int_equal(finding->confidence, VT_POSSIBLE);
    assert_int_equal(finding->sites[0], physical);
    finding = titled("by a mapping that was never undone");
    assert_string_equal(finding->title, "1 physical allocation holds 32.00 MiB by a mapping that was never undone.");
    assert_non_null(strstr(finding->advice[0].text, "cuMemUnmap"));
    finding = titled("page-locked");
    assert_string_equal(finding->title, "1 registration of host memory keeps 4.00 MiB page-locked.");
    assert_int_equal(finding->sites[0], registered);
    fixture_header(&t.f)->end = VT_END_RUNNING; /* a killed process could not */
    fixture_header(&t.f)->end_ns = 0;
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_MISUSE));
}

static void test_padding(void **state)
{
    const struct vt_finding *finding;
    uint32_t site;

    (void)state;
    begin();
    site = own_place(VT_KIND_DEVICE, 0x500);
    hold(&t, site, BASE, 512000000); /* a million rows of 36 bytes, each padded to 512 */
    site_record(&t.f, site)->requested_bytes = 36000000;
    look(NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_LIKELY);
    assert_non_null(finding);
    assert_int_equal(finding->advice[0].saves_bytes, 476000000);
    assert_non_null(strstr(finding->evidence[0], "34.33 MiB asked for, 488.28 MiB taken (1322 % more) in 1 by demo"));
    site_record(&t.f, site)->requested_bytes = 500000000; /* 2 % */
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_WASTE));
}

/* Page-locked buffers of PyTorch have sizes that are powers of two. */
static void test_pinned_rounding(void **state)
{
    uint32_t total, buffers, i;
    const struct vt_finding *finding;

    (void)state;
    begin_with_segment();
    total = driver_total(VT_KIND_PINNED, -1);
    buffers = place(&t, total, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.torch, 0x90), t.ours, 0x77),
                    python_line(&t, 0, "load_weights", 20));
    for (i = 0; i < 8; i++)
        hold(&t, buffers, 0x10000000ull + i * 256 * MIB, 256 * MIB);
    hold(&t, tensor_place(&t, "<module>", 29), BASE, 4096);
    finalize(&t);
    look(NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_true(names(finding, buffers));
    assert_non_null(strstr(finding->title, "keeps 2.00 GiB of page-locked host memory"));
    assert_non_null(strstr(finding->title, "up to 1.00 GiB of it may never be used"));
    check_no_alarm();
    for (i = 0; i < 8; i++)
        site_record(&t.f, buffers)->live_bytes -= MIB; /* another allocator, which does not round */
    moment_record(0)->name[0] = '\0';
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_WASTE));
}

/* Sites of a kind whose memory one helper allocates, for two callers; the second one's stands twice in the program. */
static void helper_places(unsigned kind, uint32_t sites[3])
{
    uint32_t total = driver_total(kind, kind == VT_KIND_REGISTERED ? -1 : 0), i;

    for (i = 0; i < 3; i++)
        sites[i] = place(&t, total, fixture_frame(&t.f, fixture_frame(&t.f, 0, t.app, 0x500 + i), t.ours, 0x77),
                         python_line(&t, python_line(&t, 0, i ? "validate" : "load", i ? 20 : 10), "buffer", 6));
}

/* Where one helper allocates for everybody, evidence says who called it, and is one line for each. */
static void test_who_called(void **state)
{
    const struct vt_finding *finding;
    uint32_t sites[3], i;

    (void)state;
    begin();
    helper_places(VT_KIND_DEVICE, sites);
    for (i = 0; i < 3; i++) {
        hold(&t, sites[i], BASE + i * GIB, (3 - i) * 100 * MIB);
        site_record(&t.f, sites[i])->requested_bytes = 10 * MIB;
    }
    look(NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_LIKELY);
    assert_int_equal(finding->evidence_count, 2);
    assert_string_equal(finding->evidence[0], "10.00 MiB asked for, 300.00 MiB taken (2900 % more) in 1 by buffer "
                                              "(train.py:6) < load (train.py:10).");
    assert_string_equal(finding->evidence[1], "20.00 MiB asked for, 300.00 MiB taken (1400 % more) in 2 by buffer "
                                              "(train.py:6) < validate (train.py:20).");
    assert_int_equal(finding->site_count, 3);

    for (i = 0; i < 3; i++) {
        site_record(&t.f, sites[i])->live_count = site_record(&t.f, sites[i])->alloc_calls = 10000;
        site_record(&t.f, sites[i])->live_bytes = site_record(&t.f, sites[i])->requested_bytes = 160000;
        site_record(&t.f, sites[i])->retired = i + 1;
    }
    look(NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_POSSIBLE);
    assert_int_equal(finding->evidence_count, 2);
    assert_string_equal(finding->evidence[0],
                        "20000 of 16 B on average by buffer (train.py:6) < validate (train.py:20).");
    finding = titled("when the context was reset");
    assert_int_equal(finding->evidence_count, 2);
    assert_string_equal(finding->evidence[0], "5 of 20000 (device) by buffer (train.py:6) < validate (train.py:20).");
    assert_string_equal(finding->evidence[1], "1 of 10000 (device) by buffer (train.py:6) < load (train.py:10).");

    begin();
    helper_places(VT_KIND_REGISTERED, sites);
    for (i = 0; i < 3; i++)
        hold(&t, sites[i], BASE + i * GIB, (3 - i) * 4 * MIB);
    look(NULL);
    finding = titled("page-locked");
    assert_int_equal(finding->evidence_count, 2);
    assert_string_equal(finding->evidence[0], "12.00 MiB in 1 by buffer (train.py:6) < load (train.py:10).");
    assert_string_equal(finding->evidence[1], "12.00 MiB in 2 by buffer (train.py:6) < validate (train.py:20).");
}

static void test_tiny(void **state)
{
    const struct vt_finding *finding;
    uint32_t site;

    (void)state;
    begin();
    site = own_place(VT_KIND_DEVICE, 0x500);
    site_record(&t.f, site)->live_count = site_record(&t.f, site)->alloc_calls = 100000;
    site_record(&t.f, site)->live_bytes = site_record(&t.f, site)->requested_bytes = 1600000;
    look(NULL);
    finding = find(&o, VT_FAMILY_WASTE, VT_POSSIBLE);
    assert_non_null(finding);
    assert_non_null(strstr(finding->title, "100000 tiny allocations take 256 bytes each at least: 22.89 MiB or more"));
    assert_int_equal(finding->advice[0].saves_bytes, 24000000);
    site_record(&t.f, site)->live_count = 100;
    look(NULL);
    assert_false(has_family(&o, VT_FAMILY_WASTE));
}

static void test_workspaces_of_threads(void **state)
{
    const struct vt_finding *finding;
    uint32_t site, i;

    (void)state;
    begin();
    site = tensor_place(&t, "multiply", 5);
    i = fixture_string(&t.f, "torch.cublas_workspace");
    site_record(&t.f, site)->api = i;
    for (i = 0; i < 8; i++)
        hold(&t, site, BASE + i * 32 * MIB, 32 * MIB);
    look(NULL);
    assert_null(titled("workspaces of a library"));
    site_record(&t.f, site)->streams = 0xff;
    site_record(&t.f, site)->threads = 1;
    look(NULL);
    finding = titled("workspaces of a library");
    assert_non_null(finding);
    assert_string_equal(finding->title, "8 workspaces of a library for 8 streams: 256.00 MiB.");
    assert_int_equal(finding->family, VT_FAMILY_OVERHEAD);
    assert_int_equal(finding->advice[0].saves_bytes, 224 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE(test_reset_with_live_memory),
        SCENE(test_handles_and_registrations),
        SCENE(test_padding),
        SCENE(test_pinned_rounding),
        SCENE(test_who_called),
        SCENE(test_tiny),
        SCENE(test_workspaces_of_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
