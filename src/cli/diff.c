/*
 * vramtrack diff: what changed between two runs, ranks or moments. See docs/vramtrack-diff.1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/diff.h"
#include "cli/cli.h"
#include "cli/growth_limit.h"
#include "cli/input.h"
#include "cli/job_select.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/recordings.h"
#include "recording/reader.h"
#include "views/diff.h"

#define VERB "diff"

/* A side as it was asked for. */
struct side {
    const char *text;         /* the argument */
    char *path;               /* the part of it in front of @MOMENT; to be freed */
    const char *moment;       /* NULL: the default */
    struct vt_found_list job; /* the recordings of a job; empty: `file` */
    char *file;               /* to be freed; NULL: it is a job */
};

struct options {
    struct side side[2];
    struct vt_view_options view;
    const char *colour;
    enum vt_diff_by by;
    const char *html; /* where the page goes; NULL: no page is asked for */
    bool json, per_step, stacks, force;
    struct vt_growth_limit limit;
    unsigned top;
    bool given;
};

static const char help[] =
    "usage: vramtrack diff [options] BEFORE[@MOMENT] AFTER[@MOMENT]\n"
    "\n"
    "Says what changed between two recordings, two ranks, two jobs (directories), or two moments of one recording:\n"
    "totals, what tensors are to the program, and the places that hold more or less, largest change first.\n"
    "@MOMENT alone, as the second, is another moment of the first.\n"
    "\n"
    "  --by WHAT            live (default): what is live at the moment; at-peak: what each place held at the highest\n"
    "                       point; allocated: all that was ever allocated\n"
    "  --per-step           divided by the training steps that each run has made\n"
    "  --moment NAME        the moment of both, where none is named: end, finalize, peak, oom-1, ...\n"
    "  --fail-on-growth N   exit with status 1 if GPU memory or tensors grew by more than N: bytes (also 64M, "
    "1.5GiB),\n"
    "                       or a share of what was there before (5%)\n"
    "  --json               as JSON (schema vramtrack-diff/1)\n"
    "  --html FILE          as a page for a browser: one file of at most 10 MB (- for standard output)\n"
    "  --force              with --html: replace FILE if it is there\n"
    "  --stacks[=WHAT]      with the frames of each place: merged (default), python or native\n"
    "  --all-frames         --stacks, with the frames inside CUDA, the Python interpreter, the loader and the C "
    "library\n"
    "  --user-paths LIST    prefixes of paths, separated by colons: files there are your own code\n"
    "  --top N              show N places instead of 20\n"
    "  --colour=WHEN        auto (default), always or never\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "exit status: 0; 1 if --fail-on-growth found more; 2 after an error, and if --fail-on-growth meets an incomplete "
    "side\n"
    "\n"
    "example:\n"
    "  vramtrack diff --by at-peak --fail-on-growth 5% before.vtr after.vtr\n"
    "  vramtrack diff run.vtr@peak @oom-1\n";

enum {
    OPT_JSON = VT_LONG_VIEW_END,
    OPT_BY,
    OPT_PER_STEP,
    OPT_LIMIT,
    OPT_TOP,
    OPT_COLOUR,
    OPT_STACKS,
    OPT_HTML,
    OPT_FORCE
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"by", required_argument, NULL, OPT_BY},
    {"per-step", no_argument, NULL, OPT_PER_STEP},
    {"fail-on-growth", required_argument, NULL, OPT_LIMIT},
    {"top", required_argument, NULL, OPT_TOP},
    {"colour", required_argument, NULL, OPT_COLOUR},
    {"color", required_argument, NULL, OPT_COLOUR},
    {"stacks", optional_argument, NULL, OPT_STACKS},
    {"html", required_argument, NULL, OPT_HTML},
    {"force", no_argument, NULL, OPT_FORCE},
    {"moment", required_argument, NULL, VT_LONG_MOMENT},
    {"user-paths", required_argument, NULL, VT_LONG_USER_PATHS},
    {"all-frames", no_argument, NULL, VT_LONG_ALL_FRAMES},
    {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION},
    {NULL, 0, NULL, 0},
};

static int set_by(struct options *options, const char *value)
{
    for (int i = 0; i < VT_DIFF_BY_COUNT; i++)
        if (!strcmp(value, vt_diff_by_name((enum vt_diff_by)i))) {
            options->by = (enum vt_diff_by)i;
            return 0;
        }
    return vt_fail(VERB, "--by %s: live, at-peak or allocated is needed", value);
}

