/*
 * A library for the tests of names, in several states: whole, stripped, with and without a build-id. It is made with the compiler and
 * binutils; without them the tests are skipped.
 *
 * Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_DEBUGFILES_FIXTURE_H
#define VRAMTRACK_TEST_DEBUGFILES_FIXTURE_H

#include "analysis/objfile.h"
#include "analysis/symbols.h"
#include "test_programs.h"

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

static inline int build(void **state)
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
static inline void check(const char *file, uint64_t address, const char *function, bool nearest, uint32_t line)
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

#endif
