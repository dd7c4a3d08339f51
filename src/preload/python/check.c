/*
 * A thread's first stacks: read through the kernel, which answers a bad address with an error, and compared with what a
 * stack must look like. An interpreter that is not what its version says (a fork with other structs) is not read at all.
 */
#include <pthread.h>

#include "preload/python/interpreter.h"
#include "preload/python/reader.h"

struct frame {
    const void *code, *back;
    uint64_t instr; /* a pointer, or the low half is f_lasti */
    int32_t copy;   /* whose instructions: 0 is the code object's own */
    uint8_t owner, entry;
};

static bool read_frame(const struct vt_py_layout *at, const void *address, struct frame *f)
{
    struct reader r = {0};
    *f = (struct frame){0};
    want(&r, address, at->frame_code, &f->code, sizeof f->code);
    want(&r, address, at->frame_back, &f->back, sizeof f->back);
    want(&r, address, at->frame_instr, &f->instr, at->minor <= 10 ? 4 : 8);
    want(&r, address, at->frame_owner, &f->owner, 1);
    want(&r, address, at->frame_entry, &f->entry, 1);
    want(&r, address, at->frame_tlbc, &f->copy, sizeof f->copy);
    return ((uintptr_t)address & 7) == 0 && fetch(&r);
}

/* Is this type the one given or, by its flags, derived from it? */
static bool type_is(const struct vt_py_layout *at, const void *type, const void *expected, uint64_t flag)
{
    struct reader r = {0};
    uint64_t flags = 0;
    if (type == expected)
        return true;
    want(&r, type, at->type_flags, &flags, sizeof flags);
    return fetch(&r) && (flags & flag);
}

struct code {
    const void *type, *file, *name, *qualname, *table, *bytes;
    int32_t first_line, first_traceable;
    uint64_t units; /* code units; up to 3.10 the size of co_code */
    uint64_t table_size;
};

static bool read_code(const struct vt_py_layout *at, const void *address, struct code *c)
{
    struct reader r = {0};
    *c = (struct code){0};
    want(&r, address, at->ob_type, &c->type, sizeof c->type);
    want(&r, address, at->code_file, &c->file, sizeof c->file);
    want(&r, address, at->code_name, &c->name, sizeof c->name);
    want(&r, address, at->code_qualname, &c->qualname, sizeof c->qualname);
    want(&r, address, at->code_table, &c->table, sizeof c->table);
    want(&r, address, at->code_bytes, &c->bytes, sizeof c->bytes);
    want(&r, address, at->code_first_line, &c->first_line, sizeof c->first_line);
    want(&r, address, at->code_first_traceable, &c->first_traceable, sizeof c->first_traceable);
    if (at->code_bytes == VT_PY_NONE)
        want(&r, address, at->ob_size, &c->units, sizeof c->units);
    if (!fetch(&r))
        return false;
    if (at->code_qualname == VT_PY_NONE)
        c->qualname = c->name;
    return true;
}

/* No character of these is NUL: a length that is too long finds the real end. */
static bool no_character_is_nul(const void *data, uint64_t length, unsigned kind)
{
    uint8_t bytes[512];
    uint64_t size = length * kind;
    for (uint64_t done = 0; done < size; done += sizeof bytes) {
        struct reader r = {0};
        size_t n = size - done < sizeof bytes ? (size_t)(size - done) : sizeof bytes;
        want(&r, (const char *)data + done, 0, bytes, n);
        if (!fetch(&r))
            return false;
        for (size_t i = 0, k; i < n; i += kind) {
            for (k = 0; k < kind && !bytes[i + k]; k++)
                ;
            if (k == kind)
                return false;
        }
    }
    return true;
}

/* Names and paths have a NUL behind their last character and none before, and their state says what a character is. */
static bool check_text(const struct vt_py_layout *at, const void *text)
{
    uint64_t length = 0;
    uint32_t state = 0, first = 0, behind = 1;
    const void *data = NULL;
    struct reader r = {0};
    want(&r, text, at->text_length, &length, sizeof length);
    want(&r, text, at->text_state, &state, sizeof state);
    if (!fetch(&r) || length > 1u << 20 || at->text_kind_bit > 16)
        return false;
    state >>= at->text_kind_bit;
    unsigned kind = state & 7;
    bool compact = state & 8, ascii = state & 16;
    if ((kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1))
        return false;
    if (compact) {
        data = (const char *)text + (ascii ? at->text_ascii : at->text_compact);
    } else {
        want(&r, text, at->text_compact, &data, sizeof data);
        if (!fetch(&r))
            return false;
    }
    behind = 0;
    want(&r, data, 0, &first, kind);
    want(&r, (const char *)data + length * kind, 0, &behind, kind);
    return fetch(&r) && !behind && (first || !length) && no_character_is_nul(data, length, kind);
}

/* How many bytes of code a line table covers: all of it since 3.10, in lnotab up to the last line's beginning. */
static bool check_table(const struct vt_py_layout *at, const struct code *c)
{
    uint8_t bytes[4096] = {0};
    uint64_t covered = 0, code = at->code_bytes == VT_PY_NONE ? 2 * c->units : c->units;
    for (uint64_t done = 0; done < c->table_size; done += sizeof bytes) {
        struct reader r = {0};
        size_t n = c->table_size - done < sizeof bytes ? (size_t)(c->table_size - done) : sizeof bytes;
        want(&r, (const char *)c->table + done, at->bytes_data, bytes, n);
        if (c->table_size > INT32_MAX || !fetch(&r))
            return false;
        for (size_t i = 0; i < n; i += at->minor >= 11 ? 1 : 2)
            covered += at->minor <= 10 ? bytes[i] : (bytes[i] & 0x80) ? 2u * ((bytes[i] & 7) + 1) : 0;
    }
    return at->minor <= 9 ? covered <= code : covered == code;
}

