/* Symbol lookup in one object by its GNU hash table; see elf.h. (Format: the ELF ABI and binutils' elf/common.h.) */
#include "preload/elf.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *hash; /* DT_GNU_HASH */
};

/* glibc relocates these entries in place on the architectures that we support; others leave file addresses. */
static const void *address_of(const struct link_map *map, ElfW(Addr) value)
{
    return (const void *)(value < map->l_addr ? value + map->l_addr : value);
}

static struct tables read_tables(const struct link_map *map)
{
    struct tables t = {0};
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            t.symbols = address_of(map, d->d_un.d_ptr);
        else if (d->d_tag == DT_STRTAB)
            t.strings = address_of(map, d->d_un.d_ptr);
        else if (d->d_tag == DT_GNU_HASH)
            t.hash = address_of(map, d->d_un.d_ptr);
    }
    return t;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

static bool is_function(const ElfW(Sym) * s)
{
    unsigned type = ELF64_ST_TYPE(s->st_info);
    return s->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_NOTYPE) && s->st_value;
}

void *vt_elf_symbol(const struct link_map *map, const char *name)
{
    struct tables t = read_tables(map);
    if (!t.hash || !t.symbols || !t.strings || !t.hash[0])
        return NULL;
    uint32_t buckets = t.hash[0], first = t.hash[1], bloom_words = t.hash[2], h = gnu_hash(name);
    const uint32_t *bucket = t.hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    uint32_t i = bucket[h % buckets];
    if (i < first)
        return NULL;
    for (;; i++) {
        const ElfW(Sym) *s = &t.symbols[i];
        if ((chain[i - first] | 1) == (h | 1) && is_function(s) && !strcmp(t.strings + s->st_name, name))
            return (void *)(map->l_addr + s->st_value);
        if (chain[i - first] & 1)
            return NULL;
    }
}

/* Symbols in the hash table, which holds all that the object exports, and where the first of them is. */
static uint32_t exported(const struct tables *t, uint32_t *first)
{
    uint32_t buckets = t->hash[0], bloom_words = t->hash[2], last = 0;
    const uint32_t *bucket = t->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    *first = t->hash[1];
    for (uint32_t i = 0; i < buckets; i++)
        if (bucket[i] > last)
            last = bucket[i];
    if (last < *first)
        return 0;
    while (!(chain[last - *first] & 1))
        last++;
    return last - *first + 1;
}

const char *vt_elf_covering(const struct link_map *map, uintptr_t place)
{
    struct tables t = read_tables(map);
    uint32_t first;
    if (!t.hash || !t.symbols || !t.strings)
        return NULL;
    for (uint32_t i = 0, count = exported(&t, &first); i < count; i++) {
        const ElfW(Sym) *s = &t.symbols[first + i];
        if (is_function(s) && place >= s->st_value && place - s->st_value < s->st_size)
            return t.strings + s->st_name;
    }
    return NULL;
}

bool vt_elf_needs(const struct link_map *map, const char *prefix)
{
    struct tables t = read_tables(map);
    for (const ElfW(Dyn) *d = map->l_ld; t.strings && d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED && !strncmp(t.strings + d->d_un.d_val, prefix, strlen(prefix)))
            return true;
    return false;
}
