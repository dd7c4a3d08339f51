/*
 * Model, account, growth, module classes, stacks and number formats, on recordings made for each case.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/format.h"
#include "analysis/modules.h"
#include "recording/reader.h"
#include "test_analysis_fixture.h"

static void test_model_at_end(void **state)
{
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.moment, "end");
    assert_int_equal(o.a.model.end, VT_PROCESS_EXIT);
    assert_int_equal(o.a.model.duration_ns, 2000000000);
    assert_int_equal(o.a.model.total_count, 1);
    assert_int_equal(o.a.model.totals[0].live_bytes, 232 * MIB);
    assert_int_equal(o.a.model.site_count, 4);
    assert_int_equal(o.a.model.sites[0].index, s.pool); /* the largest first */
    assert_int_equal(o.a.model.sites[1].index, s.leak);
    assert_int_equal(o.a.model.sites[3].index, s.single);
    assert_int_equal(o.a.model.sites[0].owner, VT_OWNER_FRAMEWORK);
    assert_int_equal(o.a.model.sites[1].owner, VT_OWNER_APPLICATION);
    assert_int_equal(vt_model_site(&o.a.model, s.workspace)->owner, VT_OWNER_LIBRARY);
    assert_int_equal(o.a.model.failure_count, 2);
    assert_int_equal(o.a.model.moment_count, 3);
    assert_string_equal(o.a.model.moments[0].name, "end");
    assert_string_equal(o.a.model.moments[1].name, "peak");
    assert_int_equal(o.a.model.moments[1].time_ns, 1500000000);
    assert_string_equal(o.a.model.moments[2].name, "oom-1");
    close_it(&o);
    fixture_end(&f);
}

static void test_account(void **state)
{
    const struct vt_device_row *d;
    struct opened o;
    struct fixture f;
    struct sample s;
    struct vt_device *record;

    (void)state;
    fixture_sample(&f, &s);
    open_at(&o, &f, "end");
    assert_int_equal(o.a.model.device_count, 1);
    d = &o.a.model.devices[0];
    assert_int_equal(d->application, 200 * MIB);
    assert_int_equal(d->library_count, 1);
    assert_int_equal(d->libraries[0].bytes, 32 * MIB);
    assert_int_equal(d->context, 300 * MIB);
    assert_true(d->unaccounted_known);
    assert_int_equal(d->application + d->libraries[0].bytes + d->context + d->unaccounted + d->free, 8192 * MIB);
    close_it(&o);

    record = (struct vt_device *)fixture_record(&f, VT_DEVICES, 0); /* a reading from before the allocations */
    record->free_bytes = 8192 * MIB;
    record->context_bytes = 0;
    open_at(&o, &f, "end");
    d = &o.a.model.devices[0];
    assert_false(d->context_known);
    assert_true(d->unaccounted_known && d->free_known && d->free_computed);
    assert_int_equal(d->unaccounted, 0);
    assert_int_equal(d->free, (8192 - 232) * MIB);
    close_it(&o);
    fixture_end(&f);
}

