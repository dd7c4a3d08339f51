/*
 * Compares text with a golden file. Golden files are rewritten with VT_GOLDEN=write in the environment; look at the difference
 * before keeping it.
 */
#ifndef VT_TEST_GOLDEN_H
#define VT_TEST_GOLDEN_H

#include <cmocka.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the golden files: beside this source, wherever the test is run from. */
static inline void check_golden(const char *name, const char *text)
{
    char path[512], expected[32768] = "";
    const char *slash = strrchr(__FILE__, '/'), *mode = getenv("VT_GOLDEN");
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "%.*s/../golden/%s", slash ? (int)(slash - __FILE__) : 1, slash ? __FILE__ : ".", name);
    if (mode && !strcmp(mode, "write")) {
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
    }
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    got = read(fd, expected, sizeof expected - 1);
    close(fd);
    assert_true(got > 0);
    assert_string_equal(text, expected);
}

#endif
