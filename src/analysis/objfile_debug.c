/*
 * The separate debug files of a module: by build-id, by debug link, packed into the file itself, and shared ones made by
 * dwz; see objfile.h. Nothing is fetched from anywhere: a report must not wait for a network.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/objfile.h"

#define MINI_MOST (64u << 20)       /* what .gnu_debugdata may unpack to: real ones are a few MiB */
#define MINI_MEMORY (128ull << 20)  /* what the unpacking may use */
#define LINK_FILE_MOST (1ull << 30) /* a debug file that is larger is not summed up */
#define LINK_STEP (1u << 20)

static const char standard[] = "/usr/lib/debug";

/* Calls `look` with each directory of debug files until it returns true. The user's own come first. */
static bool in_each(bool (*look)(void *context, const char *directory, int length), void *context)
{
    const char *own = getenv("VRAMTRACK_DEBUG_DIRS");

    while (own && *own) {
        size_t length = strcspn(own, ":");

        if (length && length < PATH_MAX && look(context, own, (int)length))
            return true;
        own += length + (own[length] == ':');
    }
    return look(context, standard, (int)sizeof standard - 1);
}

static bool is_id(const struct vt_elfutils *elf, Elf *file, const void *id, ssize_t bytes)
{
    const void *found;

    return bytes > 0 && elf->dwelf_elf_gnu_build_id(file, &found) == bytes && !memcmp(found, id, (size_t)bytes);
}

/* "DIRECTORY/.build-id/12/3456.debug". False: it does not fit. */
static bool id_path(char path[PATH_MAX], const char *directory, int length, const uint8_t *id, ssize_t bytes)
{
    int used = snprintf(path, PATH_MAX, "%.*s/.build-id/", length, directory);
    ssize_t i;

    if (bytes < 2 || bytes > 64 || used < 0 || used + 2 * bytes + 8 > PATH_MAX)
        return false;
    for (i = 0; i < bytes; i++)
        used += sprintf(path + used, i ? "%02x" : "%02x/", id[i]);
    strcpy(path + used, ".debug");
    return true;
}

struct search {
    struct vt_object *object;
    const void *id;
    ssize_t id_bytes;
    const char *module; /* its path, and how much of it is its folder */
    int folder_length;
    const char *link;
    uint32_t sum;
};

static void drop_debug(struct vt_object *o)
{
    o->elf->elf_end(o->debug);
    close(o->debug_fd);
    o->debug = NULL;
    o->debug_fd = -1;
}

static bool look_by_id(void *context, const char *directory, int length)
{
    struct search *s = context;
    struct vt_object *o = s->object;
    char path[PATH_MAX];

    if (!id_path(path, directory, length, s->id, s->id_bytes) ||
        !(o->debug = vt_object_open_elf(o->elf, path, &o->debug_fd)))
        return false;
    if (is_id(o->elf, o->debug, s->id, s->id_bytes))
        return true;
    drop_debug(o);
    return false;
}

/* The checksum that objcopy writes into the link: zlib's CRC-32 of the whole debug file. */
static bool has_sum(const struct vt_elfutils *elf, int fd, uint32_t sum)
{
    uLong crc = 0;
    struct stat status;
    uint8_t *step;
    off_t at = 0;
    ssize_t got = 0;

    if (!elf->crc32 || fstat(fd, &status) || (uint64_t)status.st_size > LINK_FILE_MOST || !(step = malloc(LINK_STEP)))
        return false;
    while (at < status.st_size && (got = pread(fd, step, LINK_STEP, at)) > 0) {
        crc = elf->crc32(crc, step, (uInt)got);
        at += got;
    }
    free(step);
    return got >= 0 && at == status.st_size && (uint32_t)crc == sum;
}

