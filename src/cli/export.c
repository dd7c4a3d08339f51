/*
 * vramtrack export: a recording in the format of another tool. See docs/vramtrack-export.1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "recording/reader.h"
#include "views/export.h"

#define VERB "export"

/* Options that mean something to a format. */
enum { TAKES_TYPE = 1, TAKES_LEVEL = 2, TAKES_EVENTS = 4, TAKES_MOMENT = 8, BINARY = 16 };

static const struct format {
    const char *name;
    int (*write)(struct vt_reading *, const struct vt_export_request *);
    unsigned flags;
} formats[] = {
    {"torch-snapshot", vt_torch_snapshot_write, TAKES_EVENTS | TAKES_MOMENT | BINARY},
    {"pprof", vt_pprof_write, TAKES_TYPE | TAKES_LEVEL | TAKES_MOMENT | BINARY},
    {"perfetto", vt_perfetto_write, TAKES_LEVEL | TAKES_EVENTS},
    {"speedscope", vt_speedscope_write, TAKES_TYPE | TAKES_LEVEL | TAKES_MOMENT},
    {"folded", vt_folded_write, TAKES_TYPE | TAKES_LEVEL | TAKES_MOMENT},
    {"csv", vt_csv_write, TAKES_LEVEL | TAKES_MOMENT},
    {"prometheus", vt_prometheus_write, TAKES_MOMENT},
};
#define FORMATS "torch-snapshot, pprof, perfetto, speedscope, folded, csv or prometheus"

struct options {
    const struct format *format;
    const char *path, *output; /* output NULL: standard output */
    bool force;
    unsigned given; /* TAKES_* */
    struct vt_export_request request;
};

static const char help[] =
    "usage: vramtrack export --format FMT [options] [RECORDING|DIR]\n"
    "\n"
    "Writes a recording in the format of another tool, on standard output. DIR stands for the newest recording in it.\n"
    "\n"
    "  --format FMT         torch-snapshot  pytorch.org/memory_viz, torch.cuda._memory_viz\n"
    "                       pprof           go tool pprof, speedscope\n"
    "                       perfetto        ui.perfetto.dev, chrome://tracing (JSON)\n"
    "                       speedscope      www.speedscope.app\n"
    "                       folded          flamegraph.pl, inferno: stacks and bytes, a line each\n"
    "                       csv             a table of the places that allocate\n"
    "                       prometheus      text for node_exporter's textfile collector\n"
    "  -o, --output FILE    into FILE, which appears when it is complete\n"
    "      --force          with -o: replace FILE if it is there\n"
    "  --moment NAME        as it was at a moment: end, finalize, peak, oom-1, ...; not for perfetto\n"
    "  --type WHAT          folded: the bytes of each place, pprof and speedscope: what they show first:\n"
    "                       live (default), at-peak, allocated or leaked\n"
    "  --level LEVEL        driver: what CUDA calls hold; tensor: what frameworks hand out; all (default):\n"
    "                       tensors instead of the segments that they lie in, and all else (csv: everything)\n"
    "  --events N           perfetto and torch-snapshot: the newest N events (default: 200000)\n" VT_VIEW_STACKS_HELP
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "exit status: 0; 2 after an error\n"
    "\n"
    "example:\n"
    "  vramtrack export --format torch-snapshot -o snapshot.pickle .\n";

enum { OPT_FORMAT = VT_LONG_VIEW_END, OPT_OUTPUT, OPT_FORCE, OPT_TYPE, OPT_LEVEL, OPT_EVENTS };

static const struct option long_options[] = {
    {"format", required_argument, NULL, OPT_FORMAT},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"force", no_argument, NULL, OPT_FORCE},
    {"type", required_argument, NULL, OPT_TYPE},
    {"level", required_argument, NULL, OPT_LEVEL},
    {"events", required_argument, NULL, OPT_EVENTS},
    VT_VIEW_LONG_OPTIONS,
    {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION},
    {NULL, 0, NULL, 0},
};

/* The number of a word in a list, or -1. */
static int word_of(const char *value, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(value, words[i]))
            return i;
    return -1;
}

static int set_format(struct options *options, const char *value)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (!strcmp(value, formats[i].name)) {
            options->format = &formats[i];
            return 0;
        }
    return vt_fail(VERB, "--format %s: " FORMATS " is needed", value);
}

static int set_word(struct options *options, int option, const char *value)
{
    static const char *const types[] = {"live", "at-peak", "allocated", "leaked"};
    static const char *const levels[] = {"driver", "tensor", "all"};
    int word;

    if (option == OPT_TYPE) {
        if ((word = word_of(value, types, 4)) < 0)
            return vt_fail(VERB, "--type %s: live, at-peak, allocated or leaked is needed", value);
        options->request.type = (enum vt_export_type)word;
        options->given |= TAKES_TYPE;
    } else {
        if ((word = word_of(value, levels, 3)) < 0)
            return vt_fail(VERB, "--level %s: driver, tensor or all is needed", value);
        options->request.level = (enum vt_export_level)word;
        options->given |= TAKES_LEVEL;
    }
    return 0;
}

