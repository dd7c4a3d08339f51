/*
 * What `vramtrack top` does for a key, and what it shows then. Keys are curses' numbers; drawing them is top_screen.c's.
 */
#include "cli/top_ui.h"

#include <curses.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define REQUEST_S 10.0 /* that a moment is waited for */
#define TEXT_OF(number) #number
#define NUMBER(macro) TEXT_OF(macro)
#define LEAST "at least " NUMBER(LEAST_WIDTH) "x" NUMBER(LEAST_HEIGHT)

static const char *const help_text[] = {
    "vramtrack top",
    "",
    "  q          quit",
    "  arrows     choose a place (or k, j, page up, page down, home, end)",
    "  enter      the whole stack of the place",
    "  esc        back; from the places to the list, if top began with the list",
    "  s          sort: live, at peak, rate, count",
    "  /          show places with this in their name; empty: all; ctrl-u: empty",
    "  space, f   freeze the figures, and go on",
    "  m          take a named moment, for vramtrack report --moment NAME",
    "",
    "  LIVE     what the place holds now",
    "  SHARE    of all that its device holds at its level",
    "  COUNT    live allocations",
    "  ALLOC/S  allocations a second, over the last refreshes; behind it, an",
    "           arrow: live bytes went up or down in that time (GROWTH)",
    "  PLACE    the line of the program, and what called it",
    "",
    "  Tensors stand for the segments of a framework that they lie in.",
    NULL,
};

#define HELP_LINES (sizeof help_text / sizeof *help_text - 1)

static const char *const too_small[] = {"too small:", LEAST, NULL};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* "filter: ..typed_": of a long text its end, where the cursor is. */
static void typed_line(const struct ui *ui, unsigned width, char *buffer, size_t bytes)
{
    const char *what = ui->input == INPUT_FILTER ? "filter: " : "name of the moment (empty: snapshot-1, ...): ";
    const char *shown = ui->typed;
    size_t used = strlen(what) + 1, room = width > used + 8 ? width - used : 8;

    if (strlen(shown) > room) /* no character has more columns than bytes, unless it is shown as \\xNN */
        for (shown += strlen(shown) - room + 3; (*shown & 0xc0) == 0x80;)
            shown++;
    snprintf(buffer, bytes, "%s%s%s_", what, shown > ui->typed ? "..." : "", shown);
}

/* The last line: what is typed, what happened, else the keys. */
static const char *last_line(struct ui *ui, unsigned width, unsigned height, char *buffer, size_t bytes)
{
    if (ui->input)
        typed_line(ui, width, buffer, bytes);
    else if (*ui->message)
        snprintf(buffer, bytes, "%s", ui->message);
    else if (ui->view == VIEW_PROCESSES)
        snprintf(buffer, bytes, "q quit  enter look at it  h help");
    else if (ui->view == VIEW_SITE)
        snprintf(buffer, bytes, "%sesc back  arrows scroll  q quit  h help", ui->frozen ? "FROZEN  " : "");
    else if (ui->view == VIEW_HELP)
        snprintf(buffer, bytes, "%s", height < HELP_LINES + 1 ? "arrows scroll  any other key: back" : "any key: back");
    else
        snprintf(buffer, bytes, "%sq quit  s sort  / filter  space %s  m moment  enter stack  h help",
                 ui->frozen ? "FROZEN  " : "", ui->frozen ? "go on" : "freeze");
    return buffer;
}

void vt_ui_draw(struct ui *ui, unsigned width, unsigned height, struct vt_top_lines *lines)
{
    char last[MESSAGE_BYTES + 64];
    struct vt_top_screen screen = {.width = width,
                                   .height = height,
                                   .utf8 = vt_top_utf8(),
                                   .sort = ui->sort,
                                   .filter = ui->filter,
                                   .first = ui->first,
                                   .selected = ui->selected,
                                   .message = last_line(ui, width, height, last, sizeof last)};

    if (width < LEAST_WIDTH || height < LEAST_HEIGHT) {
        screen.first = 0;
        screen.message = height > 1 ? "" : too_small[0];
        vt_top_draw_text(too_small, &screen, lines, NULL, NULL);
    } else if (ui->view == VIEW_HELP) {
        screen.first = ui->help_first;
        vt_top_draw_text(help_text, &screen, lines, &ui->rows, &ui->shown);
    } else if (ui->view == VIEW_PROCESSES) {
        screen.selected = ui->process;
        ui->rows = ui->processes.count;
        vt_top_draw_processes(ui->processes.item, ui->processes.count, &screen, lines);
    } else if (ui->view == VIEW_SITE) {
        screen.first = ui->site_first;
        vt_top_draw_site(ui->top, ui->site, ui->sites, &screen, lines, &ui->rows, &ui->shown);
    } else {
        vt_top_draw(ui->top, &screen, lines, &ui->rows, &ui->shown);
        if (ui->rows && ui->selected >= ui->rows) { /* there were more before: once more, with the last one */
            vt_top_lines_free(lines);
            ui->selected = screen.selected = ui->rows - 1;
            vt_top_draw(ui->top, &screen, lines, &ui->rows, &ui->shown);
        }
    }
}

