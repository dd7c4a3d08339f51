/*
 * The state of `vramtrack top` between keys. Internal to src/cli/top_*.c.
 */
#ifndef VT_TOP_UI_H
#define VT_TOP_UI_H

#include "cli/request.h"
#include "cli/top.h"

#define KEY_ESC 27
#define KEY_CTRL_U 21
#define INPUT_BYTES 128
#define MESSAGE_BYTES 1400
#define LEAST_WIDTH 60 /* of a screen that is of use: a few letters of a place's name, */
#define LEAST_HEIGHT 6 /* and two places below the head */

enum view { VIEW_PROCESSES, VIEW_PLACES, VIEW_SITE, VIEW_HELP };
enum input { INPUT_NONE, INPUT_FILTER, INPUT_MOMENT };

struct ui {
    const struct vt_top_options *options;
    enum view view, before_help;
    uint32_t help_first; /* line of the help that is shown first */
    bool frozen, quit, has_list;
    struct vt_top *top; /* of the process that is looked at; NULL: the list */
    int32_t pid;
    struct vt_top_processes processes;
    enum vt_top_sort sort;
    char filter[INPUT_BYTES];
    uint32_t selected, first;         /* in the places */
    uint32_t process;                 /* in the list */
    uint32_t site, sites, site_first; /* the place that is looked at */
    uint32_t rows, shown;             /* as drawn last */
    enum input input;
    char typed[INPUT_BYTES];
    struct vt_request request;
    bool asking;
    double asked_s;
    char message[MESSAGE_BYTES], error[VT_TOP_ERROR];
};

/* Begins to look at a recording, with its first figures. False: ui->error says why not. */
bool vt_ui_look_at(struct ui *ui, const char *path, int32_t pid);

/* New figures of what is looked at. False: ui->error says why there are none any more. */
bool vt_ui_refresh(struct ui *ui);

/* While ui->asking: looks whether the moment was taken. */
void vt_ui_look_for_answer(struct ui *ui);

void vt_ui_key(struct ui *ui, int key);
void vt_ui_draw(struct ui *ui, unsigned width, unsigned height, struct vt_top_lines *lines);
void vt_ui_close(struct ui *ui);

#endif
