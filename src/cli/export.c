/*
 * vramtrack export: a recording in the format of another tool. See docs/vramtrack-export.1.
 *
 * A file is written beside its place and given its name when it is complete: whoever reads it meanwhile (a collector of
 * metrics) has the old one or the new one, never half of one.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/recordings.h"
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
    "      --force          even if FILE is there: replace it\n"
    "  --moment NAME        as it was at a moment: end, finalize, peak, oom-1, ...; not for perfetto\n"
    "  --type WHAT          folded: the bytes of each place, pprof and speedscope: what they show first:\n"
    "                       live (default), at-peak, allocated or leaked\n"
    "  --level LEVEL        driver: what CUDA calls hold; tensor: what frameworks hand out; all (default):\n"
    "                       tensors instead of the segments that they lie in, and all else (csv: everything)\n"
    "  --events N           perfetto and torch-snapshot: the newest N events (default: 200000)\n"
    "  --all-frames         with the frames inside CUDA, the Python interpreter, the loader and the C library\n"
    "  --stacks=WHAT        merged (default: Python and native frames in one list), python or native\n"
    "  --user-paths LIST    prefixes of paths, separated by colons: files there are your own code\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "exit status: 0; 2 after an error\n"
    "\n"
    "example:\n"
    "  vramtrack export --format torch-snapshot -o snapshot.pickle .\n";

enum {
    OPT_FORMAT = VT_LONG_OTHERS,
    OPT_OUTPUT,
    OPT_FORCE,
    OPT_MOMENT,
    OPT_TYPE,
    OPT_LEVEL,
    OPT_EVENTS,
    OPT_ALL_FRAMES,
    OPT_STACKS,
    OPT_USER_PATHS
};

static const struct option long_options[] = {
    {"format", required_argument, NULL, OPT_FORMAT},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"force", no_argument, NULL, OPT_FORCE},
    {"moment", required_argument, NULL, OPT_MOMENT},
    {"type", required_argument, NULL, OPT_TYPE},
    {"level", required_argument, NULL, OPT_LEVEL},
    {"events", required_argument, NULL, OPT_EVENTS},
    {"all-frames", no_argument, NULL, OPT_ALL_FRAMES},
    {"stacks", required_argument, NULL, OPT_STACKS},
    {"user-paths", required_argument, NULL, OPT_USER_PATHS},
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
    static const char *const stacks[] = {"merged", "python", "native"};
    int word;

    if (option == OPT_TYPE) {
        if ((word = word_of(value, types, 4)) < 0)
            return vt_fail(VERB, "--type %s: live, at-peak, allocated or leaked is needed", value);
        options->request.type = (enum vt_export_type)word;
        options->given |= TAKES_TYPE;
    } else if (option == OPT_LEVEL) {
        if ((word = word_of(value, levels, 3)) < 0)
            return vt_fail(VERB, "--level %s: driver, tensor or all is needed", value);
        options->request.level = (enum vt_export_level)word;
        options->given |= TAKES_LEVEL;
    } else {
        if ((word = word_of(value, stacks, 3)) < 0)
            return vt_fail(VERB, "--stacks=%s: merged, python or native is needed", value);
        options->request.stacks = (enum vt_show_stacks)word;
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
    case OPT_MOMENT:
        options->request.moment = value;
        options->given |= TAKES_MOMENT;
        return 0;
    case OPT_EVENTS:
        if (!vt_parse_number(value, 1, 100000000, &number))
            return vt_fail(VERB, "--events %s: a number from 1 to 100000000 is needed", value);
        options->request.events = (uint64_t)number;
        options->given |= TAKES_EVENTS;
        return 0;
    case OPT_ALL_FRAMES:
        options->request.all_frames = true;
        return 0;
    case OPT_USER_PATHS:
        options->request.user_paths = value;
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
    if (options->format->flags & BINARY && !options->output && isatty(STDOUT_FILENO))
        return vt_fail(VERB, "%s is not for a terminal: -o FILE is needed", options->format->name);
    return VT_EXIT_OK;
}

/* Sets options->path, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    int option;

    *options = (struct options){.request = {.level = VT_EXPORT_ALL, .events = VT_EXPORT_EVENTS, .fd = STDOUT_FILENO}};
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":ho:", long_options, NULL)) != -1) {
        if (option == 'h' || option == VT_LONG_HELP)
            return vt_print_help(&vt_verb_export);
        if (option == VT_LONG_VERSION)
            return vt_print_version();
        if (option == '?' || option == ':')
            return vt_fail_option(VERB, option, argv);
        if (set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    }
    if (argc - optind > 1)
        return vt_fail(VERB, "one recording or directory at a time, not '%s' as well", argv[optind + 1]);
    if (check(options))
        return VT_EXIT_ERROR;
    options->path = argc > optind ? argv[optind] : ".";
    return VT_EXIT_OK;
}

static int fail_moment(struct vt_reading *reading, const char *moment)
{
    struct vt_model model;
    char names[512] = "";
    size_t used = 0;

    if (vt_model_build(&model, reading, NULL))
        return vt_fail(VERB, "out of memory");
    for (uint32_t i = 0; i < model.moment_count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", model.moments[i].name);
    vt_model_free(&model);
    return vt_fail(VERB, "there is no moment '%s' (there are: %s)", moment, names);
}

/* Writes the format to a descriptor. Returns the exit status. */
static int write_format(struct vt_reading *reading, const struct options *options, int fd)
{
    struct vt_export_request request = options->request;
    struct vt_symbols *symbols = vt_symbols_open();
    int error;

    request.fd = fd;
    request.symbols = symbols;
    if (!isatty(fd)) /* the line that says what takes so long would stand in the middle of the output */
        vt_progress_begin();
    vt_progress_watch(symbols);
    error = options->format->write(reading, &request);
    vt_progress_watch(NULL);
    vt_progress_end();
    vt_symbols_close(symbols);
    if (error == -ENODATA)
        return vt_fail(VERB, "single allocations, which %s needs, were not recorded at that moment",
                       options->format->name);
    if (error)
        return vt_fail(VERB, "cannot write: %s", strerror(-error));
    return VT_EXIT_OK;
}

