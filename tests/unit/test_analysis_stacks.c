/*
 * Stacks of Python programs in recordings made in memory: which frames are hidden, which one is the user's, and what that
 * means for owners and leaks. How two stacks become one is in test_analysis_merge.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "analysis/format.h"
#include "test_analysis_fixture.h"

/* The user frame of a Python stack, outermost file first. Files as given, functions f0, f1 ..., lines 10, 11 ... */
static void check_user(const char *paths, const char *const *files, const char *expected)
{
    const struct vt_stack_style style = {.user_paths = paths};
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    char name[16], text[256];
    uint32_t stack = 0, i;

    fixture_begin(&f);
    for (i = 0; files[i]; i++) {
        snprintf(name, sizeof name, "f%u", i);
        stack = fixture_python(&f, stack, files[i], name, 10 + i);
    }
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, &style, 0, stack), 0);
    assert_int_equal(trace.count, i);
    assert_string_equal(vt_format_place(text, sizeof text, vt_trace_user(&trace)), expected);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}
#define USER(paths, expected, ...) check_user(paths, (const char *const[]){__VA_ARGS__, NULL}, expected)

static void test_user(void **state)
{
    static const char torch[] = "/env/lib/python3.12/site-packages/torch/nn/functional.py";
    static const char debian[] = "/usr/lib/python3/dist-packages/numpy/core.py",
                      thread[] = "/usr/lib/python3.11/threading.py";

    (void)state;
    USER(NULL, "f1 (model.py:11)", "/home/me/train.py", "/home/me/model.py", torch, debian);
    USER(NULL, "f0 (train.py:10)", "train.py", thread, "/opt/py/lib64/python3.9/ast.py", "/x/lib/python3.13t/a.py",
         "/x/lib/python311.zip/a.py");
    USER(NULL, "f1 (x.py:11)", thread, "/home/lib/python/x.py");
    USER(NULL, "f1 (x.py:11)", thread, "/home/python3.9/x.py");
    USER(NULL, "f0 (train.py:10)", "/home/me/train.py", "/opt/target/tensorflow/python/framework/constant_op.py",
         "/opt/target/tensorflow/dtensor/python/api.py", "/src/pytorch/torch/nn/modules/linear.py",
         "/opt/target/keras/src/trainers/trainer.py");
    USER(NULL, "f1 (model.py:11)", "/home/me/train.py", "/home/me/torch/model.py");
    USER(NULL, "f0 (train.py:10)", "train.py", "<eval_with_key>.3", "<__array_function__ internals>");
    USER(NULL, "f1 (<stdin>:11)", thread, "<stdin>", torch);
    USER(NULL, "f0 (train.py:10)", "train.py", "<string>", torch);
    USER(NULL, "f2 (<ipython-input-3-ab>:12)", thread, torch, "<ipython-input-3-ab>");
    USER(NULL, "f1 (functional.py:11)", thread, torch); /* nothing of the user's */
    USER(NULL, "f0 (threading.py:10)", thread, "<attrs generated init x>");
    USER(NULL, "f0 (<generated>:10)", "<generated>");
    USER(NULL, "f0 (<frozen runpy>:10)", "<frozen runpy>"); /* hidden, but all there is */
    USER("", "f1 (model.py:11)", "/home/me/train.py", "/home/me/model.py");
    USER("/env/lib/python3.12/site-packages/torch", "f1 (functional.py:11)", "/home/me/train.py", torch, debian);
    USER("/home/me/proj/:/opt", "f0 (a.py:10)", "/home/me/proj/a.py", "/home/me/b.py");
    USER("/nothing:/home/me/proj", "f1 (b.py:11)", "/home/me/project2/a.py", "/home/me/b.py");
    USER("::/home/me/proj:", "f0 (a.py:10)", "/home/me/proj/a.py", "/home/me/b.py");
}

/* What a recording says of the evaluation loop beside the line. */
static void test_evaluations(void **state)
{
    static const struct {
        uint32_t line, shown, empty;
        bool entry;
    } frames[] = {{VT_PYTHON_ENTRY | 50, 50, 0, true},
                  {12, 12, 0, false},
                  {VT_PYTHON_ENTRY | 2u << VT_PYTHON_EMPTY_SHIFT | VT_PYTHON_LINE, VT_PYTHON_LINE, 2, true},
                  {VT_PYTHON_EMPTY, 0, 3, false}}; /* outermost first */
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack = 0, i;

    (void)state;
    fixture_begin(&f);
    for (i = 0; i < 4; i++)
        stack = fixture_python(&f, stack, "/home/me/train.py", "step", frames[i].line);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, 0, stack), 0);
    assert_int_equal(trace.count, 4);
    for (i = 0; i < 4; i++) {
        assert_int_equal(trace.frames[3 - i].line, frames[i].shown);
        assert_int_equal(trace.frames[3 - i].entry, frames[i].entry);
        assert_int_equal(trace.frames[3 - i].empty, frames[i].empty);
        assert_string_equal(trace.frames[3 - i].function, "step");
    }
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

