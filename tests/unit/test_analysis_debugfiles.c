/*
 * Where names come from when they are not in the library itself: separate debug files by build-id and by link, packed symbols, and
 * what dwz has taken out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "analysis/modules.h"
#include "test_debugfiles_fixture.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debug_link),
        cmocka_unit_test(test_debug_link_sum),
        cmocka_unit_test(test_debug_link_to_nowhere),
        cmocka_unit_test(test_build_id_directories),
        cmocka_unit_test(test_debug_link_in_directory),
        cmocka_unit_test(test_packed_symbols),
        cmocka_unit_test(test_damaged_packed_symbols),
        cmocka_unit_test(test_dwz),
    };

    return cmocka_run_group_tests(tests, build, remove_folder);
}
