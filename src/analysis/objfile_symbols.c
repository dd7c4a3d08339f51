/*
 * A file's symbol tables: which function is at an address, or which one is the last before it; see objfile.h.
 *
 * The full table (.symtab, of the file or of its debug file) has every function. Without it there are the exported
 * functions, and beside them the local ones where .gnu_debugdata has them. Functions written in assembly may have no
 * size: they reach to the next one, if the table has the local functions; else nobody knows what lies between.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/objfile.h"

#define LOOKED_BACK 64 /* symbols before an address that may reach over it: short ones stand inside long ones */

/* Aliases: the exported name is the one that people know, and underscores in front mark the names for internal use. */
static uint32_t rank_of(const GElf_Sym *entry, const char *name)
{
    unsigned binding = GELF_ST_BIND(entry->st_info), level = binding == STB_GLOBAL ? 3 : binding == STB_WEAK ? 2 : 1;
    size_t underscores = !strncmp(name, "_Z", 2) || !strncmp(name, "_R", 2) ? 0 : strspn(name, "_");

    return level * 256 + 255 - (uint32_t)(underscores < 255 ? underscores : 255);
}

/* The shown one of several names for one place is the last. */
static int by_start(const void *left, const void *right)
{
    const struct vt_object_symbol *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return -strcmp(a->name, b->name);
}

static struct vt_object_symbol *next_symbol(struct vt_object *o)
{
    struct vt_object_symbol *grown;
    uint32_t room = o->symbol_room ? o->symbol_room * 2 : 1024;

    if (o->symbol_count < o->symbol_room)
        return &o->symbols[o->symbol_count];
    if (o->symbol_room > INT_MAX / 2 || !(grown = realloc(o->symbols, room * sizeof *grown)))
        return NULL;
    o->symbols = grown;
    o->symbol_room = room;
    return &o->symbols[o->symbol_count];
}

/* Takes the functions of one symbol table. A table that makes no sense yields none. */
static void take_symbols(struct vt_object *o, Elf *file, Elf_Scn *section, const GElf_Shdr *header)
{
    Elf_Data *data = o->elf->elf_getdata(section, NULL);
    uint64_t i, count = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;

    for (i = 0; data && i < count && i < INT_MAX; i++) {
        struct vt_object_symbol *symbol = next_symbol(o);
        GElf_Sym entry;
        unsigned type;

        if (!symbol || !o->elf->gelf_getsym(data, (int)i, &entry))
            break;
        type = GELF_ST_TYPE(entry.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || entry.st_shndx == SHN_UNDEF)
            continue;
        symbol->name = o->elf->elf_strptr(file, header->sh_link, entry.st_name);
        if (!symbol->name || !*symbol->name)
            continue;
        symbol->start = entry.st_value;
        symbol->size = entry.st_size < UINT32_MAX ? (uint32_t)entry.st_size : UINT32_MAX;
        symbol->rank = rank_of(&entry, symbol->name);
        o->symbol_count++;
    }
}

/* False: the file has no such table. */
static bool take_table(struct vt_object *o, Elf *file, GElf_Word type)
{
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    while (file && (section = o->elf->elf_nextscn(file, section)))
        if (o->elf->gelf_getshdr(section, &header) && header.sh_type == type) {
            take_symbols(o, file, section, &header);
            return true;
        }
    return false;
}

/* Where there is code. A debug file has the sections' headers too, though not what is in them. */
static void read_sections(struct vt_object *o)
{
    Elf *file = o->main ? o->main : o->debug;
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    while (file && (section = o->elf->elf_nextscn(file, section))) {
        struct vt_object_section *grown;

        if (!o->elf->gelf_getshdr(section, &header) || !(header.sh_flags & SHF_ALLOC) ||
            !(header.sh_flags & SHF_EXECINSTR) || header.sh_addr + header.sh_size < header.sh_addr)
            continue;
        if (!(grown = realloc(o->sections, (o->section_count + 1u) * sizeof *grown)))
            return;
        o->sections = grown;
        grown[o->section_count++] = (struct vt_object_section){header.sh_addr, header.sh_addr + header.sh_size};
    }
}

static void read_symbols(struct vt_object *o)
{
    struct vt_object_symbol *added;

    o->symbols_read = true;
    read_sections(o);
    o->symbols_complete = take_table(o, o->main, SHT_SYMTAB) || take_table(o, o->debug, SHT_SYMTAB);
    if (!o->symbols_complete) {
        take_table(o, o->main, SHT_DYNSYM);
        o->symbols_complete = take_table(o, o->mini, SHT_SYMTAB);
    }
    if (!o->symbols_complete && (added = next_symbol(o)) && vt_object_loop(o, added))
        o->symbol_count++;
    if (o->symbols)
        qsort(o->symbols, o->symbol_count, sizeof *o->symbols, by_start);
}

static const struct vt_object_section *section_of(const struct vt_object *o, uint64_t address)
{
    uint32_t i;

    for (i = 0; i < o->section_count; i++)
        if (address >= o->sections[i].start && address < o->sections[i].end)
            return &o->sections[i];
    return NULL;
}

/* The number of symbols that start at or before the address. */
static uint32_t count_before(const struct vt_object *o, uint64_t address)
{
    uint32_t low = 0, high = o->symbol_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (o->symbols[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const char *vt_object_symbol(struct vt_object *o, uint64_t address, bool *nearest)
{
    const struct vt_object_symbol *last;
    const struct vt_object_section *section;
    uint32_t count, back;

    *nearest = false;
    if (!o->symbols_read)
        read_symbols(o);
    count = count_before(o, address);
    for (back = 1; back <= count && back <= LOOKED_BACK; back++)
        if (address - o->symbols[count - back].start < o->symbols[count - back].size)
            return o->symbols[count - back].name;
    if (!count || !(section = section_of(o, address)))
        return NULL;
    last = &o->symbols[count - 1];
    if (last->start < section->start) /* such as the first code of .plt, behind .init */
        return NULL;
    if (!last->size && o->symbols_complete)
        return last->name;
    *nearest = address - last->start <= VT_OBJECT_NEAREST;
    return *nearest ? last->name : NULL;
}
