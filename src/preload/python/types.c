/*
 * What the interpreter says of its own objects: each type object carries the size of its objects and, for the attributes
 * that are plain fields, their names and offsets (PyMemberDef, Include/descrobject.h; Objects/codeobject.c
 * code_memberlist, Objects/frameobject.c frame_memberlist).
 */
#include <string.h>

#include "preload/python/interpreter.h"

/* Distances in PyTypeObject (Include/cpython/object.h), the same from 3.8 to 3.15. */
#define BASIC_SIZE_BEFORE_FLAGS 136
#define MEMBERS_AFTER_FLAGS 72

struct member { /* PyMemberDef */
    const char *name;
    int type;
    intptr_t offset;
    int flags;
    const char *doc;
};

static uint64_t basic_size(const struct vt_py_layout *at, const void *type)
{
    return vt_py_get64(type, at->type_flags - BASIC_SIZE_BEFORE_FLAGS);
}

/* Is the member at this offset? A type without such a member doesn't contradict. */
static bool member_agrees(const struct vt_py_layout *at, const void *type, const char *name, unsigned offset)
{
    const struct member *m = vt_py_get(type, at->type_flags + MEMBERS_AFTER_FLAGS);
    for (unsigned i = 0; m && m[i].name && i < 64; i++)
        if (strcmp(m[i].name, name) == 0)
            return m[i].offset == (intptr_t)offset;
    return true;
}

static bool code_agrees(const struct vt_py_layout *at, const void *code)
{
    const char *table = at->minor <= 9 ? "co_lnotab" : "co_linetable";
    return member_agrees(at, code, "co_filename", at->code_file) && member_agrees(at, code, "co_name", at->code_name) &&
           member_agrees(at, code, "co_qualname", at->code_qualname) &&
           member_agrees(at, code, table, at->code_table) &&
           member_agrees(at, code, "co_firstlineno", at->code_first_line) &&
           member_agrees(at, code, "co_code", at->code_bytes) &&
           (at->code_adaptive == VT_PY_NONE || basic_size(at, code) == at->code_adaptive);
}

/* Up to 3.10 the frames are Python objects. f_lasti is a member up to 3.9. */
static bool frame_agrees(const struct vt_py_layout *at, const void *frame)
{
    return at->minor > 10 ||
           (frame && member_agrees(at, frame, "f_back", at->frame_back) &&
            member_agrees(at, frame, "f_code", at->frame_code) && member_agrees(at, frame, "f_lasti", at->frame_instr));
}

/* What no type object tells: at least inside the object, and aligned. */
static bool rest_plausible(const struct vt_py_layout *at)
{
    const uint16_t inside[] = {at->code_version, at->code_first_traceable, at->code_tlbc};
    for (unsigned i = 0; i < sizeof inside / sizeof *inside; i++)
        if (inside[i] != VT_PY_NONE && (inside[i] >= at->code_adaptive || inside[i] % 4))
            return false;
    return at->text_hash % 8 == 0 && at->text_hash + 8 <= at->text_ascii && at->text_ascii < at->text_compact;
}

static bool is_type(const struct vt_py_layout *at, const void *object, const void *type)
{
    return object && vt_py_get(object, at->ob_type) == type;
}

bool vt_py_types_agree(const struct vt_py_layout *at, const struct vt_py_types *t)
{
    const uint64_t flags = VT_PY_FLAG_TEXT | VT_PY_FLAG_BYTES;
    /* shifts in a test build aside, ob_type and ob_size are the first fields behind the counts */
    if (!t->type || at->ob_type > 64 || at->ob_size != at->ob_type + 8 || at->type_flags > 512 ||
        at->type_flags < BASIC_SIZE_BEFORE_FLAGS || at->type_flags % 8 || !rest_plausible(at))
        return false;
    if (!is_type(at, t->code, t->type) || !is_type(at, t->text, t->type) || !is_type(at, t->bytes, t->type) ||
        (vt_py_get64(t->text, at->type_flags) & flags) != VT_PY_FLAG_TEXT ||
        (vt_py_get64(t->bytes, at->type_flags) & flags) != VT_PY_FLAG_BYTES)
        return false;
    /* PyUnicodeObject is PyCompactUnicodeObject and a pointer; PyBytesObject ends with its first byte */
    return basic_size(at, t->text) == at->text_compact + 8u && basic_size(at, t->bytes) == at->bytes_data + 1u &&
           code_agrees(at, t->code) && frame_agrees(at, t->frame);
}
