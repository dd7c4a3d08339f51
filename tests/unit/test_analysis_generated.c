/*
 * Code that is in no file: what it is called, whose compiler made it, the names that a perf map has for it, and which of
 * its frames are hidden. Recordings are made in memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/demangle.h"
#include "analysis/format.h"
#include "analysis/modules.h"
#include "analysis/perf_map.h"
#include "analysis/stack.h"
#include "analysis/stack_rules.h"
#include "analysis/symbols.h"
#include "recording/reader.h"
#include "test_programs.h"
#include "test_reader_fixture.h"

/* A stack of frames in the given modules, innermost first: "" is anonymous memory, a name in <> a mapping, "?" unknown. */
#define MODULES_MOST 8
static uint32_t stack_of(struct fixture *f, const char *const *modules)
{
    uint32_t count = 0, stack = 0, module;
    char name[128];

    while (modules[count])
        count++;
    while (count--) {
        const char *path = modules[count];

        snprintf(name, sizeof name, "%s", path + (*path == '<'));
        if (*path == '<')
            *strrchr(name, '>') = '\0';
        module = !strcmp(path, "?") ? VT_NONE : fixture_module(f, name, !*path || *path == '<' ? VT_MODULE_MAPPING : 0);
        if (!*path)
            ((struct vt_module *)fixture_record(f, VT_MODULES, module))->path = 0;
        stack = fixture_frame(f, stack, module, 0x1000 + count);
    }
    return stack;
}

/* How the first frame is shown; `loaded` is a module that no frame is in. */
static void check(const char *expected, bool hidden, const char *loaded, const char *const *modules)
{
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack;
    char text[256];

    fixture_begin(&f);
    if (loaded)
        fixture_module(&f, loaded, 0);
    stack = stack_of(&f, modules);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, stack, 0), 0);
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[0]), expected);
    assert_int_equal(trace.frames[0].hidden, hidden);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}
#define PLACE(expected, loaded, ...) check(expected, false, loaded, (const char *const[]){__VA_ARGS__, NULL})
#define HIDDEN(expected, loaded, ...) check(expected, true, loaded, (const char *const[]){__VA_ARGS__, NULL})

static void test_names(void **state)
{
    static const char llvmlite[] = "/env/site-packages/llvmlite/binding/libllvmlite.so",
                      xla[] = "/env/site-packages/jaxlib/libjax_common.so", app[] = "/home/me/app",
                      dispatcher[] = "/env/site-packages/numba/_dispatcher.cpython-312-x86_64-linux-gnu.so";

    (void)state;
    PLACE("JIT code", NULL, "", app);
    PLACE("JIT code", "/home/me/libfoo.so", "");
    PLACE("JIT code (numba/LLVM)", llvmlite, "", app);
    PLACE("JIT code (XLA)", xla, "", app);
    PLACE("JIT code (Julia)", "/opt/julia/lib/libjulia-internal.so.1.10", "");
    /* The caller, or else the called one, says whose it is, whatever else is loaded. */
    PLACE("JIT code (numba/LLVM)", xla, "", dispatcher);
    PLACE("JIT code (numba/LLVM)", xla, "", "", dispatcher);
    PLACE("JIT code (XLA)", llvmlite, "", xla, dispatcher);
    PLACE("JIT code", llvmlite, "", app, xla); /* two, and none beside it */
    /* Memory that has a name. */
    PLACE("JIT code (.NET)", "/usr/share/dotnet/libclrjit.so", "</memfd:doublemapper (deleted)>", app);
    PLACE("JIT code", NULL, "</dev/zero (deleted)>", app);
    PLACE("code on the stack or heap", NULL, "<[stack]>", app);
    PLACE("plug.so (deleted)+0x1000", NULL, "</tmp/plug.so (deleted)>", app);
    HIDDEN("libffi closure", NULL, "</memfd:libffi (deleted)>", app);
    HIDDEN("libffi closure", NULL, "</usr/lib/libffi.so.8.1.2>", app);
    HIDDEN("libc.so.6+0x1000", NULL, "</usr/lib/libc.so.6>", app);
    PLACE("?+0x1000", llvmlite, "?", app); /* nothing is known: nothing is claimed */
    /* A file that a program made for itself. */
    PLACE("Triton launcher+0x1000", NULL,
          "/home/u/.triton/cache/AB12/__triton_launcher.cpython-312-x86_64-linux-gnu.so", app);
    PLACE("Triton's CUDA helper+0x1000", NULL, "/home/u/.triton/cache/AB12/cuda_utils.cpython-312-x86_64-linux-gnu.so",
          app);
    PLACE("cuda_utils.cpython-312-x86_64-linux-gnu.so+0x1000", NULL,
          "/home/me/cuda_utils.cpython-312-x86_64-linux-gnu.so");
}