static void test_model_at_moments(void **state)
{
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    site_record(&f, s.leak)->at_peak_bytes = 80 * MIB; /* of the newest peak */
    site_record(&f, s.leak)->at_peak_count = 5;
    site_record(&f, s.single)->at_peak_bytes = 1; /* of an older one: live is what it held at the newest */
    site_record(&f, s.single)->peak_epoch = 3;
    open_at(&o, &f, "peak");
    assert_int_equal(o.a.model.moment_ns, 1500000000);
    assert_int_equal(vt_model_site(&o.a.model, s.leak)->live_bytes, 80 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, s.leak)->live_count, 5);
    assert_int_equal(vt_model_site(&o.a.model, s.single)->live_bytes, 8 * MIB);
    assert_int_equal(o.a.model.totals[0].live_bytes, 248 * MIB);
    assert_int_equal(o.a.model.totals[0].live_count, 8);
    close_it(&o);

    open_at(&o, &f, "oom-1");
    assert_int_equal(o.a.model.moment_ns, 1200000000);
    assert_int_equal(o.a.model.totals[0].live_bytes, 40 * MIB);
    assert_int_equal(o.a.model.totals[0].live_count, 3);
    assert_int_equal(vt_model_site(&o.a.model, s.leak)->live_bytes, 32 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, s.pool)->live_bytes, 0);
    assert_false(has_family(&o, VT_FAMILY_LEAK)); /* what is live in the middle of a run is no leak */
    close_it(&o);

    o.reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_analysis_open(&o.a, o.reading, "oom-2", false, NULL, NULL), -ENOENT);
    assert_false(vt_model_has_moment(o.reading, "oom-2"));
    assert_false(vt_model_has_moment(o.reading, ""));
    assert_true(vt_model_has_moment(o.reading, NULL));
    vt_reading_close(o.reading);
    fixture_end(&f);
}

/* "finalize" is the default where it exists; a withdrawn moment does not exist. */
static void test_finalize(void **state)
{
    struct vt_moment finalize = {.name = "finalize",
                                 .time_ns = 1900000000,
                                 .kind = VT_MOMENT_FINALIZE,
                                 .totals = 1,
                                 .sites = 1,
                                 .first_site = 1,
                                 .failure = VT_NONE};
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    fixture_add(&f, VT_MOMENTS, &finalize);
    ((struct vt_moment *)fixture_record(&f, VT_MOMENTS, 0))->name[0] = '\0';
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    assert_int_equal(o.a.model.moment_count, 3);
    assert_int_equal(vt_model_site(&o.a.model, s.single)->live_bytes, 8 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, s.leak)->live_bytes, 0);
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE));
    assert_false(vt_model_has_moment(o.reading, "oom-1"));
    close_it(&o);
    fixture_end(&f);
}

static void add_slot(struct fixture *f, uint32_t site, uint64_t bytes, unsigned kind)
{
    struct vt_slot slot = {.bytes = bytes, .requested = bytes - 1, .site = site, .kind = (uint8_t)kind};

    fixture_add(f, VT_LIVE, &slot);
}

/* A killed process: its slots count, not the sums that it may have been about to change. */
static void test_killed(void **state)
{
    struct opened o;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    fixture_header(&f)->end = VT_END_RUNNING;
    fixture_header(&f)->end_ns = 0;
    fixture_header(&f)->process_start_ticks = 1; /* nobody's */
    add_slot(&f, s.leak, 16 * MIB, VT_KIND_DEVICE);
    add_slot(&f, s.leak, 5 * MIB, VT_KIND_NONE);
    add_slot(&f, s.leak, 16 * MIB, VT_KIND_DEVICE);
    add_slot(&f, s.workspace, 32 * MIB, VT_KIND_DEVICE);
    add_slot(&f, 77, MIB, VT_KIND_DEVICE); /* of no site */
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.model.end, VT_PROCESS_KILLED);
    assert_int_equal(o.a.model.duration_ns, 1900000000);
    assert_int_equal(o.a.model.totals[0].live_bytes, 64 * MIB);
    assert_int_equal(o.a.model.totals[0].live_count, 3);
    assert_int_equal(o.a.model.totals[0].requested_bytes, 64 * MIB - 3);
    assert_int_equal(vt_model_site(&o.a.model, s.leak)->live_count, 2);
    assert_int_equal(vt_model_site(&o.a.model, s.pool)->live_bytes, 0);
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY)); /* it had no chance to free */
    assert_non_null(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE));
    close_it(&o);

    fixture_section(&f, VT_LIVE)->lost = 1; /* slots are missing: then the sums know more */
    open_at(&o, &f, NULL);
    assert_int_equal(o.a.model.totals[0].live_bytes, 232 * MIB);
    close_it(&o);
    fixture_end(&f);
}

