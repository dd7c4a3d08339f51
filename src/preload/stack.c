/*
 * Takes native stacks with libunwind's unw_backtrace, whose per-thread cache makes a warm walk cost tens of ns per
 * frame, or else with libgcc's unwinder, which is ten times slower but always there.
 *
 * libunwind is opened RTLD_LOCAL at run time: as a DT_NEEDED of a preloaded library its _Unwind_* symbols would replace
 * the C++ exception unwinder of the process, and the first throw in a dlopened library would crash.
 */
#include "preload/stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "preload/hot.h"
#include "preload/mappings.h"
#include "preload/recall.h"
#include "preload/resolve.h"
#include "preload/state.h"

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

vt_unwind_fn *vt_unwind;
static const char *unwinder;
static int prepared;

/* libgcc_s has no backtrace; its walk calls us back for each frame. Declared here because <unwind.h> would make the
 * compiler emit references that need libgcc_s at load time. */
typedef int trace_fn(void *context, void *argument);
static int (*gcc_backtrace)(trace_fn *, void *);
static uintptr_t (*gcc_get_ip)(void *);

struct gcc_walk {
    void **buffer;
    int size, count;
};

static int gcc_step(void *context, void *argument)
{
    struct gcc_walk *w = argument;
    if (w->count == w->size)
        return 5; /* _URC_END_OF_STACK: stop */
    w->buffer[w->count++] = (void *)gcc_get_ip(context);
    return 0;
}

static int gcc_take(void **buffer, int size)
{
    struct gcc_walk w = {buffer, size, 0};
    gcc_backtrace(gcc_step, &w);
    return w.count;
}

