/*
 * The progress line; see progress.h. The handler runs in the middle of anything: it reads two words, makes the line by
 * hand and calls write, nothing else.
 */
#include "cli/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FIRST_MS 1000
#define NEXT_MS 200
#define LINE_BYTES 160

static struct vt_symbols_watch watch;
static struct vt_symbols *watched;
static volatile sig_atomic_t running, drawn;
static time_t began;
static size_t columns;
static struct sigaction before;

static size_t add(char *line, size_t used, size_t most, const char *text)
{
    while (*text && used < most)
        line[used++] = *text++;
    return used;
}

static size_t add_number(char *line, size_t used, size_t most, uint64_t number)
{
    char digits[24];
    size_t i = sizeof digits - 1;

    digits[i] = '\0';
    do
        digits[--i] = (char)('0' + number % 10);
    while (number /= 10);
    return add(line, used, most, digits + i);
}

/* A file's name, from a recording: what a terminal might take for more than a letter becomes '?'. */
static size_t add_name(char *line, size_t used, size_t most, const char *path)
{
    const char *name = path, *at;

    for (at = path; *at; at++)
        if (*at == '/')
            name = at + 1;
    for (; *name && used < most; name++)
        line[used++] = *name > ' ' && *name < 127 ? *name : '?';
    return used;
}

static void put(const char *bytes, size_t count)
{
    while (count) {
        ssize_t done = write(STDERR_FILENO, bytes, count);

        if (done <= 0)
            return;
        bytes += done;
        count -= (size_t)done;
    }
}

static void draw(int signal)
{
    const char *path = watch.path;
    struct timespec now;
    int saved = errno;
    char line[LINE_BYTES + 8];
    size_t most = columns < LINE_BYTES ? columns : LINE_BYTES, used;

    (void)signal;
    if (tcgetpgrp(STDERR_FILENO) == getpgrp() && !clock_gettime(CLOCK_MONOTONIC, &now)) {
        used = add(line, 0, most, "\rvramtrack: making the report, ");
        used = add_number(line, used, most, (uint64_t)(now.tv_sec - began));
        used = add(line, used, most, " s");
        if (path) {
            used = add(line, used, most, ": ");
            used = add_number(line, used, most, watch.asked);
            used = add(line, used, most, " addresses looked up, now in ");
            used = add_name(line, used, most, path);
        }
        used = add(line, used, most + 3, "\033[K");
        drawn = 1;
        put(line, used);
    }
    errno = saved;
}

static bool may_draw(void)
{
    const char *terminal = getenv("TERM");
    struct winsize size;
    struct stat out;

    if (!isatty(STDERR_FILENO) || !terminal || !*terminal || !strcmp(terminal, "dumb"))
        return false;
    if (!fstat(STDOUT_FILENO, &out) && S_ISFIFO(out.st_mode))
        return false;
    columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : 80;
    return columns >= 20;
}

static void set_timer(long first_ms, long next_ms)
{
    const struct itimerval timer = {{next_ms / 1000, next_ms % 1000 * 1000}, {first_ms / 1000, first_ms % 1000 * 1000}};

    setitimer(ITIMER_REAL, &timer, NULL);
}

void vt_progress_begin(void)
{
    struct sigaction action = {.sa_handler = draw, .sa_flags = SA_RESTART};
    struct timespec now;

    if (running || !may_draw() || clock_gettime(CLOCK_MONOTONIC, &now) || sigaction(SIGALRM, &action, &before))
        return;
    running = 1;
    began = now.tv_sec;
    set_timer(FIRST_MS, NEXT_MS);
}

void vt_progress_watch(struct vt_symbols *symbols)
{
    if (watched)
        vt_symbols_watch(watched, NULL);
    watch.path = NULL;
    watched = symbols;
    if (symbols)
        vt_symbols_watch(symbols, &watch);
}

void vt_progress_end(void)
{
    if (!running)
        return;
    set_timer(0, 0);
    sigaction(SIGALRM, &before, NULL);
    if (drawn)
        put("\r\033[K", 4);
    watch.asked = 0;
    running = drawn = 0;
}
