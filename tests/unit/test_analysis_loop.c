/*
 * Python's evaluation loop in stripped files: the large piece that its exported symbol does not cover gets its name, and
 * nothing else does. Libraries with a loop as compilers split it, made by the assembler.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/objfile.h"
#include "test_programs.h"

#define LOOP "_PyEval_EvalFrameDefault"

/* A function of some KiB; its name is local unless there is .globl as well. */
static const char source[] =
    ".macro function name, bytes\n"
    ".type \\name, @function\n"
    "\\name:\n.cfi_startproc\n.skip \\bytes, 0x90\nret\n.cfi_endproc\n.size \\name, . - \\name\n"
    ".endm\n"
    ".globl " LOOP ", other\n"
    ".section .text.unlikely, \"ax\", @progbits\n"
    "function large LARGE\n"
    ".text\n"
    "function " LOOP " EXPORTED\n"
    "function second SECOND\n"
    "function other 64\n"
    ".section .note.GNU-stack, \"\", @progbits\n";

/* What is found in the middle of the large function (an uncovered one) of a library with such sizes, after a command. */
static const char *found(const char *sizes, const char *command, struct vt_object *object, bool *nearest)
{
    uint64_t address;

    put("loop.s", source);
    if (shell("${CC:-gcc} -shared -nostdlib -o loop.so %s -x assembler-with-cpp loop.s && cp loop.so full.so", sizes))
        return "not built";
    address = address_of("large", "full.so") + 20000;
    assert_int_equal(shell("%s", command), 0);
    vt_object_open(object, in_folder("loop.so"), NULL, 0);
    return vt_object_symbol(object, address, nearest);
}

static void check(const char *sizes, const char *command, const char *expected)
{
    struct vt_object object;
    bool nearest = true;
    const char *name = found(sizes, command, &object, &nearest);

    if (name && strcmp(name, "not built") == 0)
        skip();
    if (expected) {
        assert_false(nearest);
        assert_non_null(name);
        assert_string_equal(name, expected);
    } else {
        assert_true(!name || nearest);
    }
    vt_object_close(&object);
}

#define SPLIT "-DLARGE=77000 -DEXPORTED=1184 -DSECOND=33000"

static void test_split(void **state)
{
    (void)state;
    check(SPLIT, "strip loop.so", LOOP);
    check(SPLIT, "true", "large");
    check("-DLARGE=40000 -DEXPORTED=1184 -DSECOND=16000", "strip loop.so", LOOP);
}

static void test_doubtful(void **state)
{
    (void)state;
    check("-DLARGE=77000 -DEXPORTED=1184 -DSECOND=60000", "strip loop.so", NULL); /* not by far the largest */
    check("-DLARGE=30000 -DEXPORTED=1184 -DSECOND=3000", "strip loop.so", NULL);  /* too small */
    check("-DLARGE=77000 -DEXPORTED=30000 -DSECOND=3000", "strip loop.so", NULL); /* the loop is a whole one */
    check("-DLARGE=50000 -DEXPORTED=90000 -DSECOND=3000", "strip loop.so", NULL);
    check(SPLIT " -D_PyEval_EvalFrameDefault=_PyEval_Another", "strip loop.so", NULL); /* another program */
    check(SPLIT, "strip -R .eh_frame_hdr -R .eh_frame loop.so", NULL);
}

/* The index and the entries that it points to may say anything. */
static void test_damaged(void **state)
{
    static const char *const sections[] = {".eh_frame_hdr", ".eh_frame"};
    unsigned i, at;

    (void)state;
    for (i = 0; i < 2; i++)
        for (at = 0; at < 80; at += 7) {
            struct vt_object object;
            bool nearest;
            char command[512];
            const char *name;

            snprintf(
                command, sizeof command,
                "strip loop.so && objcopy -O binary --only-section=%s --set-section-flags %s=alloc loop.so part && "
                "printf '\\377\\177' | dd of=part bs=1 seek=%u conv=notrunc && "
                "objcopy --update-section %s=part loop.so",
                sections[i], sections[i], at, sections[i]);
            name = found(SPLIT, command, &object, &nearest);
            if (name && strcmp(name, "not built") == 0)
                skip();
            assert_true(!name || nearest || strcmp(name, LOOP) == 0);
            vt_object_close(&object);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_doubtful),
        cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
