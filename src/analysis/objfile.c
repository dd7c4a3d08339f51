/*
 * Opening a module's file, and what is known of an address in it; see objfile.h. Files are mapped by libelf: only the
 * pages of the tables that are searched are read, which is what makes a library of 2 GB bearable.
 *
 * The file at the recorded path may be another one by now: a wrong name is worse than none. A build-id tells; of a file
 * without one, the time of its last change is noted, for the caller to compare with when it was in use.
 */
#include "analysis/objfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/demangle.h"

Elf *vt_object_open_elf(const struct vt_elfutils *elf, const char *path, int *fd)
{
    struct stat status;
    Elf *file = NULL;

    if ((*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
        return NULL;
    if (!fstat(*fd, &status) && S_ISREG(status.st_mode))
        file = elf->elf_begin(*fd, ELF_C_READ_MMAP, NULL);
    if (file && elf->elf_kind(file) != ELF_K_ELF) {
        elf->elf_end(file);
        file = NULL;
    }
    if (!file) {
        close(*fd);
        *fd = -1;
    }
    return file;
}

Elf_Scn *vt_object_section(const struct vt_elfutils *elf, Elf *file, const char *name)
{
    Elf_Scn *section = NULL;
    GElf_Shdr header;
    const char *found;
    size_t names;

    if (elf->elf_getshdrstrndx(file, &names))
        return NULL;
    while ((section = elf->elf_nextscn(file, section)))
        if (elf->gelf_getshdr(section, &header) && header.sh_type != SHT_NOBITS &&
            (found = elf->elf_strptr(file, names, header.sh_name)) && !strcmp(found, name))
            return section;
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && !strcmp(text + length - tail, end);
}

/* Names that stand for no file, or that mean another one to every process. */
static bool is_no_file(const char *path)
{
    return path[0] != '/' || !strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/fd/", 8) ||
           !strncmp(path, "/memfd:", 7);
}

static uint64_t change_time(int fd)
{
    struct stat status;

    if (fstat(fd, &status) || status.st_mtim.tv_sec <= 0)
        return 0;
    return (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
}

static void close_main(struct vt_object *o)
{
    if (o->main)
        o->elf->elf_end(o->main);
    if (o->fd >= 0)
        close(o->fd);
    o->main = NULL;
    o->fd = -1;
}

/* Opens the file itself, or says in o->problem why it is of no use. */
static void open_main(struct vt_object *o, const char *path, const uint8_t *build_id, unsigned build_id_bytes)
{
    const void *id = NULL;
    ssize_t bytes;

    if (is_no_file(path) && !(build_id_bytes && !strcmp(path, "/proc/self/exe"))) { /* whose build is checked */
        o->problem = "it is no file";
    } else if (ends_with(path, " (deleted)")) {
        o->problem = "the file was deleted or replaced while it was in use";
    } else if (!(o->main = vt_object_open_elf(o->elf, path, &o->fd))) {
        o->problem = access(path, F_OK) ? "the file is gone" : "the file cannot be read";
    } else if (build_id_bytes) {
        bytes = o->elf->dwelf_elf_gnu_build_id(o->main, &id);
        if (bytes != (ssize_t)build_id_bytes || memcmp(id, build_id, build_id_bytes))
            o->problem = "the file has changed since the recording (another build-id)";
    } else {
        o->changed_ns = change_time(o->fd);
    }
    if (o->problem)
        close_main(o);
}

/* The debug file of a build-id has everything that is asked for, so it does for a file that is gone or was replaced. */
static void open_parts(struct vt_object *o, const char *path, const uint8_t *build_id, unsigned build_id_bytes)
{
    const void *id = build_id;
    ssize_t bytes = (ssize_t)build_id_bytes;

    if (!o->main) {
        if (build_id_bytes && vt_object_find_debug(o, path, id, bytes, false)) {
            o->problem = NULL;
            vt_object_open_dwarf(o, o->debug);
        }
        return;
    }
    if (!build_id_bytes)
        bytes = o->elf->dwelf_elf_gnu_build_id(o->main, &id);
    vt_object_open_dwarf(o, o->main);
    if (!o->dwarf && vt_object_find_debug(o, path, id, bytes, true))
        vt_object_open_dwarf(o, o->debug);
    if (!o->debug)
        vt_object_unpack_mini(o);
}

void vt_object_open(struct vt_object *o, const char *path, const uint8_t *build_id, unsigned build_id_bytes)
{
    memset(o, 0, sizeof *o);
    o->fd = o->debug_fd = o->alt_fd = -1;
    if (!(o->elf = vt_elfutils())) {
        o->problem = "elfutils (libdw.so.1) is not installed";
        return;
    }
    open_main(o, path, build_id, build_id_bytes);
    open_parts(o, path, build_id, build_id_bytes);
}

void vt_object_close(struct vt_object *o)
{
    free(o->symbols);
    free(o->sections);
    vt_units_free(&o->units);
    if (o->dwarf)
        o->elf->dwarf_end(o->dwarf);
    if (o->alt)
        o->elf->dwarf_end(o->alt);
    if (o->alt_elf)
        o->elf->elf_end(o->alt_elf);
    if (o->mini)
        o->elf->elf_end(o->mini);
    if (o->mini_image)
        munmap(o->mini_image, o->mini_bytes);
    if (o->debug)
        o->elf->elf_end(o->debug);
    if (o->debug_fd >= 0)
        close(o->debug_fd);
    if (o->alt_fd >= 0)
        close(o->alt_fd);
    close_main(o);
    memset(o, 0, sizeof *o);
    o->fd = o->debug_fd = o->alt_fd = -1;
}

uint32_t vt_object_find(struct vt_object *o, uint64_t address, struct vt_object_frame *frames)
{
    uint32_t count = 0;
    bool nearest = false;
    const char *symbol;

    if (o->problem)
        return 0;
    if (o->dwarf)
        count = vt_object_dwarf(o, address, frames);
    if (count && frames[count - 1].function)
        return count;
    if (!(symbol = vt_object_symbol(o, address, &nearest)) || (nearest && count))
        return count; /* a line says more than a neighbour */
    if (!count)
        frames[count++] = (struct vt_object_frame){0};
    frames[count - 1].function = vt_demangle(symbol);
    frames[count - 1].nearest = nearest && frames[count - 1].function;
    return count;
}
