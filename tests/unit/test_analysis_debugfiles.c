/*
 * Where names come from when they are not in the file itself: stripped libraries and what lies nearest, separate debug
 * files by build-id and by link, packed symbols, and what dwz has taken out. The libraries are made here with the
 * compiler and binutils; without them the tests are skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "analysis/format.h"
#include "analysis/modules.h"
#include "analysis/objfile.h"
#include "analysis/stack.h"
#include "analysis/symbols.h"
#include "recording/reader.h"
#include "test_programs.h"
#include "test_reader_fixture.h"

/* In this order in .text (see the flags): exported and local functions, one without a size, a gap that is larger than any
 * neighbourhood, and code in a section of its own. */
static const char source[] =
    "extern int outside(int);\n"                                                               /* 1 */
    "#define KEEP __attribute__((noinline, used))\n"                                           /* 2 */
    "KEEP int first_public(int x) {\n"                                                         /* 3 */
    "    return outside(x) + 1;\n"                                                             /* 4 */
    "}\n"                                                                                      /* 5 */
    "KEEP static int hidden_helper(int x) {\n"                                                 /* 6 */
    "    return outside(x) + 2;\n"                                                             /* 7 */
    "}\n"                                                                                      /* 8 */
    "asm(\".text\\n.globl bare\\n.type bare,@function\\nbare: nop\\nnop\\nnop\\nnop\\n\"\n"    /* 9 */
    "    \".type unsized,@function\\nunsized: nop\\nnop\\n.skip 0x9000\\n\");\n"               /* 10 */
    "KEEP static int far_helper(int x) {\n"                                                    /* 11 */
    "    return outside(x) + 3;\n"                                                             /* 12 */
    "}\n"                                                                                      /* 13 */
    "KEEP int last_public(int x) { return hidden_helper(x) + far_helper(x); }\n"               /* 14 */
    "KEEP int alias_target(int x) { return outside(x) + 4; }\n"                                /* 15 */
    "extern int __internal(int) __attribute__((alias(\"alias_target\")));\n"                   /* 16 */
    "extern int a_weak(int) __attribute__((weak, alias(\"alias_target\")));\n"                 /* 17 */
    "__attribute__((noinline, used, section(\"other_code\"))) static int elsewhere(int x) {\n" /* 18 */
    "    return outside(x) + 5;\n"                                                             /* 19 */
    "}\n";                                                                                     /* 20 */

static bool possible;

static int build(void **state)
{
    if (make_folder(state))
        return -1;
    put("lib.c", source);
    possible =
        vt_elfutils() &&
        !shell(
            "flags='-g -O1 -fPIC -shared -fno-toplevel-reorder -fno-optimize-sibling-calls'\n"
            "${CC:-gcc} $flags -Wl,--build-id=sha1 -o lib.so lib.c || gcc $flags -Wl,--build-id=sha1 -o lib.so lib.c\n"
            "gcc $flags -Wl,--build-id=none -o noid.so lib.c\n"
            "strip -o stripped.so lib.so; strip -g -o full.so lib.so; objcopy --only-keep-debug lib.so lib.debug\n"
            "strip -o noid-stripped.so noid.so; objcopy --only-keep-debug noid.so noid.debug");
    unsetenv("VRAMTRACK_DEBUG_DIRS");
    return 0;
}

#define NEED(condition)   \
    do {                  \
        if (!(condition)) \
            skip();       \
    } while (0)

/* Looks an address up as the first question to a new symbolizer, and checks the one frame that comes. function NULL:
 * there is no answer. */
static void check(const char *file, uint64_t address, const char *function, bool nearest, uint32_t line)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol symbol;

    assert_true(address > 1);
    symbol = vt_symbols_find(symbols, in_folder(file), NULL, 0, address);
    assert_int_equal(symbol.count, function ? 1 : 0);
    if (function) {
        assert_string_equal(symbol.frames[0].function, function);
        assert_int_equal(symbol.frames[0].nearest, nearest);
        assert_int_equal(symbol.frames[0].line, line);
    }
    vt_symbols_close(symbols);
}

