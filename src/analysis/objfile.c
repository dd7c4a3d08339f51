/*
 * Opening a module's file and its separate debug file, and its symbol table; see objfile.h. Files are mapped by libelf:
 * only the pages of the tables that are searched are read, which is what makes a library of 2 GB bearable.
 */
#include "analysis/objfile.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/demangle.h"

static Elf *open_elf(const struct vt_elfutils *elf, const char *path, int *fd)
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

/* Opens a debug file if it belongs to this build-id (or neither says). */
static bool try_debug(struct vt_object *o, const char *path, const void *id, ssize_t id_bytes)
{
    const void *found;
    ssize_t found_bytes;

    if (!(o->debug = open_elf(o->elf, path, &o->debug_fd)))
        return false;
    found_bytes = o->elf->dwelf_elf_gnu_build_id(o->debug, &found);
    if (found_bytes <= 0 || id_bytes <= 0 || (found_bytes == id_bytes && !memcmp(found, id, (size_t)id_bytes)))
        return true;
    o->elf->elf_end(o->debug);
    close(o->debug_fd);
    o->debug = NULL;
    o->debug_fd = -1;
    return false;
}

static bool debug_by_id(struct vt_object *o, const uint8_t *id, ssize_t bytes)
{
    char path[160] = "/usr/lib/debug/.build-id/";
    size_t used = strlen(path);
    ssize_t i;

    if (bytes < 2 || bytes > 32)
        return false;
    for (i = 0; i < bytes; i++)
        used += (size_t)snprintf(path + used, sizeof path - used, i ? "%02x" : "%02x/", id[i]);
    snprintf(path + used, sizeof path - used, ".debug");
    return try_debug(o, path, id, bytes);
}

/* The places where the debug link's file may be: beside the module, in .debug/, and under /usr/lib/debug. */
static bool debug_by_link(struct vt_object *o, const char *module, const void *id, ssize_t bytes)
{
    GElf_Word crc;
    const char *name = o->elf->dwelf_elf_gnu_debuglink(o->main, &crc), *slash = strrchr(module, '/');
    int folder = slash ? (int)(slash - module) : 0;
    char path[PATH_MAX];

    if (!name || !*name || strchr(name, '/'))
        return false;
    if (snprintf(path, sizeof path, "%.*s/%s", folder, module, name) < (int)sizeof path && strcmp(path, module) &&
        try_debug(o, path, id, bytes))
        return true;
    if (snprintf(path, sizeof path, "%.*s/.debug/%s", folder, module, name) < (int)sizeof path &&
        try_debug(o, path, id, bytes))
        return true;
    return snprintf(path, sizeof path, "/usr/lib/debug%.*s/%s", folder, module, name) < (int)sizeof path &&
           try_debug(o, path, id, bytes);
}

static bool has_section(const struct vt_elfutils *elf, Elf *file, GElf_Word type)
{
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    while ((section = elf->elf_nextscn(file, section)))
        if (elf->gelf_getshdr(section, &header) && header.sh_type == type)
            return true;
    return false;
}

void vt_object_open(struct vt_object *o, const char *path, const uint8_t *build_id, unsigned build_id_bytes)
{
    const void *id = NULL;
    ssize_t bytes;

    memset(o, 0, sizeof *o);
    o->fd = o->debug_fd = -1;
    if (!(o->elf = vt_elfutils())) {
        o->problem = "elfutils (libdw.so.1) is not installed";
        return;
    }
    if (path[0] != '/') {
        o->problem = "it is no file";
        return;
    }
    if (!(o->main = open_elf(o->elf, path, &o->fd))) {
        o->problem = access(path, F_OK) ? "the file is gone" : "the file cannot be read";
        return;
    }
    bytes = o->elf->dwelf_elf_gnu_build_id(o->main, &id);
    if (build_id_bytes && (bytes != (ssize_t)build_id_bytes || memcmp(id, build_id, build_id_bytes))) {
        o->problem = "the file has changed since the recording (another build-id)";
        return;
    }
    vt_object_open_dwarf(o, o->main);
    if (!o->dwarf && (debug_by_id(o, id, bytes) || debug_by_link(o, path, id, bytes)))
        vt_object_open_dwarf(o, o->debug);
}

