/*
 * Interns modules and frames. A module is one load of one file: a library that is closed and opened again, or another
 * one at the same address, is a module of its own (start, bias, path and build-id all count).
 */
#include "preload/modules.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "preload/arena.h"
#include "preload/codes.h"
#include "preload/mappings.h"
#include "preload/process.h"
#include "preload/state.h"

#define MODULES_KEPT 4096

extern const char __ehdr_start[] __attribute__((visibility("hidden"))); /* of this library */

struct known {
    uintptr_t start, bias;
    uint32_t name, index; /* name: string id of what the loader calls it */
};
static struct known known[MODULES_KEPT];
static unsigned known_count;

struct frame_entry {
    UT_hash_handle hh;
    struct {
        uint64_t where;
        uint32_t parent, module;
    } key;
    uint32_t id;
};
static struct frame_entry *frames;

struct stack_entry { /* whole stacks by hash, so that a known one costs one lookup */
    UT_hash_handle hh;
    uint64_t hash;
    uint32_t id;
};
static struct stack_entry *stacks;

/* The build-id note, read from the loaded image; every step is checked against the mapped range. */
static void read_build_id(const struct vt_object *o, struct vt_module *m)
{
    const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)o->start;
    if (o->end - o->start < sizeof *e || memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_phentsize != sizeof(ElfW(Phdr)) ||
        e->e_phoff > VT_PAGE || e->e_phoff + e->e_phnum * sizeof(ElfW(Phdr)) > VT_PAGE)
        return;
    const ElfW(Phdr) *p = (const ElfW(Phdr) *)(o->start + e->e_phoff);
    for (unsigned i = 0; i < e->e_phnum; i++) {
        uintptr_t at = o->bias + p[i].p_vaddr, end = at + p[i].p_filesz;
        if (p[i].p_type != PT_NOTE || at < o->start || end > o->end || end < at)
            continue;
        while (end - at >= sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
            uintptr_t name = at + sizeof *n, desc = name + ((n->n_namesz + 3ul) & ~3ul),
                      next = desc + ((n->n_descsz + 3ul) & ~3ul);
            if (next > end || next <= at)
                break;
            if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp((void *)name, "GNU", 4) &&
                n->n_descsz <= sizeof m->build_id) {
                m->build_id_bytes = (uint8_t)n->n_descsz;
                memcpy(m->build_id, (void *)desc, n->n_descsz);
                return;
            }
            at = next;
        }
    }
}

/* Names that mean something else to another process: given to dlopen or found through LD_LIBRARY_PATH as relative ones,
 * or of an open file (a library in a memfd is loaded by /proc/self/fd/7). */
static bool is_local(const char *name)
{
    return (name[0] != '/' && strchr(name, '/')) || !strncmp(name, "/proc/", 6) || !strncmp(name, "/dev/fd/", 8);
}

/* Can another file have taken this one's place since the process began? The clock's second may be another than the file
 * system's. */
static bool may_be_replaced(const char *path)
{
    struct timespec now, up;
    struct stat status;
    int saved = errno;
    bool gone = stat(path, &status);
    errno = saved;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    time_t began = now.tv_sec - up.tv_sec + (time_t)(vt_header()->process_start_ticks / (uint64_t)sysconf(_SC_CLK_TCK));
    return gone || status.st_ctim.tv_sec + 2 >= began;
}

static bool is_deleted(const char *path)
{
    static const char mark[] = " (deleted)";
    size_t n = strlen(path);
    return n >= sizeof mark - 1 && !strcmp(path + n - (sizeof mark - 1), mark);
}

/* The path of an object's file. If the file there is no longer the one in use, the kernel's name for it says so: without
 * a build-id nothing else would tell. */
static uint32_t path_id(const struct vt_object *o, bool has_id)
{
    static char path[VT_PATH_MAX];
    if (!o->name || !*o->name)
        return vt_header()->exe;
    if (o->start == getauxval(AT_SYSINFO_EHDR))
        return vt_intern("[vdso]");
    bool local = is_local(o->name), doubtful = !local && !has_id && o->name[0] == '/' && may_be_replaced(o->name);
    if ((local || doubtful) && vt_process_mapped_file(o->start, path, sizeof path) && (local || is_deleted(path)))
        return vt_intern(path);
    return vt_intern(o->name);
}