static void test_nearest(void **state)
{
    (void)state;
    NEED(possible);
    check("stripped.so", address_of("first_public", "lib.so"), "first_public", false, 0);
    check("stripped.so", address_of("hidden_helper", "lib.so") + 2, "first_public", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + 1, "bare", true, 0); /* who knows how long it is */
    check("stripped.so", address_of("unsized", "lib.so") + 1, "bare", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + VT_OBJECT_NEAREST, "bare", true, 0);
    check("stripped.so", address_of("bare", "lib.so") + VT_OBJECT_NEAREST + 1, NULL, false, 0);
    check("stripped.so", address_of("far_helper", "lib.so"), NULL, false, 0);
    check("stripped.so", address_of("last_public", "lib.so"), "last_public", false, 0);
    check("stripped.so", address_of("elsewhere", "lib.so"), NULL, false, 0); /* another section */
    check("stripped.so", section_address(".plt", "lib.so") + 0x12, NULL, false, 0);
    check("stripped.so", section_address(".fini", "lib.so") + 1, NULL, false, 0);
    check("stripped.so", section_address(".data", "lib.so") + 1, NULL, false, 0);
    check("stripped.so", UINT64_MAX, NULL, false, 0);
}

/* What the views make of it: an address that is near something, not a function; and never the same place as another. */
static void test_nearest_in_views(void **state)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_display_frame other;
    struct vt_reading *reading;
    struct vt_trace trace;
    struct fixture f;
    uint64_t helper = address_of("hidden_helper", "lib.so") + 2;
    uint32_t module, stack;
    char text[128], expected[128];

    (void)state;
    if (!possible) {
        vt_symbols_close(symbols);
        skip();
    }
    fixture_begin(&f);
    fixture_header(&f)->start_unix_ns = UINT64_MAX / 2;
    module = fixture_module(&f, in_folder("stripped.so"), 0);
    stack = fixture_frame(&f, 0, module, helper + 1);
    reading = vt_reading_from_memory(f.image, f.bytes);
    assert_int_equal(vt_trace_build(&trace, reading, symbols, NULL, stack, 0), 0);
    assert_int_equal(trace.count, 1);
    assert_null(trace.frames[0].function);
    assert_string_equal(trace.frames[0].nearest, "first_public");
    snprintf(expected, sizeof expected, "stripped.so+0x%llx (after first_public)", (unsigned long long)helper + 1);
    assert_string_equal(vt_format_place(text, sizeof text, &trace.frames[0]), expected);
    other = trace.frames[0];
    assert_true(vt_same_place(&trace.frames[0], &other));
    other.offset++;
    assert_false(vt_same_place(&trace.frames[0], &other));
    vt_trace_free(&trace);
    vt_reading_close(reading);
    fixture_end(&f);
    vt_symbols_close(symbols);
}

/* With the local functions at hand, one without a size ends where the next one begins. */
static void test_full_table(void **state)
{
    (void)state;
    NEED(possible);
    check("full.so", address_of("bare", "lib.so") + 1, "bare", false, 0);
    check("full.so", address_of("unsized", "lib.so") + 1, "unsized", false, 0);
    check("lib.so", address_of("hidden_helper", "lib.so") + 1, "hidden_helper", false, 6);
    check("lib.so", address_of("elsewhere", "lib.so") + 1, "elsewhere", false, 18);
}

/* Of several names the exported one that is not for internal use. */
static void test_alias(void **state)
{
    (void)state;
    NEED(possible);
    check("stripped.so", address_of("__internal", "lib.so"), "alias_target", false, 0);
}

static void test_debug_link(void **state)
{
    uint64_t helper = address_of("hidden_helper", "lib.so");

    (void)state;
    NEED(possible && !shell("mkdir -p a/.debug b c; cp lib.debug a/.debug/l; cp lib.debug b/l; cp noid.debug c/l\n"
                            "objcopy --add-gnu-debuglink=lib.debug stripped.so linked.so\n"
                            "cd b; objcopy --add-gnu-debuglink=l ../stripped.so x.so; cp x.so ../a/x.so"));
    check("a/x.so", helper + 1, "hidden_helper", false, 6);
    check("b/x.so", helper + 1, "hidden_helper", false, 6);
    assert_int_equal(shell("cp b/x.so c/x.so"), 0); /* a file of this name, but without the build-id */
    check("c/x.so", helper + 1, "first_public", true, 0);
    assert_int_equal(shell("mkdir d; cp b/x.so d/x.so; objcopy --only-keep-debug $(ls /bin/ls) d/l"), 0);
    check("d/x.so", helper + 1, "first_public", true, 0);
}

