/* Text from outside on a terminal and in JSON: what is escaped, and that no two names come out alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "views/out.h"

/* The name as it is shown; in a buffer that the next call uses again. */
static const char *shown(const char *name, size_t length, size_t most)
{
    static char text[512];
    int fd = memfd_create("out", MFD_CLOEXEC);
    struct vt_out out;
    ssize_t bytes;

    vt_out_open(&out, fd, false);
    vt_out_name(&out, name, length, most);
    assert_int_equal(vt_out_close(&out), 0);
    bytes = pread(fd, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(fd);
    return text;
}

static const char *whole(const char *name)
{
    return shown(name, strlen(name), 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(whole("train.py"), "train.py");
    assert_string_equal(whole("Zug \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x82"), "Zug \xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x82");
    assert_string_equal(whole("a\033[31m\n"), "a\\x1b[31m\\x0a");
    assert_string_equal(whole("\xc2\x9b"), "\\xc2\\x9b"); /* U+009B, CSI in one character */
    assert_string_equal(whole("\x9b"
                              "31m"),
                        "\\x9b31m");                               /* the same as a byte alone */
    assert_string_equal(whole("\xe2\x80\xae"), "\\xe2\\x80\\xae"); /* the direction of text changes */
    assert_string_equal(whole("\xff\xc3"), "\\xff\\xc3");
    assert_string_equal(whole("\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* half of a pair */
    assert_string_equal(shown("a\0b", 3, 0), "a\\x00b");
}

/* What is written as an escape is one, and nothing else is. */
static void test_names_that_look_escaped(void **state)
{
    char byte[512];

    (void)state;
    assert_string_equal(whole("\\xff"), "\\x5cxff");
    snprintf(byte, sizeof byte, "%s", whole("\xff"));
    assert_string_not_equal(byte, whole("\\xff"));
    snprintf(byte, sizeof byte, "%s", whole("\\xff"));
    assert_string_not_equal(byte, whole("\\x5cxff"));
    assert_string_equal(whole("C:\\home\\n"), "C:\\home\\n");
    assert_string_equal(whole("\\"), "\\");
}

static void test_cut(void **state)
{
    (void)state;
    assert_string_equal(shown("abcdefgh", 8, 6), "abc...");
    assert_string_equal(shown("ab\xe2\x82\xac"
                              "defgh",
                              10, 7),
                        "ab..."); /* not in the middle of a character */
    assert_string_equal(shown("abcdef", 6, 6), "abcdef");
}

/* JSON writes control characters in its own way. */
static void test_json(void **state)
{
    char to[VT_ESCAPED];
    unsigned taken;

    (void)state;
    assert_int_equal(vt_escaped(to, "\xc2\x9b", 2, true, &taken), 2);
    assert_int_equal(taken, 2);
    assert_memory_equal(to, "\xc2\x9b", 2);
    assert_int_equal(vt_escaped(to, "\xff", 1, true, &taken), 4);
    assert_int_equal(taken, 1);
    assert_memory_equal(to, "\\xff", 4);
    assert_int_equal(vt_escaped(to, "\\xff", 4, true, &taken), 4);
    assert_int_equal(taken, 1);
    assert_memory_equal(to, "\\x5c", 4);
    assert_int_equal(vt_escaped(to, "\xf3\xa0\x80\x81", 4, false, &taken), 4);
    assert_int_equal(taken, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_that_look_escaped),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