/* Takes one option over. Returns 0 or VT_EXIT_ERROR. */
static int set_option(struct options *options, int option, const char *value)
{
    switch (option) {
    case OPT_JSON:
        options->json = true;
        return 0;
    case OPT_HTML:
        options->html = value;
        return *value ? 0 : vt_fail(VERB, "--html needs a file name");
    case OPT_FORCE:
        options->force = true;
        return 0;
    case OPT_BY:
        return set_by(options, value);
    case OPT_PER_STEP:
        options->per_step = true;
        return 0;
    case OPT_LIMIT:
        return vt_growth_limit_parse(&options->limit, value);
    case OPT_STACKS:
        options->stacks = true;
        return value ? vt_set_view_option(VERB, &options->view, VT_LONG_STACKS, value) : 0;
    case OPT_TOP:
        return vt_set_top(VERB, &options->top, value);
    case OPT_COLOUR:
        return vt_set_colour(VERB, &options->colour, value);
    default:
        return vt_set_view_option(VERB, &options->view, option, value);
    }
}

/* The @ between path and moment: either may have one in its name, so it is the last with something there in front of it. */
static const char *separator(const char *text)
{
    const char *last = strrchr(text, '@'), *at;
    struct stat status;

    for (at = last; at; at = memrchr(text, '@', (size_t)(at - text))) {
        char *path = strndup(text, (size_t)(at - text));
        bool there = at == text || (path && !stat(path, &status));

        free(path);
        if (there)
            return at;
    }
    return last;
}

/* Tells the path from the moment: a file whose name has an @ is itself. Returns 0 or VT_EXIT_ERROR. */
static int split(struct side *side, const struct side *first, const char *moment)
{
    const char *at = separator(side->text);
    struct stat status;
    bool whole = !at || !stat(side->text, &status);

    side->moment = whole ? moment : at + 1;
    if (!whole && !at[1])
        return vt_fail(VERB, "%s: the name of a moment is needed behind the @", side->text);
    if (!whole && at == side->text && (!first || !first->path))
        return vt_fail(VERB, "%s: a recording is needed in front of the @", side->text);
    side->path = whole              ? strdup(side->text)
                 : at == side->text ? strdup(first->path)
                                    : strndup(side->text, (size_t)(at - side->text));
    return side->path ? 0 : vt_fail(VERB, "out of memory");
}

static int check(const struct options *options)
{
    const struct side *side = options->side;

    if (options->by != VT_DIFF_LIVE && (side[0].moment || side[1].moment))
        return vt_fail(VERB, "a moment is for --by live; %s is of the whole run", vt_diff_by_name(options->by));
    if (options->html && options->json)
        return vt_fail(VERB, "--html goes without --json");
    if (options->force && !options->html)
        return vt_fail(VERB, "--force is for --html");
    return 0;
}

/* Sets options->given, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    int option, status;

    *options = (struct options){.colour = "auto"};
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_diff, argc, argv, ":h", long_options, &status)) > 0)
        if (set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    if (!option)
        return status;
    if (argc - optind != 2)
        return vt_fail(VERB, "two recordings or directories are needed, before and after%s%s",
                       argc - optind > 2 ? ", not as well " : "", argc - optind > 2 ? argv[optind + 2] : "");
    options->side[0].text = argv[optind];
    options->side[1].text = argv[optind + 1];
    if (split(&options->side[0], NULL, options->view.moment) ||
        split(&options->side[1], &options->side[0], options->view.moment) || check(options))
        return VT_EXIT_ERROR;
    options->given = true;
    return VT_EXIT_OK;
}

/* What a side's path stands for. Returns 0 or VT_EXIT_ERROR. */
static int resolve(struct side *side)
{
    struct stat status;

    if (stat(side->path, &status))
        return vt_fail(VERB, "%s: %s", side->path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        struct vt_job_choice choice;
        int error = vt_job_choose(side->path, &choice);

        if (error)
            return vt_fail(VERB, "%s: %s", side->path, strerror(error));
        side->job = choice.ranks;
        choice.ranks = (struct vt_found_list){0};
        vt_job_choice_free(&choice);
        if (side->job.count > 1) {
            vt_found_say(&side->job);
            return 0;
        }
    }
    side->file = vt_input_choose(VERB, side->path, "");
    return side->file ? 0 : VT_EXIT_ERROR;
}

/* One recording of a side. Returns the exit status. */
static int add_recording(struct vt_diff *diff, unsigned s, const struct options *options, const char *path,
                         bool any_device, struct vt_symbols *symbols)
{
    const struct side *side = &options->side[s];
    struct vt_reading *reading = vt_input_open(VERB, path, side->moment);
    struct vt_stack_style style;
    struct vt_analysis analysis;
    int error;

    if (!reading)
        return VT_EXIT_ERROR;
    style = vt_stack_style_for(reading, options->view.stacks, options->view.user_paths);
    error = vt_analysis_open(&analysis, reading, vt_diff_moment(diff, side->moment), true, symbols, &style);
    if (!error) {
        error = vt_diff_add(diff, s, &analysis, any_device, !side->file);
        vt_analysis_close(&analysis);
    }
    vt_symbols_forget(symbols, reading);
    vt_reading_close(reading);
    return error ? vt_fail(VERB, "%s: %s", path, strerror(-error)) : VT_EXIT_OK;
}