/* Opens the debug file that the link names in DIRECTORY + the module's folder + SUB, if it is the module's. */
static bool try_link(struct search *s, const char *directory, int length, const char *sub)
{
    struct vt_object *o = s->object;
    char path[PATH_MAX];
    const void *found;
    bool belongs;

    if (snprintf(path, sizeof path, "%.*s%.*s%s/%s", length, directory, s->folder_length, s->module, sub, s->link) >=
            (int)sizeof path ||
        !strcmp(path, s->module) || !(o->debug = vt_object_open_elf(o->elf, path, &o->debug_fd)))
        return false;
    if (s->id_bytes > 0 && o->elf->dwelf_elf_gnu_build_id(o->debug, &found) > 0)
        belongs = is_id(o->elf, o->debug, s->id, s->id_bytes);
    else
        belongs = has_sum(o->elf, o->debug_fd, s->sum);
    if (!belongs)
        drop_debug(o);
    return belongs;
}

static bool look_by_link(void *context, const char *directory, int length)
{
    return try_link(context, directory, length, "");
}

/* Beside the module, in .debug/, and under each directory of debug files at the module's own path. */
static bool follow_link(struct search *s)
{
    const char *slash = strrchr(s->module, '/');

    s->folder_length = slash ? (int)(slash - s->module) : 0;
    s->link = s->object->elf->dwelf_elf_gnu_debuglink(s->object->main, &s->sum);
    if (!s->link || !*s->link || strchr(s->link, '/'))
        return false;
    return try_link(s, "", 0, "") || try_link(s, "", 0, "/.debug") || in_each(look_by_link, s);
}

bool vt_object_find_debug(struct vt_object *o, const char *path, const void *id, ssize_t id_bytes, bool by_link)
{
    struct search search = {.object = o, .module = path, .id = id, .id_bytes = id_bytes};

    return in_each(look_by_id, &search) || (by_link && follow_link(&search));
}

/* The unpacked size is not known beforehand: address space for the most is taken, and what is not used given back. */
static void *unpack(const struct vt_elfutils *elf, const Elf_Data *data, size_t *bytes)
{
    uint8_t *image = mmap(NULL, MINI_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t memory = MINI_MEMORY;
    size_t in = 0, out = 0, used;

    if (image == MAP_FAILED)
        return NULL;
    if (elf->lzma_stream_buffer_decode(&memory, 0, NULL, data->d_buf, &in, data->d_size, image, &out, MINI_MOST) !=
            LZMA_OK ||
        !out) {
        munmap(image, MINI_MOST);
        return NULL;
    }
    used = (out + 0xffff) & ~(size_t)0xffff; /* a multiple of any page size */
    if (used < MINI_MOST)
        munmap(image + used, MINI_MOST - used);
    *bytes = used < MINI_MOST ? used : MINI_MOST;
    return image;
}

void vt_object_unpack_mini(struct vt_object *o)
{
    Elf_Scn *section = o->elf->lzma_stream_buffer_decode ? vt_object_section(o->elf, o->main, ".gnu_debugdata") : NULL;
    Elf_Data *data = section ? o->elf->elf_getdata(section, NULL) : NULL;

    if (!data || !data->d_buf || !(o->mini_image = unpack(o->elf, data, &o->mini_bytes)))
        return;
    o->mini = o->elf->elf_memory(o->mini_image, o->mini_bytes);
    if (o->mini && o->elf->elf_kind(o->mini) != ELF_K_ELF) {
        o->elf->elf_end(o->mini);
        o->mini = NULL;
    }
}

static bool look_for_alt(void *context, const char *directory, int length)
{
    struct search *s = context;
    struct vt_object *o = s->object;
    char path[PATH_MAX];

    if (!id_path(path, directory, length, s->id, s->id_bytes) ||
        !(o->alt_elf = vt_object_open_elf(o->elf, path, &o->alt_fd)))
        return false;
    if (is_id(o->elf, o->alt_elf, s->id, s->id_bytes))
        return true;
    o->elf->elf_end(o->alt_elf);
    close(o->alt_fd);
    o->alt_elf = NULL;
    o->alt_fd = -1;
    return false;
}

bool vt_object_find_alt(struct vt_object *o)
{
    struct search search = {.object = o};
    const char *name;

    search.id_bytes = o->elf->dwelf_dwarf_gnu_debugaltlink(o->dwarf, &name, &search.id);
    return search.id_bytes > 0 && in_each(look_for_alt, &search);
}
