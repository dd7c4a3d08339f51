/*
 * Where CPython keeps what the walk reads: one table of byte offsets per minor version, LP64 (x86-64 and aarch64 are the
 * same). Inside a minor the offsets never change once it is released: CPython guards them with Doc/data/python3.X.abi.
 */
#ifndef VT_PRELOAD_PYTHON_OFFSETS_H
#define VT_PRELOAD_PYTHON_OFFSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_PY_NONE 0xffffu /* this version has no such field */

struct vt_py_layout {
    uint16_t minor, free_threaded;
    uint16_t ob_type;                  /* PyObject */
    uint16_t ob_size;                  /* PyVarObject: bytes, and code objects since 3.11 (in code units) */
    uint16_t type_flags;               /* PyTypeObject.tp_flags */
    uint16_t thread_interp, thread_id; /* PyThreadState */
    uint16_t thread_frame;             /* the frame itself, or up to 3.12 the _PyCFrame that points to it */
    uint16_t cframe_frame;             /* _PyCFrame.current_frame: 3.11, 3.12 */
    uint16_t frame_code, frame_back;
    uint16_t frame_instr;              /* 3.11: a pointer into the code; before: f_lasti, an int */
    uint16_t frame_entry, frame_owner; /* 3.11 alone (is_entry); 3.11 */
    uint16_t frame_tlbc;               /* free-threaded 3.14 */
    uint16_t code_first_line, code_file, code_name, code_qualname, code_table;
    uint16_t code_bytes;               /* co_code, a bytes object: up to 3.10 */
    uint16_t code_version;             /* 3.12 */
    uint16_t code_first_traceable;     /* 3.11 */
    uint16_t code_tlbc, code_adaptive; /* free-threaded 3.14; 3.11 */
    uint16_t bytes_data;
    uint16_t text_length, text_hash, text_state; /* PyUnicodeObject */
    uint16_t text_ascii, text_compact; /* sizes of the structs before the characters; the second is also where a string
                                          that isn't compact keeps its pointer */
    uint16_t text_kind_bit;            /* of the state word: kind (3 bits), compact, ascii */
};

/* The table of a version, or NULL if it is not known. */
const struct vt_py_layout *vt_py_layout(unsigned minor, bool free_threaded);

#define VT_PY_FLAG_BYTES (1ul << 27) /* Py_TPFLAGS_BYTES_SUBCLASS and UNICODE_SUBCLASS: Include/object.h */
#define VT_PY_FLAG_TEXT (1ul << 28)

#define VT_PY_OLDEST 8u
#define VT_PY_NEWEST 15u

/* _Py_DebugOffsets, at the start of _PyRuntime since 3.13: is there one, of this version; and does it say free-threaded? */
bool vt_py_debug_header(const void *runtime, uint32_t version, bool *free_threaded);

/* Does what it says agree with the table? True before 3.13, which has none. */
bool vt_py_debug_agrees(const struct vt_py_layout *layout, const void *runtime);

/* The interpreter's type objects: data of the library, with their final values before Py_Initialize. */
struct vt_py_types {
    const void *type, *code, *text, *bytes, *frame;
};

/* Does what they say of their objects (sizes, flags, and the offsets of the members that Python code can see) agree with
 * the table? A build with --with-trace-refs has two more words in front of each object, and does not. */
bool vt_py_types_agree(const struct vt_py_layout *layout, const struct vt_py_types *types);

#endif
