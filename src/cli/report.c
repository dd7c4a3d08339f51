/*
 * vramtrack report: the views of a recording, on standard output. See docs/vramtrack-report.1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/findings.h"
#include "analysis/model.h"
#include "cli/cli.h"
#include "cli/fail_on.h"
#include "cli/input.h"
#include "cli/job_report.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/recordings.h"
#include "recording/reader.h"
#include "views/out.h"
#include "views/views.h"

#define VERB "report"

struct options {
    const char *path; /* recording or directory */
    const char *colour;
    struct vt_view_options view;
    struct vt_fail_on fail_on;
    const char *html; /* where the page goes; NULL: no page is asked for */
    unsigned top;
    bool json, all, blocks, force;
};

static const char help[] =
    "usage: vramtrack report [options] [RECORDING|DIR]\n"
    "\n"
    "Says what held the GPU memory: totals, the places in the program that hold it, failures and findings.\n"
    "DIR stands for the newest recording in it, or, if that is one of a job's, for all ranks of the job, merged; "
    "without\n"
    "an argument it is the working directory.\n"
    "\n"
    "  --json               the report as JSON (schema vramtrack-report/1)\n"
    "  --blocks             with --json: every segment of a framework, and every block in it\n"
    "  --html FILE          the report, of a job as well, as a page for a browser: one file of at most 10 MB\n"
    "                       (- for standard output)\n"
    "  --force              with --html: replace FILE if it is there\n"
    "  --moment NAME        as it was at a moment: end, finalize, peak, oom-1, ... (the report lists them)\n"
    "  --all                every recording in DIR, oldest first\n" VT_VIEW_STACKS_HELP
    "  --top N              show N places instead of the default number\n"
    "  --colour=WHEN        auto (default), always or never\n"
    "  --fail-on LIST       exit with status 1 if there is one of these, separated by commas:\n"
    "                       " VT_FAIL_ON_FINDINGS ",\n"
    "                       " VT_FAIL_ON_FAILURES "\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "exit status: 0; 1 if --fail-on found something; 2 after an error, and if --fail-on meets an incomplete recording\n"
    "\n"
    "examples:\n"
    "  vramtrack report --moment peak --top 30 .\n"
    "  vramtrack report --html report.html .\n";

enum { OPT_JSON = VT_LONG_VIEW_END, OPT_ALL, OPT_TOP, OPT_COLOUR, OPT_FAIL_ON, OPT_BLOCKS, OPT_HTML, OPT_FORCE };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"all", no_argument, NULL, OPT_ALL},
    {"top", required_argument, NULL, OPT_TOP},
    {"colour", required_argument, NULL, OPT_COLOUR},
    {"color", required_argument, NULL, OPT_COLOUR},
    {"fail-on", required_argument, NULL, OPT_FAIL_ON},
    VT_VIEW_LONG_OPTIONS,
    {"blocks", no_argument, NULL, OPT_BLOCKS},
    {"html", required_argument, NULL, OPT_HTML},
    {"force", no_argument, NULL, OPT_FORCE},
    {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION},
    {NULL, 0, NULL, 0},
};

/* Takes one option over. Returns 0 or VT_EXIT_ERROR. */
static int set_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case OPT_JSON:
        options->json = true;
        return 0;
    case OPT_BLOCKS:
        options->blocks = true;
        return 0;
    case OPT_HTML:
        options->html = value;
        return *value ? 0 : vt_fail(VERB, "--html needs a file name");
    case OPT_FORCE:
        options->force = true;
        return 0;
    case OPT_ALL:
        options->all = true;
        return 0;
    case OPT_TOP:
        return vt_set_top(VERB, &options->top, value);
    case OPT_COLOUR:
        return vt_set_colour(VERB, &options->colour, value);
    default:
        return vt_fail_on_parse(&options->fail_on, value);
    }
}

