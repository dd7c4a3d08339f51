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

/* Long options have values of their own, from here on, also where there is a short one: what is said of a wrong option relies on it. */
enum { VT_LONG_OPTION = 256, VT_LONG_HELP, VT_LONG_VERSION, VT_LONG_OTHERS };

extern const struct vt_verb vt_verb_run, vt_verb_report, vt_verb_export, vt_verb_diff, vt_verb_top, vt_verb_snapshot;

/* Prints "vramtrack VERB: MESSAGE" on standard error, one line, and returns VT_EXIT_ERROR. */
__attribute__((format(printf, 2, 3))) int vt_fail(const char *verb, const char *format, ...);

/* Prints "vramtrack: MESSAGE" on standard error, one line. */
__attribute__((format(printf, 1, 2))) void vt_say(const char *format, ...);

/*
 * The options of a verb, one after the other, as getopt_long gives them: optarg and optind are its own. Returns an option,
 * or -1 behind the last; or 0 if there is nothing to be done any more: help or the version was asked for and printed, or an
 * option was wrong and that was said; then *status is the exit status. `letters` begins with ":" (behind a "+"). The
 * first call of a command line has optind 0, which vt_begin_options() sees to.
 */
struct option;
void vt_begin_options(void);
int vt_next_option(const struct vt_verb *verb, int argc, char **argv, const char *letters,
                   const struct option *long_options, int *status);

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
