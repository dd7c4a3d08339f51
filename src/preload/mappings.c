/*
 * Code outside all loaded objects; see mappings.h.
 *
 * /proc/self/maps is read when an address is met that is in none of the ranges of code known so far. Programs that
 * generate much code get much memory for it, piece by piece, so there is a limit to that: behind it, what was found mostly
 * is taken to be there without another look.
 */
#include "preload/mappings.h"

#include <link.h>
#include <string.h>

#include "analysis/modules.h"
#include "preload/modules.h"
#include "preload/process.h"
#include "preload/resolve.h"
#include "preload/state.h"

#define RANGES 64
#define LOOKS_MOST 400 /* of a few milliseconds in a large process */

struct range {
    uintptr_t start, end;
    struct vt_mapping what;
};
static struct range ranges[RANGES]; /* a ring of the newest; code only, as other memory may become code later */
static unsigned range_count, looks;
static uint32_t anonymous = VT_NONE; /* the module for all anonymous memory */

static uint32_t add_module(const struct vt_process_mapping *m, uintptr_t bias)
{
    uint64_t index;
    struct vt_module *record = vt_writer_append(&vt_state.writer, VT_MODULES, &index);
    if (!record)
        return VT_NONE;
    if (m) {
        record->start = m->start;
        record->end = m->end;
        record->bias = bias;
        record->path = vt_intern(m->name);
    }
    record->seen_ns = vt_now();
    record->flags = VT_MODULE_MAPPING;
    vt_writer_publish(&vt_state.writer, VT_MODULES);
    return (uint32_t)index;
}

static struct vt_mapping anonymous_code(void)
{
    if (anonymous == VT_NONE)
        anonymous = add_module(NULL, 0);
    return (struct vt_mapping){.module = anonymous};
}

/* In a file, an address in that file says more than one in a process that is gone. */
static struct vt_mapping named_code(const struct vt_process_mapping *m)
{
    uintptr_t bias = m->name[0] == '/' ? m->start - m->offset : 0;
    return (struct vt_mapping){.module = add_module(m, bias), .bias = bias};
}

static struct vt_mapping look_at(uintptr_t address)
{
    static struct vt_process_mapping m;
    enum vt_process_found found = vt_process_mapping_at(address, &m);
    if (found == VT_MAPPING_UNKNOWN)
        return (struct vt_mapping){.module = VT_NONE};
    if (found == VT_MAPPING_NONE || !m.executable)
        return (struct vt_mapping){.module = VT_NONE, .no_code = true};
    struct range *r = &ranges[range_count++ % RANGES];
    r->start = m.start;
    r->end = m.end;
    r->what = m.name[0] ? named_code(&m) : anonymous_code();
    return r->what;
}

struct vt_mapping vt_mapping_at(uintptr_t address)
{
    unsigned count = range_count < RANGES ? range_count : RANGES;
    for (unsigned i = 0; i < count; i++)
        if (address >= ranges[i].start && address < ranges[i].end)
            return ranges[i].what;
    if (looks == LOOKS_MOST)
        return range_count > LOOKS_MOST / 2 ? anonymous_code() : (struct vt_mapping){.module = VT_NONE};
    looks++;
    return look_at(address);
}

#define COMPILERS 8 /* different ones that are noted: one library of each is enough */

struct compilers {
    struct vt_stack_objects *objects;
    const char *name[COMPILERS];
    unsigned count;
    bool looked;
};
static unsigned long long adds_seen; /* how many objects had been loaded at the last look for compilers */

static bool is_noted(const struct compilers *c, const char *name)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!strcmp(c->name[i], name))
            return true;
    return c->count == COMPILERS;
}

static void note(struct compilers *c, const struct dl_phdr_info *info, const char *name)
{
    struct vt_stack_objects *o = c->objects;
    for (unsigned i = 0; i < info->dlpi_phnum && o->count < sizeof o->object / sizeof *o->object; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            vt_object_at((void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), &o->object[o->count])) {
            o->count++;
            c->name[c->count++] = name;
            return;
        }
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *to)
{
    struct compilers *c = to;
    const char *name = info->dlpi_name ? vt_module_generator(info->dlpi_name) : NULL;
    (void)size;
    if (!c->looked && __atomic_exchange_n(&adds_seen, info->dlpi_adds, __ATOMIC_RELAXED) == info->dlpi_adds)
        return 1; /* nothing was loaded since the last look */
    c->looked = true;
    if (name && !is_noted(c, name))
        note(c, info, name);
    return 0;
}

void vt_mapping_note_compilers(struct vt_stack_objects *objects)
{
    struct compilers c = {.objects = objects};
    dl_iterate_phdr(look_at_object, &c);
}

void vt_mapping_forget(void)
{
    range_count = looks = 0;
    anonymous = VT_NONE;
    __atomic_store_n(&adds_seen, 0, __ATOMIC_RELAXED);
}
