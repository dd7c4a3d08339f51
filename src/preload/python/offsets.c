/*
 * Which offset table is the interpreter's, and whether it says the same of itself; see offsets.h.
 */
#include "preload/python/offsets.h"

#include <string.h>

#include "preload/python/offsets_table.h"

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
    for (unsigned i = 0; i < VT_PY_LAYOUTS; i++)
        if (vt_py_layouts[i].minor == minor && vt_py_layouts[i].free_threaded == free_threaded)
            return &vt_py_layouts[i];
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