static uint64_t own_start_ticks(void)
{
    char text[1024], *at;
    int fd = open("/proc/self/stat", O_RDONLY), field;
    ssize_t got = read(fd, text, sizeof text - 1);

    close(fd);
    assert_true(got > 0);
    text[got] = '\0';
    at = strrchr(text, ')') + 2;
    for (field = 3; field < 22; field++)
        at = strchr(at, ' ') + 1;
    return strtoull(at, NULL, 10);
}

static void test_process_end(void **state)
{
    struct vt_header h = {.pid = getpid(), .end = VT_END_RUNNING, .process_start_ticks = own_start_ticks()};

    (void)state;
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_RUNNING);
    h.process_start_ticks++; /* another process got the pid */
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_KILLED);
    h.pid = 0;
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_KILLED);
    h.end = VT_END_EXIT;
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_EXIT);
    h.end = VT_END_EXEC;
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_EXIT);
    h.end = 99;
    assert_int_equal(vt_model_process_end(&h), VT_PROCESS_KILLED);
}

static void test_growth(void **state)
{
    struct vt_site site = {.alloc_calls = 10,
                           .first_ns = 1000,
                           .history_shift = 10,
                           .history_count = 8,
                           .history = {10, 20, 30, 40, 50, 60, 70, 80}};
    struct vt_growth g = vt_model_growth(&site, 90, 9, 9216); /* nothing was freed: all of it is growth */

    (void)state;
    assert_int_equal(g.bytes, 90);
    assert_int_equal(g.allocs, 9);
    assert_true(g.monotonic);
    assert_float_equal(g.bytes_per_s, 90e9 / 8216, 1);

    site.free_calls =
        1; /* then half of the run counts: (1000 + 9216) / 2 = 5108 is in interval 4, which began with 40 */
    g = vt_model_growth(&site, 90, 9, 9216);
    assert_int_equal(g.bytes, 50);
    assert_int_equal(g.allocs, 5);
    assert_true(g.monotonic);

    site.history[5] = 0; /* it fell */
    g = vt_model_growth(&site, 30, 3, 9216);
    assert_int_equal(g.bytes, -10);
    assert_int_equal(g.allocs, -1);
    assert_false(g.monotonic);

    site.history_count = 3; /* quiet since the third interval: nothing has changed since */
    g = vt_model_growth(&site, 30, 3, 9216);
    assert_int_equal(g.bytes, 0);
    assert_true(g.monotonic);

    site.history_count = 255; /* damage */
    site.history_shift = 255;
    g = vt_model_growth(&site, UINT64_MAX, 1, UINT64_MAX);
    assert_int_equal(g.allocs, 0);
}

