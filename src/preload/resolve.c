/*
 * Real functions and routes; see resolve.h.
 *
 * For each driver entry point there are two answers to "what is the real one": the next definition behind ours in the
 * global scope (which may be another interposer, whose effect must be kept) and the one inside the driver library. The
 * first is called; the second serves when the first one leads back to us (vt_enter notices the re-entry).
 */
#include "preload/resolve.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#include "preload/cuda/headers.h"
#include "preload/elf.h"
#include "preload/foreign.h"
#include "preload/jax/jax.h"
#include "preload/options.h"

struct entry {
    const char *name;
    void *wrapper; /* NULL: helper */
    void *real, *driver;
};

static struct entry entries[VT_E_count] = {
#define X(n) [VT_E_##n] = {.name = #n, .wrapper = (void *)n},
    VT_DRIVER_TABLE(X) VT_RUNTIME_TABLE(X)
#undef X
#define X(n) [VT_E_##n] = {.name = #n},
        VT_HELPER_TABLE(X)
#undef X
};

/* real address << 16 | entry + 1, in one word so that it is seen whole or not at all. User addresses have 48 bits. */
#define ROUTES 1024u
static uint64_t routes[ROUTES];

#define BOUND 8
static uintptr_t bound[BOUND]; /* start addresses of driver libraries whose exports are in the routes */
static const char *driver_path;

const char *vt_entry_name(unsigned e)
{
    static const char *const frameworks[] = {
#define X(id, name) name,
        VT_FRAMEWORK_TABLE(X)
#undef X
    };
    if (e < VT_E_count)
        return entries[e].name;
    return e - VT_E_count < sizeof frameworks / sizeof *frameworks ? frameworks[e - VT_E_count] : "";
}

const char *vt_driver_path(void)
{
    return driver_path;
}

/* No dlsym in the C library: no lookup succeeds, as in a program without libdl. */
static void *no_dlsym(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

void *vt_real_dlsym_address(void)
{
    static void *real;
    void *f = __atomic_load_n(&real, __ATOMIC_ACQUIRE);
    /* dlsym came with 2.34 into libc itself; before that it is in libdl with the architecture's first version */
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_2.27"};
    for (unsigned i = 0; !f && i < sizeof versions / sizeof *versions; i++)
        f = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!f)
        return (void *)no_dlsym;
    __atomic_store_n(&real, f, __ATOMIC_RELEASE);
    return f;
}

void *vt_real_dlsym(void *handle, const char *name)
{
    typedef void *dlsym_fn(void *, const char *);
    return ((dlsym_fn *)vt_real_dlsym_address())(handle, name);
}

static uintptr_t image_end(uintptr_t start, uintptr_t bias)
{
    const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)start;
    const ElfW(Phdr) *p = (const ElfW(Phdr) *)(start + e->e_phoff);
    uintptr_t end = start;
    for (unsigned i = 0; i < e->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && bias + p[i].p_vaddr + p[i].p_memsz > end)
            end = bias + p[i].p_vaddr + p[i].p_memsz;
    return end;
}

bool vt_object_at(const void *address, struct vt_object *o)
{
    typedef int find_fn(void *, struct dl_find_object *);
    static find_fn *find; /* glibc 2.35 and newer: without a lock */
    static int looked;
    struct dl_find_object found;
    if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&find, (find_fn *)vt_real_dlsym(RTLD_DEFAULT, "_dl_find_object"), __ATOMIC_RELAXED);
        __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
    }
    find_fn *f = __atomic_load_n(&find, __ATOMIC_RELAXED);
    if (f) {
        if (f((void *)address, &found))
            return false;
        *o = (struct vt_object){(uintptr_t)found.dlfo_map_start, (uintptr_t)found.dlfo_map_end,
                                found.dlfo_link_map->l_addr, found.dlfo_link_map->l_name, found.dlfo_link_map};
        return true;
    }
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    uintptr_t start = (uintptr_t)info.dli_fbase;
    *o = (struct vt_object){start, image_end(start, map->l_addr), map->l_addr, map->l_name, map};
    return true;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool vt_is_driver_path(const char *path)
{
    return path && !strncmp(base_name(path), "libcuda.so", 10);
}

