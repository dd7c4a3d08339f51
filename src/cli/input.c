/*
 * Choosing and opening what a verb reads; see input.h.
 */
#include "cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model.h"
#include "cli/job_select.h"
#include "recording/reader.h"

static int set_stacks(const char *verb, struct vt_view_options *view, const char *value)
{
    static const char *const words[] = {
        [VT_SHOW_MERGED] = "merged", [VT_SHOW_PYTHON] = "python", [VT_SHOW_NATIVE] = "native"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(value, words[i])) {
            view->stacks = (enum vt_show_stacks)i;
            return 0;
        }
    return vt_fail(verb, "--stacks=%s: merged, python or native is needed", value);
}

int vt_set_view_option(const char *verb, struct vt_view_options *view, int option, const char *value)
{
    switch (option) {
    case VT_LONG_MOMENT:
        view->moment = value;
        return 0;
    case VT_LONG_USER_PATHS:
        view->user_paths = value;
        return 0;
    case VT_LONG_ALL_FRAMES:
        view->all_frames = true;
        return 0;
    default:
        return set_stacks(verb, view, value);
    }
}

int vt_set_top(const char *verb, unsigned *top, const char *value)
{
    long number;

    if (!vt_parse_number(value, 1, 1000000, &number))
        return vt_fail(verb, "--top %s: a number from 1 to 1000000 is needed", value);
    *top = (unsigned)number;
    return 0;
}

int vt_set_colour(const char *verb, const char **when, const char *value)
{
    if (strcmp(value, "auto") && strcmp(value, "always") && strcmp(value, "never"))
        return vt_fail(verb, "--colour=%s: auto, always or never is needed", value);
    *when = value;
    return 0;
}

bool vt_colours_output(const char *when)
{
    if (strcmp(when, "auto"))
        return !strcmp(when, "always");
    return vt_wants_colour(STDOUT_FILENO);
}

static void say_moments(const char *verb, struct vt_reading *reading, const char *moment)
{
    struct vt_model model;
    char names[512] = "";
    size_t used = 0;

    if (vt_model_build(&model, reading, NULL)) {
        vt_fail(verb, "out of memory");
        return;
    }
    for (uint32_t i = 0; i < model.moment_count && used < sizeof(names); i++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", model.moments[i].name);
    vt_model_free(&model);
    vt_fail(verb, "there is no moment '%s' in %s (there are: %s)", moment, vt_reading_name(reading), names);
}

struct vt_reading *vt_input_open(const char *verb, const char *path, const char *moment)
{
    char error[512];
    struct vt_reading *reading = vt_reading_open(path, error, sizeof(error));

    if (!reading) {
        vt_fail(verb, "%s", error);
        return NULL;
    }
    if (moment && !vt_model_has_moment(reading, moment)) {
        say_moments(verb, reading, moment);
        vt_reading_close(reading);
        return NULL;
    }
    return reading;
}

static char *copy(const char *verb, const char *path)
{
    char *kept = strdup(path);

    if (!kept)
        vt_fail(verb, "out of memory");
    return kept;
}

int vt_fail_found_none(const char *verb, const char *directory, const struct vt_found_list *list)
{
    if (!list->unreadable)
        return vt_fail(verb, "there is no recording in %s", directory);
    if (list->unreadable == 1)
        return vt_fail(verb, "there is no recording in %s that can be read (%s)", directory, list->unread[0]);
    return vt_fail(verb, "there is no recording in %s that can be read (%s; %zu more named *.vtr)", directory,
                   list->unread[0], list->unreadable - 1);
}

char *vt_input_choose(const char *verb, const char *path, const char *hint)
{
    struct vt_found_list list;
    struct stat status;
    char *chosen = NULL;
    int error;

    if (stat(path, &status)) {
        vt_fail(verb, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISDIR(status.st_mode))
        return copy(verb, path);
    if ((error = vt_found_in(path, &list))) {
        vt_fail(verb, "%s: %s", path, strerror(error));
    } else if (!list.count) {
        vt_fail_found_none(verb, path, &list);
    } else {
        vt_found_say(&list);
        chosen = copy(verb, vt_job_newest(&list)->path);
        if (chosen && list.count > 1)
            vt_say("%s, the newest of %zu recordings here%s", chosen, list.count, hint);
    }
    vt_found_free(&list);
    return chosen;
}