static void test_python_folding(void **state)
{
    static const char module[] = "/env/lib/python3.12/site-packages/torch/nn/modules/module.py";
    static const bool hidden[] = {false, true, true, false, false, true}; /* innermost first */
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack, i;

    (void)state;
    fixture_begin(&f);
    stack = fixture_python(&f, 0, "<frozen importlib._bootstrap>", "_call_with_frames_removed", 1);
    stack = fixture_python(&f, stack, "train.py", "<module>", 2);
    stack = fixture_python(&f, stack, module, "Module.register", 3);
    stack = fixture_python(&f, stack, module, "Module._wrapped_call_impl", 4);
    stack = fixture_python(&f, stack, module, "_call_impl", 5);
    stack = fixture_python(&f, stack, "net.py", "Net._call_impl", 6);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, 0, stack), 0);
    assert_int_equal(trace.count, 6);
    for (i = 0; i < 6; i++)
        assert_int_equal(trace.frames[i].hidden, hidden[i]);
    assert_int_equal(trace.user, 0);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* A stack of ours, CUDA, torch, and the interpreter, with two Python frames; unnamed as without symbols. */
static void make_both(struct fixture *f, uint32_t *native, uint32_t *python)
{
    uint32_t ours, cuda, torch, interpreter, libc, stack;

    fixture_begin(f);
    ours = fixture_module(f, "/opt/vt/libvramtrack.so", VT_MODULE_SELF);
    cuda = fixture_module(f, "/usr/lib/libcuda.so.1", 0);
    torch = fixture_module(f, "/nowhere/torch/lib/libtorch_cpu.so", 0);
    interpreter = fixture_module(f, "/nowhere/bin/python3.12", 0);
    libc = fixture_module(f, "/nowhere/libc.so.6", 0);
    stack = fixture_frame(f, 0, libc, 0x10);
    stack = fixture_frame(f, stack, interpreter, 0x20);
    stack = fixture_frame(f, stack, interpreter, 0x21);
    stack = fixture_frame(f, stack, torch, 0x30);
    stack = fixture_frame(f, stack, cuda, 0x40);
    *native = fixture_frame(f, stack, ours, 0x50);
    stack = fixture_python(f, 0, "/home/me/train.py", "<module>", 50);
    *python = fixture_python(f, stack, "/home/me/train.py", "Trainer.step", 34);
}

static void test_styles(void **state)
{
    static const struct {
        enum vt_show_stacks stacks;
        uint32_t count, visible, user;
    } cases[] = {{VT_SHOW_MERGED, 8, 3, 3}, {VT_SHOW_PYTHON, 2, 2, 0}, {VT_SHOW_NATIVE, 6, 1, 2}};
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t native, python, i, j, visible;
    char text[128];

    (void)state;
    make_both(&f, &native, &python);
    reading = vt_reading_from_memory(f.image, f.bytes);
    for (i = 0; i < 3; i++) {
        const struct vt_stack_style style = {.stacks = cases[i].stacks};

        assert_int_equal(vt_trace_build(&trace, reading, NULL, &style, native, python), 0);
        assert_int_equal(trace.count, cases[i].count);
        for (j = visible = 0; j < trace.count; j++)
            visible += !trace.frames[j].hidden;
        assert_int_equal(visible, cases[i].visible);
        assert_int_equal(trace.user, cases[i].user);
        vt_trace_free(&trace);
    }
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, native, python), 0);
    assert_string_equal(vt_format_place(text, sizeof text, vt_trace_user(&trace)), "Trainer.step (train.py:34)");
    assert_null(trace.frames[3].module);
    assert_true(trace.frames[5].replaced && trace.frames[6].replaced && !trace.frames[7].replaced);
    assert_null(vt_trace_leaf(&trace)); /* libtorch without a name says nothing */
    trace.frames[2].function = "c10::cuda::f";
    assert_null(vt_trace_leaf(&trace));
    trace.frames[2].function = "at::native::empty_cuda";
    assert_ptr_equal(vt_trace_leaf(&trace), &trace.frames[2]);
    vt_trace_free(&trace);

    /* Threads without Python: the native stack as it is, the interpreter hidden. */
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, native, 0), 0);
    assert_int_equal(trace.count, 6);
    assert_int_equal(trace.user, 2);
    assert_true(trace.frames[3].hidden && !trace.frames[3].replaced);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* Code objects that are not there, languages mixed, parents that lead forward: every frame stays, nothing breaks. */