/* Sets options->path, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    int option, status;

    *options = (struct options){.colour = "auto"};
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_report, argc, argv, ":h", long_options, &status)) > 0)
        if (vt_is_view_option(option) ? vt_set_view_option(VERB, &options->view, option, optarg)
                                      : set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    if (!option)
        return status;
    if (argc - optind > 1)
        return vt_fail(VERB, "one recording or directory at a time, not '%s' as well", argv[optind + 1]);
    if (options->all && options->json)
        return vt_fail(VERB, "--json is for one recording, not for --all");
    if (options->html && (options->json || options->all))
        return vt_fail(VERB, "--html goes without --%s", options->json ? "json" : "all");
    if (options->force && !options->html)
        return vt_fail(VERB, "--force is for --html");
    if (options->blocks && !options->json)
        return vt_fail(VERB, "--blocks is for --json");
    options->path = argc > optind ? argv[optind] : ".";
    return VT_EXIT_OK;
}

/* Writes all of a file to standard output. Returns 0 or a negative errno. */
static int copy_out(int fd)
{
    char bytes[65536];
    ssize_t got, done;

    if (lseek(fd, 0, SEEK_SET))
        return -errno;
    while ((got = read(fd, bytes, sizeof(bytes))) > 0)
        for (ssize_t at = 0; at < got; at += done)
            if ((done = write(STDOUT_FILENO, bytes + at, (size_t)(got - at))) < 0)
                return -errno;
    return got < 0 ? -errno : 0;
}

/* Writes a view and says what takes so long, if it does. What goes to a terminal is written when the line that says so is
 * gone: it would stand in the middle of it. */
static int write_watched(struct vt_reading *reading, const struct vt_report_request *asked,
                         int (*write_view)(struct vt_reading *, const struct vt_report_request *))
{
    struct vt_report_request request = *asked;
    struct vt_symbols *symbols = vt_symbols_open();
    int kept = isatty(asked->fd) ? memfd_create("report", MFD_CLOEXEC) : -1, error;

    request.symbols = symbols;
    if (kept >= 0)
        request.fd = kept;
    if (kept >= 0 || !isatty(asked->fd))
        vt_progress_begin();
    vt_progress_watch(symbols);
    error = write_view(reading, &request);
    vt_progress_watch(NULL);
    vt_progress_end();
    if (kept >= 0) {
        if (!error)
            error = copy_out(kept);
        close(kept);
    }
    vt_symbols_close(symbols);
    return error;
}

struct job {
    struct vt_reading *reading;
    const struct options *options;
};

/* Writes what is asked for to a descriptor. Returns the exit status. */
static int write_views(int fd, void *context)
{
    struct vt_reading *reading = ((struct job *)context)->reading;
    const struct options *options = ((struct job *)context)->options;
    const struct vt_report_request request = {
        .recording_path = vt_reading_name(reading),
        .moment = options->view.moment,
        .fd = fd,
        .colour = vt_colours_output(options->colour),
        .all_frames = options->view.all_frames,
        .stacks = options->view.stacks,
        .user_paths = options->view.user_paths,
        .blocks = options->blocks,
        .top = options->top,
        .cause = VT_REPORT_EXIT,
        .failure = VT_NONE,
    };
    int error;

    error = write_watched(reading, &request,
                          options->html   ? vt_html_write
                          : options->json ? vt_json_write
                                          : vt_text_write);
    return error ? vt_fail(VERB, "cannot write the report: %s", strerror(-error)) : VT_EXIT_OK;
}

/* Where the views go. input: a recording that is not to be written over; NULL: those of a directory, with names of their own. */
static struct vt_output output_of(const struct options *options, const char *input)
{
    return (struct vt_output){.verb = VERB,
                              .path = options->html && strcmp(options->html, "-") ? options->html : NULL,
                              .input = input,
                              .force = options->force};
}

