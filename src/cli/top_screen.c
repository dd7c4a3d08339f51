/*
 * The terminal side of `vramtrack top`: keys, and lines onto the screen. With ncurses, because resizing, key sequences, wide
 * characters, suspending and terminals of all sorts are its trade; linked statically, so that the command runs where only
 * the C library is.
 *
 * The terminal is restored on every way out. Signals that end a program only set a flag, which the loop looks at; for those
 * that mean a crash of this program, the bytes that restore it are kept ready.
 */
#include <curses.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/top_ui.h"

#define VERB VT_TOP_VERB
#define REQUEST_POLL_MS 20

static volatile sig_atomic_t ended_by;
static struct termios before;
static char restore[256];

static void on_end(int signal)
{
    ended_by = signal;
}

/* This program crashes, or the mapped header of a file that somebody made shorter is gone. */
static void on_crash(int number)
{
    if (write(STDOUT_FILENO, restore, strlen(restore)) >= 0)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    signal(number, SIG_DFL);
    raise(number);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void catch_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT},
                     crashes[] = {SIGBUS, SIGSEGV, SIGABRT, SIGFPE, SIGILL};
    static char room[16384]; /* a stack that is used up is a crash as well */
    const stack_t own = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = on_end};

    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaction(ends[i], &action, NULL);
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &action, NULL);
}

static const char *capability(const char *name)
{
    const char *text = tigetstr((char *)name);

    return text && text != (char *)-1 ? text : "";
}

/* Returns false if this is no terminal to draw on. */
static bool start_screen(void)
{
    tcgetattr(STDIN_FILENO, &before);
    catch_signals();
    set_escdelay(25);
    if (!newterm(NULL, stdout, stdin))
        return false;
    if (!*capability("cup") || !*capability("clear")) { /* "dumb": curses would draw one line over the other */
        endwin();
        return false;
    }
    snprintf(restore, sizeof restore, "%s%s%s%s", capability("sgr0"), capability("cnorm"), capability("rmkx"),
             capability("rmcup"));
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    curs_set(0);
    if (has_colors() && vt_wants_colour(STDOUT_FILENO)) {
        start_color();
        use_default_colors();
        init_pair(1, COLOR_RED, -1);
        init_pair(2, COLOR_YELLOW, -1);
    }
    return true;
}

static attr_t attribute(enum vt_top_style style)
{
    switch (style) {
    case VT_TOP_BOLD:
        return A_BOLD;
    case VT_TOP_BAD:
        return A_BOLD | COLOR_PAIR(1);
    case VT_TOP_WARN:
        return COLOR_PAIR(2);
    case VT_TOP_HEAD:
    case VT_TOP_SELECTED:
        return A_REVERSE;
    default:
        return A_NORMAL;
    }
}

static void put_lines(struct vt_top_lines *lines)
{
    erase();
    for (uint32_t i = 0; i < lines->count && (int)i < LINES; i++) {
        attr_t attributes = attribute(lines->list[i].style);

        attrset(attributes);
        mvaddstr((int)i, 0, lines->list[i].text);
        if (attributes & A_REVERSE)
            mvchgat((int)i, 0, -1, attributes, 0, NULL);
    }
    attrset(A_NORMAL);
    refresh();
    vt_top_lines_free(lines);
}

/* Milliseconds until something is to be done without a key. */
static int patience(const struct ui *ui, double next)
{
    double left = (next - now_s()) * 1000;

    if (ui->asking && left > REQUEST_POLL_MS)
        left = REQUEST_POLL_MS;
    return left < 0 ? 0 : left > 1000 ? 1000 : (int)left + 1; /* a signal may have come right before */
}

/* Nobody is at the other end of the terminal any more; a signal said so, if it was not ignored. */
static bool is_hung_up(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&in, 1, 0) > 0 && in.revents & (POLLHUP | POLLERR | POLLNVAL);
}

/* Until the user, a signal or a recording that can't be read any more ends it. Returns false for the last. */
static bool loop(struct ui *ui)
{
    double next = now_s() + ui->options->interval;
    struct vt_top_lines lines;
    int key;

    while (!ended_by && !ui->quit) {
        vt_ui_draw(ui, (unsigned)COLS, (unsigned)LINES, &lines);
        put_lines(&lines);
        timeout(patience(ui, next));
        key = getch();
        if (key != ERR)
            vt_ui_key(ui, key);
        else if (is_hung_up())
            return true;
        if (ui->asking)
            vt_ui_look_for_answer(ui);
        if (now_s() < next)
            continue;
        if (!ui->frozen && !vt_ui_refresh(ui))
            return false;
        next = now_s() + ui->options->interval;
    }
    return true;
}

int vt_top_interact(const struct vt_top_options *options, const struct vt_top_target *target)
{
    struct ui ui = {.options = options, .view = VIEW_PROCESSES, .has_list = !target->path};
    bool good;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return vt_fail(VERB, "this is no terminal: --once prints plain text, --json lines for scripts");
    if (!(target->path ? vt_ui_look_at(&ui, target->path, target->pid) : vt_ui_refresh(&ui))) {
        vt_ui_close(&ui);
        return vt_fail(VERB, "%s", ui.error);
    }
    if (!target->path && !ui.processes.count) {
        vt_ui_close(&ui);
        return vt_fail(VERB, "no process is being recorded (that this user may look at)");
    }
    if (!start_screen()) {
        vt_ui_close(&ui);
        return vt_fail(VERB, "the terminal \"%s\" is not known, or cannot be drawn on: --once prints plain text",
                       getenv("TERM") ? getenv("TERM") : "");
    }
    good = loop(&ui);
    endwin();
    vt_ui_close(&ui);
    if (!good)
        return vt_fail(VERB, "%s", ui.error);
    if (ended_by) { /* as if nobody had caught it */
        signal(ended_by, SIG_DFL);
        raise(ended_by);
    }
    return VT_EXIT_OK;
}