/* New figures of what is looked at. */
bool vt_ui_refresh(struct ui *ui)
{
    uint32_t count;
    int32_t pid;

    if (ui->view == VIEW_HELP)
        return true;
    if (ui->top)
        return vt_top_refresh(ui->top, ui->error, sizeof ui->error);
    pid = ui->process < ui->processes.count ? ui->processes.item[ui->process].pid : 0;
    vt_top_processes_free(&ui->processes);
    if ((errno = vt_top_processes_find(&ui->processes))) {
        snprintf(ui->error, sizeof ui->error, "/proc: %s", strerror(errno));
        return false;
    }
    count = ui->processes.count; /* the chosen one stays chosen where it goes */
    for (uint32_t i = 0; i < count; i++)
        if (ui->processes.item[i].pid == pid)
            ui->process = i;
    if (ui->process >= count)
        ui->process = count ? count - 1 : 0;
    return true;
}

bool vt_ui_look_at(struct ui *ui, const char *path, int32_t pid)
{
    if (!(ui->top = vt_top_open(path, pid, ui->options->user_paths, ui->error, sizeof ui->error)))
        return false;
    if (!vt_top_refresh(ui->top, ui->error, sizeof ui->error)) {
        vt_top_close(ui->top);
        ui->top = NULL;
        return false;
    }
    ui->pid = pid;
    ui->view = VIEW_PLACES;
    ui->selected = ui->first = 0;
    ui->frozen = false;
    return true;
}

static void leave(struct ui *ui)
{
    if (ui->view == VIEW_SITE) {
        ui->view = VIEW_PLACES;
    } else if (ui->view == VIEW_PLACES && ui->has_list) {
        vt_top_close(ui->top);
        ui->top = NULL;
        ui->view = VIEW_PROCESSES;
        ui->filter[0] = '\0';
        vt_ui_refresh(ui);
    }
}

static void enter(struct ui *ui)
{
    const struct vt_top_row *rows;
    uint32_t unnamed, count;

    if (ui->view == VIEW_SITE) {
        ui->view = VIEW_PLACES;
    } else if (ui->view == VIEW_PLACES) {
        count = vt_top_rows(ui->top, ui->sort, ui->filter, true, &rows, &unnamed);
        if (ui->selected >= count)
            return;
        ui->site = rows[ui->selected].site->index;
        ui->sites = rows[ui->selected].sites;
        ui->site_first = 0;
        ui->view = VIEW_SITE;
    } else if (ui->process < ui->processes.count) {
        const struct vt_top_process *process = &ui->processes.item[ui->process];

        if (!vt_ui_look_at(ui, process->path, process->pid))
            snprintf(ui->message, sizeof ui->message, "%s", ui->error);
    }
}

/* Moves the selection, or scrolls a stack. */
static void move_by(struct ui *ui, long by)
{
    uint32_t *const moved[] = {[VIEW_PROCESSES] = &ui->process,
                               [VIEW_PLACES] = &ui->selected,
                               [VIEW_SITE] = &ui->site_first,
                               [VIEW_HELP] = &ui->help_first};
    uint32_t *at = moved[ui->view];
    bool scrolls = ui->view == VIEW_SITE || ui->view == VIEW_HELP;
    long last = scrolls ? (long)ui->rows - (long)ui->shown : (long)ui->rows - 1, to = (long)*at + by;

    if (to > last)
        to = last;
    *at = to < 0 ? 0 : (uint32_t)to;
    if (ui->view == VIEW_PLACES) { /* the window follows */
        if (ui->selected < ui->first)
            ui->first = ui->selected;
        else if (ui->shown && ui->selected - ui->first >= ui->shown)
            ui->first = ui->selected - ui->shown + 1;
    }
}

