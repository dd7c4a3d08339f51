/*
 * vramtrack top: what a running process holds, live. Options, what is looked at, and the output without a terminal; the
 * screen is in top_screen.c. See docs/vramtrack-top.1.
 */
#include "cli/top.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/recordings.h"
#include "recording/follow.h"

#define VERB VT_TOP_VERB
#define PLACES 50 /* default of --top */

static const char help[] =
    "usage: vramtrack top [options] [PID|RECORDING|DIR]\n"
    "\n"
    "Shows live what a recorded process holds, from the recording that it is writing: the process is neither stopped "
    "nor\n"
    "asked. Without an argument: all recorded processes of this user, to choose one. DIR stands for its newest "
    "recording.\n"
    "\n"
    "  --interval S         refresh every S seconds, 0.05 to 86400 (default 1)\n"
    "  --once               print one screen as plain text, and end\n"
    "  --json               one line of JSON per refresh (schema vramtrack-top/1); with --once, one line\n"
    "  --top N              places listed by --once and --json (default 50)\n"
    "  --user-paths LIST    prefixes of paths, separated by colons: files there are your own code\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "keys: q quit, s sort, / filter, space freeze, m take a named moment, arrows and pages, enter whole stack, h help\n"
    "\n"
    "example:\n"
    "  vramtrack top $(pgrep -f train.py)\n";

enum { OPT_INTERVAL = VT_LONG_OTHERS, OPT_ONCE, OPT_JSON, OPT_TOP, OPT_USER_PATHS };

static const struct option long_options[] = {
    {"interval", required_argument, NULL, OPT_INTERVAL},
    {"once", no_argument, NULL, OPT_ONCE},
    {"json", no_argument, NULL, OPT_JSON},
    {"top", required_argument, NULL, OPT_TOP},
    {"user-paths", required_argument, NULL, OPT_USER_PATHS},
    {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION},
    {NULL, 0, NULL, 0},
};

/* Takes one option over. Returns 0 or VT_EXIT_ERROR. */
static int set_option(struct vt_top_options *options, int option, const char *value)
{
    switch (option) {
    case OPT_INTERVAL:
        if (!vt_parse_seconds(value, 0.05, 86400, &options->interval))
            return vt_fail(VERB, "--interval %s: seconds from 0.05 to 86400 are needed", value);
        return 0;
    case OPT_ONCE:
        options->once = true;
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case OPT_TOP:
        return vt_set_top(VERB, &options->top, value);
    default:
        options->user_paths = value;
        return 0;
    }
}

/* Fills the options. Returns -1, or the exit status if there is nothing more to do. */
static int parse(struct vt_top_options *options, int argc, char **argv)
{
    int option, status;

    *options = (struct vt_top_options){.interval = 1, .top = PLACES};
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_top, argc, argv, ":h", long_options, &status)) > 0)
        if (set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    if (!option)
        return status;
    if (argc - optind > 1)
        return vt_fail(VERB, "one process at a time, not '%s' as well", argv[optind + 1]);
    options->target = argc > optind ? argv[optind] : NULL;
    return -1;
}

static int find_in_directory(const char *directory, struct vt_top_target *target)
{
    struct vt_found_list list;
    int error = vt_found_in(directory, &list), status = VT_EXIT_OK;

    if (error)
        status = vt_fail(VERB, "%s: %s", directory, strerror(error));
    else if (!list.count)
        status = vt_fail_found_none(VERB, directory, &list);
    else if (!(target->path = strdup(list.item[list.count - 1].path)))
        status = vt_fail(VERB, "out of memory");
    vt_found_free(&list);
    return status;
}

