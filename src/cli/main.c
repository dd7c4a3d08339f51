/*
 * The command `vramtrack`: finds the verb and hands over. Everything that a verb does is in its own file.
 */
#include "cli/cli.h"
#include "cli/progress.h"
#include "views/out.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct vt_verb *const verbs[] = {&vt_verb_run,  &vt_verb_report, &vt_verb_export,
                                              &vt_verb_diff, &vt_verb_top,    &vt_verb_snapshot};
#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

/* Names come from outside: they must not break the line or drive the terminal. */
static void print_line(const char *verb, const char *format, va_list arguments)
{
    char message[PATH_MAX + 512];
    struct vt_out out;

    vsnprintf(message, sizeof(message), format, arguments);
    vt_progress_end();
    fflush(stderr);
    vt_out_open(&out, STDERR_FILENO, false);
    vt_out_text(&out, *verb ? "vramtrack " : "vramtrack");
    vt_out_text(&out, verb);
    vt_out_text(&out, ": ");
    vt_out_name(&out, message, strlen(message), 0);
    vt_out_text(&out, "\n");
    vt_out_close(&out);
}

int vt_fail(const char *verb, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(verb, format, arguments);
    va_end(arguments);
    return VT_EXIT_ERROR;
}

void vt_say(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line("", format, arguments);
    va_end(arguments);
}

int vt_print_help(const struct vt_verb *verb)
{
    fputs(verb->help, stdout);
    return VT_EXIT_OK;
}

int vt_print_version(void)
{
    puts("vramtrack " VT_VERSION);
    return VT_EXIT_OK;
}

/* getopt_long returned '?' or ':': says which option was wrong. */
static int fail_option(const char *verb, int result, char **argv)
{
    /* Behind a long option and behind one that lacks its value, optind has moved on; within a group like -xq it has not. */
    const char *word = argv[optind - 1];

    if (result == ':')
        return vt_fail(verb, "option '%s' needs a value", word);
    if (!optopt)
        return vt_fail(verb, "unknown option '%s' (see: vramtrack %s --help)", word, verb);
    if (optopt >= VT_LONG_OPTION) /* known, or it would be 0; but it was given a value */
        return vt_fail(verb, "option '%s' takes no value", word);
    return vt_fail(verb, "unknown option '-%c' (see: vramtrack %s --help)", optopt, verb);
}

void vt_begin_options(void)
{
    opterr = 0;
    optind = 0;
}

int vt_next_option(const struct vt_verb *verb, int argc, char **argv, const char *letters,
                   const struct option *long_options, int *status)
{
    int option = getopt_long(argc, argv, letters, long_options, NULL);

    if (option == 'h' || option == VT_LONG_HELP)
        *status = vt_print_help(verb);
    else if (option == VT_LONG_VERSION)
        *status = vt_print_version();
    else if (option == '?' || option == ':')
        *status = fail_option(verb->name, option, argv);
    else
        return option;
    return 0;
}

bool vt_parse_number(const char *text, long low, long high, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(text, &end, 10);
    return !errno && end != text && !*end && *text >= '0' && *text <= '9' && *value >= low && *value <= high;
}

bool vt_parse_seconds(const char *text, double low, double high, double *value)
{
    char *end;

    if (text[strspn(text, "0123456789.")] || !*text) /* strtod takes "inf" and "0x1p3" as well */
        return false;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= low && *value <= high;
}

bool vt_wants_colour(int fd)
{
    const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");

    return isatty(fd) && !(none && *none) && terminal && strcmp(terminal, "dumb") != 0;
}

static const struct vt_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

static void print_overview(FILE *out)
{
    fputs("vramtrack records who allocated which GPU memory in an unmodified program, and says what held it when the\n"
          "program ended, was killed or ran out of it.\n"
          "\n"
          "usage: vramtrack VERB ...\n"
          "\n",
          out);
    for (size_t i = 0; i < VERB_COUNT; i++)
        fprintf(out, "  vramtrack %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fputs("  vramtrack help VERB\n"
          "  vramtrack --version\n"
          "\n"
          "example:\n"
          "  vramtrack run -- python train.py\n",
          out);
}

static int help(int argc, char **argv)
{
    const struct vt_verb *verb;

    if (argc < 2) {
        print_overview(stdout);
        return VT_EXIT_OK;
    }
    verb = find_verb(argv[1]);
    if (!verb)
        return vt_fail("help", "there is no verb '%s' (see: vramtrack --help)", argv[1]);
    return vt_print_help(verb);
}

static int dispatch(int argc, char **argv)
{
    const struct vt_verb *verb;
    const char *word;

    if (argc < 2) {
        print_overview(stderr);
        return VT_EXIT_ERROR;
    }
    word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"))
        return help(argc - 1, argv + 1);
    if (!strcmp(word, "--version") || !strcmp(word, "-V"))
        return vt_print_version();
    verb = find_verb(word);
    if (verb)
        return verb->run(argc - 1, argv + 1);
    if (*word == '-')
        return vt_fail("", "unknown option '%s' (see: vramtrack --help)", word);
    return vt_fail("", "there is no verb '%s' (see: vramtrack --help)", word);
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);

    /* A full disk shows up here at the latest: half a report must not look like a whole one. */
    if (fflush(stdout) || ferror(stdout))
        return vt_fail("", "cannot write to standard output: %s", strerror(errno));
    return status;
}
