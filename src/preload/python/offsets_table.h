/*
 * The offset tables; see offsets.h. A header, because the walk is compiled for the usual ones with the offsets as constants.
 *
 * Taken from the headers by compiling them: Include/cpython/pystate.h (PyThreadState), Include/cpython/code.h,
 * Include/cpython/frameobject.h (up to 3.10), Include/internal/pycore_frame.h (3.11 to 3.13) and
 * pycore_interpframe_structs.h (3.14), Include/cpython/unicodeobject.h, Include/object.h. Debug builds have the same
 * layout; builds with --with-trace-refs do not, and fail the check of the interpreter's own type objects.
 */
#ifndef VT_PRELOAD_PYTHON_OFFSETS_TABLE_H
#define VT_PRELOAD_PYTHON_OFFSETS_TABLE_H

#include "preload/python/offsets.h"

/* Places in the table of those that the walk knows by heart. */
enum { VT_PY_TABLE_11 = 3, VT_PY_TABLE_12, VT_PY_TABLE_13, VT_PY_TABLE_14 = 7 };

#define NONE VT_PY_NONE

/* Objects: with 16 bytes before ob_size, or 32 in free-threaded builds. */
#define OBJECT .ob_type = 8, .ob_size = 16, .type_flags = 168, .bytes_data = 32
#define OBJECT_T .ob_type = 24, .ob_size = 32, .type_flags = 184, .bytes_data = 48

/* Strings: with a wchar_t cache up to 3.11, without it since 3.12. */
#define TEXT_8 \
    .text_length = 16, .text_hash = 24, .text_state = 32, .text_ascii = 48, .text_compact = 72, .text_kind_bit = 2
#define TEXT_12 \
    .text_length = 16, .text_hash = 24, .text_state = 32, .text_ascii = 40, .text_compact = 56, .text_kind_bit = 2
#define TEXT_13T \
    .text_length = 32, .text_hash = 40, .text_state = 48, .text_ascii = 56, .text_compact = 72, .text_kind_bit = 2
#define TEXT_14T \
    .text_length = 32, .text_hash = 40, .text_state = 48, .text_ascii = 56, .text_compact = 72, .text_kind_bit = 8

#define FRAME_8 .frame_code = 32, .frame_back = 24, .frame_entry = NONE, .frame_owner = NONE, .frame_tlbc = NONE
#define FRAME_12 .frame_code = 0, .frame_back = 8, .frame_instr = 56, .frame_entry = NONE

#define CODE_8                                                                                           \
    .code_first_line = 40, .code_file = 104, .code_name = 112, .code_qualname = NONE, .code_table = 120, \
    .code_bytes = 48, .code_version = NONE, .code_first_traceable = NONE, .code_tlbc = NONE, .code_adaptive = NONE
#define CODE_12                                                                                         \
    .code_first_line = 68, .code_file = 112, .code_name = 120, .code_qualname = 128, .code_table = 136, \
    .code_bytes = NONE, .code_version = 92
#define CODE_13T                                                                                        \
    .code_first_line = 84, .code_file = 128, .code_name = 136, .code_qualname = 144, .code_table = 152, \
    .code_bytes = NONE, .code_version = 108