/* The objects that a code object refers to: two or three strings, one or two bytes objects. */
static const char *check_parts(const struct vt_py *py, struct code *c)
{
    const struct vt_py_layout *at = &py->at;
    const void *file, *name, *qualname, *table, *bytes = py->bytes_type;
    struct reader r = {0};
    want(&r, c->file, at->ob_type, &file, sizeof file);
    want(&r, c->name, at->ob_type, &name, sizeof name);
    want(&r, c->qualname, at->ob_type, &qualname, sizeof qualname);
    want(&r, c->table, at->ob_type, &table, sizeof table);
    want(&r, c->table, at->ob_size, &c->table_size, sizeof c->table_size);
    if (c->bytes) {
        want(&r, c->bytes, at->ob_type, &bytes, sizeof bytes);
        want(&r, c->bytes, at->ob_size, &c->units, sizeof c->units);
    }
    if (!fetch(&r))
        return "has a code object that can't be read: no Python frames";
    if (!type_is(at, file, py->text_type, VT_PY_FLAG_TEXT) || !type_is(at, name, py->text_type, VT_PY_FLAG_TEXT) ||
        !type_is(at, qualname, py->text_type, VT_PY_FLAG_TEXT))
        return "has a code object without a name: no Python frames";
    if (!type_is(at, table, py->bytes_type, VT_PY_FLAG_BYTES) || !type_is(at, bytes, py->bytes_type, VT_PY_FLAG_BYTES))
        return "has a code object without a line table: no Python frames";
    if (!check_text(at, c->file) || !check_text(at, c->name) || !check_text(at, c->qualname))
        return "has strings of an unknown layout: no Python frames";
    if (!check_table(at, c))
        return "has a line table that does not fit its code: no Python frames";
    return NULL;
}

/* Is the instruction one of the code's? -1 (bytes, up to 3.10: or units) and -2 mean that it hasn't started. */
static bool instruction_fits(const struct vt_py_layout *at, const struct frame *f, const struct code *c)
{
    if (at->minor <= 10) {
        int64_t last = (int32_t)f->instr;
        return last >= -1 && (uint64_t)((last + 1) * (at->minor == 10 ? 2 : 1)) <= c->units + 1;
    }
    if (f->copy)
        return vt_py_copy(at, vt_py_untag(f->code), f->copy, (const char *)(uintptr_t)f->instr) != NULL;
    int64_t offset = (int64_t)(f->instr - ((uintptr_t)vt_py_untag(f->code) + at->code_adaptive));
    return offset >= -2 && !(offset & 1) && offset < 2 * (int64_t)c->units;
}

static const char *check_frame(const struct vt_py *py, const struct frame *f)
{
    const void *address = vt_py_untag(f->code);
    struct code c;
    if (!read_code(&py->at, address, &c))
        return "has a frame that can't be read: no Python frames";
    if (c.type != py->code_type)
        return "has a frame without a code object: no Python frames";
    const char *what = check_parts(py, &c);
    if (what)
        return what;
    if (c.first_line < 0 || c.first_traceable < 0 || c.units > INT32_MAX / 2 ||
        (py->at.minor >= 11 && (uint64_t)c.first_traceable >= c.units) || !instruction_fits(&py->at, f, &c))
        return "has a frame that is outside its code: no Python frames";
    return NULL;
}

static const char *check_thread(const struct vt_py *py, const void *thread, bool own, const void **frame, bool *main)
{
    const struct vt_py_layout *at = &py->at;
    unsigned long id = 0;
    const void *interp = NULL;
    struct reader r = {0};
    want(&r, thread, at->thread_interp, &interp, sizeof interp);
    want(&r, thread, at->thread_id, &id, sizeof id);
    want(&r, thread, at->thread_frame, frame, sizeof *frame);
    if (!fetch(&r))
        return "has a thread state that can't be read (or process_vm_readv is forbidden): no Python frames";
    *main = interp == py->main_interp();
    /* Since 3.12 a thread that runs a sub-interpreter has the state that it runs, which another thread may have made. */
    own = own && (*main || py->at.minor < 12);
    if (own && id != (unsigned long)pthread_self())
        return "has a thread state of another thread: no Python frames";
    if (at->cframe_frame != VT_PY_NONE && *frame) {
        want(&r, *frame, at->cframe_frame, frame, sizeof *frame);
        if (!fetch(&r))
            return "has a thread state without frames: no Python frames";
    }
    return NULL;
}

bool vt_py_check(struct vt_py *py, const void *thread, bool own, unsigned depth, bool *sound)
{
    const void *next = NULL;
    bool main = false;
    const char *what = check_thread(py, thread, own, &next, &main);
    unsigned seen = 0, moving = 0;
    for (unsigned links = vt_py_links(depth); !what && next && links && seen < depth; links--) {
        struct frame f;
        if (!read_frame(&py->at, next, &f)) {
            what = "has a frame that can't be read: no Python frames";
        } else if (f.owner > VT_PY_OWNER_SHIM + 1 || f.entry > 1) {
            what = "has a frame of an unknown kind: no Python frames";
        } else if (py->at.minor < 12 || f.owner < VT_PY_OWNER_SHIM) {
            what = check_frame(py, &f);
            seen++;
            moving += py->at.minor >= 11 || (int32_t)f.instr > 0;
        }
        next = f.back;
    }
    if (!what && 2 * moving < seen) /* the first instruction of a function seldom calls another */
        what = "has frames that have not started: no Python frames";
    if (what)
        vt_py_disable(py, what);
    *sound = !what && main; /* a sub-interpreter's stacks are checked every time */
    return !what && seen;
}
