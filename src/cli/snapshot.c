/*
 * vramtrack snapshot: has a running process take a named moment. See docs/vramtrack-snapshot.1.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/find_process.h"
#include "cli/request.h"
#include "views/out.h"

#define VERB "snapshot"
#define DEFAULT_TIMEOUT 10.0

static const char help[] =
    "usage: vramtrack snapshot [options] PID|RECORDING [NAME]\n"
    "\n"
    "Has a running process take a moment, a copy of who holds which memory, and prints its name when that is done. "
    "The\n"
    "process's next CUDA call (or tensor) takes it; it gets no signal. Later: vramtrack report --moment NAME.\n"
    "\n"
    "  NAME             31 bytes count; a moment of the same name is replaced. Default: snapshot-1, snapshot-2, ...\n"
    "  --timeout S      wait S seconds at most, 0 to 86400 (default 10)\n"
    "  -h, --help       this text\n"
    "      --version    the version\n"
    "\n"
    "exit status: 0; 2 if no moment was taken\n"
    "\n"
    "example:\n"
    "  vramtrack snapshot $(pgrep -f train.py) before-validation\n";

enum { OPT_TIMEOUT = VT_LONG_OTHERS };

static const struct option long_options[] = {
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"help", no_argument, NULL, VT_LONG_HELP},
    {"version", no_argument, NULL, VT_LONG_VERSION},
    {NULL, 0, NULL, 0},
};

struct options {
    double timeout;
    const char *target, *name; /* target NULL: nothing to do any more */
};

/* Sets options->target, or else returns the exit status. */
static int parse(struct options *options, int argc, char **argv)
{
    int option, status;

    *options = (struct options){.timeout = DEFAULT_TIMEOUT};
    vt_begin_options();
    while ((option = vt_next_option(&vt_verb_snapshot, argc, argv, ":h", long_options, &status)) > 0)
        if (!vt_parse_seconds(optarg, 0, 86400, &options->timeout))
            return vt_fail(VERB, "--timeout %s: seconds from 0 to 86400 are needed", optarg);
    if (!option)
        return status;
    if (argc - optind < 1)
        return vt_fail(VERB, "whose memory? A process id or a recording is needed (see: vramtrack snapshot --help)");
    if (argc - optind > 2)
        return vt_fail(VERB, "one process and one name, not '%s' as well", argv[optind + 2]);
    options->target = argv[optind];
    options->name = argc - optind > 1 ? argv[optind + 1] : NULL;
    return VT_EXIT_OK;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void wait_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* The file was made shorter under our mapping of it. */
static void on_bus_error(int signal)
{
    static const char text[] = "vramtrack snapshot: the recording is being changed by somebody else\n";

    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(VT_EXIT_ERROR);
    _exit(VT_EXIT_ERROR);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    interrupted = signal;
}

static void print_name(const char *name)
{
    struct vt_out out;

    vt_out_open(&out, STDOUT_FILENO, false);
    vt_out_name(&out, name, strlen(name), 0);
    vt_out_text(&out, "\n");
    vt_out_close(&out);
}

static int ask(const char *path, int32_t pid, const struct options *options)
{
    struct vt_request request;
    double until = now_s() + options->timeout;
    enum vt_request_state state = vt_request_begin(&request, path, pid, options->name);
    int status = VT_EXIT_OK;

    for (long ms = 1; state == VT_REQUEST_PENDING && !interrupted && now_s() < until; ms += ms < 20) {
        wait_ms(ms);
        state = vt_request_poll(&request);
    }
    if (state == VT_REQUEST_PENDING && interrupted)
        snprintf(request.text, sizeof request.text, "interrupted: the request is taken back");
    else if (state == VT_REQUEST_PENDING)
        vt_request_explain(&request, options->timeout);
    vt_request_end(&request);
    if (state == VT_REQUEST_TAKEN)
        print_name(request.text);
    else
        status = vt_fail(VERB, "%s", request.text);
    return status;
}

static int snapshot(int argc, char **argv)
{
    struct options options;
    char error[512], *path;
    long pid = 0;
    int status = parse(&options, argc, argv);

    if (!options.target)
        return status;
    signal(SIGBUS, on_bus_error);
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    if (!vt_parse_number(options.target, 1, INT32_MAX, &pid))
        return ask(options.target, 0, &options);
    path = vt_find_writing((int32_t)pid, error, sizeof error);
    status = path ? ask(path, (int32_t)pid, &options) : vt_fail(VERB, "%s", error);
    free(path);
    return status;
}

const struct vt_verb vt_verb_snapshot = {VERB, "have a running process take a named moment", help, snapshot};