static const struct vt_py_layout vt_py_layouts[] = {
    {.minor = 8,
     OBJECT,
     .thread_interp = 16,
     .thread_id = 176,
     .thread_frame = 24,
     .cframe_frame = NONE,
     FRAME_8,
     .frame_instr = 104,
     CODE_8,
     TEXT_8},
    {.minor = 9,
     OBJECT,
     .thread_interp = 16,
     .thread_id = 176,
     .thread_frame = 24,
     .cframe_frame = NONE,
     FRAME_8,
     .frame_instr = 104,
     CODE_8,
     TEXT_8},
    {.minor = 10,
     OBJECT,
     .thread_interp = 16,
     .thread_id = 176,
     .thread_frame = 24,
     .cframe_frame = NONE,
     FRAME_8,
     .frame_instr = 96,
     CODE_8,
     TEXT_8},
    [VT_PY_TABLE_11] = {.minor = 11,
                        OBJECT,
                        .thread_interp = 16,
                        .thread_id = 152,
                        .thread_frame = 56,
                        .cframe_frame = 8,
                        .frame_code = 32,
                        .frame_back = 48,
                        .frame_instr = 56,
                        .frame_entry = 68,
                        .frame_owner = 69,
                        .frame_tlbc = NONE,
                        .code_first_line = 72,
                        .code_file = 112,
                        .code_name = 120,
                        .code_qualname = 128,
                        .code_table = 136,
                        .code_bytes = NONE,
                        .code_version = NONE,
                        .code_first_traceable = 168,
                        .code_tlbc = NONE,
                        .code_adaptive = 184,
                        TEXT_8},
    [VT_PY_TABLE_12] = {.minor = 12,
                        OBJECT,
                        .thread_interp = 16,
                        .thread_id = 136,
                        .thread_frame = 56,
                        .cframe_frame = 0,
                        FRAME_12,
                        .frame_owner = 70,
                        .frame_tlbc = NONE,
                        CODE_12,
                        .code_first_traceable = 176,
                        .code_tlbc = NONE,
                        .code_adaptive = 192,
                        TEXT_12},
    [VT_PY_TABLE_13] = {.minor = 13,
                        OBJECT,
                        .thread_interp = 16,
                        .thread_id = 152,
                        .thread_frame = 72,
                        .cframe_frame = NONE,
                        FRAME_12,
                        .frame_owner = 70,
                        .frame_tlbc = NONE,
                        CODE_12,
                        .code_first_traceable = 184,
                        .code_tlbc = NONE,
                        .code_adaptive = 200,
                        TEXT_12},
    {.minor = 13,
     .free_threaded = 1,
     OBJECT_T,
     .thread_interp = 16,
     .thread_id = 152,
     .thread_frame = 72,
     .cframe_frame = NONE,
     FRAME_12,
     .frame_owner = 70,
     .frame_tlbc = NONE,
     CODE_13T,
     .code_first_traceable = 200,
     .code_tlbc = NONE,
     .code_adaptive = 216,
     TEXT_13T},
    [VT_PY_TABLE_14] = {.minor = 14,
                        OBJECT,
                        .thread_interp = 16,
                        .thread_id = 152,
                        .thread_frame = 72,
                        .cframe_frame = NONE,
                        FRAME_12,
                        .frame_owner = 74,
                        .frame_tlbc = NONE,
                        CODE_12,
                        .code_first_traceable = 192,
                        .code_tlbc = NONE,
                        .code_adaptive = 208,
                        TEXT_12},
    {.minor = 14,
     .free_threaded = 1,
     OBJECT_T,
     .thread_interp = 16,
     .thread_id = 152,
     .thread_frame = 72,
     .cframe_frame = NONE,
     FRAME_12,
     .frame_owner = 78,
     .frame_tlbc = 72,
     CODE_13T,
     .code_first_traceable = 208,
     .code_tlbc = 224,
     .code_adaptive = 232,
     TEXT_14T},
    {.minor = 15,
     OBJECT,
     .thread_interp = 16,
     .thread_id = 176,
     .thread_frame = 72,
     .cframe_frame = NONE,
     FRAME_12,
     .frame_owner = 74,
     .frame_tlbc = NONE,
     CODE_12,
     .code_first_traceable = 192,
     .code_tlbc = NONE,
     .code_adaptive = 208,
     TEXT_12},
    {.minor = 15,
     .free_threaded = 1,
     OBJECT_T,
     .thread_interp = 16,
     .thread_id = 176,
     .thread_frame = 72,
     .cframe_frame = NONE,
     FRAME_12,
     .frame_owner = 78,
     .frame_tlbc = 72,
     CODE_13T,
     .code_first_traceable = 208,
     .code_tlbc = 224,
     .code_adaptive = 232,
     TEXT_14T},
};

#define VT_PY_LAYOUTS (sizeof vt_py_layouts / sizeof *vt_py_layouts)

#undef NONE
#undef OBJECT
#undef OBJECT_T
#undef TEXT_8
#undef TEXT_12
#undef TEXT_13T
#undef TEXT_14T
#undef FRAME_8
#undef FRAME_12
#undef CODE_8
#undef CODE_12
#undef CODE_13T

#endif
