/*
 * From a process to its recording; see find_process.h. The recorder keeps no descriptor open, so what tells is the memory map:
 * a writable shared mapping of a *.vtr file. The file is the right one if its header has the process's start time, which is
 * the same in every pid namespace; a path of another mount namespace is tried below /proc/PID/root.
 */
#include "cli/find_process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model.h"
#include "cli/recordings.h"

#define SUFFIX ".vtr"
#define DELETED " (deleted)"
#define LIBRARY "/libvramtrack.so"

struct seen {
    char *path;   /* of a recording that is mapped, or NULL */
    bool library; /* the recorder is loaded */
};

/* Undoes the kernel's \012 for a newline. In place. */
static void unescape(char *path)
{
    char *to = path;

    for (; *path; path++, to++) {
        *to = *path;
        if (!strncmp(path, "\\012", 4)) {
            *to = '\n';
            path += 3;
        }
    }
    *to = '\0';
}

/* The path of a line of /proc/PID/maps, or NULL: "addresses permissions offset device inode   path". */
static char *path_of(char *line)
{
    for (int field = 0; field < 5; field++) {
        line = strchr(line, ' ');
        if (!line)
            return NULL;
        line += strspn(line, " ");
    }
    return *line == '/' ? line : NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);

    return length >= wanted && !strcmp(text + length - wanted, end);
}

static void look_at_line(char *line, struct seen *seen)
{
    char *path = path_of(line), *permissions = strchr(line, ' ');

    if (!path)
        return;
    if (ends_with(path, DELETED))
        path[strlen(path) - strlen(DELETED)] = '\0';
    seen->library |= ends_with(path, LIBRARY);
    if (seen->path || !ends_with(path, SUFFIX) || !permissions || permissions[2] != 'w' || permissions[4] != 's')
        return;
    unescape(path);
    seen->path = strdup(path);
}

/* Returns 0 or an errno. */
static int look_at_maps(int32_t pid, struct seen *seen)
{
    char name[64], *line = NULL;
    size_t room = 0;
    ssize_t length;
    FILE *maps;

    *seen = (struct seen){NULL, false};
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    if (!(maps = fopen(name, "re")))
        return errno;
    errno = 0;
    while ((length = getline(&line, &room, maps)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        look_at_line(line, seen);
    }
    free(line);
    length = ferror(maps) ? errno : 0;
    fclose(maps);
    return (int)length;
}

/* Is the file at `path` a recording of the process? Also if it can't be opened: then whoever opens it says why. */
static bool belongs_to(const char *path, int32_t pid)
{
    struct vt_header header;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool good;

    if (fd < 0)
        return errno == EACCES;
    good = pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
           !memcmp(header.magic, VT_MAGIC, sizeof header.magic) &&
           (header.major != VT_MAJOR || vt_model_process_lives(pid, header.process_start_ticks));
    close(fd);
    return good;
}

/* The path as it can be opened here, to be freed; takes `path` over. NULL: the file is not to be found. */
static char *reachable(char *path, int32_t pid)
{
    char *inside = NULL;

    if (belongs_to(path, pid))
        return path;
    if (asprintf(&inside, "/proc/%d/root%s", pid, path) < 0)
        inside = NULL;
    free(path);
    if (inside && belongs_to(inside, pid))
        return inside;
    free(inside);
    return NULL;
}

/* The value of a variable in the environment that the process was started with, to be freed; NULL: not there. */
static char *environment_of(int32_t pid, const char *variable)
{
    char name[64], *entry = NULL, *value = NULL;
    size_t room = 0, length = strlen(variable);
    FILE *file;

    snprintf(name, sizeof name, "/proc/%d/environ", pid);
    if (!(file = fopen(name, "re")))
        return NULL;
    while (!value && getdelim(&entry, &room, '\0', file) > 0)
        if (!strncmp(entry, variable, length) && entry[length] == '=')
            value = strdup(entry + length + 1);
    free(entry);
    fclose(file);
    return value;
}

/* A recording in the process's directory for them: one that it has let go of by exec. To be freed; NULL: none. */
static char *left_behind(int32_t pid)
{
    char *directory = environment_of(pid, "VRAMTRACK_DIR"), *place = NULL, *found = NULL;
    struct vt_found_list list;

    if (directory && *directory == '/')
        place = strdup(directory);
    else if (asprintf(&place, "/proc/%d/cwd/%s", pid, directory ? directory : "") < 0)
        place = NULL;
    free(directory);
    if (place && !vt_found_in(place, &list)) {
        for (size_t i = list.count; i-- && !found;)
            if (belongs_to(list.item[i].path, pid))
                found = strdup(list.item[i].path);
        vt_found_free(&list);
    }
    free(place);
    return found;
}

static char *fail(char *error, size_t bytes, int32_t pid, const char *reason)
{
    snprintf(error, bytes, "process %d %s", pid, reason);
    return NULL;
}

char *vt_find_writing(int32_t pid, char *error, size_t error_bytes)
{
    struct seen seen;
    char *path;
    int failed = look_at_maps(pid, &seen);
    bool mapped = seen.path != NULL;

    path = seen.path ? reachable(seen.path, pid) : NULL;
    if (path)
        return path;
    if (failed == ENOENT || failed == ESRCH)
        return fail(error, error_bytes, pid, "does not exist");
    if (failed == EACCES || failed == EPERM)
        return fail(error, error_bytes, pid, "is another user's, or protected: its memory map may not be read");
    if (failed)
        return fail(error, error_bytes, pid, strerror(failed));
    if ((path = left_behind(pid)))
        return path;
    if (mapped)
        return fail(error, error_bytes, pid, "writes a recording that was deleted or moved");
    return fail(error, error_bytes, pid,
                seen.library
                    ? "has the recorder loaded, but no recording: it has not used a GPU yet, or can't write one"
                    : "is not recorded: it runs without libvramtrack.so");
}

static int by_pid(const void *left, const void *right)
{
    const struct vt_writing *a = left, *b = right;

    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static int add(struct vt_writing_list *list, int32_t pid)
{
    struct vt_writing *grown;
    struct seen seen;
    char *path;

    look_at_maps(pid, &seen); /* whatever could be read of it */
    if (!seen.path || !(path = reachable(seen.path, pid)))
        return 0;
    if (!(grown = realloc(list->item, (list->count + 1) * sizeof *grown))) {
        free(path);
        return ENOMEM;
    }
    list->item = grown;
    list->item[list->count++] = (struct vt_writing){pid, path};
    return 0;
}

int vt_find_all_writing(struct vt_writing_list *list)
{
    struct dirent *entry;
    int error = 0;
    DIR *proc = opendir("/proc");

    memset(list, 0, sizeof *list);
    if (!proc)
        return errno;
    while (!error && (entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]))
            error = add(list, (int32_t)strtol(entry->d_name, NULL, 10));
    closedir(proc);
    if (list->count)
        qsort(list->item, list->count, sizeof *list->item, by_pid);
    return error;
}

void vt_writing_free(struct vt_writing_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i].path);
    free(list->item);
    memset(list, 0, sizeof *list);
}
