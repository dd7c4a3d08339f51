/*
 * vramtrack run: starts a program with the recorder preloaded, and reports when it has ended, whatever ended it. See
 * docs/vramtrack-run.1.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/after.h"
#include "cli/child.h"
#include "cli/cli.h"

#define VERB "run"

struct options {
    const char *output, *depth, *stacks;
    bool no_report, no_wait, quiet, per_tensor;
    char **program;
};

static const char help[] =
    "usage: vramtrack run [options] [--] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs PROGRAM and records its GPU memory, with that of every process it starts. When all have ended, says what\n"
    "held the memory; if one runs out of it, at once. A program that does not use the GPU leaves no file and no "
    "output.\n"
    "The exit status is the program's; if a signal killed it, run ends by the same signal.\n"
    "\n"
    "  -o, --output DIR     where the recordings and text reports go (made if it is not there; default: here)\n"
    "      --depth N        frames per stack, 1 to 256 (default 64)\n"
    "      --stacks MODE    auto (default: both), both, native, python or off\n"
    "      --per-tensor     TensorFlow and JAX: every buffer by a call of the driver (slower, and nothing is "
    "preallocated)\n"
    "      --no-report      leave the recordings only\n"
    "      --no-wait        report when PROGRAM has ended, even if processes it started still run\n"
    "  -q, --quiet          print nothing; the text reports are written all the same\n"
    "  -h, --help           this text\n"
    "      --version        the version\n"
    "\n"
    "environment: VRAMTRACK_LIBRARY is the recorder to load, if it is not the one that belongs to this command;\n"
    "             all other VRAMTRACK_* options are passed on to it\n"
    "\n"
    "exit status: PROGRAM's; 127 if it was not found, 126 if it could not be started, 2 after a wrong option\n"
    "\n"
    "example:\n"
    "  vramtrack run -o recordings -- python train.py --epochs 3\n";

enum { OPT_OUTPUT = VT_LONG_OTHERS, OPT_DEPTH, OPT_STACKS, OPT_PER_TENSOR, OPT_NO_REPORT, OPT_NO_WAIT, OPT_QUIET };

static const struct option long_options[] = {
    {"output", required_argument, NULL, OPT_OUTPUT}, {"depth", required_argument, NULL, OPT_DEPTH},
    {"stacks", required_argument, NULL, OPT_STACKS}, {"per-tensor", no_argument, NULL, OPT_PER_TENSOR},
    {"no-report", no_argument, NULL, OPT_NO_REPORT}, {"no-wait", no_argument, NULL, OPT_NO_WAIT},
    {"quiet", no_argument, NULL, OPT_QUIET},         {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION}, {NULL, 0, NULL, 0},
};

/* Takes one option over. Returns 0 or VT_EXIT_ERROR. */
static int set_option(struct options *options, int option, const char *value)
{
    long number;

    switch (option) {
    case 'o':
    case OPT_OUTPUT:
        options->output = value;
        return *value && strcmp(value, "--") ? 0 : vt_fail(VERB, "--output: a directory is needed, not '%s'", value);
    case OPT_DEPTH:
        options->depth = value;
        if (!vt_parse_number(value, 1, 256, &number))
            return vt_fail(VERB, "--depth %s: a number from 1 to 256 is needed", value);
        return 0;
    case OPT_STACKS:
        options->stacks = value;
        if (strcmp(value, "auto") && strcmp(value, "both") && strcmp(value, "native") && strcmp(value, "python") &&
            strcmp(value, "off"))
            return vt_fail(VERB, "--stacks %s: auto, both, native, python or off is needed", value);
        return 0;
    case OPT_PER_TENSOR:
        options->per_tensor = true;
        return 0;
    case OPT_NO_REPORT:
        options->no_report = true;
        return 0;
    case OPT_NO_WAIT:
        options->no_wait = true;
        return 0;
    default:
        options->quiet = true;
        return 0;
    }
}

/* Sets options->program, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    int option, status;

    memset(options, 0, sizeof(*options));
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_run, argc, argv, "+:o:qh", long_options, &status)) > 0)
        if (set_option(options, option, optarg))
            return VT_EXIT_ERROR;
    if (!option)
        return status;
    if (optind >= argc || !*argv[optind])
        return vt_fail(VERB, "what shall be run? (vramtrack run -- PROGRAM [ARGUMENT...])");
    options->program = argv + optind;
    return VT_EXIT_OK;
}

/* Where the recorder may be, seen from the folder of this command: a build folder, or an installation. */
static const char *const library_places[] = {"libvramtrack.so", "../lib/libvramtrack.so",
                                             "../lib/vramtrack/libvramtrack.so"};

static int find_library(char *library)
{
    const char *named = getenv("VRAMTRACK_LIBRARY");
    char place[PATH_MAX + 64], own[PATH_MAX];
    ssize_t length;

    if (named && *named) {
        if (!realpath(named, library))
            return vt_fail(VERB, "VRAMTRACK_LIBRARY=%s: %s", named, strerror(errno));
        return 0;
    }
    length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length <= 0)
        return vt_fail(VERB, "cannot find out where this command is; set VRAMTRACK_LIBRARY");
    own[length] = 0;
    *strrchr(own, '/') = 0;
    for (size_t i = 0; i < sizeof(library_places) / sizeof(library_places[0]); i++) {
        snprintf(place, sizeof(place), "%s/%s", own, library_places[i]);
        if (realpath(place, library))
            return 0;
    }
    return vt_fail(VERB, "libvramtrack.so is neither in %s nor in ../lib; set VRAMTRACK_LIBRARY", own);
}