bool vt_is_torch_path(const char *path)
{
    return path && !strncmp(base_name(path), "libc10_cuda.so", 14);
}

static void add_route(void *address, unsigned e)
{
    uint64_t word = (uint64_t)(uintptr_t)address << 16 | (e + 1);
    for (unsigned i = (unsigned)((uintptr_t)address * 0x9e3779b97f4a7c15ull >> 54), n = 0; n < ROUTES; i++, n++) {
        uint64_t old = 0;
        if (__atomic_compare_exchange_n(&routes[i % ROUTES], &old, word, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            old == word)
            return;
    }
}

/* The entry whose real function lies at an address, or -1. */
static int find_route(const void *address)
{
    for (unsigned i = (unsigned)((uintptr_t)address * 0x9e3779b97f4a7c15ull >> 54), n = 0; n < ROUTES; i++, n++) {
        uint64_t word = __atomic_load_n(&routes[i % ROUTES], __ATOMIC_ACQUIRE);
        if (!word)
            return -1;
        if (word >> 16 == (uintptr_t)address)
            return (int)(word & 0xffff) - 1;
    }
    return -1;
}

static bool is_bound(uintptr_t start)
{
    for (int i = 0; i < BOUND; i++)
        if (__atomic_load_n(&bound[i], __ATOMIC_ACQUIRE) == start)
            return true;
    return false;
}

static void mark_bound(const struct vt_object *driver)
{
    for (int i = 0; i < BOUND; i++) {
        uintptr_t empty = 0;
        if (__atomic_compare_exchange_n(&bound[i], &empty, driver->start, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            break;
    }
    __atomic_store_n(&driver_path, driver->name, __ATOMIC_RELEASE);
}

/* Learns the addresses of all driver entry points of one driver library. */
static void bind(const struct vt_object *driver)
{
    for (unsigned e = 0; e < VT_E_count; e++) {
        if (vt_entry_is_runtime(e))
            continue;
        void *own = vt_elf_symbol(driver->link_map, entries[e].name), *next = vt_real_dlsym(RTLD_NEXT, entries[e].name);
        if (own) {
            __atomic_store_n(&entries[e].driver, own, __ATOMIC_RELEASE);
            add_route(own, e);
        }
        if (next && next != own)
            add_route(next, e);
        void *real = next && entries[e].wrapper ? next : own;
        if (real)
            __atomic_store_n(&entries[e].real, real, __ATOMIC_RELEASE);
    }
    mark_bound(driver);
    dlerror(); /* lookups of ours that failed are not the program's business */
}

static void bind_object_of(void *address)
{
    struct vt_object o;
    if (vt_object_at(address, &o) && vt_is_driver_path(o.name) && !is_bound(o.start))
        bind(&o);
}

void *vt_substitute(void *address)
{
    int e = find_route(address);
    if (e < 0) {
        bind_object_of(address);
        e = find_route(address);
    }
    return e >= 0 && entries[e].wrapper ? entries[e].wrapper : address;
}

/* A library that was opened with the driver as its dependency (RTLD_LOCAL) calls us, but finds a driver in its own scope
 * only. */
static void bind_opened_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *init = NULL;
    if (!handle)
        return;
    if ((init = vt_real_dlsym(handle, "cuInit")))
        bind_object_of(init);
    dlclose(handle);
}

void *vt_real(enum vt_entry_id e)
{
    void *p = __atomic_load_n(&entries[e].real, __ATOMIC_ACQUIRE);
    if (p)
        return p;
    void *next = vt_real_dlsym(RTLD_NEXT, entries[e].name);
    if (next)
        bind_object_of(next);
    else {
        bind_opened_driver();
        dlerror(); /* a CUDA call leaves no error of a look-up behind */
    }
    p = __atomic_load_n(&entries[e].real, __ATOMIC_ACQUIRE);
    if (!p && next) {
        add_route(next, e);
        __atomic_store_n(&entries[e].real, next, __ATOMIC_RELEASE);
        p = next;
    }
    return p;
}

void *vt_driver(enum vt_entry_id e)
{
    return __atomic_load_n(&entries[e].driver, __ATOMIC_ACQUIRE);
}

/* Per (place of call, entry): the caller's own runtime. What stands in a slot was true for the libraries that were loaded
 * then, whose generation is part of the key; slots of older generations are used again, or a program that opens and closes
 * plugins all day would end up looking for its runtime at every call. Key 1: a slot that is being written. */
#define RUNTIMES 4096u
static struct {
    uint64_t key;
    uint64_t function; /* with BY_TORCH where the place of call is in PyTorch's allocator library */
} runtimes[RUNTIMES];
#define BY_TORCH (1ull << 63) /* no address of a program has it */

static uint64_t runtime_key(enum vt_entry_id e, const void *caller)
{
    return vt_stack_salt() << 56 | (uint64_t)(uintptr_t)caller << 8 | (unsigned)(e - VT_E_driver_end);
}

static unsigned runtime_slot(uint64_t key)
{
    return (unsigned)((key >> 1) * 0x9e3779b97f4a7c15ull >> 52);
}

static uint64_t cached_runtime(uint64_t key)
{
    for (unsigned i = runtime_slot(key), n = 0; n < 8; i++, n++) {
        uint64_t k = __atomic_load_n(&runtimes[i % RUNTIMES].key, __ATOMIC_ACQUIRE);
        if (!k)
            return 0;
        if (k != key)
            continue;
        uint64_t function = __atomic_load_n(&runtimes[i % RUNTIMES].function, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&runtimes[i % RUNTIMES].key, __ATOMIC_ACQUIRE) == key) /* not overwritten in between */
            return function;
    }
    return 0;
}

static void cache_runtime(uint64_t key, uint64_t function)
{
    for (unsigned i = runtime_slot(key), n = 0; n < 8; i++, n++) {
        uint64_t old = __atomic_load_n(&runtimes[i % RUNTIMES].key, __ATOMIC_ACQUIRE);
        if (old == 1 || (old && old >> 56 == key >> 56))
            continue;
        if (__atomic_compare_exchange_n(&runtimes[i % RUNTIMES].key, &old, 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&runtimes[i % RUNTIMES].function, function, __ATOMIC_RELEASE);
            __atomic_store_n(&runtimes[i % RUNTIMES].key, key, __ATOMIC_RELEASE);
            return;
        }
    }
}

/* Looks where the caller's own references lead: its object and what it depends on. */
static void *runtime_in_scope(enum vt_entry_id e, const struct vt_object *caller)
{
    if (!caller->name || !*caller->name)
        return vt_real_dlsym(RTLD_NEXT, entries[e].name);
    void *handle = dlopen(caller->name, RTLD_LAZY | RTLD_NOLOAD), *p = NULL;
    if (handle) {
        p = vt_real_dlsym(handle, entries[e].name);
        dlclose(handle);
    }
    return p == entries[e].wrapper ? NULL : p;
}

void *vt_real_runtime(enum vt_entry_id e, void *caller, bool *by_torch)
{
    struct vt_object o;
    uint64_t key = runtime_key(e, caller), cached = cached_runtime(key);
    *by_torch = cached & BY_TORCH;
    if (cached)
        return (void *)(uintptr_t)(cached & ~BY_TORCH);
    void *p = NULL;
    if (vt_object_at(caller, &o)) {
        *by_torch = vt_is_torch_path(o.name);
        p = runtime_in_scope(e, &o);
    }
    if (!p)
        p = __atomic_load_n(&entries[e].real, __ATOMIC_ACQUIRE);
    if (!p)
        p = vt_real_dlsym(RTLD_NEXT, entries[e].name);
    dlerror(); /* as in vt_real */
    if (p)
        cache_runtime(key, (uint64_t)(uintptr_t)p | (*by_torch ? BY_TORCH : 0));
    return p;
}

/* dlsym's own part: what answers a lookup of one of our names. */
struct vt_answer { /* returned in two registers to dlsym_*.S */
    void *address;
    uintptr_t answered; /* 0: the real dlsym answers, as if we were not there */
};

/* UCX rewrites the first bytes of the function that it is given: that must not be our wrapper. And the driver's own
 * lookups (the WSL stub finding the real driver) would come back to us for ever. */
static bool wants_the_real_one(const void *caller)
{
    struct vt_object o;
    if (!vt_object_at(caller, &o) || !o.name)
        return false;
    const char *name = base_name(o.name);
    return !strncmp(name, "libcuda.so", 10) || !strncmp(name, "libucm", 6) || !strncmp(name, "libucs", 6);
}

static int find_entry(const char *name)
{
    for (int e = 0; e < VT_E_wrapped_end; e++)
        if (!strcmp(entries[e].name, name))
            return e;
    return -1;
}

/* A runtime pointer is replaced only if our wrapper would call the very same function for this caller. */
static void *answer_runtime(unsigned e, void *p)
{
    void *none = NULL, *next = vt_real_dlsym(RTLD_NEXT, entries[e].name);
    if (next && next != p)
        return p;
    if (__atomic_compare_exchange_n(&entries[e].real, &none, p, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || none == p)
        return entries[e].wrapper;
    return p;
}

/* A library that was opened with its own CUDA (RTLD_LOCAL) finds that under RTLD_DEFAULT, although nobody else does. */
static bool has_provider(const void *caller, unsigned e)
{
    struct vt_object o;
    return vt_object_at(caller, &o) && vt_elf_needs(o.link_map, vt_entry_is_runtime(e) ? "libcudart.so" : "libcuda.so");
}

/* JAX asks the plugin that it opened. */
static struct vt_answer answer_plugin(void *handle, const char *name)
{
    void *real = vt_real_dlsym(handle, name);
    return (struct vt_answer){real ? vt_jax_substitute(real) : NULL, 1};
}

static bool may_be_ours(const char *name)
{
    return !strncmp(name, "cu", 2) || !strncmp(name, "_Z", 2) || !strcmp(name, "GetPjrtApi") ||
           !strcmp(name, "TFE_Execute") || !strncmp(name, "nccl", 4);
}

static struct vt_answer answer(void *handle, const char *name, const void *caller)
{
    struct vt_answer no = {NULL, 0};
    void *foreign;
    /* the name first: a sanitizer looks its functions up before there is an environment to read options from */
    if (handle == RTLD_NEXT || !name || !may_be_ours(name) || vt_options()->off)
        return no;
    if (name[0] == 'G')
        return handle == RTLD_DEFAULT ? no : answer_plugin(handle, name);
    if (name[0] == '_' || name[0] == 'T' || name[0] == 'n')
        return vt_foreign(handle, name, caller, &foreign) ? (struct vt_answer){foreign, 1} : no;
    int e = find_entry(name);
    if (e < 0 || wants_the_real_one(caller))
        return no;
    void *p = handle == RTLD_DEFAULT ? entries[e].wrapper : vt_real_dlsym(handle, name);
    if (p == entries[e].wrapper) { /* found ourselves: is there anybody behind us? */
        p = vt_real_dlsym(RTLD_NEXT, name);
        if (!p && has_provider(caller, (unsigned)e))
            return (struct vt_answer){entries[e].wrapper, 1};
    }
    if (!p)
        return (struct vt_answer){NULL, 1};
    if (vt_entry_is_runtime((unsigned)e))
        return (struct vt_answer){answer_runtime((unsigned)e, p), 1};
    if (find_route(p) < 0)
        bind_object_of(p);
    return (struct vt_answer){find_route(p) == e ? entries[e].wrapper : p, 1};
}

struct vt_answer vt_dlsym_answer(void *handle, const char *name, void *caller);

/* A look-up that succeeds leaves no error, whatever failed on the way: programs ask dlerror() instead of the pointer. */
struct vt_answer vt_dlsym_answer(void *handle, const char *name, void *caller)
{
    struct vt_answer a = answer(handle, name, caller);
    if (a.address)
        dlerror();
    return a;
}
