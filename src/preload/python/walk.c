/*
 * The walk: from the thread state along the frames, and what identifies each code object (docs/how-it-works.md).
 *
 * While a thread is in a call that Python made, its frames and their code objects stay as they are: the frames hold
 * references, and only this thread changes them. So plain reads do, whoever has the GIL.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "preload/python/interpreter.h"
#include "preload/python/offsets_table.h"
#include "vramtrack/recording.h"

#define CHECKED_STACKS 2 /* of each thread */

static __thread uint8_t proven_stacks;
static bool layout_proven; /* by so many stacks of one thread */

/* Into each kind of walk: calls would cost a nanosecond a frame. */
#define INLINE static inline __attribute__((always_inline))

/* 64 x 64 -> 128 bits, folded: every bit of the result depends on every bit of both. */
static inline uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xd1b54a32d192ed03ull);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t pointer(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* --- what tells a code object from a later one at its address --- */

/* The first and the last bytes of something that is `size` bytes long. */
INLINE uint64_t ends_mark(const char *data, uint64_t size)
{
    uint64_t first = 0, last = 0;
    if (size >= sizeof first) {
        memcpy(&first, data, sizeof first);
        memcpy(&last, data + size - sizeof last, sizeof last);
    } else {
        for (unsigned i = 0; i < size; i++)
            first = first << 8 | (uint8_t)data[i];
    }
    return mix(first ^ size << 40, last);
}

/* The string's own hash where it has been computed (names are interned, so they have one); else its ends. */
INLINE uint64_t text_mark(const struct vt_py_layout *at, const void *text)
{
    uint64_t hash = vt_py_get64(text, at->text_hash);
    uint32_t state = vt_py_get32(text, at->text_state) >> at->text_kind_bit;
    if (hash != UINT64_MAX || !(state & 8))
        return hash;
    return ends_mark((const char *)text + ((state & 16) ? at->text_ascii : at->text_compact),
                     vt_py_get64(text, at->text_length) * (state & 7));
}

/* Before 3.12 there is no co_version (and it stops counting at 2^32): names and line table differ where the code does.
 * The table's beginning and end; what lies between is taken to differ in size. */
INLINE uint32_t code_mark(const struct vt_py_layout *at, const void *code, uint64_t file_mark, const void *table)
{
    uint64_t mark = ends_mark((const char *)table + at->bytes_data, vt_py_get64(table, at->ob_size)) ^
                    mix(text_mark(at, vt_py_get(code, at->code_name)), file_mark);
    return (uint32_t)(mark ^ mark >> 32);
}

/* --- where the frame is in its code --- */

/* The kinds of frames that there have been. A walk is compiled for each: what it asks of every frame is then constant. */
enum frames {
    OBJECTS, /* up to 3.10: Python objects */
    MARKED,  /* 3.11: structs; the first of a call of the evaluation loop is marked */
    ENTERED, /* since 3.12: behind the first one is an entry frame */
    COPIED   /* free-threaded since 3.14: and each thread runs a copy of the instructions */
};

INLINE int32_t instruction(const struct vt_py_layout *at, enum frames kind, const void *code, const void *frame)
{
    if (kind == OBJECTS) {
        int32_t last = (int32_t)vt_py_get32(frame, at->frame_instr); /* code units in 3.10 */
        return at->minor == 10 && last >= 0 ? last * 2 : last;
    }
    const char *instr = vt_py_get(frame, at->frame_instr), *start = (const char *)code + at->code_adaptive;
    int32_t copy = kind == COPIED ? (int32_t)vt_py_get32(frame, at->frame_tlbc) : 0;
    if (copy && !(start = vt_py_copy(at, code, copy, instr)))
        return VT_PYTHON_NOWHERE;
    return (int32_t)(instr - start);
}

/* Python's own tracebacks leave out a frame that is still being set up (_PyFrame_IsIncomplete, pycore_frame.h). */
INLINE bool incomplete(const struct vt_py_layout *at, const void *code, int32_t offset, uint8_t owner)
{
    return owner != VT_PY_OWNER_GENERATOR && offset != VT_PYTHON_NOWHERE &&
           offset < 2 * (int32_t)vt_py_get32(code, at->code_first_traceable);
}

/* --- where native code called the evaluation loop --- */

/* Up to 3.10 each call runs one frame, and nothing has to be said. Since 3.11 one may run several (_PyEval_EvalFrameDefault,
 * Python/ceval.c). Since 3.12 one may run none: while its function returns, and objects die with its variables. */
struct evaluations {
    uint32_t empty; /* in the place of VT_PYTHON_EMPTY: seen since the last frame */
    bool open;      /* the last frame was one of the call whose end is looked for */
};

INLINE void add_empty(struct evaluations *e)
{
    e->empty += e->empty < VT_PYTHON_EMPTY ? 1u << VT_PYTHON_EMPTY_SHIFT : 0;
}

INLINE uint32_t next_frame(struct evaluations *e, bool marked)
{
    uint32_t flags = e->empty | (marked ? VT_PYTHON_ENTRY : 0);
    *e = (struct evaluations){0, true};
    return flags;
}

/* An entry frame, behind `count` frames. */
INLINE void entry_frame(struct evaluations *e, struct vt_python_stack *stack, unsigned count)
{
    if (!e->open) {
        add_empty(e);
        return;
    }
    e->open = false;
    stack->frame[count - 1].evaluation |= VT_PYTHON_ENTRY;
}

/* --- the walk --- */

INLINE const void *first_frame(const struct vt_py_layout *at, const void *thread)
{
    const void *frame = vt_py_get(thread, at->thread_frame);
    return frame && at->cframe_frame != VT_PY_NONE ? vt_py_get(frame, at->cframe_frame) : frame;
}

/* What the last frame's file name was marked with: many frames of a stack have the same. */
struct last_file {
    const void *file;
    uint64_t mark;
};

/* Since 3.12 the interpreter numbers its code objects: with its number, the place where it is at tells a frame from all others.
 * So that the hash of a stack can be had without its frames (vt_python_quick), every link of the chain goes into it as it
 * comes, also those of which no frame is made. */
#define ENTRY ((const void *)3) /* in the place of an instruction */
INLINE uint32_t number_of(const struct vt_py_layout *at, const void *code)
{
    return at->code_version != VT_PY_NONE ? vt_py_get32(code, at->code_version) : 0;
}

/* Each step is a permutation of the hash so far, so stacks that differ in one frame never meet. (mix() would wait longer for
 * its product's upper half than for all the rest of a frame.) */
INLINE uint64_t hash_numbered(uint64_t hash, const void *instr, uint32_t number)
{
    uint64_t h = (hash ^ pointer(instr) ^ number * 0xd1b54a32d192ed03ull) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 32;
}

/* What else is needed of a numbered one is read when the stack turns out to be new (vt_python_complete). */
INLINE uint64_t add_frame(const struct vt_py_layout *at, enum frames kind, struct vt_python_frame *out,
                          const void *code, int32_t offset, uint32_t evaluation, uint64_t hash, struct last_file *last)
{
    uint32_t version = number_of(at, code);
    out->code = code;
    out->offset = offset;
    out->version = version;
    out->evaluation = evaluation;
    out->file = NULL;
    if (__builtin_expect(version != 0,
                         1)) /* of a copy of the instructions, the place means something else in each thread */
        return kind == ENTERED ? hash
                               : mix(hash ^ pointer(code), (uint64_t)(version ^ evaluation) << 32 | (uint32_t)offset);
    out->file = vt_py_get(code, at->code_file);
    out->table = vt_py_get(code, at->code_table);
    out->first_line = (int32_t)vt_py_get32(code, at->code_first_line);
    if (out->file != last->file)
        *last = (struct last_file){out->file, text_mark(at, out->file)};
    out->version = code_mark(at, code, last->mark, out->table);
    uint64_t identity = mix(pointer(code), pointer(out->file)) ^
                        mix(pointer(out->table), (uint64_t)(uint32_t)offset << 32 | (uint32_t)out->first_line);
    return mix(hash ^ identity, (uint64_t)evaluation << 32 | out->version);
}

/* at: py->at, or a table of constants that says the same. */
INLINE void walk_frames(const struct vt_py *py, const struct vt_py_layout *at, enum frames kind,
                        struct vt_python_stack *stack, unsigned depth, const void *thread)
{
    const void *frame = first_frame(at, thread);
    struct last_file last = {NULL, 0};
    struct evaluations evaluations = {0, false};
    uint64_t hash = 0;
    unsigned count = 0;
    for (unsigned links = vt_py_links(depth); frame && links && count < depth; links--) {
        const uint8_t *here = frame;
        uint8_t owner = kind != OBJECTS ? here[at->frame_owner] : 0;
        frame = vt_py_get(here, at->frame_back);
        if (kind >= ENTERED && owner >= VT_PY_OWNER_SHIM) {
            if (owner == VT_PY_OWNER_SHIM) {
                hash = hash_numbered(hash, ENTRY, 0);
                entry_frame(&evaluations, stack, count);
            }
            continue;
        }
        const void *code = vt_py_untag(vt_py_get(here, at->frame_code));
        if (!code || vt_py_get(code, at->ob_type) != py->code_type)
            break;
        bool marked = kind == MARKED && here[at->frame_entry];
        uint32_t number = kind == ENTERED ? number_of(at, code) : 0;
        if (number)
            hash = hash_numbered(hash, vt_py_get(here, at->frame_instr), number);
        int32_t offset = instruction(at, kind, code, here);
        if (kind != OBJECTS && incomplete(at, code, offset, owner)) {
            if (marked)
                add_empty(&evaluations);
            continue;
        }
        uint32_t evaluation = kind == OBJECTS ? 0 : next_frame(&evaluations, marked);
        hash = add_frame(at, kind, &stack->frame[count++], code, offset, evaluation, hash, &last);
    }
    stack->count = count;
    stack->hash = hash;
}

/* Frames lie below one another in the interpreter's own stack, mostly. Each says where the next is, so without this a walk waits
 * for every line of it that the program has pushed out of the cache. */
#define AHEAD 448

/* walk_frames for a stack that has been seen: the same hash, no frames. */
INLINE enum vt_python_quick walk_quickly(const struct vt_py *py, const struct vt_py_layout *at, unsigned depth,
                                         const void *thread, uint64_t *hash)
{
    const void *frame = first_frame(at, thread), *code_type = py->code_type;
    uint64_t h = 0;
    unsigned left = depth;
    for (unsigned links = vt_py_links(depth); frame && links; links--) {
        const uint8_t *here = frame;
        __builtin_prefetch(here - AHEAD);
        uint8_t owner = here[at->frame_owner];
        frame = vt_py_get(here, at->frame_back);
        if (__builtin_expect(owner >= VT_PY_OWNER_SHIM, 0)) {
            h = owner == VT_PY_OWNER_SHIM ? hash_numbered(h, ENTRY, 0) : h;
            continue;
        }
        const void *code = vt_py_get(here, at->frame_code);
        if (at->minor >= 14)
            code = vt_py_untag(code);
        if (!code || (at->minor > 12 && vt_py_get(code, at->ob_type) != code_type)) /* 3.12: f_code, and nothing else */
            break;
        uint32_t number = number_of(at, code);
        if (__builtin_expect(!number, 0))
            return VT_PYTHON_TAKE;
        h = hash_numbered(h, vt_py_get(here, at->frame_instr), number);
        if (!--left)
            break;
    }
    *hash = h;
    return left != depth ? VT_PYTHON_FRAMES_SEEN : VT_PYTHON_NO_FRAMES;
}

/* The usual versions with their offsets as constants: that halves the instructions of a frame. */
static void walk(const struct vt_py *py, const void *thread, struct vt_python_stack *stack, unsigned depth)
{
    if (py->plain == 11)
        walk_frames(py, &vt_py_layouts[VT_PY_TABLE_11], MARKED, stack, depth, thread);
    else if (py->plain == 12)
        walk_frames(py, &vt_py_layouts[VT_PY_TABLE_12], ENTERED, stack, depth, thread);
    else if (py->plain == 13)
        walk_frames(py, &vt_py_layouts[VT_PY_TABLE_13], ENTERED, stack, depth, thread);
    else if (py->plain == 14)
        walk_frames(py, &vt_py_layouts[VT_PY_TABLE_14], ENTERED, stack, depth, thread);
    else if (py->at.minor <= 10)
        walk_frames(py, &py->at, OBJECTS, stack, depth, thread);
    else if (py->at.minor == 11)
        walk_frames(py, &py->at, MARKED, stack, depth, thread);
    else if (py->at.code_tlbc == VT_PY_NONE)
        walk_frames(py, &py->at, ENTERED, stack, depth, thread);
    else
        walk_frames(py, &py->at, COPIED, stack, depth, thread);
}

/* Up to 3.11 a thread keeps the state that it had first, also while it runs another interpreter. */
static bool has_other_interpreters(const struct vt_py *py)
{
    return py->at.minor <= 11 && py->head_interp && py->head_interp() != py->main_interp();
}

/* A thread without a state (NULL), or whose state may be gone: Py_Finalize frees the states of other threads and leaves
 * them their pointers. So: first the pointer, then the question. *own: it is the thread's first, with its id. */
INLINE const void *thread_state(const struct vt_py *py, bool *own)
{
    const void *first = py->this_thread();
    const void *thread = first && has_other_interpreters(py) ? vt_py_running_state(py, first) : first;
    *own = thread == first;
    return thread && !py->finalizing() ? thread : NULL;
}

/* pthread_self() is a call, into a line of code that nobody else needs. */
INLINE uint64_t this_thread_id(void)
{
    static __thread uint64_t known;
    if (__builtin_expect(!known, 0))
        known = (uint64_t)pthread_self();
    return known;
}

/* A thread that never runs Python (PyTorch's backward threads have a state, though) would be checked for ever, by two system
 * calls an allocation: its empty stack counts once another thread's stacks have shown that the layout is right. */
static __attribute__((noinline)) bool check_now(struct vt_py *py, const void *thread, bool own, unsigned depth)
{
    bool sound, frames = vt_py_check(py, thread, own, depth, &sound);
    if (sound && (frames || __atomic_load_n(&layout_proven, __ATOMIC_RELAXED)) && ++proven_stacks == CHECKED_STACKS &&
        frames)
        __atomic_store_n(&layout_proven, true, __ATOMIC_RELAXED);
    return frames;
}

INLINE bool checked(struct vt_py *py, const void *thread, bool own, unsigned depth)
{
    if (__builtin_expect(proven_stacks < CHECKED_STACKS, 0))
        return check_now(py, thread, own, depth);
    return !own || vt_py_get64(thread, py->at.thread_id) == this_thread_id() ||
           (py->at.minor >= 12 && vt_py_get(thread, py->at.thread_interp) != py->main_interp());
}

void vt_python_take(struct vt_python_stack *stack, unsigned depth)
{
    struct vt_py *py = vt_py();
    stack->count = 0;
    stack->hash = 0;
    if (!vt_py_readable(py))
        return;
    int saved = errno;
    bool own;
    const void *thread = thread_state(py, &own);
    if (thread && depth > VT_PYTHON_FRAMES)
        depth = VT_PYTHON_FRAMES;
    if (thread && depth && checked(py, thread, own, depth))
        walk(py, thread, stack, depth);
    errno = saved;
}

enum vt_python_quick vt_python_quick(unsigned depth, uint64_t *hash)
{
    struct vt_py *py = vt_py();
    bool own;
    if (!vt_py_readable(py) || !depth)
        return VT_PYTHON_NO_FRAMES;
    if (depth > VT_PYTHON_FRAMES)
        depth = VT_PYTHON_FRAMES;
    const void *thread = thread_state(py, &own);
    if (!thread)
        return VT_PYTHON_NO_FRAMES;
    if (proven_stacks < CHECKED_STACKS)
        return VT_PYTHON_TAKE;
    if (!checked(py, thread, own, depth))
        return VT_PYTHON_NO_FRAMES;
    if (py->plain == 12)
        return walk_quickly(py, &vt_py_layouts[VT_PY_TABLE_12], depth, thread, hash);
    if (py->plain == 13)
        return walk_quickly(py, &vt_py_layouts[VT_PY_TABLE_13], depth, thread, hash);
    if (py->plain == 14)
        return walk_quickly(py, &vt_py_layouts[VT_PY_TABLE_14], depth, thread, hash);
    if (py->at.minor >= 12 && py->at.code_tlbc == VT_PY_NONE)
        return walk_quickly(py, &py->at, depth, thread, hash);
    return first_frame(&py->at, thread) ? VT_PYTHON_TAKE : VT_PYTHON_NO_FRAMES;
}

bool vt_python_complete(struct vt_python_frame *frame)
{
    const struct vt_py *py = vt_py();
    if (!vt_py_readable(py) || !frame->code || vt_py_get(frame->code, py->at.ob_type) != py->code_type)
        return false;
    frame->file = vt_py_get(frame->code, py->at.code_file);
    frame->table = vt_py_get(frame->code, py->at.code_table);
    frame->first_line = (int32_t)vt_py_get32(frame->code, py->at.code_first_line);
    return true;
}

bool vt_python_describe(const struct vt_python_frame *taken, char *file, size_t file_size, char *function,
                        size_t function_size, int32_t *line)
{
    struct vt_python_frame frame = *taken;
    *line = 0;
    if (!vt_python_complete(&frame))
        return false;
    const struct vt_py_layout *at = &vt_py()->at;
    unsigned name = at->code_qualname != VT_PY_NONE ? at->code_qualname : at->code_name;
    vt_py_text(at, frame.file, file, file_size);
    vt_py_text(at, vt_py_get(frame.code, name), function, function_size);
    uint64_t size = vt_py_get64(frame.table, at->ob_size);
    if (size < INT32_MAX && frame.offset != VT_PYTHON_NOWHERE)
        *line = vt_py_line(at->minor, (const uint8_t *)frame.table + at->bytes_data, (size_t)size, frame.first_line,
                           frame.offset);
    return true;
}
