/* Looks at loaded objects from inside dl_iterate_phdr, whose lock keeps them loaded meanwhile; see loaded.h. */
#include "preload/loaded.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

#include "preload/elf.h"

#define NAME_BYTES 8192 /* longer ones are left out */

struct question {
    const struct vt_module *module;
    uint64_t place;
    char name[NAME_BYTES]; /* no malloc under the loader's lock: it may be the program's own */
};

static bool note_is(const ElfW(Phdr) * p, ElfW(Addr) base, const struct vt_module *m)
{
    uintptr_t at = base + p->p_vaddr, end = at + p->p_memsz;
    while (end - at >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
        uintptr_t name = at + sizeof *n, desc = name + ((n->n_namesz + 3ul) & ~3ul);
        uintptr_t next = desc + ((n->n_descsz + 3ul) & ~3ul);
        if (next > end || next <= at)
            break;
        if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp((void *)name, "GNU", 4))
            return n->n_descsz == m->build_id_bytes && !memcmp((void *)desc, m->build_id, n->n_descsz);
        at = next;
    }
    return false;
}

/* At the same address, and the same build where that can be told. */
static bool is_module(const struct dl_phdr_info *info, const struct vt_module *m)
{
    bool same = !m->build_id_bytes, placed = false;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        placed |= p->p_type == PT_LOAD && start >= m->start && start < m->end;
        same |= p->p_type == PT_NOTE && note_is(p, info->dlpi_addr, m);
    }
    return same && placed;
}

static int look(struct dl_phdr_info *info, size_t size, void *data)
{
    struct question *q = data;
    struct link_map map = {.l_addr = info->dlpi_addr};
    (void)size;
    if (info->dlpi_addr != q->module->bias || !is_module(info, q->module))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            map.l_ld = (ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const char *name = map.l_ld ? vt_elf_covering(&map, q->place) : NULL;
    if (name && strlen(name) < NAME_BYTES)
        strcpy(q->name, name);
    return 1;
}

char *vt_loaded_name(const struct vt_module *module, uint64_t place)
{
    struct question q = {.module = module, .place = place};
    if (module->build_id_bytes <= sizeof module->build_id)
        dl_iterate_phdr(look, &q);
    return q.name[0] ? strdup(q.name) : NULL;
}

struct search {
    const char *library; /* beginning of the file's name */
    const char *symbol;  /* NULL: the library itself is looked for */
    void *found;
    const char *path;
};

extern const char __ehdr_start __attribute__((visibility("hidden"))); /* the linker's: where this library begins */

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *s = argument;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    struct link_map map = {.l_addr = info->dlpi_addr};
    (void)size;
    if (strncmp(name, s->library, strlen(s->library)) || info->dlpi_addr == (uintptr_t)&__ehdr_start)
        return 0;
    s->path = info->dlpi_name;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            map.l_ld = (ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (s->symbol && map.l_ld)
        s->found = vt_elf_symbol(&map, s->symbol);
    return !s->symbol || s->found;
}

void *vt_loaded_symbol(const char *library, const char *symbol)
{
    struct search s = {.library = library, .symbol = symbol};
    dl_iterate_phdr(visit, &s);
    return s.found;
}

void *vt_loaded_look_up(struct vt_loaded_function *known, const char *library, const char *symbol)
{
    uint64_t salt = vt_stack_salt();
    void *found = vt_loaded_symbol(library, symbol);
    if (!found)
        found = vt_loaded_symbol("", symbol);
    __atomic_store_n(&known->function, found, __ATOMIC_RELAXED);
    __atomic_store_n(&known->salt, salt, __ATOMIC_RELEASE);
    return found;
}

const char *vt_loaded_path(const char *library)
{
    struct search s = {.library = library};
    dl_iterate_phdr(visit, &s);
    return s.path ? s.path : "";
}