static int report_file(const char *path, const struct options *options)
{
    const struct vt_output output = output_of(options, path);
    struct vt_reading *reading = vt_input_open(VERB, path, options->view.moment);
    struct vt_stack_style style;
    int status;

    if (!reading)
        return VT_EXIT_ERROR;
    status = vt_output_write(&output, write_views, &(struct job){reading, options});
    if (status == VT_EXIT_OK) { /* a page that is asked for is there whatever else the exit status says */
        style = vt_stack_style_for(reading, options->view.stacks, options->view.user_paths);
        status = vt_fail_on_check(&options->fail_on, reading, options->view.moment, NULL, &style);
    }
    vt_reading_close(reading);
    return status;
}

/* What can't be read is told of when it is shown: its moments are not known. */
static bool lacks_moment(const char *path, const char *moment)
{
    char error[512];
    struct vt_reading *reading = moment ? vt_reading_open(path, error, sizeof(error)) : NULL;
    bool lacks = reading && !vt_model_has_moment(reading, moment);

    vt_reading_close(reading);
    return lacks;
}

static bool all_lack_moment(const struct vt_found_list *list, const char *moment)
{
    for (size_t i = 0; i < list->count; i++)
        if (!lacks_moment(list->item[i].path, moment))
            return false;
    return true;
}

static int report_all(const struct vt_found_list *list, const struct options *options)
{
    int status = VT_EXIT_OK;
    size_t shown = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct vt_out out;
        int one;

        if (lacks_moment(list->item[i].path, options->view.moment)) {
            vt_say("%s is left out: it has no moment '%s'", list->item[i].path, options->view.moment);
            continue;
        }
        fflush(stdout); /* the views write to the descriptor */
        vt_out_open(&out, STDOUT_FILENO, false);
        vt_out_text(&out, shown++ ? "\n==> " : "==> ");
        vt_out_name(&out, list->item[i].path, strlen(list->item[i].path), 0);
        vt_out_text(&out, " <==\n\n");
        vt_out_close(&out);
        one = report_file(list->item[i].path, options);
        if (one > status)
            status = one;
    }
    return status;
}

static int report_directory(const struct options *options)
{
    struct vt_found_list list;
    int error = vt_found_in(options->path, &list), status;

    if (error)
        status = vt_fail(VERB, "%s: %s", options->path, strerror(error));
    else if (!list.count)
        status = vt_fail_found_none(VERB, options->path, &list);
    else if (all_lack_moment(&list, options->view.moment))
        status = vt_fail(VERB, "no recording in %s has a moment '%s'", options->path, options->view.moment);
    else
        status = report_all(&list, options);
    vt_found_say(&list);
    if (list.unreadable && list.count && (options->fail_on.failures || options->fail_on.families))
        status = vt_fail(VERB, "not all of %s can be read, so --fail-on has no answer", options->path);
    vt_found_free(&list);
    return status;
}

/* Exit status, or -1: it is no directory with several processes of one job. */
static int report_job(const struct options *options)
{
    const struct vt_output output = output_of(options, NULL);
    const struct vt_job_report job = {.verb = VERB,
                                      .directory = options->path,
                                      .view = &options->view,
                                      .fail_on = &options->fail_on,
                                      .top = options->top,
                                      .json = options->json,
                                      .colour = vt_colours_output(options->colour),
                                      .html = options->html ? &output : NULL};
    struct stat status;

    return !stat(options->path, &status) && S_ISDIR(status.st_mode) ? vt_job_report(&job) : -1;
}

static int report(int argc, char **argv)
{
    struct options options;
    struct stat status;
    int result = parse(&options, argc, argv);
    char *path;

    if (!options.path)
        return result;
    if (options.all && !stat(options.path, &status) && S_ISDIR(status.st_mode))
        return report_directory(&options);
    if (options.blocks && vt_job_ranks_in(options.path) > 1)
        return vt_fail(VERB, "--blocks is for one recording, and %s has a job of several ranks: name a file in it",
                       options.path);
    if (!options.blocks && (result = report_job(&options)) >= 0)
        return result;
    if (!(path = vt_input_choose(VERB, options.path, " (--all shows every one)")))
        return VT_EXIT_ERROR;
    result = report_file(path, &options);
    free(path);
    return result;
}

const struct vt_verb vt_verb_report = {VERB, "say what held the memory, from a recording", help, report};
