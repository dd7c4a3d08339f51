/*
 * For tests that compile something and look at what comes out: a folder of their own, shell commands in it, and the
 * addresses of symbols. Include after cmocka.h.
 */
#ifndef VRAMTRACK_TEST_PROGRAMS_H
#define VRAMTRACK_TEST_PROGRAMS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64]; /* made by make_folder(), removed by remove_folder() */

static inline int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/vramtrack-unit-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Runs a shell script in the folder, quietly; its exit status, 0 if all went well. */
static inline int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int shell(const char *format, ...)
{
    char command[4096];
    va_list arguments;
    int used = snprintf(command, sizeof command, "cd %s && exec 2>>log && set -e\n", folder);

    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    return system(command);
}

static inline int remove_folder(void **state)
{
    (void)state;
    return shell("rm -rf %s", folder);
}

/* The path of a file in the folder. Two are valid at a time. */
static inline const char *in_folder(const char *name)
{
    static char paths[2][192];
    static unsigned next;
    char *path = paths[next++ % 2];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void put(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A number in hexadecimal that a script prints; 0: it printed none. */
static inline uint64_t number_from(const char *script, const char *argument, const char *file)
{
    char command[512], line[128] = "";
    FILE *pipe;

    snprintf(command, sizeof command, script, in_folder(file), argument);
    if (!(pipe = popen(command, "r")))
        return 0;
    if (!fgets(line, sizeof line, pipe))
        line[0] = '\0';
    pclose(pipe);
    return strtoull(line, NULL, 16);
}

/* Where a function starts, by the full symbol table. */
static inline uint64_t address_of(const char *function, const char *file)
{
    return number_from("nm '%s' | awk -v n='%s' '$3 == n { print $1 }'", function, file);
}

static inline uint64_t section_address(const char *section, const char *file)
{
    return number_from("readelf -SW '%s' | sed 's/^ *\\[ *[0-9]*\\] *//' | awk -v n='%s' '$1 == n { print $3 }'",
                       section, file);
}

#endif