void vt_object_close(struct vt_object *o)
{
    free(o->symbols);
    free(o->units);
    free(o->ranges);
    if (o->dwarf)
        o->elf->dwarf_end(o->dwarf);
    if (o->debug)
        o->elf->elf_end(o->debug);
    if (o->main)
        o->elf->elf_end(o->main);
    if (o->debug_fd >= 0)
        close(o->debug_fd);
    if (o->fd >= 0)
        close(o->fd);
    memset(o, 0, sizeof *o);
    o->fd = o->debug_fd = -1;
}

static int by_start(const void *left, const void *right)
{
    const struct vt_object_symbol *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->size < b->size ? -1 : a->size > b->size;
}

/* Takes the functions of one symbol table. A table that makes no sense yields none. */
static void take_symbols(struct vt_object *o, Elf *file, Elf_Scn *section, const GElf_Shdr *header)
{
    Elf_Data *data = o->elf->elf_getdata(section, NULL);
    uint64_t i, count = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;

    if (!data || count > INT_MAX || !(o->symbols = malloc((count ? count : 1) * sizeof *o->symbols)))
        return;
    for (i = 0; i < count; i++) {
        struct vt_object_symbol *symbol = &o->symbols[o->symbol_count];
        GElf_Sym entry;
        unsigned type;

        if (!o->elf->gelf_getsym(data, (int)i, &entry))
            break;
        type = GELF_ST_TYPE(entry.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || entry.st_shndx == SHN_UNDEF || !entry.st_size)
            continue;
        symbol->name = o->elf->elf_strptr(file, header->sh_link, entry.st_name);
        if (!symbol->name || !*symbol->name)
            continue;
        symbol->start = entry.st_value;
        symbol->size = entry.st_size;
        o->symbol_count++;
    }
    qsort(o->symbols, o->symbol_count, sizeof *o->symbols, by_start);
}

/* The full symbol table of the file or its debug file, else the exported symbols. */
static void read_symbols(struct vt_object *o)
{
    Elf *file = o->main;
    GElf_Word type = SHT_SYMTAB;
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    o->symbols_read = true;
    if (!has_section(o->elf, file, SHT_SYMTAB)) {
        if (o->debug && has_section(o->elf, o->debug, SHT_SYMTAB))
            file = o->debug;
        else
            type = SHT_DYNSYM;
    }
    while ((section = o->elf->elf_nextscn(file, section)))
        if (o->elf->gelf_getshdr(section, &header) && header.sh_type == type) {
            take_symbols(o, file, section, &header);
            return;
        }
}

const char *vt_object_symbol(struct vt_object *o, uint64_t address)
{
    uint32_t low = 0, high, back;

    if (!o->symbols_read)
        read_symbols(o);
    high = o->symbol_count;
    while (low < high) { /* the first symbol that starts behind the address */
        uint32_t middle = low + (high - low) / 2;

        if (o->symbols[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (back = 0; low && back < 16; back++, low--) /* short ones may stand inside long ones */
        if (address - o->symbols[low - 1].start < o->symbols[low - 1].size)
            return o->symbols[low - 1].name;
    return NULL;
}

uint32_t vt_object_find(struct vt_object *o, uint64_t address, struct vt_object_frame *frames)
{
    uint32_t count = 0;
    const char *symbol;

    if (o->problem)
        return 0;
    if (o->dwarf)
        count = vt_object_dwarf(o, address, frames);
    if (count && frames[count - 1].function)
        return count;
    if ((symbol = vt_object_symbol(o, address))) {
        if (!count)
            frames[count++] = (struct vt_object_frame){0};
        frames[count - 1].function = vt_demangle(symbol);
    }
    return count;
}