uint32_t vt_module_index(const struct vt_object *o)
{
    uint32_t name = vt_intern(o->name);
    for (unsigned i = 0; i < known_count; i++)
        if (known[i].start == o->start && known[i].bias == o->bias && known[i].name == name)
            return known[i].index;
    uint64_t index;
    struct vt_module *m = vt_writer_append(&vt_state.writer, VT_MODULES, &index);
    if (!m)
        return VT_NONE;
    m->start = o->start;
    m->end = o->end;
    m->bias = o->bias;
    read_build_id(o, m);
    m->path = path_id(o, m->build_id_bytes > 0);
    m->seen_ns = vt_now();
    m->flags = o->start == (uintptr_t)__ehdr_start ? VT_MODULE_SELF : 0;
    vt_writer_publish(&vt_state.writer, VT_MODULES);
    if (known_count < MODULES_KEPT)
        known[known_count++] = (struct known){o->start, o->bias, name, (uint32_t)index};
    return (uint32_t)index;
}

uint32_t vt_frame_id(uint32_t parent, uint32_t module, uint64_t where)
{
    struct frame_entry *e = NULL, probe = {.key = {.where = where, .parent = parent, .module = module}};
    HASH_FIND(hh, frames, &probe.key, sizeof probe.key, e);
    if (e)
        return e->id;
    uint64_t index;
    struct vt_frame *f = vt_writer_append(&vt_state.writer, VT_FRAMES, &index);
    if (!f || !(e = vt_arena_take(sizeof *e)))
        return 0;
    f->parent = parent;
    f->module = module;
    f->where = where;
    vt_writer_publish(&vt_state.writer, VT_FRAMES);
    e->key = probe.key;
    e->id = (uint32_t)index + 1;
    HASH_ADD(hh, frames, key, sizeof e->key, e);
    return e->id;
}

uint32_t vt_stack_find(uint64_t hash)
{
    struct stack_entry *e = NULL;
    HASH_FIND(hh, stacks, &hash, sizeof hash, e);
    return e ? e->id : 0;
}

void vt_stack_remember(uint64_t hash, uint32_t id)
{
    struct stack_entry *e = vt_arena_take(sizeof *e);
    if (!e)
        return;
    e->hash = hash;
    e->id = id;
    HASH_ADD(hh, stacks, hash, sizeof e->hash, e);
}

/* Finds the place of every frame. Returns how many make sense: an address that is no code was not returned to by
 * anybody, and what the unwinder found behind it is no stack. */
static unsigned find_places(const struct vt_stack *s, const struct vt_stack_objects *o, struct vt_mapping *place)
{
    struct vt_mapping object[sizeof o->object / sizeof *o->object];
    for (unsigned k = 0; k < o->count; k++)
        object[k] = (struct vt_mapping){.module = vt_module_index(&o->object[k]), .bias = o->object[k].bias};
    for (unsigned i = 0; i < s->count; i++) {
        place[i] = o->of[i] ? object[o->of[i] - 1] : vt_mapping_at((uintptr_t)s->ip[i] - 1);
        if (i && place[i].no_code)
            return i;
    }
    return s->count;
}

uint32_t vt_stack_intern(const struct vt_stack *s, const struct vt_stack_objects *o, uint64_t hash)
{
    struct vt_mapping place[VT_DEPTH_MAX];
    uint32_t id = 0;
    for (unsigned i = find_places(s, o, place); i-- > 0;) {
        bool found = place[i].module != VT_NONE;
        uint64_t where = (uintptr_t)s->ip[i] - (found ? place[i].bias : 0);
        uint32_t next = vt_frame_id(id, place[i].module, where);
        if (!next)
            break; /* the tree is full: the outer part is better than nothing */
        id = next;
    }
    if (id)
        vt_stack_remember(hash, id);
    return id;
}

void vt_module_forget(void)
{
    vt_mapping_forget();
    known_count = 0;
    frames = NULL;
    stacks = NULL;
}

void vt_stack_forget(void)
{
    vt_module_forget();
    vt_codes_forget();
}
