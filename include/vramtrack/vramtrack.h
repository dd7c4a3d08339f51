/*
 * Marks that a program may leave in its recording. All of it is optional: nothing has to be linked, and without the
 * recorder every call does nothing.
 *
 *     #include <vramtrack/vramtrack.h>
 *
 *     vramtrack_range_push("encoder");      // allocations of this thread from here on belong to the range
 *     vramtrack_range_pop("encoder");
 *     vramtrack_step();                     // a training step, a request, a frame: whatever growth is counted by
 *     vramtrack_mark("epoch done");         // a named point in time
 *     vramtrack_moment("after loading");    // a snapshot that `vramtrack report --moment "after loading"` shows
 *
 * The functions are found by name at the first call, in the library that was preloaded. They may be called from any
 * thread, never fail and keep errno. Names are copied; the first 63 bytes count (31 of a moment's). NULL is allowed.
 * From Python: docs/marks.md.
 */
#ifndef VRAMTRACK_VRAMTRACK_H
#define VRAMTRACK_VRAMTRACK_H

#ifdef VRAMTRACK_IMPLEMENTATION /* the recorder itself */

void vramtrack_mark(const char *name);
void vramtrack_step(void);
void vramtrack_range_push(const char *name);
void vramtrack_range_pop(const char *name);
void vramtrack_moment(const char *name);

#else

#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The function of that name in the whole program, looked up once per place: NULL if the recorder is not there. */
typedef void (*vramtrack_function_)(const char *);

static inline vramtrack_function_ vramtrack_find_(const char *name, int *looked, void **found)
{
    void *f = __atomic_load_n(found, __ATOMIC_RELAXED);
    if (!f && !__atomic_load_n(looked, __ATOMIC_ACQUIRE)) {
        void *self = dlopen(NULL, RTLD_LAZY);
        f = self ? dlsym(self, name) : NULL;
        if (self)
            dlclose(self);
        __atomic_store_n(found, f, __ATOMIC_RELAXED);
        __atomic_store_n(looked, 1, __ATOMIC_RELEASE);
    }
    union { /* a pointer to an object becomes one to a function */
        void *object;
        vramtrack_function_ function;
    } u;
    u.object = f;
    return u.function;
}

static inline void vramtrack_call_(const char *function, const char *name, int *looked, void **found)
{
    vramtrack_function_ f = vramtrack_find_(function, looked, found);
    if (f)
        f(name);
}

static inline void vramtrack_mark(const char *name)
{
    static int looked;
    static void *found;
    vramtrack_call_("vramtrack_mark", name, &looked, &found);
}

static inline void vramtrack_step(void)
{
    static int looked;
    static void *found;
    vramtrack_call_("vramtrack_step", NULL, &looked, &found);
}

static inline void vramtrack_range_push(const char *name)
{
    static int looked;
    static void *found;
    vramtrack_call_("vramtrack_range_push", name, &looked, &found);
}

/* Ends the innermost range of this thread that vramtrack_range_push began; the name is for the reader. */
static inline void vramtrack_range_pop(const char *name)
{
    static int looked;
    static void *found;
    vramtrack_call_("vramtrack_range_pop", name, &looked, &found);
}

static inline void vramtrack_moment(const char *name)
{
    static int looked;
    static void *found;
    vramtrack_call_("vramtrack_moment", name, &looked, &found);
}

#ifdef __cplusplus
}
#endif

#endif
#endif
