/*
 * Finds recordings by name and header. A file is opened without following links and without blocking: the directory may
 * hold anything.
 */
#include "cli/recordings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vramtrack/recording.h"

#define SUFFIX ".vtr"

static bool has_suffix(const char *name)
{
    size_t length = strlen(name);

    return length > strlen(SUFFIX) && !strcmp(name + length - strlen(SUFFIX), SUFFIX);
}

/* The part of the header in front of the directory of sections; false if this is no recording. */
static bool read_header(const char *path, struct vt_header *header)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    bool good;

    if (fd < 0)
        return false;
    good = !fstat(fd, &status) && S_ISREG(status.st_mode) &&
           pread(fd, header, sizeof(*header), 0) == (ssize_t)sizeof(*header) &&
           !memcmp(header->magic, VT_MAGIC, sizeof(header->magic));
    close(fd);
    return good;
}

static int add(struct vt_found_list *list, const char *directory, const char *name)
{
    struct vt_header header;
    struct vt_found *grown, *found;
    char *path;

    if (asprintf(&path, "%s%s%s", directory, directory[strlen(directory) - 1] == '/' ? "" : "/", name) < 0)
        return ENOMEM;
    if (!read_header(path, &header)) {
        list->unreadable++;
        free(path);
        return 0;
    }
    grown = realloc(list->item, (list->count + 1) * sizeof(*grown));
    if (!grown) {
        free(path);
        return ENOMEM;
    }
    list->item = grown;
    found = &list->item[list->count++];
    found->path = path;
    found->start_unix_ns = header.start_unix_ns;
    found->oom_count = header.oom_count;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct vt_found *x = a, *y = b;

    if (x->start_unix_ns != y->start_unix_ns)
        return x->start_unix_ns < y->start_unix_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

int vt_found_in(const char *directory, struct vt_found_list *list)
{
    struct dirent *entry;
    DIR *handle;
    int error = 0;

    memset(list, 0, sizeof(*list));
    handle = opendir(directory);
    if (!handle)
        return errno;
    while (!error && (entry = readdir(handle)))
        if (has_suffix(entry->d_name))
            error = add(list, directory, entry->d_name);
    closedir(handle);
    if (list->count)
        qsort(list->item, list->count, sizeof(*list->item), by_start);
    return error;
}

void vt_found_free(struct vt_found_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i].path);
    free(list->item);
    memset(list, 0, sizeof(*list));
}

bool vt_found_has(const struct vt_found_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->item[i].path, path))
            return true;
    return false;
}

char *vt_text_path(const char *recording)
{
    size_t length = strlen(recording);
    char *path;

    if (has_suffix(recording))
        length -= strlen(SUFFIX);
    return asprintf(&path, "%.*s.txt", (int)length, recording) < 0 ? NULL : path;
}