static void test_hostile(void **state)
{
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t native, python, outside, i;
    char text[128];

    (void)state;
    make_both(&f, &native, &python);
    outside = fixture_frame(&f, python, VT_PYTHON, UINT64_MAX);
    outside = fixture_frame(&f, outside, 0, 0x77);
    native = fixture_frame(&f, native, VT_PYTHON, 0);
    ((struct vt_code *)fixture_record(&f, VT_CODES, 0))->file = 0xfffffff0u;
    ((struct vt_code *)fixture_record(&f, VT_CODES, 1))->function = 3;
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, native, outside), 0);
    assert_int_equal(trace.count, 7 + 4);
    vt_trace_free(&trace);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, 0, outside), 0);
    assert_int_equal(trace.count, 4);
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[1]), "? (Python)");
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[2]), "? (train.py:34)");
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[3]), "<module> (Python)");
    assert_int_equal(trace.user, 2);
    vt_trace_free(&trace);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, 0xffffffffu, 0xfffffffeu), 0);
    assert_int_equal(trace.count, 0);
    vt_trace_free(&trace);
    vt_reading_close(reading);

    ((struct vt_frame *)fixture_record(&f, VT_FRAMES, python - 1))->parent = python; /* a circle */
    for (i = 0; i < 600; i++)                                                        /* longer than anything may be */
        outside = fixture_frame(&f, outside, VT_PYTHON, i);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, native, python), 0);
    assert_int_equal(trace.count, 7 + 1);
    vt_trace_free(&trace);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, native, outside), 0);
    assert_int_equal(trace.count, 7 + VT_STACK_FRAMES_MAX);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

static void check_paths(struct fixture *f, const char *environment, uint32_t length, const char *given,
                        const char *expected)
{
    struct vt_reading *reading;
    struct vt_stack_style style;
    uint32_t id = environment ? fixture_bytes(f, environment, length) : 0;

    fixture_header(f)->environment = id;
    reading = vt_reading_from_memory(f->image, f->bytes);
    style = vt_stack_style_for(reading, VT_SHOW_PYTHON, given);
    assert_int_equal(style.stacks, VT_SHOW_PYTHON);
    if (expected)
        assert_string_equal(style.user_paths, expected);
    else
        assert_null(style.user_paths);
    vt_reading_close(reading);
}

static void test_where_paths_come_from(void **state)
{
    static const char settings[] = "A=1\0VRAMTRACK_USER_PATHS=/there:/x\0B=2";
    struct fixture f;

    (void)state;
    unsetenv("VRAMTRACK_USER_PATHS");
    fixture_begin(&f);
    check_paths(&f, NULL, 0, NULL, NULL);
    check_paths(&f, settings, sizeof settings, NULL, "/there:/x");
    check_paths(&f, "VRAMTRACK_USER_PATHS", 20, NULL, NULL);
    check_paths(&f, "VRAMTRACK_USER_PATHS=", 21, NULL, "");
    check_paths(&f, settings, sizeof settings, "/given", "/given");
    setenv("VRAMTRACK_USER_PATHS", "/here", 1);
    check_paths(&f, settings, sizeof settings, NULL, "/here");
    unsetenv("VRAMTRACK_USER_PATHS");
    fixture_end(&f);
}

static void set_stacks(struct fixture *f, uint32_t site, uint32_t stack, uint32_t python)
{
    site_record(f, site)->stack = stack;
    site_record(f, site)->python_stack = python;
}

/* Python makes a site the program's where only the interpreter, ctypes and CUDA are on the native stack; a framework's
 * allocator stays what it is, and without a native stack nothing is claimed. */
