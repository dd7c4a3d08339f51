/*
 * The walker as a library that a Python program loads with ctypes: what the preload library does inside a wrapper, done
 * in a function that Python calls. Everything is compiled in; only the lookup of symbols is the C library's.
 *
 * Built a second time with -DVT_PYTHON_TEST_SHIFT, it takes a wrong offset from VT_TEST_SHIFT ("index:delta", the index
 * of a 16-bit field of struct vt_py_layout).
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "preload/python/interpreter.h"
#include "preload/resolve.h"

void *vt_real_dlsym(void *handle, const char *name)
{
    return dlsym(handle, name);
}

#ifdef VT_PYTHON_TEST_SHIFT
void vt_python_test_shift(struct vt_py_layout *layout);
void vt_python_test_shift(struct vt_py_layout *layout)
{
    unsigned field;
    int delta;
    const char *text = getenv("VT_TEST_SHIFT");
    if (!text || sscanf(text, "%u:%d", &field, &delta) != 2)
        return;
    uint16_t *fields = (uint16_t *)(void *)layout;
    if (field < sizeof *layout / sizeof *fields && fields[field] != VT_PY_NONE)
        fields[field] = (uint16_t)(fields[field] + delta);
}
#endif

/* As a preloaded library: the first look comes before the interpreter has started, in an executable that contains it. */
static const char *early_status = "";
static unsigned early_count;

__attribute__((constructor)) static void look_early(void)
{
    struct vt_python_stack stack;
    if (!getenv("VT_TEST_EARLY"))
        return;
    vt_python_prepare();
    vt_python_take(&stack, 64);
    early_count = stack.count;
    early_status = vt_python_status();
}

VT_EXPORT const char *early(unsigned *count)
{
    *count = early_count;
    return early_status;
}

struct described {
    char file[1024], function[1024];
    int line;
};

VT_EXPORT const char *prepare(void)
{
    vt_python_prepare();
    return vt_python_status();
}

VT_EXPORT const char *status(void)
{
    return vt_python_status();
}

/* How many stacks the quick way has recognised. */
static int quick_answers;
VT_EXPORT int quick(void)
{
    return __atomic_load_n(&quick_answers, __ATOMIC_RELAXED);
}

VT_EXPORT int finalizing(void)
{
    return vt_python_finalizing();
}

/* What vt_python_quick says of a stack that was just taken is so, or it has to be taken. A stack that was cut may be hashed
 * otherwise: frames that are being set up are counted there. */
static bool quick_agrees(const struct vt_python_stack *stack, unsigned depth)
{
    uint64_t hash = 0;
    enum vt_python_quick quick = vt_python_quick(depth, &hash);
    bool same = quick == VT_PYTHON_FRAMES_SEEN ? stack->count && (hash == stack->hash || stack->count == depth)
                                               : quick == VT_PYTHON_TAKE || !stack->count;
    __atomic_add_fetch(&quick_answers, quick == VT_PYTHON_FRAMES_SEEN && hash == stack->hash, __ATOMIC_RELAXED);
    return same;
}

/* The caller's stack into out; how many frames, or -1 if errno was changed, a frame could not be named or the quick way sees
 * another stack. */
VT_EXPORT int take(struct described *out, unsigned depth)
{
    struct vt_python_stack stack;
    errno = 4711;
    vt_python_take(&stack, depth);
    bool agrees = quick_agrees(&stack, depth);
    if (errno != 4711 || !agrees)
        return -1;
    for (unsigned i = 0; i < stack.count; i++)
        if (!vt_python_describe(&stack.frame[i], out[i].file, sizeof out[i].file, out[i].function,
                                sizeof out[i].function, &out[i].line))
            return -1;
    return (int)stack.count;
}

/*
 * Stacks by their hash, as a recording keeps them: what a hash meant when it was first seen is what it will be taken for.
 * So a stack that is described otherwise now was mistaken for another one.
 */
#define KNOWN (1u << 18)
struct known {
    uint64_t key, text;
};

static uint64_t text_hash(uint64_t h, const char *s)
{
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
    return h * 31;
}

static uint64_t described_hash(const struct vt_python_frame *frame, unsigned count)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (unsigned i = 0; i < count; i++) {
        struct described d;
        vt_python_describe(&frame[i], d.file, sizeof d.file, d.function, sizeof d.function, &d.line);
        h = (text_hash(text_hash(h, d.file), d.function) + (unsigned)d.line) * 0x100000001b3ull;
    }
    return h;
}

/* 0: first seen, 1: seen before and the same, 2: seen before and another one. */
static int seen(struct known *table, uint64_t key, uint64_t text)
{
    for (uint64_t i = key * 0x9e3779b97f4a7c15ull >> 40, tries = 0; tries < KNOWN; i++, tries++) {
        struct known *k = &table[i % KNOWN];
        if (k->key == key)
            return k->text == text ? 1 : 2;
        if (!k->key) {
            *k = (struct known){key, text};
            return 0;
        }
    }
    return 0;
}

VT_EXPORT int remember(unsigned depth)
{
    static struct known table[KNOWN];
    struct vt_python_stack stack;
    vt_python_take(&stack, depth);
    if (!quick_agrees(&stack, depth))
        return 2;
    return stack.count ? seen(table, stack.hash, described_hash(stack.frame, stack.count)) : 0;
}

/* The caller's caller by the address of its code alone, as a careless cache would know it: how often is that wrong? */
VT_EXPORT int remember_address(void)
{
    static struct known table[KNOWN];
    struct vt_python_stack stack;
    vt_python_take(&stack, 2);
    if (stack.count < 2)
        return 0;
    const struct vt_python_frame *f = &stack.frame[1];
    return seen(table, (uint64_t)(uintptr_t)f->code + (uint64_t)(uint32_t)f->offset, described_hash(f, 1));
}

/* Nanoseconds for one walk of the caller's stack, the best of several rounds; frames in *count. */
VT_EXPORT double time_take(unsigned depth, unsigned repeat, int *count)
{
    struct vt_python_stack stack = {0};
    double best = 1e18;
    for (unsigned round = 0; round < 5; round++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (unsigned i = 0; i < repeat; i++)
            vt_python_take(&stack, depth);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / repeat;
        best = ns < best ? ns : best;
    }
    *count = (int)stack.count;
    return best;
}

VT_EXPORT double time_describe(unsigned depth, unsigned repeat)
{
    struct vt_python_stack stack = {0};
    struct described d;
    struct timespec a, b;
    vt_python_take(&stack, depth);
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (unsigned i = 0; i < repeat; i++)
        for (unsigned k = 0; k < stack.count; k++)
            vt_python_describe(&stack.frame[k], d.file, 256, d.function, 256, &d.line);
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / repeat /
           (stack.count ? stack.count : 1);
}

/* A callback from a thread that has no Python state: frames there are (before, inside is the callback's, after). */
#include <pthread.h>

static void *bare_thread(void *data)
{
    struct vt_python_stack stack;
    void (*callback)(void) = *(void (**)(void))data;
    vt_python_take(&stack, 64);
    unsigned before = stack.count;
    if (callback)
        callback();
    vt_python_take(&stack, 64);
    *(void **)data = NULL;
    return (void *)(uintptr_t)(before << 8 | stack.count);
}

VT_EXPORT int in_bare_thread(void (*callback)(void))
{
    pthread_t t;
    void *result = NULL, *data = (void *)callback;
    if (pthread_create(&t, NULL, bare_thread, &data))
        return -1;
    pthread_join(t, &result);
    return (int)(uintptr_t)result;
}