/* The second frame, where the first is called by it: generated code is called from the library that it was made by. */
static void test_called_library(void **state)
{
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack;

    (void)state;
    fixture_begin(&f);
    stack = stack_of(&f, (const char *const[]){"/jaxlib/xla_extension.so", "", "/home/me/app", "", NULL});
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, stack, 0), 0);
    assert_string_equal(trace.frames[1].function, "JIT code (XLA)");
    assert_string_equal(trace.frames[3].function, "JIT code (XLA)");
    assert_null(trace.frames[1].module);
    assert_int_equal(trace.frames[1].offset, 0x1001);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* The trampolines of `python -X perf`, and the interpreter's own JIT: they are on the way between its frames. */
static void test_of_the_interpreter(void **state)
{
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack, python;

    (void)state;
    fixture_begin(&f);
    stack = stack_of(&f,
                     (const char *const[]){"/home/me/ext.so", "/usr/bin/python3.12", "", "/usr/bin/python3.12", NULL});
    python = fixture_python(&f, 0, "/home/me/train.py", "<module>", 3);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, NULL, NULL, stack, python), 0);
    assert_int_equal(trace.count, 5);
    assert_string_equal(trace.frames[3].function, "JIT code");
    assert_true(trace.frames[3].replaced && trace.frames[3].hidden);
    assert_false(trace.frames[0].hidden);
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
}

/* Generated code owns nothing: whoever called it does. */
static void test_owner(void **state)
{
    struct vt_reading *reading;
    struct fixture f;
    uint32_t stack, alone;

    (void)state;
    fixture_begin(&f);
    stack = stack_of(&f, (const char *const[]){"", "</tmp/x.so (deleted)>", "/env/numba/_dispatcher.so", NULL});
    alone = stack_of(&f, (const char *const[]){"", NULL});
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_string_equal(vt_reading_chars(reading, vt_reading_module(reading, vt_owner_module(reading, stack))->path),
                        "/env/numba/_dispatcher.so");
    assert_int_equal(vt_owner_module(reading, alone), VT_NONE);
    vt_reading_close(reading);
    fixture_end(&f);
}

static const char *name_at(const struct vt_perf_map *map, uint64_t address)
{
    const char *name = vt_perf_map_find(map, address);

    return name ? name : "(none)";
}

