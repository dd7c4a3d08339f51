/*
 * The symbolizer against a library that the test compiles: inlined chains, line numbers, C++ names, separate debug
 * files, stripped files, files that changed, and files that are gone.
 *
 * The library records its own return addresses when it is called, so the expected lines are those of the source below.
 * Needs a C++ compiler ($CXX, else g++ or c++); without one the tests are skipped.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/demangle.h"
#include "analysis/modules.h"
#include "analysis/objfile.h"
#include "analysis/stack.h"
#include "analysis/symbols.h"
#include "recording/reader.h"
#include "test_reader_fixture.h"

static const char source[] = "extern \"C\" void *vt_seen;\n"                                              /* 1 */
                             "void *vt_seen;\n"                                                           /* 2 */
                             "extern \"C\" __attribute__((noinline)) void vt_mark() {\n"                  /* 3 */
                             "    vt_seen = __builtin_return_address(0);\n"                               /* 4 */
                             "}\n"                                                                        /* 5 */
                             "namespace shop {\n"                                                         /* 6 */
                             "struct Cart {\n"                                                            /* 7 */
                             "    int n;\n"                                                               /* 8 */
                             "    __attribute__((always_inline)) inline void innermost() {\n"             /* 9 */
                             "        vt_mark(); n++;\n"                                                  /* 10 */
                             "    }\n"                                                                    /* 11 */
                             "    __attribute__((noinline)) int fill(int more);\n"                        /* 12 */
                             "};\n"                                                                       /* 13 */
                             "namespace { __attribute__((always_inline)) inline void middle(Cart *c) {\n" /* 14 */
                             "    c->innermost();\n"                                                      /* 15 */
                             "} }\n"                                                                      /* 16 */
                             "int Cart::fill(int more) {\n"                                               /* 17 */
                             "    n += more;\n"                                                           /* 18 */
                             "    middle(this);\n"                                                        /* 19 */
                             "    return n;\n"                                                            /* 20 */
                             "}\n"                                                                        /* 21 */
                             "}\n"                                                                        /* 22 */
                             "extern \"C\" void *vt_run() {\n"                                            /* 23 */
                             "    shop::Cart cart = {1};\n"                                               /* 24 */
                             "    volatile int sum = cart.fill(2); (void)sum;\n"                          /* 25 */
                             "    return vt_seen;\n"                                                      /* 26 */
                             "}\n";                                                                       /* 27 */

/* Compiled without debug information, as CUDA's static runtime is. */
static const char shim[] =
    "extern void vt_mark(void); extern void *vt_seen; void *vt_shim_seen;\n"
    "__attribute__((noinline)) void cudaMallocHost(void) { vt_shim_seen = __builtin_return_address(0); vt_mark(); }\n";

static const char user[] = "extern \"C\" void cudaMallocHost(void);\n"                                        /* 1 */
                           "extern \"C\" void *vt_shim_seen;\n"                                               /* 2 */
                           "namespace app { struct Pool { __attribute__((noinline)) void grow() {\n"          /* 3 */
                           "    cudaMallocHost();\n"                                                          /* 4 */
                           "    asm volatile(\"\"); } }; }\n"                                                 /* 5 */
                           "extern \"C\" void *vt_run_shim() { app::Pool().grow(); return vt_shim_seen; }\n"; /* 6 */

static char folder[64];
static char library[128];
static uint64_t address;                    /* of the call of vt_mark(), in the file */
static uint64_t shim_address, user_address; /* return addresses in cudaMallocHost() and in its caller */
static int have_compiler;

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char command[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command);
}

static const char *compiler(void)
{
    const char *cxx = getenv("CXX");

    if (cxx && *cxx)
        return cxx;
    return !system("command -v g++ >/dev/null 2>&1") ? "g++" : "c++";
}

static int put(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!(file = fopen(path, "w")))
        return -1;
    fputs(text, file);
    return fclose(file);
}