/* Opens a library that we bring along, else the system's. */
static void *open_beside(const char *name)
{
    static const char *const places[] = {"/lib/", "/vramtrack/", "/"};
    char path[4096];
    struct vt_object self;
    void *h = NULL;
    if (vt_object_at(__ehdr_start, &self)) {
        const char *slash = strrchr(self.name, '/');
        for (unsigned i = 0; slash && !h && i < sizeof places / sizeof *places; i++) {
            int n = snprintf(path, sizeof path, "%.*s%s%s", (int)(slash - self.name), self.name, places[i], name);
            if (n > 0 && (size_t)n < sizeof path)
                h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    }
    return h ? h : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static bool use_libunwind(void)
{
#ifdef __SANITIZE_THREAD__ /* its thread destructor runs behind TSan's, and takes an intercepted lock there */
    return false;
#endif
    void *h = open_beside("libunwind.so.8");
    vt_unwind_fn *f = h ? (vt_unwind_fn *)vt_real_dlsym(h, "unw_backtrace") : NULL;
    if (!f)
        return false;
    unwinder = "libunwind";
#ifdef __x86_64__
    vt_unwind_steps.context = (int (*)(void *))vt_real_dlsym(h, "_Ux86_64_getcontext");
    vt_unwind_steps.begin = (int (*)(void *, void *))vt_real_dlsym(h, "_ULx86_64_init_local");
    vt_unwind_steps.step = (int (*)(void *))vt_real_dlsym(h, "_ULx86_64_step");
    if (vt_unwind_steps.context && vt_unwind_steps.begin && vt_unwind_steps.step)
        vt_unwind_steps.get = (int (*)(void *, int, uint64_t *))vt_real_dlsym(h, "_ULx86_64_get_reg");
#endif
    __atomic_store_n(&vt_unwind, f, __ATOMIC_RELEASE);
    return true;
}

static bool use_libgcc(void)
{
    void *h = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!h)
        return false;
    gcc_backtrace = (int (*)(trace_fn *, void *))vt_real_dlsym(h, "_Unwind_Backtrace");
    gcc_get_ip = (uintptr_t(*)(void *))vt_real_dlsym(h, "_Unwind_GetIP");
    if (!gcc_backtrace || !gcc_get_ip)
        return false;
    unwinder = "libgcc";
    __atomic_store_n(&vt_unwind, gcc_take, __ATOMIC_RELEASE);
    return true;
}

void vt_stack_prepare(void)
{
    int saved = errno;
    if (vt_options()->native && !__atomic_exchange_n(&prepared, 1, __ATOMIC_ACQ_REL)) {
        if (!use_libunwind() && !use_libgcc())
            unwinder = "none: neither libunwind.so.8 nor libgcc_s.so.1 can be opened";
        else {
            void *warm[16]; /* the first walk parses tables: not in somebody's first allocation */
            vt_unwind(warm, 16);
        }
    }
    errno = saved;
}

const char *vt_stack_unwinder(void)
{
    return unwinder ? unwinder : "off";
}

static bool ours(const void *ip)
{
    return (const char *)ip >= __ehdr_start && (const char *)ip < _end;
}

void vt_stack_finish(struct vt_stack *s, int n)
{
    int depth = (int)vt_options()->depth, i = 0;
    while (i < n && ours(s->ip[i]))
        i++;
    while (n > i && !s->ip[n - 1])
        n--;
    if (n - i > depth)
        n = i + depth;
    s->count = n > i ? (unsigned)(n - i) : 0;
    if (i)
        memmove(s->ip, s->ip + i, s->count * sizeof s->ip[0]);
    /* two chains of multiplications that do not wait for each other */
    uint64_t h = 0x2545f4914f6cdd1dull, g = 0x9fb21c651e98df25ull;
    unsigned k = 0;
    for (; k + 1 < s->count; k += 2) {
        h = (h ^ (uintptr_t)s->ip[k]) * 0x9fb21c651e98df25ull;
        g = (g ^ (uintptr_t)s->ip[k + 1]) * 0xd6e8feb86659fd93ull;
        h ^= h >> 29;
        g ^= g >> 31;
    }
    if (k < s->count)
        h = (h ^ (uintptr_t)s->ip[k]) * 0x9fb21c651e98df25ull;
    h = (h ^ (h >> 32) ^ (g << 17 | g >> 47) ^ s->count) * 0xd6e8feb86659fd93ull;
    s->hash = h ^ h >> 29;
}

void vt_stack_locate(const struct vt_stack *s, struct vt_stack_objects *o)
{
    bool outside = false;
    o->count = 0;
    for (unsigned i = 0; i < s->count; i++) {
        uintptr_t ip = (uintptr_t)s->ip[i] - 1;
        unsigned k = o->count;
        while (k > 0 && (ip < o->object[k - 1].start || ip >= o->object[k - 1].end))
            k--;
        if (!k && o->count < sizeof o->object / sizeof *o->object && vt_object_at((void *)ip, &o->object[o->count]))
            k = ++o->count;
        o->of[i] = (uint8_t)k;
        outside |= !k;
    }
    if (outside)
        vt_mapping_note_compilers(o);
}

static int read_counts(struct dl_phdr_info *info, size_t size, void *to)
{
    (void)size;
    *(unsigned long long *)to = info->dlpi_subs;
    return 1; /* the first object is enough: the counts are global */
}

VT_HOT_DATA uint64_t vt_stack_salt_now;

void vt_stack_check_objects(void)
{
    static unsigned long long seen;
    unsigned long long now = 0;
    dl_iterate_phdr(read_counts, &now);
    if (__atomic_exchange_n(&seen, now, __ATOMIC_RELAXED) != now)
        __atomic_fetch_add(&vt_stack_salt_now, 0x632be59bd9b4e019ull,
                           __ATOMIC_RELAXED); /* odd: the low bits change too */
}

VT_EXPORT int dlclose(void *handle)
{
    static int (*real)(void *);
    int (*f)(void *) = __atomic_load_n(&real, __ATOMIC_ACQUIRE);
    if (!f && (f = (int (*)(void *))vt_real_dlsym(RTLD_NEXT, "dlclose")))
        __atomic_store_n(&real, f, __ATOMIC_RELEASE);
    int r = f ? f(handle) : -1;
    if (!r)
        vt_stack_check_objects();
    return r;
}
