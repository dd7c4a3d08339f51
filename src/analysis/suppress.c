/*
 * Suppressions; see suppress.h.
 */
#include "analysis/suppress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST (1u << 20) /* such files are a few lines; a wrong one must not fill memory */
#define WARNINGS_MOST 8      /* a file of another kind is wrong in every line */

static const char prefix[] = "leak:";

/* Does `name` begin with what `pattern` says? Greedy, with one place to go back to: time is the product of the lengths. */
static bool begins(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL;

    for (;;) {
        if (!*pattern || (*pattern == '$' && !pattern[1] && !*name))
            return true;
        if (*pattern == '*') {
            star = ++pattern;
            again = name;
        } else if (*name && *pattern == *name && !(*pattern == '$' && !pattern[1])) {
            pattern++;
            name++;
        } else if (star && *again) {
            pattern = star;
            name = ++again;
        } else {
            return false;
        }
    }
}

bool vt_suppressions_fits(const char *pattern, const char *name)
{
    if (!name)
        return false;
    if (*pattern == '^')
        return begins(pattern + 1, name);
    do
        if (begins(pattern, name))
            return true;
    while (*name++);
    return false;
}

bool vt_suppressions_match(const struct vt_suppressions *s, const struct vt_trace *trace)
{
    uint32_t i, k;

    for (i = 0; i < trace->count; i++)
        for (k = 0; k < s->count; k++)
            if (vt_suppressions_fits(s->patterns[k], trace->frames[i].function) ||
                vt_suppressions_fits(s->patterns[k], trace->frames[i].file) ||
                vt_suppressions_fits(s->patterns[k], trace->frames[i].module))
                return true;
    return false;
}

/* The whole file, NUL-terminated, as far as FILE_MOST; NULL with errno. Not a pipe or a device: these may never end. */
static char *read_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    size_t used = 0;
    ssize_t got = 0;
    char *text = NULL;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        errno = EINVAL;
    else if ((text = malloc(FILE_MOST + 1)))
        while (used < FILE_MOST && (got = read(fd, text + used, FILE_MOST - used)) > 0)
            used += (size_t)got;
    if (got < 0) {
        free(text);
        text = NULL;
    }
    if (text)
        text[used] = '\0';
    close(fd);
    return text;
}

static int add(struct vt_suppressions *s, char *pattern)
{
    char **grown = s->patterns;

    if (!(s->count & (s->count - 1)) && !(grown = realloc(grown, (s->count ? s->count * 2 : 1) * sizeof *grown)))
        return -ENOMEM;
    s->patterns = grown;
    s->patterns[s->count++] = pattern;
    return 0;
}

/* The line without blanks around it. */
static char *trimmed(char *line)
{
    size_t length;

    line += strspn(line, " \t\r");
    length = strlen(line);
    while (length && strchr(" \t\r", line[length - 1]))
        line[--length] = '\0';
    return line;
}

/* A pattern of nothing but `*` would hide every leak: that is a mistake. */
static bool says_something(const char *pattern)
{
    return pattern[strspn(pattern, "*^$ \t")] != '\0';
}

static int take_lines(struct vt_suppressions *s, const char *path, vt_suppress_warn *warn, void *context)
{
    char *line = s->text, *end, sentence[512];
    unsigned number = 1, wrong = 0;

    for (; line; line = end, number++) {
        if ((end = strchr(line, '\n')))
            *end++ = '\0';
        line = trimmed(line);
        if (!*line || *line == '#')
            continue;
        if (!strncmp(line, prefix, sizeof prefix - 1) && says_something(line + sizeof prefix - 1)) {
            if (add(s, trimmed(line + sizeof prefix - 1)))
                return -ENOMEM;
        } else if (wrong++ < WARNINGS_MOST) {
            snprintf(sentence, sizeof sentence, "Suppressions: %.300s:%u is not understood (leak:PATTERN is): %.64s",
                     path, number, line);
            warn(context, sentence);
        }
    }
    return 0;
}

int vt_suppressions_load(struct vt_suppressions *s, const char *path, vt_suppress_warn *warn, void *context)
{
    char sentence[512];

    memset(s, 0, sizeof *s);
    if (!path || !*path)
        return 0;
    if (!(s->text = read_file(path))) {
        snprintf(sentence, sizeof sentence, "Suppressions: %.300s can't be read (%s).", path, strerror(errno));
        warn(context, sentence);
        return 0;
    }
    return take_lines(s, path, warn, context);
}

void vt_suppressions_free(struct vt_suppressions *s)
{
    free(s->patterns);
    free(s->text);
    memset(s, 0, sizeof *s);
}