/* Calls a function of the library that returns an address, and makes that one of the file. */
static uint64_t call(void *handle, const char *name, const char *variable)
{
    void *(*entry)(void) = (void *(*)(void))dlsym(handle, name), *seen;
    Dl_info info;

    if (!entry || !(seen = entry()))
        return 0;
    if (variable)
        seen = *(void **)dlsym(handle, variable);
    if (!dladdr(seen, &info))
        return 0;
    return (uint64_t)(uintptr_t)seen - (uint64_t)(uintptr_t)info.dli_fbase;
}

/* Compiles the library, calls it and notes the addresses that it saw. */
static int build(void **state)
{
    void *handle;

    (void)state;
    strcpy(folder, "/tmp/vramtrack-symbols-XXXXXX");
    if (!mkdtemp(folder) || put("shop.cpp", source) || put("shim.c", shim) || put("user.cpp", user))
        return -1;
    snprintf(library, sizeof library, "%s/libshop.so", folder);
    if (run("cd %s && exec 2>/dev/null; ${CC:-gcc} -O1 -fPIC -fno-optimize-sibling-calls -c -o shim.o shim.c && "
            "%s -g -O1 -fPIC -shared -Wl,--build-id=sha1 -o libshop.so shop.cpp user.cpp shim.o",
            folder, compiler()))
        return 0;
    if (!(handle = dlopen(library, RTLD_NOW | RTLD_LOCAL)))
        return -1;
    address = call(handle, "vt_run", NULL);
    user_address = call(handle, "vt_run_shim", NULL);
    shim_address = call(handle, "vt_run_shim", "vt_seen");
    if (!address || !user_address || !shim_address)
        return -1;
    have_compiler = 1;
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return run("rm -rf %s", folder);
}

static void need(struct vt_symbols *symbols)
{
    bool possible = have_compiler && vt_symbols_available(symbols);

    if (!possible) {
        vt_symbols_close(symbols);
        skip();
    }
}

static void check_frame(const struct vt_symbol_frame *frame, const char *function, uint32_t line)
{
    assert_string_equal(frame->function, function);
    assert_non_null(frame->file);
    assert_string_equal(vt_basename(frame->file), "shop.cpp");
    assert_int_equal(frame->line, line);
}

/* The whole chain: two inlined frames, then the function. */
static void check_chain(struct vt_symbol symbol)
{
    assert_int_equal(symbol.count, 3);
    check_frame(&symbol.frames[0], "shop::Cart::innermost", 10);
    check_frame(&symbol.frames[1], "shop::(anonymous namespace)::middle", 15);
    check_frame(&symbol.frames[2], "shop::Cart::fill", 19);
}

static void test_inlined_chain(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol first, again;

    (void)state;
    need(symbols);
    first = vt_symbols_find(symbols, library, NULL, 0, address - 1);
    check_chain(first);
    again = vt_symbols_find(symbols, library, NULL, 0, address - 1);
    assert_ptr_equal(first.frames, again.frames); /* kept, not asked again */
    assert_int_equal(vt_symbols_notes(symbols), 0);
    vt_symbols_close(symbols);
}

/* A stack through a runtime that is linked into the program: its frames are hidden, and the caller is to blame. */
static void test_static_runtime_is_hidden(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    const struct vt_display_frame *blamed;
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint32_t module, stack;

    (void)state;
    need(symbols);
    fixture_begin(&f);
    fixture_header(&f)->start_unix_ns = UINT64_MAX / 2; /* the library is older than the recording */
    module = fixture_module(&f, library, 0);
    stack = fixture_frame(&f, fixture_frame(&f, 0, module, user_address), module, shim_address);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, stack, 0), 0);
    assert_true(trace.count >= 2);
    assert_string_equal(trace.frames[0].function, "cudaMallocHost");
    assert_true(trace.frames[0].hidden);
    blamed = vt_trace_user(&trace);
    assert_string_equal(blamed->function, "app::Pool::grow");
    assert_string_equal(vt_basename(blamed->file), "user.cpp");
    assert_int_equal(blamed->line, 4);
    assert_false(blamed->hidden);
    vt_trace_free(&trace);
    vt_reading_close(reading);

    /* What a runtime call called is hidden too, even where it has source lines. */
    stack = fixture_frame(&f, stack, module, address);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, stack, 0), 0);
    assert_string_equal(trace.frames[0].function, "shop::Cart::innermost");
    assert_true(trace.frames[0].hidden);
    assert_string_equal(vt_trace_user(&trace)->function, "app::Pool::grow");
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
    vt_symbols_close(symbols);
}