/* Takes one option over. Returns 0 or VT_EXIT_ERROR. */
static int set_option(struct options *options, int option, const char *value)
{
    long number;

    switch (option) {
    case OPT_FORMAT:
        return set_format(options, value);
    case 'o':
    case OPT_OUTPUT:
        options->output = strcmp(value, "-") ? value : NULL;
        return *value ? 0 : vt_fail(VERB, "-o needs a file name");
    case OPT_FORCE:
        options->force = true;
        return 0;
    case OPT_EVENTS:
        if (!vt_parse_number(value, 1, 100000000, &number))
            return vt_fail(VERB, "--events %s: a number from 1 to 100000000 is needed", value);
        options->request.events = (uint64_t)number;
        options->given |= TAKES_EVENTS;
        return 0;
    default:
        return set_word(options, option, value);
    }
}

/* An option that the format does nothing with must not look as if it did. */
static int check(const struct options *options)
{
    static const struct {
        unsigned flag;
        const char *option;
    } all[] = {
        {TAKES_TYPE, "--type"}, {TAKES_LEVEL, "--level"}, {TAKES_EVENTS, "--events"}, {TAKES_MOMENT, "--moment"}};

    if (!options->format)
        return vt_fail(VERB, "which format? --format with " FORMATS " is needed");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (options->given & all[i].flag && !(options->format->flags & all[i].flag))
            return vt_fail(VERB, "%s is not for --format %s", all[i].option, options->format->name);
    if (options->force && !options->output)
        return vt_fail(VERB, "--force is for -o FILE");
    if (options->format->flags & BINARY && !options->output && isatty(STDOUT_FILENO))
        return vt_fail(VERB, "%s is not for a terminal: -o FILE is needed", options->format->name);
    return VT_EXIT_OK;
}

static void take_view(struct options *options, const struct vt_view_options *view)
{
    options->request.moment = view->moment;
    options->request.user_paths = view->user_paths;
    options->request.stacks = view->stacks;
    options->request.all_frames = view->all_frames;
    if (view->moment)
        options->given |= TAKES_MOMENT;
}

/* Sets options->path, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    struct vt_view_options view = {0};
    int option, status;

    *options = (struct options){.request = {.level = VT_EXPORT_ALL, .events = VT_EXPORT_EVENTS, .fd = STDOUT_FILENO}};
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_export, argc, argv, ":ho:", long_options, &status)) > 0)
        if (vt_is_view_option(option) ? vt_set_view_option(VERB, &view, option, optarg)
                                      : set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    if (!option)
        return status;
    take_view(options, &view);
    if (argc - optind > 1)
        return vt_fail(VERB, "one recording or directory at a time, not '%s' as well", argv[optind + 1]);
    if (check(options))
        return VT_EXIT_ERROR;
    options->path = argc > optind ? argv[optind] : ".";
    return VT_EXIT_OK;
}

struct export
{
    struct vt_reading *reading;
    const struct options *options;
};

/* Writes the format to a descriptor. Returns the exit status. */
static int write_format(int fd, void *context)
{
    const struct export *export = context;
    struct vt_export_request request = export->options->request;
    struct vt_symbols *symbols = vt_symbols_open();
    bool nothing = false;
    int error;

    request.nothing = &nothing;
    request.fd = fd;
    request.symbols = symbols;
    if (!isatty(fd)) /* the line that says what takes so long would stand in the middle of the output */
        vt_progress_begin();
    vt_progress_watch(symbols);
    error = export->options->format->write(export->reading, &request);
    vt_progress_watch(NULL);
    vt_progress_end();
    vt_symbols_close(symbols);
    if (error == -ENODATA)
        return vt_fail(VERB, "single allocations, which %s needs, were not recorded at that moment",
                       export->options->format->name);
    if (error)
        return vt_fail(VERB, "cannot write: %s", strerror(-error));
    if (nothing && request.type == VT_EXPORT_LEAKED)
        vt_say("nothing has leaked, as far as is known%s: the export has no bytes",
               request.moment ? " at that moment (leaks and growth are judged at the end)" : "");
    return VT_EXIT_OK;
}

static int export_file(const char *path, const struct options *options)
{
    const struct vt_output output = {.verb = VERB, .path = options->output, .input = path, .force = options->force};
    struct vt_reading *reading = vt_input_open(VERB, path, options->request.moment);
    int status;

    if (!reading)
        return VT_EXIT_ERROR;
    status = vt_output_write(&output, write_format, &(struct export){reading, options});
    vt_reading_close(reading);
    return status;
}

static int export(int argc, char **argv)
{
    struct options options;
    int result = parse(&options, argc, argv);
    char *path;

    if (!options.path || !options.format)
        return result;
    if (!(path = vt_input_choose(VERB, options.path, "")))
        return VT_EXIT_ERROR;
    result = export_file(path, &options);
    free(path);
    return result;
}

const struct vt_verb vt_verb_export = {VERB, "write a recording in the format of another tool", help, export};
