/*
 * What the verbs that read recordings have in common: the file or directory that they are given, and how stacks, moments,
 * lengths of lists and colours are asked for.
 */
#ifndef VT_CLI_INPUT_H
#define VT_CLI_INPUT_H

#include <stdbool.h>

#include "analysis/stack.h"
#include "cli/cli.h"

struct vt_reading;
struct vt_found_list;

/* How the user wants to see it. All zero: the defaults. */
struct vt_view_options {
    const char *moment;     /* NULL: the view's default */
    const char *user_paths; /* as for vt_stack_style_for() */
    enum vt_show_stacks stacks;
    bool all_frames;
};

/* The values of their long options, for a verb's own table; its other options begin at VT_LONG_VIEW_END. */
enum { VT_LONG_MOMENT = VT_LONG_OTHERS, VT_LONG_STACKS, VT_LONG_USER_PATHS, VT_LONG_ALL_FRAMES, VT_LONG_VIEW_END };
#define VT_VIEW_LONG_OPTIONS                                                                                  \
    {"moment", required_argument, NULL, VT_LONG_MOMENT}, {"stacks", required_argument, NULL, VT_LONG_STACKS}, \
        {"user-paths", required_argument, NULL, VT_LONG_USER_PATHS},                                          \
    {                                                                                                         \
        "all-frames", no_argument, NULL, VT_LONG_ALL_FRAMES                                                   \
    }
#define VT_VIEW_STACKS_HELP                                                                                      \
    "  --all-frames         with the frames inside CUDA, the Python interpreter, the loader and the C library\n" \
    "  --stacks=WHAT        merged (default: Python and native frames in one list), python or native\n"          \
    "  --user-paths LIST    prefixes of paths, separated by colons: files there are your own code\n"

static inline bool vt_is_view_option(int option)
{
    return option >= VT_LONG_MOMENT && option < VT_LONG_VIEW_END;
}

/* Takes one of them over; `value` must live as long as the options. Returns 0, or VT_EXIT_ERROR after a line that says
 * what is accepted. */
int vt_set_view_option(const char *verb, struct vt_view_options *view, int option, const char *value);

/* The N of --top N and the WHEN of --colour=WHEN (which is kept). The same. */
int vt_set_top(const char *verb, unsigned *top, const char *value);
int vt_set_colour(const char *verb, const char **when, const char *value);

/* Is standard output to be coloured? when: auto, always or never. */
bool vt_colours_output(const char *when);

/* Opens a recording. NULL after a line that says why it can't be read, or which moments it has if `moment` is none of
 * them (NULL: any will do). To be closed with vt_reading_close(). */
struct vt_reading *vt_input_open(const char *verb, const char *path, const char *moment);

/*
 * The recording that an argument means: itself if it is a file, the newest in it (vt_job_newest()) if it is a directory
 * (and a line says which, followed by `hint`, if there are several). To be freed; NULL after a line that says what is wrong.
 */
char *vt_input_choose(const char *verb, const char *path, const char *hint);

/* For a directory in which vt_found_in() found none: says so, and returns VT_EXIT_ERROR. */
int vt_fail_found_none(const char *verb, const char *directory, const struct vt_found_list *list);

#endif