/* From what the user named to a recording. Returns an exit status. */
static int find_target(const char *name, struct vt_top_target *target)
{
    char error[VT_TOP_ERROR];
    struct stat status;
    long pid;

    *target = (struct vt_top_target){0, NULL};
    if (!name)
        return VT_EXIT_OK;
    if (vt_parse_number(name, 1, INT32_MAX, &pid)) {
        target->pid = (int32_t)pid;
        target->path = vt_find_writing(target->pid, error, sizeof error);
        return target->path ? VT_EXIT_OK : vt_fail(VERB, "%s", error);
    }
    if (stat(name, &status))
        return vt_fail(VERB, "%s: %s", name, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return find_in_directory(name, target);
    target->path = strdup(name);
    return target->path ? VT_EXIT_OK : vt_fail(VERB, "out of memory");
}

int vt_top_processes_find(struct vt_top_processes *p)
{
    int error;

    memset(p, 0, sizeof *p);
    if ((error = vt_find_all_writing(&p->list)))
        return error;
    p->item = calloc(p->list.count + 1, sizeof *p->item);
    p->follow = calloc(p->list.count + 1, sizeof *p->follow);
    p->problem = calloc(p->list.count + 1, sizeof *p->problem);
    if (!p->item || !p->follow || !p->problem)
        return ENOMEM;
    for (; p->count < p->list.count; p->count++) {
        const struct vt_writing *writing = &p->list.item[p->count];
        char *problem = p->problem[p->count];
        struct vt_top_process *item = &p->item[p->count];
        struct vt_follow *follow = vt_follow_open(writing->path, writing->pid, true, problem, sizeof *p->problem);

        p->follow[p->count] = follow;
        *item = (struct vt_top_process){.pid = writing->pid, .path = writing->path};
        item->reading = follow ? vt_follow_refresh(follow, false, problem, sizeof *p->problem) : NULL;
        item->problem = item->reading ? NULL : problem;
    }
    return 0;
}

void vt_top_processes_free(struct vt_top_processes *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        vt_follow_close(p->follow[i]);
    free(p->item);
    free(p->follow);
    free(p->problem);
    vt_writing_free(&p->list);
    memset(p, 0, sizeof *p);
}

bool vt_top_utf8(void)
{
    return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

/* The terminal's, else what COLUMNS says, else 160. */
static unsigned columns(void)
{
    struct winsize size;
    const char *said = getenv("COLUMNS");
    long number;

    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return said && vt_parse_number(said, 20, 1000, &number) ? (unsigned)number : 160;
}

static int print_lines(struct vt_top_lines *lines)
{
    int status = lines->failed ? vt_fail(VERB, "out of memory") : VT_EXIT_OK;

    for (uint32_t i = 0; i < lines->count; i++)
        puts(lines->list[i].text);
    vt_top_lines_free(lines);
    return status;
}

static struct vt_top_screen plain_screen(const struct vt_top_options *options)
{
    return (struct vt_top_screen){.width = columns(), .utf8 = vt_top_utf8(), .selected = VT_NONE, .most = options->top};
}

static int written(int error)
{
    return error ? vt_fail(VERB, "cannot write: %s", strerror(-error)) : VT_EXIT_OK;
}

static void wait_interval(const struct vt_top_options *options)
{
    struct timespec time = {(time_t)options->interval, 0};

    time.tv_nsec = (long)((options->interval - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
}

/* Without a terminal: the list of all processes. */
static int show_processes(const struct vt_top_options *options)
{
    struct vt_top_screen screen = plain_screen(options);
    struct vt_top_processes processes;
    struct vt_top_lines lines;
    int status, error;

    for (;;) {
        error = vt_top_processes_find(&processes);
        if (error)
            status = vt_fail(VERB, "/proc: %s", strerror(error));
        else if (options->json)
            status = written(vt_top_json_processes(processes.item, processes.count, STDOUT_FILENO));
        else if (!processes.count)
            status = vt_fail(VERB, "no process is being recorded (that this user may look at)");
        else {
            vt_top_draw_processes(processes.item, processes.count, &screen, &lines);
            status = print_lines(&lines);
        }
        vt_top_processes_free(&processes);
        if (status || options->once)
            return status;
        wait_interval(options);
    }
}

/* Without a terminal: one process. */
static int show_process(struct vt_top *top, const struct vt_top_options *options)
{
    struct vt_top_screen screen = plain_screen(options);
    struct vt_top_lines lines;
    char error[VT_TOP_ERROR];
    int status;

    for (;;) {
        if (!vt_top_refresh(top, error, sizeof error))
            return vt_fail(VERB, "%s", error);
        if (options->json && options->once && !vt_top_judge(top))
            return vt_fail(VERB, "out of memory");
        if (options->json) {
            status = written(vt_top_json(top, options->top, STDOUT_FILENO));
        } else {
            vt_top_draw(top, &screen, &lines, NULL, NULL);
            status = print_lines(&lines);
        }
        if (status || options->once || vt_top_ended(top))
            return status;
        wait_interval(options);
    }
}

static int show(const struct vt_top_options *options, const struct vt_top_target *target)
{
    char error[VT_TOP_ERROR];
    struct vt_top *top;
    int status;

    if (!target->path)
        return show_processes(options);
    if (!(top = vt_top_open(target->path, target->pid, options->user_paths, error, sizeof error)))
        return vt_fail(VERB, "%s", error);
    status = show_process(top, options);
    vt_top_close(top);
    return status;
}

static int run(int argc, char **argv)
{
    struct vt_top_options options;
    struct vt_top_target target;
    int status = parse(&options, argc, argv);

    if (status >= 0)
        return status;
    setlocale(LC_CTYPE, "");
    status = find_target(options.target, &target);
    if (!status)
        status = options.once || options.json ? show(&options, &target) : vt_top_interact(&options, &target);
    free(target.path);
    return status;
}

const struct vt_verb vt_verb_top = {VERB, "show live what a running process holds", help, run};