static void ask(struct ui *ui)
{
    enum vt_request_state state;

    vt_request_end(&ui->request);
    state = vt_request_begin(&ui->request, vt_top_path(ui->top), ui->pid, ui->typed);
    ui->asking = state == VT_REQUEST_PENDING;
    ui->asked_s = now_s();
    snprintf(ui->message, sizeof ui->message, "%s",
             ui->asking ? "moment asked for: the next CUDA call takes it" : ui->request.text);
    if (!ui->asking)
        vt_request_end(&ui->request);
}

void vt_ui_look_for_answer(struct ui *ui)
{
    enum vt_request_state state = vt_request_poll(&ui->request);

    if (state == VT_REQUEST_PENDING && now_s() - ui->asked_s < REQUEST_S)
        return;
    if (state == VT_REQUEST_PENDING)
        vt_request_explain(&ui->request, REQUEST_S);
    snprintf(ui->message, sizeof ui->message, "%s%s%s", state == VT_REQUEST_TAKEN ? "moment \"" : "", ui->request.text,
             state == VT_REQUEST_TAKEN ? "\" taken" : "");
    vt_request_end(&ui->request);
    ui->asking = false;
}

/* Takes over what was typed. */
static void accept(struct ui *ui)
{
    if (ui->input == INPUT_MOMENT) {
        ask(ui);
    } else {
        snprintf(ui->filter, sizeof ui->filter, "%s", ui->typed);
        ui->selected = ui->first = 0;
    }
    ui->input = INPUT_NONE;
}

/* A key while something is typed. */
static void type(struct ui *ui, int key)
{
    size_t length = strlen(ui->typed);

    if (key == KEY_ENTER || key == '\r' || key == '\n') {
        accept(ui);
    } else if (key == KEY_ESC) {
        ui->input = INPUT_NONE;
    } else if (key == KEY_CTRL_U) {
        ui->typed[0] = '\0';
    } else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && length) {
        do
            ui->typed[--length] = '\0';
        while (length && (ui->typed[length] & 0xc0) == 0x80);
    } else if (key >= ' ' && key < 256 && key != 127 && length + 1 < sizeof ui->typed) {
        ui->typed[length] = (char)key;
        ui->typed[length + 1] = '\0';
    }
}

static void begin_input(struct ui *ui, enum input input)
{
    if (!ui->top)
        return;
    if (input == INPUT_FILTER)
        ui->view = VIEW_PLACES;
    ui->input = input;
    snprintf(ui->typed, sizeof ui->typed, "%s", input == INPUT_FILTER ? ui->filter : "");
}

/* Returns false if it is no key that moves. */
static bool move_key(struct ui *ui, int key)
{
    long page = ui->shown > 1 ? (long)ui->shown - 1 : 10;

    switch (key) {
    case KEY_UP:
    case 'k':
        move_by(ui, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_by(ui, 1);
        break;
    case KEY_PPAGE:
        move_by(ui, -page);
        break;
    case KEY_NPAGE:
        move_by(ui, page);
        break;
    case KEY_HOME:
        move_by(ui, -(1l << 40));
        break;
    case KEY_END:
        move_by(ui, 1l << 40);
        break;
    default:
        return false;
    }
    return true;
}

static void command(struct ui *ui, int key)
{
    switch (key) {
    case 'q':
        ui->quit = true;
        break;
    case 's':
        ui->sort = (ui->sort + 1) % VT_TOP_SORTS;
        ui->selected = ui->first = 0;
        break;
    case '/':
        begin_input(ui, INPUT_FILTER);
        break;
    case 'm':
        begin_input(ui, INPUT_MOMENT);
        break;
    case ' ':
    case 'f':
        ui->frozen = ui->top && !ui->frozen;
        break;
    case 'h':
    case '?':
        ui->before_help = ui->view;
        ui->help_first = 0;
        ui->view = VIEW_HELP;
        break;
    case KEY_ENTER:
    case '\r':
    case '\n':
    case KEY_RIGHT:
        enter(ui);
        break;
    case KEY_ESC:
    case KEY_LEFT:
        leave(ui);
        break;
    default:
        move_key(ui, key);
    }
}

void vt_ui_key(struct ui *ui, int key)
{
    if (key == KEY_RESIZE)
        return;
    if (!ui->asking)
        ui->message[0] = '\0';
    if (ui->input) {
        type(ui, key);
    } else if (ui->view == VIEW_HELP) {
        if (key != 'q' && ui->rows > ui->shown && move_key(ui, key))
            return;
        ui->view = ui->before_help;
        ui->quit = key == 'q';
    } else {
        command(ui, key);
    }
}

void vt_ui_close(struct ui *ui)
{
    vt_request_end(&ui->request);
    vt_top_close(ui->top);
    vt_top_processes_free(&ui->processes);
}
