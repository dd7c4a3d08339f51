/*
 * Perf map files; see perf_map.h. One line per piece of code: start and size in hexadecimal, then the name.
 */
#include "analysis/perf_map.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/model.h"

#define LOOKED_BACK 64 /* pieces before an address that may reach over it: compilers use the same memory again */

struct piece {
    uint64_t start, size;
    const char *name; /* in text */
    uint32_t line;
};

struct vt_perf_map {
    char *text;
    struct piece *pieces;
    uint32_t count, room;
};

/* The end of a file, followed by a NUL; *cut: there is something before it. */
static char *read_end(int fd, uid_t owner, bool *cut)
{
    struct stat status;
    off_t at = 0;
    char *text;
    ssize_t got;
    size_t used = 0, bytes;

    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != owner || status.st_size <= 0)
        return NULL;
    *cut = status.st_size > VT_PERF_MAP_BYTES;
    bytes = *cut ? VT_PERF_MAP_BYTES : (size_t)status.st_size;
    at = status.st_size - (off_t)bytes;
    if (!(text = malloc(bytes + 1)))
        return NULL;
    while (used < bytes && (got = pread(fd, text + used, bytes - used, at + (off_t)used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    return text;
}

static bool add(struct vt_perf_map *map, const struct piece *piece)
{
    struct piece *grown;

    if (map->count == map->room) {
        uint32_t room = map->room ? map->room * 2 : 1024;

        if (!(grown = realloc(map->pieces, room * sizeof *grown)))
            return false;
        map->pieces = grown;
        map->room = room;
    }
    map->pieces[map->count++] = *piece;
    return true;
}

/* A number in hexadecimal and the blanks behind it. NULL: there is none. */
static char *take_number(char *text, uint64_t *value)
{
    char *end = text;

    if (strspn(text, "0123456789abcdefABCDEFx") == 0)
        return NULL;
    *value = strtoull(text, &end, 16);
    if (end == text || (*end != ' ' && *end != '\t'))
        return NULL;
    return end + strspn(end, " \t");
}

/* A line without its end. One that makes no sense is passed over. */
static bool take_line(struct vt_perf_map *map, char *line, uint32_t number)
{
    struct piece piece = {.line = number};
    char *rest = take_number(line, &piece.start);

    if (!rest || !(rest = take_number(rest, &piece.size)) || !*rest || piece.start + piece.size < piece.start)
        return true;
    if (strlen(rest) > VT_PERF_NAME)
        rest[VT_PERF_NAME] = '\0';
    piece.name = rest;
    return add(map, &piece);
}

static int by_start(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->line < b->line ? -1 : a->line > b->line;
}

static void take_lines(struct vt_perf_map *map, char *text, bool cut)
{
    uint32_t number = 0;
    char *end;

    for (; *text && (end = strchr(text, '\n')); text = end + 1) { /* a last line without an end is being written */
        *end = '\0';
        if (!(cut && !number) && !take_line(map, text, number))
            break;
        number++;
    }
    if (map->count)
        qsort(map->pieces, map->count, sizeof *map->pieces, by_start);
}

struct vt_perf_map *vt_perf_map_read(const char *path, uid_t owner)
{
    struct vt_perf_map *map;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    bool cut = false;

    if (fd < 0)
        return NULL;
    if ((map = calloc(1, sizeof *map)) && (map->text = read_end(fd, owner, &cut)))
        take_lines(map, map->text, cut);
    close(fd);
    if (map && !map->count) {
        vt_perf_map_free(map);
        map = NULL;
    }
    return map;
}

void vt_perf_map_free(struct vt_perf_map *map)
{
    if (!map)
        return;
    free(map->pieces);
    free(map->text);
    free(map);
}

const char *vt_perf_map_find(const struct vt_perf_map *map, uint64_t address)
{
    const struct piece *best = NULL;
    uint32_t low = 0, high = map->count, back;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (map->pieces[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (back = 1; back <= low && back <= LOOKED_BACK; back++) {
        const struct piece *piece = &map->pieces[low - back];

        if (address - piece->start < piece->size && (!best || piece->line > best->line))
            best = piece;
    }
    return best ? best->name : NULL;
}

struct vt_perf_map *vt_perf_map_own(int32_t pid, uint64_t start_ticks)
{
    char path[48];

    if (pid != getpid() || !vt_model_process_lives(pid, start_ticks))
        return NULL;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", pid);
    return vt_perf_map_read(path, geteuid());
}