static void test_many_addresses(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol symbol;
    uint64_t i;

    (void)state;
    need(symbols);
    for (i = 0; i < 5000; i++) /* the table of answers has to grow */
        vt_symbols_find(symbols, library, NULL, 0, i);
    check_chain(vt_symbols_find(symbols, library, NULL, 0, address - 1));
    symbol = vt_symbols_find(symbols, library, NULL, 0, 0x7fffffff0000);
    assert_int_equal(symbol.count, 0);
    vt_symbols_close(symbols);
}

static void test_changed_file(void **state)
{
    static const uint8_t other[20] = {1, 2, 3};
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol symbol;

    (void)state;
    need(symbols);
    symbol = vt_symbols_find(symbols, library, other, sizeof other, address - 1);
    assert_int_equal(symbol.count, 0);
    assert_int_equal(vt_symbols_notes(symbols), 1);
    assert_non_null(strstr(vt_symbols_note(symbols, 0), "another build-id"));
    vt_symbols_close(symbols);
}

static void test_missing_file(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();

    (void)state;
    need(symbols);
    assert_int_equal(vt_symbols_find(symbols, "/nowhere/libgone.so", NULL, 0, 64).count, 0);
    assert_int_equal(vt_symbols_find(symbols, "/nowhere/libgone.so", NULL, 0, 65).count, 0);
    assert_int_equal(vt_symbols_find(symbols, "[vdso]", NULL, 0, 65).count, 0);
    assert_int_equal(vt_symbols_find(symbols, "/etc/passwd", NULL, 0, 65).count, 0);
    assert_int_equal(vt_symbols_notes(symbols), 2); /* one per file, none for the vdso */
    assert_non_null(strstr(vt_symbols_note(symbols, 0), "the file is gone"));
    vt_symbols_close(symbols);
}

static void test_stripped(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol symbol;
    char path[128];

    (void)state;
    need(symbols);
    snprintf(path, sizeof path, "%s/stripped.so", folder);
    if (run("strip -o %s %s 2>/dev/null", path, library)) {
        vt_symbols_close(symbols);
        skip();
    }
    symbol = vt_symbols_find(symbols, path, NULL, 0, address - 1);
    assert_int_equal(symbol.count, 1); /* from the exported symbols */
    assert_string_equal(symbol.frames[0].function, "shop::Cart::fill");
    assert_null(symbol.frames[0].file);
    assert_int_equal(symbol.frames[0].line, 0);
    vt_symbols_close(symbols);
}

static void test_separate_debug_file(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    char path[128];

    (void)state;
    need(symbols);
    snprintf(path, sizeof path, "%s/split.so", folder);
    if (run("cd %s && objcopy --only-keep-debug libshop.so split.debug 2>/dev/null && strip -o split.so libshop.so && "
            "mkdir -p .debug && objcopy --add-gnu-debuglink=split.debug split.so && mv split.debug .debug/",
            folder)) {
        vt_symbols_close(symbols);
        skip();
    }
    check_chain(vt_symbols_find(symbols, path, NULL, 0, address - 1));
    vt_symbols_close(symbols);
}

