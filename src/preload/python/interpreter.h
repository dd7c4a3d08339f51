/*
 * The interpreter of this process as the files of this folder share it: what was found, and how its memory is read.
 */
#ifndef VT_PRELOAD_PYTHON_INTERPRETER_H
#define VT_PRELOAD_PYTHON_INTERPRETER_H

#include "preload/python/offsets.h"
#include "preload/python/python.h"

struct vt_py {
    struct vt_py_layout at;
    unsigned plain;             /* minor version, if the layout is the table's for builds with a GIL; 0: it is not */
    bool usable;                /* its version is known and what it says of itself agrees */
    bool disabled;              /* a stack did not look as it should: set once, atomically */
    void *(*this_thread)(void); /* PyGILState_GetThisThreadState: a read of thread-local storage */
    int (*finalizing)(void);    /* [_]Py_IsFinalizing: a read */
    void *(*main_interp)(void); /* PyInterpreterState_Main: a read */
    void *(*head_interp)(void); /* PyInterpreterState_Head: a read; the newest interpreter */
    void *(*gil_holder)(
        void); /* _PyThreadState_UncheckedGet, NULL after 3.11: an atomic read; the state that has the GIL */
    const void *code_type, *text_type, *bytes_type;
    const char *status; /* one of the two texts, or a literal */
    char found[160], refusal[288];
};

/* The interpreter, whether or not it can be read; NULL: none found so far. */
extern struct vt_py *vt_py_current;

static inline struct vt_py *vt_py(void)
{
    return __atomic_load_n(&vt_py_current, __ATOMIC_ACQUIRE);
}

static inline bool vt_py_readable(const struct vt_py *py)
{
    return py && py->usable && !__atomic_load_n(&py->disabled, __ATOMIC_RELAXED);
}

/* No frames of this interpreter from now on, because of `what` (a literal). */
void vt_py_disable(struct vt_py *py, const char *what);

/* Reads through the kernel and checks the frames that a walk of `depth` frames from this thread state would read. False:
 * there are none, or they do not look as they should, and the interpreter was disabled. *sound: nothing speaks against
 * reading this thread without this, the next time. `own`: the state has this thread's id, or something is wrong. */
bool vt_py_check(struct vt_py *py, const void *thread, bool own, unsigned depth, bool *sound);

/* Up to 3.11, where there are sub-interpreters: which thread state this thread runs, given its first one (`own`). NULL: it
 * can't be told, or no Python runs. System calls, as many as there are threads with a state; no lock, no malloc. */
const void *vt_py_running_state(const struct vt_py *py, const void *own);

/* Where the copy of a code object's instructions begins that a frame runs (free-threaded since 3.14): `index` is the frame's
 * tlbc_index, not 0, and `instr` the instruction that it is at. NULL: it can't be told. Seldom a system call, no lock. */
const char *vt_py_copy(const struct vt_py_layout *at, const void *code, int32_t index, const char *instr);

/* A str object as UTF-8 with a NUL, cut to size. */
void vt_py_text(const struct vt_py_layout *at, const void *text, char *out, size_t size);

/* The line of the instruction at a byte offset; 0: none. `table` is co_linetable, or co_lnotab up to 3.9. */
int32_t vt_py_line(unsigned minor, const uint8_t *table, size_t size, int32_t first_line, int32_t offset);

/* Reads of the interpreter's memory. */
typedef const void *__attribute__((may_alias)) vt_py_pointer;
typedef uint64_t __attribute__((may_alias)) vt_py_u64;
typedef uint32_t __attribute__((may_alias)) vt_py_u32;

static inline const void *vt_py_get(const void *object, unsigned offset)
{
    return *(const vt_py_pointer *)((const char *)object + offset);
}

static inline uint64_t vt_py_get64(const void *object, unsigned offset)
{
    return *(const vt_py_u64 *)((const char *)object + offset);
}

static inline uint32_t vt_py_get32(const void *object, unsigned offset)
{
    return *(const vt_py_u32 *)((const char *)object + offset);
}

/* f_executable since 3.14 is a _PyStackRef with tags in its low bits (Include/internal/pycore_stackref.h); objects are
 * aligned, so taking the tags off is harmless before. */
static inline const void *vt_py_untag(const void *ref)
{
    return (const void *)((uintptr_t)ref & ~(uintptr_t)7);
}

/* Frames that are no Python function's: FRAME_OWNED_BY_CSTACK, FRAME_OWNED_BY_INTERPRETER (3.12: 3; 3.14: 3 and 4). */
#define VT_PY_OWNER_GENERATOR 1
#define VT_PY_OWNER_SHIM 3

/* Every frame may have a shim of its own, and a few are incomplete: that many links are followed for `depth` frames. */
static inline unsigned vt_py_links(unsigned depth)
{
    return 3 * depth + 16;
}

#endif