/* First in LD_PRELOAD, so that the program's calls reach us before anybody else; the others stay. */
static int preload(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    size_t length = strlen(library);
    char *value;
    int error;

    if (strpbrk(library, ": \t\n"))
        return vt_fail(VERB, "%s: LD_PRELOAD cannot hold spaces or colons; move or link the library", library);
    if (others && !strncmp(others, library, length) && (!others[length] || strchr(": ", others[length])))
        return 0;
    if (asprintf(&value, "%s%s%s", library, others && *others ? ":" : "", others ? others : "") < 0)
        return vt_fail(VERB, "out of memory");
    error = setenv("LD_PRELOAD", value, 1);
    free(value);
    return error ? vt_fail(VERB, "out of memory") : 0;
}

/* Makes a directory and what leads to it. Returns 0 or an errno. */
static int make_directories(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);

    if (length >= sizeof(part))
        return ENAMETOOLONG;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i])
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) && errno != EEXIST && (i == length || errno != EROFS))
            return errno;
    }
    return 0;
}

/* An absolute path: a program that changes its directory must not take its recordings along. */
static int choose_directory(const struct options *options, char *directory)
{
    const char *named = options->output ? options->output : getenv("VRAMTRACK_DIR");
    struct stat status;
    int error;

    if (!named || !*named)
        named = ".";
    if (options->output && (error = make_directories(named)))
        return vt_fail(VERB, "cannot make the directory %s: %s", named, strerror(error));
    if (!realpath(named, directory) || stat(directory, &status))
        return vt_fail(VERB, "%s: %s", named, strerror(errno));
    return S_ISDIR(status.st_mode) ? 0 : vt_fail(VERB, "%s: %s", named, strerror(ENOTDIR));
}

static int set_environment(const struct options *options, const char *directory)
{
    char pid[16];
    int error = setenv("VRAMTRACK_DIR", directory, 1);

    snprintf(pid, sizeof(pid), "%d", getpid());
    error |= setenv("VRAMTRACK_RUN", pid, 1);
    if (options->depth)
        error |= setenv("VRAMTRACK_DEPTH", options->depth, 1);
    if (options->stacks)
        error |= setenv("VRAMTRACK_STACKS", options->stacks, 1);
    if (options->no_report || options->quiet)
        error |= setenv("VRAMTRACK_REPORT", "off", 1);
    return error ? vt_fail(VERB, "out of memory") : 0;
}

/* What makes a framework ask the driver for every buffer, by the framework's own documentation. */
static const struct {
    const char *name, *value, *framework;
} per_tensor[] = {{"TF_GPU_ALLOCATOR", "cuda_malloc_async", "TensorFlow"},
                  {"XLA_PYTHON_CLIENT_ALLOCATOR", "platform", "JAX"}};

/* What the user has set is left as it is: it may be what keeps the program running. */
static int set_per_tensor(bool quiet)
{
    bool any = false; /* a framework that does it */

    for (size_t i = 0; i < sizeof(per_tensor) / sizeof(per_tensor[0]); i++) {
        const char *own = getenv(per_tensor[i].name);

        if (!own && setenv(per_tensor[i].name, per_tensor[i].value, 1))
            return vt_fail(VERB, "out of memory");
        any |= !own || !strcmp(own, per_tensor[i].value);
        if (quiet || (own && !strcmp(own, per_tensor[i].value)))
            continue;
        if (own)
            fprintf(stderr, "vramtrack run: --per-tensor: %s=%s stays as you set it, so %s does as that says\n",
                    per_tensor[i].name, own, per_tensor[i].framework);
        else
            fprintf(stderr, "vramtrack run: --per-tensor: %s=%s is set for %s\n", per_tensor[i].name,
                    per_tensor[i].value, per_tensor[i].framework);
    }
    if (!quiet && any)
        fputs("vramtrack run: --per-tensor: each buffer is a call of the driver now: the program is slower, and its "
              "memory is not laid out as in an ordinary run\n",
              stderr);
    return 0;
}

/* VRAMTRACK_REPORT speaks for the recorder and for us. */
static void read_report_mode(struct vt_after *after, bool *no_report)
{
    const char *mode = getenv("VRAMTRACK_REPORT");

    if (mode && !strcmp(mode, "off"))
        *no_report = true;
    after->oom_only = mode && !strcmp(mode, "oom");
}

static int start(struct vt_child *child, const struct options *options)
{
    int error = vt_child_start(child, options->program, !options->no_wait);

    if (!error)
        return 0;
    vt_fail(VERB, "cannot run '%s': %s", options->program[0], strerror(error));
    return error == ENOENT ? 127 : 126;
}

static int run(int argc, char **argv)
{
    char library[PATH_MAX], directory[PATH_MAX];
    struct vt_after after = {.directory = directory, .run_pid = getpid()};
    struct options options;
    struct vt_child child;
    int status = parse(&options, argc, argv);

    if (!options.program)
        return status;
    read_report_mode(&after, &options.no_report);
    after.quiet = options.quiet;
    if (find_library(library) || choose_directory(&options, directory) || set_environment(&options, directory) ||
        preload(library) || (options.per_tensor && set_per_tensor(options.quiet)))
        return VT_EXIT_ERROR;
    vt_found_in(directory, &after.before); /* an unreadable directory is told about when there is something to find */

    status = start(&child, &options);
    if (status)
        return status;
    vt_child_wait(&child);
    if (!options.no_wait)
        vt_child_wait_orphans(&child, options.quiet);
    after.child = &child;
    if (!options.no_report)
        vt_after_report(&after);
    vt_found_free(&after.before);
    vt_child_end_like(&child);
}

const struct vt_verb vt_verb_run = {VERB, "run a program and record its GPU memory", help, run};