static void test_damaged_files(void **state)
{
    unsigned i;

    (void)state;
    if (!have_compiler)
        skip();
    for (i = 1; i < 20; i++) { /* cut short, then with noise in the middle: no crash, whatever comes out */
        struct vt_symbols *symbols = vt_symbols_open();
        char path[128];

        snprintf(path, sizeof path, "%s/cut%u.so", folder, i);
        assert_int_equal(run("head -c %u %s >%s", i * 900, library, path), 0);
        vt_symbols_find(symbols, path, NULL, 0, address - 1);
        snprintf(path, sizeof path, "%s/noise%u.so", folder, i);
        assert_int_equal(run("cp %s %s && head -c 700 /dev/urandom | dd of=%s bs=1 seek=%u conv=notrunc 2>/dev/null",
                             library, path, path, i * 700),
                         0);
        vt_symbols_find(symbols, path, NULL, 0, address - 1);
        vt_symbols_close(symbols);
    }
}

static void test_demangle(void **state)
{
    static const char *const names[][2] = {
        {"_ZN4shop4Cart4fillEi", "shop::Cart::fill"},
        {"_ZN11DeviceArrayC2Em", "DeviceArray::DeviceArray"},
        {"_ZN11DeviceArrayD1Ev", "DeviceArray::~DeviceArray"},
        {"_ZN12_GLOBAL__N_16middleEP4Cart", "(anonymous namespace)::middle"},
        {"main", "main"},
        {"_Znwm", "operator new"},
        {"not_mangled(int)", "not_mangled(int)"},
    };
    size_t i;
    char *name = vt_demangle("_Z1fv");

    (void)state;
    if (!strcmp(name, "_Z1fv")) { /* no libstdc++ here */
        free(name);
        skip();
    }
    free(name);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        name = vt_demangle(names[i][0]);
        assert_string_equal(name, names[i][1]);
        free(name);
    }
}

static void test_shorten(void **state)
{
    static const char *const names[][2] = {
        {"int foo<int>(int)", "foo<int>"},
        {"void ns::f(void (*)(int), std::pair<int, char>)", "ns::f"},
        {"std::vector<int, std::allocator<int> >::push_back(int const&)",
         "std::vector<int, std::allocator<int> >::push_back"},
        {"A::operator()(int) const", "A::operator()"},
        {"bool operator< <int>(A<int> const&, A<int> const&)", "operator< <int>"},
        {"operator<<(std::ostream&, A)", "operator<<"},
        {"A::operator bool() const", "A::operator bool"},
        {"A::operator->() const", "A::operator->"},
        {"main::{lambda(int)#1}::operator()(int) const", "main::{lambda}::operator()"},
        {"real::go2()::{lambda(unsigned long)#1}::operator()(unsigned long) const", "real::go2::{lambda}::operator()"},
        {"B::q(int) const::{lambda(int)#2}::operator()(int) const::{lambda(int)#1}::operator()(int) const",
         "B::q::{lambda#2}::operator()::{lambda}::operator()"},
        {"int g<int>(int)::{lambda(int)#1}::operator()(int) const::L::h(int)", "g<int>::{lambda}::operator()::L::h"},
        {"f(void (*)(int), A<(B)1>) const &::{unnamed type#1}::go()", "f::{unnamed type}::go"},
        {"std::_Function_handler<int (int), main::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)",
         "std::_Function_handler<int (int), main::{lambda(int)#1}>::_M_invoke"},
        {"A::operator()(int)::{lambda()#1}::operator bool() const", "A::operator()::{lambda}::operator bool"},
        {"f(::{lambda(", "f"},
        {"{lambda(int", "{lambda(int"},
        {"(anonymous namespace)::f(int)", "(anonymous namespace)::f"},
        {"char const* ns::name<(Kind)3>(int)", "ns::name<(Kind)3>"},
        {"f(int) [clone .isra.0]", "f"},
        {"plain", "plain"},
        {"", ""},
        {"(", "("},
        {"operator", "operator"},
        {">>>)))", ">>>)))"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[192];

        strcpy(name, names[i][0]);
        vt_demangled_shorten(name);
        assert_string_equal(name, names[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inlined_chain),
        cmocka_unit_test(test_static_runtime_is_hidden),
        cmocka_unit_test(test_many_addresses),
        cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_stripped),
        cmocka_unit_test(test_separate_debug_file),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_demangle),
        cmocka_unit_test(test_shorten),
    };

    return cmocka_run_group_tests(tests, build, clean);
}