static void test_perf_map(void **state)
{
    struct vt_perf_map *map;
    char longest[VT_PERF_NAME + 1];

    (void)state;
    put("map", "7f0000001000 100 py::train:/home/me/train.py\n"
               "7f0000002000 20 first\n"
               "0x7f0000003000 0x10 with a  prefix\n"
               "7f0000002000 40 second, at the same place\n"
               "7f0000002010 4 inner\n"
               "nonsense\n\n"
               "7f0000004000\n"
               "7f0000004000 10\n"
               "7f0000004000 10 \n"
               "-1 10 minus\n"
               "7f0000005000 zz size\n"
               "fffffffffffffff0 100 over the end\n"
               "7f0000006000 10 \x1b[31mred\n"
               "7f0000007000 10 still being writ");
    map = vt_perf_map_read(in_folder("map"), getuid());
    assert_non_null(map);
    assert_string_equal(name_at(map, 0x7f0000001000), "py::train:/home/me/train.py");
    assert_string_equal(name_at(map, 0x7f00000010ff), "py::train:/home/me/train.py");
    assert_string_equal(name_at(map, 0x7f0000001100), "(none)");
    assert_string_equal(name_at(map, 0x7f0000000fff), "(none)");
    assert_string_equal(name_at(map, 0x7f0000002001), "second, at the same place");
    assert_string_equal(name_at(map, 0x7f0000002011), "inner");
    assert_string_equal(name_at(map, 0x7f0000002020), "second, at the same place");
    assert_string_equal(name_at(map, 0x7f0000003005), "with a  prefix");
    assert_string_equal(name_at(map, 0x7f0000004000), "(none)");
    assert_string_equal(name_at(map, 0x7f0000005000), "(none)");
    assert_string_equal(name_at(map, UINT64_MAX), "(none)");
    assert_string_equal(name_at(map, 0), "(none)");
    assert_string_equal(name_at(map, 0x7f0000006000), "\x1b[31mred"); /* the views take the edge off */
    assert_string_equal(name_at(map, 0x7f0000007000), "(none)");
    vt_perf_map_free(map);

    assert_int_equal(shell("{ printf '10 10 '; head -c 5000 /dev/zero | tr '\\0' x; echo; } >long"), 0);
    memset(longest, 'x', VT_PERF_NAME);
    longest[VT_PERF_NAME] = '\0';
    map = vt_perf_map_read(in_folder("long"), getuid());
    assert_string_equal(name_at(map, 0x10), longest);
    vt_perf_map_free(map);
}

/* Anybody may put anything there. */
static void test_perf_map_of_others(void **state)
{
    struct vt_perf_map *map;

    (void)state;
    put("map", "1000 100 name\n");
    assert_null(vt_perf_map_read(in_folder("map"), getuid() + 1));
    assert_int_equal(symlink(in_folder("map"), in_folder("link")), 0);
    assert_null(vt_perf_map_read(in_folder("link"), getuid()));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_null(vt_perf_map_read(in_folder("pipe"), getuid())); /* and does not wait for a writer */
    assert_null(vt_perf_map_read("/dev/zero", 0));
    assert_null(vt_perf_map_read("/", 0));
    assert_null(vt_perf_map_read(in_folder("nothing"), getuid()));
    put("empty", "");
    assert_null(vt_perf_map_read(in_folder("empty"), getuid()));
    assert_int_equal(shell("head -c 300000 /dev/urandom >noise"), 0);
    vt_perf_map_free(vt_perf_map_read(in_folder("noise"), getuid()));
    /* Of a file that is too large, the end: the newest code. */
    assert_int_equal(shell("{ echo '1000 10 old'; head -c %u /dev/zero | tr '\\0' '\\n'; echo '2000 10 new'; } >large",
                           VT_PERF_MAP_BYTES),
                     0);
    map = vt_perf_map_read(in_folder("large"), getuid());
    assert_string_equal(name_at(map, 0x1000), "(none)");
    assert_string_equal(name_at(map, 0x2000), "new");
    vt_perf_map_free(map);
}

/* Field 22 of /proc/self/stat, counted behind the name. */
static uint64_t own_start(void)
{
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file,
                            "%*d (%*[^)]) %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                            "%llu",
                            &ticks),
                     1);
    fclose(file);
    return ticks;
}