/* Without build-ids the checksum in the link decides. */
static void test_debug_link_sum(void **state)
{
    uint64_t helper = address_of("hidden_helper", "noid.so");

    (void)state;
    NEED(possible &&
         !shell("mkdir s t; cp noid.debug s/n; cd s; objcopy --add-gnu-debuglink=n ../noid-stripped.so x.so\n"
                "cp x.so n ../t; printf x >>../t/n"));
    check("s/x.so", helper + 1, "hidden_helper", false, 6);
    check("t/x.so", helper + 1, "first_public", true, 0);
}

/* A link to the file itself, or out of the folder, is none. */
static void test_debug_link_to_nowhere(void **state)
{
    uint64_t helper = address_of("hidden_helper", "lib.so");

    (void)state;
    NEED(possible &&
         !shell("mkdir self; cp stripped.so self/me; cd self; objcopy --add-gnu-debuglink=me me me2; mv me2 me"));
    check("self/me", helper + 1, "first_public", true, 0);
    NEED(!shell("mkdir up; cp lib.debug up.dbg; printf '../up.dbg\\0\\0\\0\\0\\0\\0\\0' >up/link\n"
                "objcopy --add-section .gnu_debuglink=up/link stripped.so up/x.so"));
    check("up/x.so", helper + 1, "first_public", true, 0);
}

/* The build-id of lib.so, for the recorded one. */
static unsigned read_id(uint8_t *id)
{
    struct vt_object object;
    const void *found;
    ssize_t bytes;

    vt_object_open(&object, in_folder("lib.so"), NULL, 0);
    assert_non_null(object.main);
    bytes = object.elf->dwelf_elf_gnu_build_id(object.main, &found);
    assert_int_equal(bytes, 20);
    memcpy(id, found, 20);
    vt_object_close(&object);
    return 20;
}

static void check_with_id(const char *path, const uint8_t *id, const char *function, uint32_t line)
{
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_symbol symbol = vt_symbols_find(symbols, path, id, 20, address_of("hidden_helper", "lib.so") + 1);

    assert_int_equal(symbol.count, function ? 1 : 0);
    if (function) {
        assert_string_equal(symbol.frames[0].function, function);
        assert_int_equal(symbol.frames[0].line, line);
        assert_int_equal(vt_symbols_notes(symbols), 0);
    }
    vt_symbols_close(symbols);
}

static void test_build_id_directories(void **state)
{
    uint8_t id[20], other[20];
    char name[64], directories[256];
    unsigned i;
    int used;

    (void)state;
    NEED(possible);
    read_id(id);
    used = sprintf(name, "%02x/", id[0]);
    for (i = 1; i < sizeof id; i++)
        used += sprintf(name + used, "%02x", id[i]);
    assert_int_equal(shell("mkdir -p dbg/.build-id/%.2s && cp lib.debug dbg/.build-id/%s.debug", name, name), 0);
    check_with_id(in_folder("stripped.so"), id, "first_public", 0);
    snprintf(directories, sizeof directories, "relative-and-not-there::/nowhere:%s", in_folder("dbg"));
    setenv("VRAMTRACK_DEBUG_DIRS", directories, 1);
    check_with_id(in_folder("stripped.so"), id, "hidden_helper", 6);
    /* The debug file is enough where the file is gone, or another one took its place. */
    check_with_id("/nowhere/lib.so", id, "hidden_helper", 6);
    check_with_id(in_folder("noid.so"), id, "hidden_helper", 6);
    check_with_id(in_folder("gone.so (deleted)"), id, "hidden_helper", 6);
    memcpy(other, id, sizeof id);
    other[19] ^= 1;
    check_with_id("/nowhere/lib.so", other, NULL, 0);
    /* The name says this build-id, the file another one. */
    assert_int_equal(shell("objcopy --only-keep-debug $(ls /bin/ls) dbg/.build-id/%s.debug", name), 0);
    check_with_id(in_folder("stripped.so"), id, "first_public", 0);
    unsetenv("VRAMTRACK_DEBUG_DIRS");
}

/* At the module's own path under a directory of debug files, as /usr/lib/debug has it. */
static void test_debug_link_in_directory(void **state)
{
    char directory[160];

    (void)state;
    NEED(possible && !shell("mkdir -p tree/$PWD/m m; cp noid.debug n.dbg\n"
                            "objcopy --add-gnu-debuglink=n.dbg noid-stripped.so m/x.so; mv n.dbg tree/$PWD/m/"));
    check("m/x.so", address_of("hidden_helper", "noid.so") + 1, "first_public", true, 0);
    snprintf(directory, sizeof directory, "%s", in_folder("tree"));
    setenv("VRAMTRACK_DEBUG_DIRS", directory, 1);
    check("m/x.so", address_of("hidden_helper", "noid.so") + 1, "hidden_helper", false, 6);
    unsetenv("VRAMTRACK_DEBUG_DIRS");
}

