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

#include "cli/cli.h"
#include "vramtrack/recording.h"

#define SUFFIX ".vtr"

static bool has_suffix(const char *name)
{
    size_t length = strlen(name);

    return length > strlen(SUFFIX) && !strcmp(name + length - strlen(SUFFIX), SUFFIX);
}

static int is_named_so(const struct dirent *entry)
{
    return has_suffix(entry->d_name);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The part of the header in front of the directory of sections. Returns NULL, or why this can't be read. */
static const char *read_header(const char *path, struct vt_header *header, uint64_t *bytes)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *why = NULL;
    struct stat status;

    if (fd < 0)
        return errno == ELOOP ? "is a symbolic link, which is not followed" : strerror(errno);
    if (fstat(fd, &status))
        why = strerror(errno);
    else if (!S_ISREG(status.st_mode))
        why = "is no file";
    else if (!status.st_size)
        why = "is empty";
    else if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) ||
             memcmp(header->magic, VT_MAGIC, sizeof(header->magic)) != 0)
        why = "is no recording";
    *bytes = why ? 0 : (uint64_t)status.st_size;
    close(fd);
    return why;
}

int vt_found_unreadable(struct vt_found_list *list, const char *text)
{
    if (list->unreadable < VT_FOUND_NAMED && !(list->unread[list->unreadable] = strdup(text)))
        return ENOMEM;
    list->unreadable++;
    return 0;
}

/* Takes the path over. */
static int add_unreadable(struct vt_found_list *list, char *path, const char *why)
{
    char *text;
    int error = ENOMEM;

    if (asprintf(&text, "%s: %s", path, why) >= 0) {
        error = vt_found_unreadable(list, text);
        free(text);
    }
    free(path);
    return error;
}

static int add(struct vt_found_list *list, const char *directory, const char *name)
{
    struct vt_header header;
    struct vt_found *grown, *found;
    const char *why;
    uint64_t bytes = 0;
    char *path;

    if (asprintf(&path, "%s%s%s", directory, directory[strlen(directory) - 1] == '/' ? "" : "/", name) < 0)
        return ENOMEM;
    if ((why = read_header(path, &header, &bytes)))
        return add_unreadable(list, path, why);
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
    found->pid = header.pid;
    found->rank = header.rank;
    memcpy(found->host, header.host, sizeof(found->host));
    memcpy(found->program, header.program, sizeof(found->program));
    found->bytes = bytes;
    found->last_ns = header.end_ns ? header.end_ns : header.last_ns;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct vt_found *x = a, *y = b;

    if (x->start_unix_ns != y->start_unix_ns)
        return x->start_unix_ns < y->start_unix_ns ? -1 : 1;
    return strcmp(x->path, y->path);
}

static bool is_same_process(const struct vt_found *a, const struct vt_found *b)
{
    return a->start_unix_ns == b->start_unix_ns && a->pid == b->pid && a->rank == b->rank &&
           !memcmp(a->host, b->host, sizeof(a->host)) && !memcmp(a->program, b->program, sizeof(a->program));
}

/* A copy that was cut off is shorter; one that was made while the process ran knows less of its time. */
static bool knows_more(const struct vt_found *a, const struct vt_found *b)
{
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->last_ns > b->last_ns;
}

/* Takes the path over. */
static void add_copy(struct vt_found_list *list, char *path)
{
    if (list->copies++ < VT_FOUND_NAMED)
        list->copied[list->copies - 1] = path;
    else
        free(path);
}

/* Keeps one file of each process; those that started at one instant stand together. */
static void drop_copies(struct vt_found_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        size_t same = kept;

        while (same && list->item[same - 1].start_unix_ns == list->item[i].start_unix_ns &&
               !is_same_process(&list->item[same - 1], &list->item[i]))
            same--;
        if (!same || list->item[same - 1].start_unix_ns != list->item[i].start_unix_ns) {
            list->item[kept++] = list->item[i];
        } else if (knows_more(&list->item[i], &list->item[same - 1])) {
            add_copy(list, list->item[same - 1].path);
            list->item[same - 1] = list->item[i];
        } else {
            add_copy(list, list->item[i].path);
        }
    }
    list->count = kept;
}

int vt_found_in(const char *directory, struct vt_found_list *list)
{
    struct dirent **entry;
    int error = 0, count;

    memset(list, 0, sizeof(*list));
    count = scandir(directory, &entry, is_named_so,
                    by_name); /* in order: so are the files that are named to the user */
    if (count < 0)
        return errno;
    for (int i = 0; i < count; i++) {
        if (!error)
            error = add(list, directory, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    if (list->count)
        qsort(list->item, list->count, sizeof(*list->item), by_start);
    drop_copies(list);
    return error;
}

void vt_found_free(struct vt_found_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i].path);
    for (size_t i = 0; i < VT_FOUND_NAMED; i++) {
        free(list->unread[i]);
        free(list->copied[i]);
    }
    free(list->item);
    memset(list, 0, sizeof(*list));
}

void vt_found_say(const struct vt_found_list *list)
{
    for (size_t i = 0; i < list->unreadable && i < VT_FOUND_NAMED; i++)
        vt_say("left out: %s", list->unread[i]);
    if (list->unreadable > VT_FOUND_NAMED)
        vt_say("left out: %zu more files named *.vtr that cannot be read", list->unreadable - VT_FOUND_NAMED);
    for (size_t i = 0; i < list->copies && i < VT_FOUND_NAMED; i++)
        vt_say("left out: %s: a copy of another recording here", list->copied[i]);
    if (list->copies > VT_FOUND_NAMED)
        vt_say("left out: %zu more copies", list->copies - VT_FOUND_NAMED);
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