static void test_owners(void **state)
{
    static const enum vt_owner expected[] = {VT_OWNER_APPLICATION, VT_OWNER_FRAMEWORK, VT_OWNER_UNKNOWN,
                                             VT_OWNER_FRAMEWORK, VT_OWNER_UNKNOWN};
    uint32_t cuda, torch, interpreter, ctypes, total, through, pool, user, inside, i;
    struct opened o;
    struct fixture f;

    (void)state;
    fixture_begin(&f);
    cuda = fixture_module(&f, "/usr/lib/libcudart.so.13", 0);
    torch = fixture_module(&f, "/nowhere/torch/lib/libc10_cuda.so", 0);
    interpreter = fixture_module(&f, "/nowhere/lib/libpython3.11.so.1.0", 0);
    ctypes = fixture_module(&f, "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", 0);
    through = fixture_frame(&f, fixture_frame(&f, fixture_frame(&f, 0, interpreter, 1), ctypes, 2), cuda, 3);
    pool = fixture_frame(&f, fixture_frame(&f, 0, interpreter, 1), torch, 2);
    user = fixture_python(&f, 0, "/home/me/a.py", "f", 7);
    inside = fixture_python(&f, user, "/env/lib/python3.11/site-packages/cupy/_core/core.py", "g", 8);
    total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 80 * MIB, 20, 80 * MIB, 20, 0);
    for (i = 0; i < 5; i++)
        fixture_site(&f, total, 0, "cudaMalloc", 16 * MIB, 4, 4, 0);
    set_stacks(&f, 0, through, user);
    set_stacks(&f, 1, pool, user);
    set_stacks(&f, 2, 0, user);
    set_stacks(&f, 3, 0, inside);
    set_stacks(&f, 4, through, 0);
    open_at(&o, &f, NULL);
    for (i = 0; i < 5; i++)
        assert_int_equal(vt_model_site(&o.a.model, i)->owner, expected[i]);
    assert_null(find(&o, VT_FAMILY_LEAK, VT_LIKELY)); /* objects of Python's, or of nobody that is known */
    assert_int_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->site_count, 3);
    assert_int_equal(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->sites[0], 0);
    assert_non_null(strstr(find(&o, VT_FAMILY_LEAK, VT_POSSIBLE)->evidence[0], "by f (a.py:7): 8 allocated"));
    close_it(&o);
    fixture_end(&f);
}

/* At the moment "finalize" the figures are those of the moment, and what the shutdown gave back is no likely leak. */
static void test_leaks_at_finalize(void **state)
{
    struct vt_moment moment = {.name = "finalize",
                               .time_ns = 1700000000,
                               .kind = VT_MOMENT_FINALIZE,
                               .failure = VT_NONE,
                               .totals = 1,
                               .sites = 2};
    struct vt_moment_total total = {.live_bytes = 96 * MIB, .live_count = 6, .requested_bytes = 96 * MIB};
    struct vt_moment_site sites[] = {{.live_bytes = 64 * MIB, .live_count = 4},
                                     {.live_bytes = 32 * MIB, .live_count = 2}};
    const struct vt_finding *kept, *gone;
    struct opened o;
    struct fixture f;
    uint32_t app, i;

    (void)state;
    fixture_begin(&f);
    app = fixture_module(&f, "/home/me/ext.so", 0);
    total.total = fixture_total(&f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, 0, 64 * MIB, 4, 96 * MIB, 8, 4);
    sites[0].site = fixture_site(&f, total.total, fixture_frame(&f, 0, app, 1), "cudaMalloc", 64 * MIB, 4, 5, 1);
    sites[1].site = fixture_site(&f, total.total, fixture_frame(&f, 0, app, 2), "cudaMalloc", 0, 0, 3, 3);
    fixture_add(&f, VT_MOMENT_TOTALS, &total);
    for (i = 0; i < 2; i++)
        fixture_add(&f, VT_MOMENT_SITES, &sites[i]);
    fixture_add(&f, VT_MOMENTS, &moment);
    open_at(&o, &f, NULL);
    assert_string_equal(o.a.model.moment, "finalize");
    assert_int_equal(o.a.model.totals[0].live_bytes, 96 * MIB);
    assert_int_equal(vt_model_site(&o.a.model, 1)->live_count, 2);
    kept = find(&o, VT_FAMILY_LEAK, VT_LIKELY);
    gone = find(&o, VT_FAMILY_LEAK, VT_POSSIBLE);
    assert_int_equal(kept->sites[0], 0);
    assert_int_equal(gone->sites[0], 1);
    assert_non_null(strstr(gone->title, "2 allocations still held when the program's own code had ended."));
    assert_non_null(strstr(gone->evidence[0], "3 allocated, 1 freed."));
    close_it(&o);
    fixture_end(&f);
}

static void test_same_place(void **state)
{
    struct vt_display_frame a = {.lang = VT_LANG_PYTHON, .function = "f", .file = "/a/x.py", .line = 3}, b = a;

    (void)state;
    assert_true(vt_same_place(&a, &b));
    b.file = "/b/x.py"; /* looks the same in a list, but is another file */
    assert_false(vt_same_place(&a, &b));
    assert_false(vt_same_place(&a, NULL));
    a = b = (struct vt_display_frame){.module = "/x.so", .offset = 1};
    assert_true(vt_same_place(&a, &b));
    b.offset = 2;
    assert_false(vt_same_place(&a, &b));
    a.function = b.function = "g";
    assert_true(vt_same_place(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user),           cmocka_unit_test(test_evaluations),
        cmocka_unit_test(test_python_folding), cmocka_unit_test(test_styles),
        cmocka_unit_test(test_hostile),        cmocka_unit_test(test_where_paths_come_from),
        cmocka_unit_test(test_owners),         cmocka_unit_test(test_leaks_at_finalize),
        cmocka_unit_test(test_same_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