static void test_modules(void **state)
{
    static const struct {
        const char *path;
        enum vt_module_class class_;
    } cases[] = {
        {"/home/u/train", VT_MODULE_APPLICATION},
        {"/home/u/cupy-leak/train", VT_MODULE_APPLICATION},
        {"/home/u/my_ext.cpython-312-x86_64-linux-gnu.so", VT_MODULE_APPLICATION},
        {"", VT_MODULE_APPLICATION},
        {"/opt/libvramtrack.so", VT_MODULE_OURS},
        {"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", VT_MODULE_CUDA},
        {"/v/nvidia/cuda_runtime/lib/libcudart.so.12", VT_MODULE_CUDA},
        {"/lib/x86_64-linux-gnu/libc.so.6", VT_MODULE_SYSTEM},
        {"/usr/bin/python3.12", VT_MODULE_SYSTEM},
        {"/usr/bin/python-train", VT_MODULE_APPLICATION},
        {"/v/torch/lib/libc10_cuda.so", VT_MODULE_FRAMEWORK},
        {"/v/torch/lib/libtorch_python.so", VT_MODULE_FRAMEWORK},
        {"/v/jax_plugins/xla_cuda13/xla_cuda_plugin.so", VT_MODULE_FRAMEWORK},
        {"/v/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so", VT_MODULE_FRAMEWORK},
        {"/v/nvidia/cublas/lib/libcublasLt.so.13", VT_MODULE_LIBRARY},
        {"/v/nvidia/nccl/lib/libnccl.so.2", VT_MODULE_LIBRARY},
        {"/v/nvidia/cudnn/lib/libcudnn_ops.so.9", VT_MODULE_LIBRARY},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(vt_module_class(cases[i].path), cases[i].class_);
}

static void test_hidden_frames(void **state)
{
    struct vt_reading *r;
    struct vt_trace trace;
    struct fixture f;
    struct sample s;

    (void)state;
    fixture_sample(&f, &s);
    r = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, r, NULL, NULL, s.app_stack, 0), 0);
    assert_int_equal(trace.count, 4);
    assert_true(trace.frames[0].ours && trace.frames[0].hidden);
    assert_true(trace.frames[1].hidden); /* the driver */
    assert_false(trace.frames[2].hidden);
    assert_int_equal(trace.user, 2);
    assert_int_equal(vt_trace_user(&trace)->offset, 0x1234);
    vt_trace_free(&trace);
    assert_int_equal(vt_trace_build(&trace, r, NULL, NULL, 0, 0), 0);
    assert_null(vt_trace_user(&trace));
    vt_trace_free(&trace);
    vt_reading_close(r);
    fixture_end(&f);

    /* A stack of nothing but the driver is shown. */
    fixture_begin(&f);
    s.cuda = fixture_module(&f, "/usr/lib/libcuda.so.1", 0);
    s.app_stack = fixture_frame(&f, fixture_frame(&f, 0, s.cuda, 1), s.cuda, 2);
    r = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, r, NULL, NULL, s.app_stack, 0), 0);
    assert_false(trace.frames[0].hidden);
    assert_int_equal(trace.user, 0);
    vt_trace_free(&trace);
    vt_reading_close(r);
    fixture_end(&f);
}

static void test_formats(void **state)
{
    struct vt_display_frame frame = {.module = "/a/b/libx.so", .offset = 0x12ab};
    char text[128];

    (void)state;
    assert_string_equal(vt_format_bytes(text, 0), "0 B");
    assert_string_equal(vt_format_bytes(text, 1023), "1023 B");
    assert_string_equal(vt_format_bytes(text, 1536), "1.50 KiB");
    assert_string_equal(vt_format_bytes(text, 1 << 20), "1.00 MiB");
    assert_string_equal(vt_format_bytes(text, (1 << 20) - 1), "1.00 MiB");
    assert_string_equal(vt_format_bytes(text, 1ull << 40), "1.00 TiB");
    assert_string_equal(vt_format_bytes(text, UINT64_MAX), "16.00 EiB");
    assert_string_equal(vt_format_seconds(text, 1234567890), "1.235 s");
    assert_string_equal(vt_format_seconds(text, 312000000000), "5 min 12 s");
    assert_string_equal(vt_format_seconds(text, 12000000000000), "3 h 20 min");
    assert_string_equal(vt_format_place(text, sizeof text, NULL), "(no stack)");
    assert_string_equal(vt_format_place(text, sizeof text, &frame), "libx.so+0x12ab");
    frame.function = "ns::f";
    assert_string_equal(vt_format_place(text, sizeof text, &frame), "ns::f (libx.so)");
    frame.file = "/src/f.cu";
    frame.line = 12;
    assert_string_equal(vt_format_place(text, sizeof text, &frame), "ns::f (f.cu:12)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_at_end), cmocka_unit_test(test_account), cmocka_unit_test(test_model_at_moments),
        cmocka_unit_test(test_finalize),     cmocka_unit_test(test_killed),  cmocka_unit_test(test_process_end),
        cmocka_unit_test(test_growth),       cmocka_unit_test(test_modules), cmocka_unit_test(test_hidden_frames),
        cmocka_unit_test(test_formats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