/* The recipe of Fedora's find-debuginfo. */
static void test_packed_symbols(void **state)
{
    (void)state;
    NEED(possible &&
         !shell("nm -D lib.so --format=posix --defined-only | awk '{ print $1 }' | sort >dynamic\n"
                "nm lib.so --format=posix --defined-only | awk '$2 ~ /[tT]/ { print $1 }' | sort >all\n"
                "comm -13 dynamic all >keep\n"
                "objcopy -S --remove-section .comment --keep-symbols=keep lib.debug mini\n"
                "xz -kf mini; objcopy --add-section .gnu_debugdata=mini.xz stripped.so packed.so\n"
                "head -c 200 mini.xz >cut.xz; objcopy --add-section .gnu_debugdata=cut.xz stripped.so cut.so\n"
                "head -c 100000000 /dev/zero | xz >bomb.xz\n"
                "objcopy --add-section .gnu_debugdata=bomb.xz stripped.so bomb.so\n"
                "head -c 5000 /dev/zero | xz >zero.xz\n"
                "objcopy --add-section .gnu_debugdata=zero.xz stripped.so zero.so\n"));
    check("packed.so", address_of("hidden_helper", "lib.so") + 1, "hidden_helper", false, 0);
    check("packed.so", address_of("first_public", "lib.so") + 1, "first_public", false, 0);
    check("packed.so", address_of("far_helper", "lib.so") + 1, "far_helper", false, 0);
    check("packed.so", address_of("elsewhere", "lib.so") + 1, "elsewhere", false, 0);
    check("packed.so", address_of("unsized", "lib.so") + 1, "unsized", false, 0);
    check("cut.so", address_of("hidden_helper", "lib.so") + 1, "first_public", true, 0);
    check("bomb.so", address_of("hidden_helper", "lib.so") + 1, "first_public", true, 0);
    check("zero.so", address_of("hidden_helper", "lib.so") + 1, "first_public", true, 0);
}

/* Packed symbols with noise in them: anything may come out, but nothing breaks. */
static void test_damaged_packed_symbols(void **state)
{
    uint64_t helper = address_of("hidden_helper", "lib.so");
    unsigned i;

    (void)state;
    NEED(possible && !shell("test -e mini"));
    for (i = 0; i < 24; i++) {
        struct vt_symbols *symbols = vt_symbols_open();
        uint64_t at;

        if (shell("cp mini bad; head -c 48 /dev/urandom | dd of=bad bs=1 seek=$(($(stat -c %%s mini) * %u / 24)) "
                  "conv=notrunc\n"
                  "xz -f bad; objcopy --add-section .gnu_debugdata=bad.xz stripped.so bad.so",
                  i)) {
            vt_symbols_close(symbols);
            continue;
        }
        for (at = helper & ~(uint64_t)0xfff; at < helper + 0x1000; at += 16)
            vt_symbols_find(symbols, in_folder("bad.so"), NULL, 0, at);
        vt_symbols_close(symbols);
    }
}

/* Two libraries with a header in common, whose DWARF dwz moves into a third file. Inlined functions have no symbol: their
 * names are there or not. */
static const char header[] = "struct Shape { int sides; double size; const char *name; struct Shape *next; };\n"
                             "extern void outside(struct Shape *);\n"
                             "static inline __attribute__((always_inline)) void shared_inline(struct Shape *shape)\n"
                             "{\n"
                             "    outside(shape);\n" /* 5 */
                             "    shape->sides++;\n"
                             "}\n";

static void check_inlined(const char *file, const char *expected)
{
    struct vt_symbols *symbols = vt_symbols_open();
    uint64_t call = number_from(
        "objdump -d '%s' | awk '/<%s>:/ { on = 1 } on && /call/ { print $1; exit }' | tr -d :", "use", file);
    struct vt_symbol symbol;

    assert_true(call != 0);
    symbol = vt_symbols_find(symbols, in_folder(file), NULL, 0, call);
    if (expected) {
        assert_int_equal(symbol.count, 2);
        assert_string_equal(symbol.frames[0].function, expected);
        assert_int_equal(symbol.frames[0].line, 5);
        assert_string_equal(vt_basename(symbol.frames[0].file), "shape.h");
        assert_string_equal(symbol.frames[1].function, "use");
    } else {
        assert_true(symbol.count > 0);
        assert_true(!symbol.frames[0].function || strcmp(symbol.frames[0].function, "shared_inline"));
    }
    vt_symbols_close(symbols);
}