/* The names are shown in the process that they belong to, and in no other. */
static void test_perf_map_in_stacks(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t stack;
    uint64_t ticks;
    char path[64], text[128];
    int own;

    (void)state;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    unlink(path);
    snprintf(text, sizeof text, "echo f00 200 'lambda(x)' >%s", path);
    assert_int_equal(system(text), 0);
    ticks = own_start();
    for (own = 1; own >= 0; own--) {
        fixture_begin(&f);
        fixture_header(&f)->pid = getpid();
        fixture_header(&f)->process_start_ticks = ticks + !own; /* another process had this pid */
        stack = stack_of(&f, (const char *const[]){"", "/home/me/app", NULL});
        reading = vt_reading_from_memory(f.image, f.bytes);
        assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, stack, 0), 0);
        assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[0]),
                            own ? "lambda(x) (JIT code)" : "JIT code");
        vt_trace_free(&trace);
        vt_reading_close(reading);
        fixture_end(&f);
        vt_symbols_close(symbols);
        symbols = vt_symbols_open();
    }
    vt_symbols_close(symbols);
    unlink(path);
}

static void test_rust(void **state)
{
    static const char *const names[][2] = {
        {"_ZN4core3fmt5write17h01dfa9ac51bbd9bfE", "core::fmt::write"},
        {"_ZN3foo3bar17h05af221e174051e9E.llvm.8921740", "foo::bar"},
        {"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
         "<Test + 'static as foo::Bar<Test>>::bar"},
        {"_RNvC6_123foo3bar", "123foo::bar"},
        {"_RINvNtNtCsciGn5CcqV8B_1t1a1b3genAhj4_EB6_", "t::a::b::gen::<[u8; 4]>"},
        {"_RNvMs4_NtCsgY6Mt91CT9J_14rustc_demangle2v0NtB5_7Printer30print_path_maybe_open_generics",
         "<rustc_demangle::v0::Printer>::print_path_maybe_open_generics"},
        {"_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"},
        {"_RNvCs1234_7mycrate3foo.llvm.9876", "mycrate::foo"},
        /* Not Rust, or damaged: as they are. */
        {"_RNv", "_RNv"},
        {"_RINvC1a1fBz_E", "_RINvC1a1fBz_E"},
        {"_R", "_R"},
        {"_Random", "_Random"},
        {"17h01dfa9ac51bbd9bfE", "17h01dfa9ac51bbd9bfE"},
    };
    size_t i;

    (void)state;
#ifndef VT_LIBIBERTY
    skip();
#endif
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *name = vt_demangle(names[i][0]);

        assert_string_equal(name, names[i][1]);
        free(name);
    }
}

/* Each part refers to the one before it twice: 40 of them stand for a name of terabytes. */
static void test_rust_bomb(void **state)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char symbol[1024] = "_RINvC1a1fTllE", reference[8], *name;
    size_t at = 8, next, i;

    (void)state;
#ifndef VT_LIBIBERTY
    skip();
#endif
    for (i = 0; i < 40; i++) {
        next = strlen(symbol) - 2;
        if (at - 1 < 62)
            snprintf(reference, sizeof reference, "B%c_", digits[at - 1]);
        else
            snprintf(reference, sizeof reference, "B%c%c_", digits[(at - 1) / 62], digits[(at - 1) % 62]);
        snprintf(symbol + next + 2, sizeof symbol - next - 2, "T%s%sE", reference, reference);
        at = next;
    }
    strcat(symbol, "E");
    name = vt_demangle(symbol);
    assert_int_equal(strlen(name), 1024);
    assert_memory_equal(name, "a::f::<(i32, i32), ((i32, i32), (i32, i32)), (((i32", 50);
    assert_string_equal(name + 1021, "...");
    free(name);
}

/* Rust's own library is inlined into everything: its lines are nobody's. */
static void test_rust_library(void **state)
{
    (void)state;
    assert_true(vt_fold_is_foreign("/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/ptr/mod.rs"));
    assert_false(vt_fold_is_foreign("/home/me/rustc/src/main.rs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_called_library),
        cmocka_unit_test(test_of_the_interpreter),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_perf_map),
        cmocka_unit_test(test_perf_map_of_others),
        cmocka_unit_test(test_perf_map_in_stacks),
        cmocka_unit_test(test_rust),
        cmocka_unit_test(test_rust_bomb),
        cmocka_unit_test(test_rust_library),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
