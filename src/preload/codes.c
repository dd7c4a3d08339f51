/*
 * Interns Python code objects, lines and stacks. A code object is known by its address together with what tells it from
 * another one that lies there later (python.h); its names are read once, the line of each instruction too.
 */
#include "preload/codes.h"

#include <dlfcn.h>
#include <string.h>

#include "preload/arena.h"
#include "preload/modules.h"
#include "preload/state.h"

#define FILE_BYTES 1024
#define FUNCTION_BYTES 512

struct code_entry {
    UT_hash_handle hh;
    struct {
        uint64_t code, file, table;
        int32_t first_line;
        uint32_t version;
    } key;
    uint32_t index; /* in VT_CODES */
};
static struct code_entry *codes;

struct line_entry { /* where in VT_CODES << 32 | line an instruction is */
    UT_hash_handle hh;
    uint64_t key; /* code index << 32 | byte offset */
    uint64_t where;
};
static struct line_entry *lines;

static uint32_t add_code(const char *file, const char *function, int32_t first_line)
{
    uint64_t index;
    struct vt_code *c = vt_writer_append(&vt_state.writer, VT_CODES, &index);
    if (!c)
        return VT_NONE;
    c->file = vt_intern(file);
    c->function = vt_intern(function);
    c->first_line = first_line;
    vt_writer_publish(&vt_state.writer, VT_CODES);
    return (uint32_t)index;
}

static struct code_entry *find_code(const struct vt_python_frame *f, struct code_entry *probe)
{
    struct code_entry *e = NULL;
    memset(probe, 0, sizeof *probe);
    probe->key.code = (uintptr_t)f->code;
    probe->key.file = (uintptr_t)f->file;
    probe->key.table = (uintptr_t)f->table;
    probe->key.first_line = f->first_line;
    probe->key.version = f->version;
    HASH_FIND(hh, codes, &probe->key, sizeof probe->key, e);
    return e;
}

static struct line_entry *find_line(uint32_t code, int32_t offset, uint64_t *key)
{
    struct line_entry *l = NULL;
    *key = (uint64_t)code << 32 | (uint32_t)offset;
    HASH_FIND(hh, lines, key, sizeof *key, l);
    return l;
}

/* A frame that was not met before: its names and line are read from the living code object. */
static uint64_t new_line(const struct vt_python_frame *f, struct code_entry *known, const struct code_entry *probe)
{
    char file[FILE_BYTES], function[FUNCTION_BYTES];
    int32_t line = 0;
    uint64_t key;
    if (!vt_python_describe(f, file, sizeof file, function, sizeof function, &line))
        return UINT64_MAX;
    struct code_entry *e = known ? known : vt_arena_take(sizeof *e);
    if (!e)
        return UINT64_MAX;
    if (!known) {
        e->key = probe->key;
        e->index = add_code(file, function, f->first_line);
        if (e->index == VT_NONE)
            return UINT64_MAX;
        HASH_ADD(hh, codes, key, sizeof e->key, e);
    }
    uint64_t where = (uint64_t)e->index << 32 | (line > 0 && line <= (int32_t)VT_PYTHON_LINE ? (uint32_t)line : 0);
    if (find_line(e->index, f->offset, &key))
        return where;
    struct line_entry *l = vt_arena_take(sizeof *l);
    if (l) {
        l->key = key;
        l->where = where;
        HASH_ADD(hh, lines, key, sizeof l->key, l);
    }
    return where;
}

static uint64_t where_of(const struct vt_python_frame *taken)
{
    struct vt_python_frame f = *taken;
    struct code_entry probe, *e;
    uint64_t key;
    if (!vt_python_complete(&f))
        return UINT64_MAX;
    e = find_code(&f, &probe);
    struct line_entry *l = e ? find_line(e->index, f.offset, &key) : NULL;
    return l ? l->where : new_line(&f, e, &probe);
}

void vt_codes_prepare(void)
{
    if (!vt_options()->python)
        return;
    vt_python_prepare();
    dlerror();
}

uint32_t vt_codes_intern(const struct vt_python_stack *s)
{
    uint64_t hash = s->hash ^ 0x8d1f3a5c7b9e2046ull; /* Python and native stacks share one table */
    uint32_t id = vt_stack_find(hash);
    if (id)
        return id;
    for (unsigned i = s->count; i-- > 0;) {
        uint64_t where = where_of(&s->frame[i]);
        uint32_t next = where == UINT64_MAX ? 0 : vt_frame_id(id, VT_PYTHON, where | s->frame[i].evaluation);
        if (!next)
            break;
        id = next;
    }
    if (id)
        vt_stack_remember(hash, id);
    return id;
}

void vt_codes_note_sources(void)
{
    static const char *noted;
    const char *status = vt_options()->python ? vt_python_status() : "off";
    struct vt_header *h = vt_header();
    if (h->unwinder && noted == status && h->python)
        return;
    noted = status;
    h->python = vt_intern(status);
    h->unwinder = vt_intern(vt_stack_unwinder());
}

void vt_codes_forget(void)
{
    codes = NULL;
    lines = NULL;
}