static void test_dwz(void **state)
{
    char directory[160];

    (void)state;
    put("shape.h", header);
    put("one.c", "#include \"shape.h\"\nvoid use(struct Shape *s) { shared_inline(s); s->sides += 1; }\n");
    put("two.c", "#include \"shape.h\"\nvoid use(struct Shape *s) { shared_inline(s); s->sides += 2; }\n");
    NEED(possible && !shell("command -v dwz objdump >/dev/null && mkdir z && for l in one two; do\n"
                            "  ${CC:-gcc} -gdwarf-4 -O1 -fPIC -shared -Wl,--build-id=sha1 -o z/$l.so $l.c; done\n"
                            "cd z && dwz -m common.debug -M \"$PWD/common.debug\" one.so two.so\n"
                            "readelf -SW one.so | grep -q gnu_debugaltlink"));
    check_inlined("z/one.so", "shared_inline");
    check_inlined("z/two.so", "shared_inline");
    assert_int_equal(
        shell("id=$(readelf -n z/common.debug | awk '/Build ID/ { print $3 }'); d=alt/.build-id/${id%%${id#??}}\n"
              "mkdir -p $d; mv z/common.debug $d/${id#??}.debug"),
        0);
    check_inlined("z/one.so", NULL);
    snprintf(directory, sizeof directory, "%s", in_folder("alt"));
    setenv("VRAMTRACK_DEBUG_DIRS", directory, 1);
    check_inlined("z/one.so", "shared_inline");
    unsetenv("VRAMTRACK_DEBUG_DIRS");
}

/* A file without a build-id that was changed after it had been seen in use. */
static void test_newer_file(void **state)
{
    const uint64_t year = 365ull * 86400 * 1000000000;
    struct vt_symbols *symbols = vt_symbols_open();
    uint64_t at = address_of("first_public", "noid.so") + 1, now = (uint64_t)time(NULL) * 1000000000;

    (void)state;
    if (!possible) {
        vt_symbols_close(symbols);
        skip();
    }
    assert_int_equal(vt_symbols_find_used(symbols, in_folder("noid.so"), NULL, 0, now + year, at).count, 1);
    assert_int_equal(vt_symbols_notes(symbols), 0);
    assert_int_equal(vt_symbols_find_used(symbols, in_folder("noid.so"), NULL, 0, now - year, at).count, 0);
    assert_int_equal(vt_symbols_notes(symbols), 1);
    assert_non_null(strstr(vt_symbols_note(symbols, 0), "noid.so: it was changed after"));
    vt_symbols_close(symbols);
}

/* Names that lead to something else in every process are not followed. */
static void test_no_files(void **state)
{
    static const char *const names[] = {"/proc/self/exe",     "/proc/self/fd/0", "/dev/fd/0",
                                        "/memfd:x (deleted)", "[vdso]",          ""};
    struct vt_object object;
    size_t i;

    (void)state;
    NEED(vt_elfutils());
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        vt_object_open(&object, names[i], NULL, 0);
        assert_string_equal(object.problem, "it is no file");
        assert_null(object.main);
        vt_object_close(&object);
    }
    vt_object_open(&object, "/bin/ls (deleted)", NULL, 0);
    assert_string_equal(object.problem, "the file was deleted or replaced while it was in use");
    vt_object_close(&object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_nearest_in_views),
        cmocka_unit_test(test_full_table),
        cmocka_unit_test(test_alias),
        cmocka_unit_test(test_debug_link),
        cmocka_unit_test(test_debug_link_sum),
        cmocka_unit_test(test_debug_link_to_nowhere),
        cmocka_unit_test(test_build_id_directories),
        cmocka_unit_test(test_debug_link_in_directory),
        cmocka_unit_test(test_packed_symbols),
        cmocka_unit_test(test_damaged_packed_symbols),
        cmocka_unit_test(test_dwz),
        cmocka_unit_test(test_newer_file),
        cmocka_unit_test(test_no_files),
    };

    return cmocka_run_group_tests(tests, build, remove_folder);
}