/* Gives the complete file its name. Returns 0 or an errno. */
static int put_in_place(const char *from, const char *to, bool force)
{
    if (force)
        return rename(from, to) ? errno : 0;
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    return link(from, to) || unlink(from) ? errno : 0; /* a file system that cannot do it in one call */
}

/* Writes into a file beside `path`, then renames it. */
static int write_beside(struct vt_reading *reading, const struct options *options, const char *path)
{
    mode_t mask = umask(0);
    char *beside;
    int fd, status, error;

    umask(mask);
    if (asprintf(&beside, "%s.XXXXXX", path) < 0)
        return vt_fail(VERB, "out of memory");
    if ((fd = mkostemp(beside, O_CLOEXEC)) < 0) {
        status = vt_fail(VERB, "%s: %s", options->output, strerror(errno));
        free(beside);
        return status;
    }
    status = write_format(reading, options, fd);
    fchmod(fd, 0666 & ~mask); /* of a temporary file: its owner alone, and a collector is somebody else */
    if (close(fd) && status == VT_EXIT_OK)
        status = vt_fail(VERB, "cannot write: %s", strerror(errno));
    if (status == VT_EXIT_OK && (error = put_in_place(beside, path, options->force)))
        status = vt_fail(VERB, "%s: %s", options->output, strerror(error));
    if (status != VT_EXIT_OK)
        unlink(beside);
    free(beside);
    return status;
}

/* Writes where -o says. */
static int write_output(struct vt_reading *reading, const struct options *options)
{
    char *target;
    struct stat status;
    int fd, result;

    if (!options->output)
        return write_format(reading, options, STDOUT_FILENO);
    if (lstat(options->output, &status))
        return write_beside(reading, options, options->output);
    if (stat(options->output, &status))
        return vt_fail(VERB, "%s: %s", options->output, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return vt_fail(VERB, "%s: %s", options->output, strerror(EISDIR));
    if (!S_ISREG(status.st_mode)) { /* a pipe or a device: nothing to replace */
        if ((fd = open(options->output, O_WRONLY | O_CLOEXEC)) < 0)
            return vt_fail(VERB, "%s: %s", options->output, strerror(errno));
        result = write_format(reading, options, fd);
        return close(fd) && result == VT_EXIT_OK ? vt_fail(VERB, "cannot write: %s", strerror(errno)) : result;
    }
    if (!options->force)
        return vt_fail(VERB, "%s is there already (--force replaces it)", options->output);
    if (!(target = realpath(options->output, NULL))) /* what a link leads to is replaced, not the link */
        return vt_fail(VERB, "%s: %s", options->output, strerror(errno));
    result = write_beside(reading, options, target);
    free(target);
    return result;
}

/* Is the output the recording itself? --force must not destroy what is exported. */
static bool is_itself(const char *path, const struct options *options)
{
    struct stat recording, output;

    return options->output && !stat(path, &recording) && !stat(options->output, &output) &&
           recording.st_dev == output.st_dev && recording.st_ino == output.st_ino;
}

static int export_file(const char *path, const struct options *options)
{
    char error[512];
    struct vt_reading *reading;
    int status;

    if (is_itself(path, options))
        return vt_fail(VERB, "%s is the recording itself", options->output);
    if (!(reading = vt_reading_open(path, error, sizeof(error))))
        return vt_fail(VERB, "%s", error);
    if (options->request.moment && !vt_model_has_moment(reading, options->request.moment))
        status = fail_moment(reading, options->request.moment);
    else
        status = write_output(reading, options);
    vt_reading_close(reading);
    return status;
}

static int export_directory(const struct options *options)
{
    struct vt_found_list list;
    int error = vt_found_in(options->path, &list), status;

    if (error) {
        status = vt_fail(VERB, "%s: %s", options->path, strerror(error));
    } else if (!list.count) {
        status = vt_fail(VERB, "there is no recording in %s", options->path);
    } else {
        if (list.count > 1)
            vt_say("%s, the newest of %zu recordings here", list.item[list.count - 1].path, list.count);
        status = export_file(list.item[list.count - 1].path, options);
    }
    vt_found_free(&list);
    return status;
}

static int export(int argc, char **argv)
{
    struct options options;
    struct stat status;
    int result = parse(&options, argc, argv);

    if (!options.path || !options.format)
        return result;
    if (stat(options.path, &status))
        return vt_fail(VERB, "%s: %s", options.path, strerror(errno));
    return S_ISDIR(status.st_mode) ? export_directory(&options) : export_file(options.path, &options);
}

const struct vt_verb vt_verb_export = {VERB, "write a recording in the format of another tool", help, export};