/* GPUs are told apart by their number, unless a side is a job, or each uses one GPU of another number: that of another rank.
 * Returns 0 or VT_EXIT_ERROR. */
static int choose_devices(const struct options *options, bool *any_device)
{
    unsigned gpus[2] = {2, 2};
    int ordinal[2] = {0, 0};

    *any_device = !options->side[0].file || !options->side[1].file;
    for (unsigned s = 0; s < 2 && !*any_device; s++) {
        struct vt_reading *reading = vt_input_open(VERB, options->side[s].file, options->side[s].moment);
        struct vt_model model;

        if (!reading)
            return VT_EXIT_ERROR;
        if (!vt_model_build(&model, reading, NULL)) {
            gpus[s] = vt_diff_gpus(&model, &ordinal[s]);
            vt_model_free(&model);
        }
        vt_reading_close(reading);
    }
    *any_device |= gpus[0] == 1 && gpus[1] == 1 && ordinal[0] != ordinal[1];
    return 0;
}

static int add_sides(struct vt_diff *diff, const struct options *options, struct vt_symbols *symbols)
{
    bool any_device;
    int status = choose_devices(options, &any_device);

    for (unsigned s = 0; s < 2 && !status; s++) {
        const struct side *side = &options->side[s];

        diff->side[s].path = side->file && strcmp(side->file, side->path) != 0 ? side->file : side->text;
        diff->side[s].unreadable = (uint32_t)side->job.unreadable;
        if (side->file)
            status = add_recording(diff, s, options, side->file, any_device, symbols);
        for (size_t i = 0; !side->file && i < side->job.count && !status; i++)
            status = add_recording(diff, s, options, side->job.item[i].path, any_device, symbols);
        if (!status && options->per_step && !diff->side[s].steps)
            status = vt_fail(VERB,
                             "--per-step: %s has recorded no training step (docs/marks.md tells what counts as one)",
                             side->text);
    }
    return status;
}

/* The recording of a side that --html would write over; NULL: none. */
static const char *input_at(const char *path, const struct side *side)
{
    struct stat there, input;

    for (unsigned s = 0; path && !stat(path, &there) && s < 2; s++)
        for (size_t i = 0; i < (side[s].file ? 1 : side[s].job.count); i++) {
            const char *one = side[s].file ? side[s].file : side[s].job.item[i].path;

            if (!stat(one, &input) && input.st_dev == there.st_dev && input.st_ino == there.st_ino)
                return one;
        }
    return NULL;
}

struct result {
    const struct options *options;
    const struct vt_diff *diff;
};

static int write_result(int fd, void *context)
{
    const struct result *result = context;
    const struct options *options = result->options;
    const struct vt_diff_view view = {.fd = fd,
                                      .colour = vt_colours_output(options->colour),
                                      .stacks = options->stacks || options->view.all_frames,
                                      .all_frames = options->view.all_frames,
                                      .top = options->top};
    int error = options->html   ? vt_diff_html_write(result->diff, &view)
                : options->json ? vt_diff_json_write(result->diff, &view)
                                : vt_diff_text_write(result->diff, &view);

    return error ? vt_fail(VERB, "cannot write: %s", strerror(-error)) : VT_EXIT_OK;
}

static int compare(const struct options *options)
{
    const char *path = options->html && strcmp(options->html, "-") ? options->html : NULL;
    const struct vt_output output = {
        .verb = VERB, .path = path, .input = input_at(path, options->side), .force = options->force};
    struct vt_symbols *symbols = vt_symbols_open();
    struct vt_diff diff;
    int status, error;

    if (!symbols || vt_diff_open(&diff, options->by, options->per_step,
                                 options->view.all_frames || options->json || options->html)) {
        vt_symbols_close(symbols);
        return vt_fail(VERB, "out of memory");
    }
    vt_progress_begin();
    vt_progress_watch(symbols);
    status = add_sides(&diff, options, symbols);
    vt_progress_watch(NULL);
    vt_progress_end();
    if (!status) {
        error = vt_diff_finish(&diff);
        status = error ? vt_fail(VERB, "cannot compare: %s", strerror(-error))
                       : vt_output_write(&output, write_result, &(struct result){options, &diff});
        if (!status)
            status = vt_growth_limit_check(&options->limit, &diff);
    }
    vt_diff_free(&diff);
    vt_symbols_close(symbols);
    return status;
}

static int diff(int argc, char **argv)
{
    struct options options;
    int status = parse(&options, argc, argv);

    if (options.given && options.side[0].path && options.side[1].path)
        status = resolve(&options.side[0]) || resolve(&options.side[1]) ? VT_EXIT_ERROR : compare(&options);
    for (unsigned s = 0; s < 2; s++) {
        vt_found_free(&options.side[s].job);
        free(options.side[s].file);
        free(options.side[s].path);
    }
    return status;
}

const struct vt_verb vt_verb_diff = {VERB, "compare two runs, ranks or moments", help, diff};
