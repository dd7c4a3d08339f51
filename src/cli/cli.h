/*
 * What the verbs of the command share: the verb table's row, one-line errors, and exit statuses.
 *
 * Every verb is one file and one manual page (docs/vramtrack-VERB.1). A verb gets argv with its own name as argv[0] and
 * returns the exit status.
 */
#ifndef VT_CLI_H
#define VT_CLI_H

#include <stdbool.h>

enum vt_exit { VT_EXIT_OK = 0, VT_EXIT_FOUND = 1, VT_EXIT_ERROR = 2 }; /* FOUND: a result that --fail-on asks to fail */

struct vt_verb {
    const char *name;
    const char *summary; /* one line of `vramtrack --help` */
    const char *help;    /* `vramtrack VERB --help` */
    int (*run)(int argc, char **argv);
};

/* Long options have values of their own, from here on, also where there is a short one: vt_fail_option() relies on it. */
enum { VT_LONG_OPTION = 256, VT_LONG_HELP, VT_LONG_VERSION, VT_LONG_OTHERS };

extern const struct vt_verb vt_verb_run, vt_verb_report, vt_verb_export, vt_verb_diff, vt_verb_top, vt_verb_snapshot;

/* Prints "vramtrack VERB: MESSAGE" on standard error, one line, and returns VT_EXIT_ERROR. */
__attribute__((format(printf, 2, 3))) int vt_fail(const char *verb, const char *format, ...);

/* Prints "vramtrack: MESSAGE" on standard error, one line. */
__attribute__((format(printf, 1, 2))) void vt_say(const char *format, ...);

/* For a getopt_long that returned '?' or ':': says which option was wrong. */
int vt_fail_option(const char *verb, int result, char **argv);

/* Prints the verb's help on standard output. */
int vt_print_help(const struct vt_verb *verb);

/* Prints the version on standard output. */
int vt_print_version(void);

/* Strict decimal number within [low, high]. */
bool vt_parse_number(const char *text, long low, long high, long *value);

/* Strict decimal number of seconds within [low, high], "0.5". */
bool vt_parse_seconds(const char *text, double low, double high, double *value);

/* True if a person reads what is written to `fd`, and has not asked for plain text (NO_COLOR). */
bool vt_wants_colour(int fd);

#endif
