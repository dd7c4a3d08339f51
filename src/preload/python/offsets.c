/*
 * The offset tables; see offsets.h.
 *
 * Taken from the headers by compiling them: Include/cpython/pystate.h (PyThreadState), Include/cpython/code.h,
 * Include/cpython/frameobject.h (up to 3.10), Include/internal/pycore_frame.h (3.11 to 3.13) and
 * pycore_interpframe_structs.h (3.14), Include/cpython/unicodeobject.h, Include/object.h. Debug builds have the same
 * layout; builds with --with-trace-refs do not, and fail the check of the interpreter's own type objects.
 */
#include "preload/python/offsets.h"

#include <string.h>

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

static const struct vt_py_layout layouts[] = {
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
    {.minor = 11,
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
    {.minor = 12,
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
    {.minor = 13,
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
    {.minor = 14,
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

/*
 * struct _Py_DebugOffsets: Include/internal/pycore_runtime.h (3.13), pycore_debug_offsets.h (3.14). An array of 64-bit
 * words after the cookie; words are inserted in the middle in each minor, so the places are per minor as well.
 */
enum { WORD_VERSION = 1, WORD_FREE_THREADED = 2 };

static const struct place {
    uint16_t field;  /* offset in struct vt_py_layout */
    uint8_t word[3]; /* in 3.13, 3.14, 3.15; 0: not there */
} places[] = {
#define PLACE(name, a, b, c)                 \
    {                                        \
        offsetof(struct vt_py_layout, name), \
        {                                    \
            a, b, c                          \
        }                                    \
    }
    PLACE(thread_frame, 23, 26, 26), PLACE(frame_back, 29, 32, 40),      PLACE(frame_code, 30, 33, 41),
    PLACE(frame_instr, 31, 34, 42),  PLACE(frame_owner, 33, 36, 44),     PLACE(frame_tlbc, 0, 38, 46),
    PLACE(code_file, 35, 40, 48),    PLACE(code_name, 36, 41, 49),       PLACE(code_qualname, 37, 42, 50),
    PLACE(code_table, 38, 43, 51),   PLACE(code_first_line, 39, 44, 52), PLACE(code_adaptive, 43, 48, 56),
    PLACE(code_tlbc, 0, 49, 57),     PLACE(ob_type, 45, 51, 59),         PLACE(ob_size, 65, 75, 87),
    PLACE(bytes_data, 66, 76, 88),   PLACE(text_state, 68, 78, 90),      PLACE(text_length, 69, 79, 91),
    PLACE(text_ascii, 70, 80, 92),
#undef PLACE
};

const struct vt_py_layout *vt_py_layout(unsigned minor, bool free_threaded)
{
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].minor == minor && layouts[i].free_threaded == free_threaded)
            return &layouts[i];
    return NULL;
}

static uint64_t word_at(const void *runtime, unsigned i)
{
    uint64_t word;
    memcpy(&word, (const char *)runtime + i * sizeof word, sizeof word);
    return word;
}

bool vt_py_debug_header(const void *runtime, uint32_t version, bool *free_threaded)
{
    if (memcmp(runtime, "xdebugpy", 8) != 0 || word_at(runtime, WORD_VERSION) != version ||
        word_at(runtime, WORD_FREE_THREADED) > 1)
        return false;
    *free_threaded = word_at(runtime, WORD_FREE_THREADED);
    return true;
}

bool vt_py_debug_agrees(const struct vt_py_layout *layout, const void *runtime)
{
    if (layout->minor < 13)
        return true;
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        unsigned word = places[i].word[layout->minor - 13];
        uint16_t offset;
        memcpy(&offset, (const char *)layout + places[i].field, sizeof offset);
        if (word && offset != VT_PY_NONE && word_at(runtime, word) != offset)
            return false;
    }
    return true;
}
