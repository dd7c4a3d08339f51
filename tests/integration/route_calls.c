/*
 * Calls every entry point of src/preload/cuda/table.h through one route and says what a right report must show.
 *
 *   route_calls ROUTE            runs the scenes of all driver entry points, functions found by ROUTE (see routes[])
 *   route_calls ROUTE runtime    the same for the runtime entry points
 *   route_calls ROUTE addresses  prints what each name resolves to, and runs nothing
 *   route_calls list             prints which entry points have a scene
 *   route_calls export           allocates for a program that opens it by IPC: prints the handle, waits for its input's end
 *
 * It keeps its own books (took, gave, gone), which know nothing of the recorder, and prints them as JSON lines. Built
 * with LINKED it needs libcuda and libcudart; without, it opens them. STATIC: the static runtime is linked in.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/cuda/headers.h"
#include "preload/cuda/table.h"
#include "sim_table.h"

/* What the scenes need besides the table's entry points, found by the same route. It may come into the table one day. */
/* clang-format off */
#define DRIVER_HELPERS(X) \
    X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuStreamCreate) X(cuGraphCreate) X(cuGraphLaunch) \
    X(cuGraphAddMemFreeNode) X(cuDeviceGetMemPool) X(cuMemPoolGetAttribute) X(cuMemPoolExportToShareableHandle) \
    X(cuMemPoolExportPointer) X(cuMemExportToShareableHandle) X(cuIpcGetMemHandle) X(cuDevicePrimaryCtxGetState)
#define RUNTIME_HELPERS(X) \
    X(cudaSetDevice) X(cudaMemPoolCreate) X(cudaGetLastError)
/* clang-format on */

struct calls {
#define X(name) __typeof__(&name) name;
    VT_DRIVER_TABLE(X) VT_RUNTIME_TABLE(X) struct {
        DRIVER_HELPERS(X) RUNTIME_HELPERS(X)
    } help;
#undef X
};
static struct calls via;
static const struct name {
    const char *name;
    size_t field;
    int runtime, helper;
} names[] = {
#define X(n) {#n, offsetof(struct calls, n), 0, 0},
    VT_DRIVER_TABLE(X)
#undef X
#define X(n) {#n, offsetof(struct calls, help.n), 0, 1},
        DRIVER_HELPERS(X)
#undef X
#define X(n) {#n, offsetof(struct calls, n), 1, 0},
            VT_RUNTIME_TABLE(X)
#undef X
#define X(n) {#n, offsetof(struct calls, help.n), 1, 1},
                RUNTIME_HELPERS(X)
#undef X
};
#define NAMES (sizeof names / sizeof names[0])

static const struct version {
    const char *symbol, *base;
    int version, per_thread;
} versions[] = {
#define X(symbol, base, version, per_thread) {#symbol, #base, version, per_thread},
    SIM_TABLE(X)
#undef X
};
#define VERSIONS (sizeof versions / sizeof versions[0])

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("route_calls: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    fflush(NULL);
    _exit(2);
}

/* ---- routes ---- */

static void *driver_handle, *runtime_handle;
static const char *route;

static void *open_once(void **handle, const char *library)
{
    if (!*handle && !(*handle = dlopen(library, RTLD_NOW | RTLD_LOCAL)))
        fail("%s", dlerror());
    return *handle;
}

/* Not a helper of the scenes but of this program: always the simulated driver's own. */
static void *control(const char *name)
{
    void *f = dlsym(open_once(&driver_handle, "libcuda.so.1"), name);
    if (!f)
        fail("the simulated driver has no %s", name);
    return f;
}
#define SIM_CALLS(name) ((unsigned long long (*)(const char *))control("sim_calls"))(name)
#define SIM_FAIL_NEXT(name, code) \
    ((int (*)(const char *, unsigned long long, int))control("sim_fail_next"))(name, 0, code)

static void *by_handle(const char *name)
{
    int runtime = !strncmp(name, "cuda", 4);
    return dlsym(open_once(runtime ? &runtime_handle : &driver_handle, runtime ? "libcudart.so.13" : "libcuda.so.1"),
                 name);
}

static void *by_default(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void *by_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void *by_link(const char *name)
{
#ifdef LINKED
#define X(n)               \
    if (!strcmp(name, #n)) \
        return (void *)n;
    VT_DRIVER_TABLE(X)
    DRIVER_HELPERS(X)
    VT_RUNTIME_TABLE(X)
    RUNTIME_HELPERS(X)
#undef X
#elif defined STATIC
#define X(n)               \
    if (!strcmp(name, #n)) \
        return (void *)n;
    VT_RUNTIME_TABLE(X)
    RUNTIME_HELPERS(X)
#undef X
#endif
    fail("%s can't be linked in this build", name);
}

static const struct version *version_of(const char *name)
{
    for (size_t i = 0; i < VERSIONS; i++)
        if (!strcmp(versions[i].symbol, name))
            return &versions[i];
    fail("%s is not in tests/sim/sim_table.h: the simulated driver can't answer for it", name);
}

static int has_per_thread_twin(const char *base)
{
    for (size_t i = 0; i < VERSIONS; i++)
        if (!strcmp(versions[i].base, base) && versions[i].per_thread)
            return 1;
    return 0;
}

/* Flags of a lookup: per-thread exports by 2; plain ones by 0, or by whichever other flag gives them too. */
static cuuint64_t flags_for(const struct version *v, int unusual)
{
    if (v->per_thread)
        return CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (!unusual)
        return 0;
    return has_per_thread_twin(v->base) ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
                                        : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

static __typeof__(&cuGetProcAddress) lookup1;
static __typeof__(&cuGetProcAddress_v2) lookup2;

static void *by_lookup1(const char *name)
{
    const struct version *v = version_of(name);
    void *p = NULL;
    CUresult r = lookup1(v->base, &p, v->version, flags_for(v, 0));
    if (r)
        fail("cuGetProcAddress(%s, %d) returns %d", v->base, v->version, r);
    return p;
}

static void *lookup2_with(const char *name, int unusual, int with_status)
{
    const struct version *v = version_of(name);
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
    void *p = NULL;
    CUresult r = lookup2(v->base, &p, v->version, flags_for(v, unusual), with_status ? &status : NULL);
    if (r || (with_status && status != CU_GET_PROC_ADDRESS_SUCCESS))
        fail("cuGetProcAddress_v2(%s, %d) returns %d, status %d", v->base, v->version, r, status);
    return p;
}

static void *by_lookup2(const char *name)
{
    return lookup2_with(name, 0, 1);
}

static void *by_lookup2_no_status(const char *name)
{
    return lookup2_with(name, 0, 0);
}

static void *by_lookup2_flags(const char *name)
{
    return lookup2_with(name, 1, 1);
}

/* Before cuInit, as everything in these. */
static void start_lookup1(void)
{
    lookup1 = (__typeof__(lookup1))by_handle("cuGetProcAddress");
}

static void start_lookup2(void)
{
    lookup2 = (__typeof__(lookup2))by_handle("cuGetProcAddress_v2");
}

/* cuGetProcAddress asked for itself: version 11030 gives the function of 4 arguments, 12000 that of 5. */
static void start_lookup1_self(void)
{
    void *p = NULL;
    start_lookup1();
    if (lookup1("cuGetProcAddress", &p, 11030, 0) || !p)
        fail("cuGetProcAddress does not find itself");
    lookup1 = (__typeof__(lookup1))p;
}

static void start_lookup2_self(void)
{
    CUdriverProcAddressQueryResult status;
    void *p = NULL;
    start_lookup2();
    lookup2("", &p, 0, 0, &status); /* the runtime's first call */
    if (lookup2("cuGetProcAddress", &p, 11030, 0, &status) || !p)
        fail("cuGetProcAddress_v2 does not find cuGetProcAddress");
    if (lookup2("cuGetProcAddress", &p, 12000, 0, &status) || !p)
        fail("cuGetProcAddress_v2 does not find itself");
    lookup2 = (__typeof__(lookup2))p;
}

/* From the old function to the new one. */
static void start_lookup1_to_2(void)
{
    void *p = NULL;
    start_lookup1();
    if (lookup1("cuGetProcAddress", &p, 12000, 0) || !p)
        fail("cuGetProcAddress does not find cuGetProcAddress_v2");
    lookup2 = (__typeof__(lookup2))p;
}

static const struct {
    const char *name;
    void (*start)(void);
    void *(*find)(const char *name);
} routes[] = {
    {"linked", NULL, by_link},
    {"handle", NULL, by_handle},
    {"default", NULL, by_default},
    {"next", NULL, by_next},
    {"lookup1", start_lookup1, by_lookup1},
    {"lookup2", start_lookup2, by_lookup2},
    {"lookup2_no_status", start_lookup2, by_lookup2_no_status},
    {"lookup2_flags", start_lookup2, by_lookup2_flags},
    {"lookup1_self", start_lookup1_self, by_lookup1},
    {"lookup2_self", start_lookup2_self, by_lookup2},
    {"lookup1_to_2", start_lookup1_to_2, by_lookup2},
};

static void resolve(int runtime)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].name, route))
            continue;
        if (routes[i].start)
            routes[i].start();
        for (size_t n = 0; n < NAMES; n++) {
            if (names[n].runtime != runtime)
                continue;
            void *p = routes[i].find(names[n].name);
            if (!p)
                fail("%s is not found by route %s", names[n].name, route);
            memcpy((char *)&via + names[n].field, &p, sizeof p);
        }
        return;
    }
    fail("no route %s", route);
}

static void print_addresses(int runtime)
{
    for (size_t n = 0; n < NAMES; n++) {
        void *p = *(void **)((char *)&via + names[n].field);
        Dl_info in;
        if (names[n].runtime != runtime || names[n].helper)
            continue;
        if (!dladdr(p, &in))
            fail("%s lies in no object", names[n].name);
        const char *slash = strrchr(in.dli_fname, '/');
        printf("{\"entry\":\"%s\",\"object\":\"%s\",\"symbol\":\"%s\",\"offset\":%zu}\n", names[n].name,
               slash ? slash + 1 : in.dli_fname, in.dli_sname ? in.dli_sname : "",
               (size_t)((char *)p - (char *)in.dli_fbase));
    }
}

/* ---- the books: one line per (function, kind, device, api) ---- */

struct line {
    const char *function, *kind, *api;
    int device;
    unsigned long long total, requested, live, live_requested;
    unsigned allocs, frees, alive;
};
static struct line lines[512];
static unsigned line_count;

static struct line *line_of(const char *function, const char *kind, int device, const char *api)
{
    struct line *l = lines;
    for (; l < lines + line_count; l++)
        if (!strcmp(l->function, function) && !strcmp(l->kind, kind) && l->device == device && !strcmp(l->api, api))
            return l;
    if (line_count++ == 512)
        fail("too many lines");
    *l = (struct line){.function = function, .kind = kind, .api = api, .device = device};
    return l;
}

static void took(const char *function, const char *kind, int device, const char *api, unsigned long long bytes,
                 unsigned long long requested)
{
    struct line *l = line_of(function, kind, device, api);
    l->total += bytes;
    l->live += bytes;
    l->live_requested += requested;
    l->allocs++;
    l->alive++;
}

/* Ended without a free call. */
static void gone(const char *function, const char *kind, int device, const char *api, unsigned long long bytes,
                 unsigned long long requested)
{
    struct line *l = line_of(function, kind, device, api);
    l->live -= bytes;
    l->live_requested -= requested;
    l->alive--;
}

static void gave(const char *function, const char *kind, int device, const char *api, unsigned long long bytes,
                 unsigned long long requested)
{
    gone(function, kind, device, api, bytes, requested);
    line_of(function, kind, device, api)->frees++;
}

static void refused(const char *function, const char *kind, int device, const char *api, unsigned long long bytes,
                    int code)
{
    printf("{\"refused\":\"%s\",\"function\":\"%s\",\"kind\":\"%s\",\"device\":%d,\"bytes\":%llu,\"code\":%d}\n", api,
           function, kind, device, bytes, code);
}

static void print_books(void)
{
    for (struct line *l = lines; l < lines + line_count; l++)
        printf("{\"function\":\"%s\",\"kind\":\"%s\",\"device\":%d,\"api\":\"%s\",\"total_bytes\":%llu,\"live_bytes\":%"
               "llu,"
               "\"requested_bytes\":%llu,\"alloc_calls\":%u,\"free_calls\":%u,\"live_count\":%u}\n",
               l->function, l->kind, l->device, l->api, l->total, l->live, l->live_requested, l->allocs, l->frees,
               l->alive);
}

/* A call that must succeed and leave errno and dlerror alone. */
#define OK(call)                                                                           \
    do {                                                                                   \
        errno = 4711;                                                                      \
        int code_ = (int)(call);                                                           \
        if (code_)                                                                         \
            fail("%s:%d: %s returns %d", __func__, __LINE__, #call, code_);                \
        if (errno != 4711)                                                                 \
            fail("%s:%d: %s changes errno to %d", __func__, __LINE__, #call, errno);       \
        const char *error_ = dlerror();                                                    \
        if (error_)                                                                        \
            fail("%s:%d: %s leaves \"%s\" to dlerror", __func__, __LINE__, #call, error_); \
    } while (0)
#define MUST(condition)                                                \
    do {                                                               \
        if (!(condition))                                              \
            fail("%s:%d: not so: %s", __func__, __LINE__, #condition); \
    } while (0)

#include "route_driver.h"
#include "route_scenes.h"

#include "route_runtime.h"

static int list(void)
{
    list_driver();
    list_runtime();
    return 0;
}

static int export(void)
{
    CUipcMemHandle handle;
    CUdeviceptr p;
    CUcontext context;
    route = "handle";
    resolve(0);
    OK(via.cuInit(0));
    OK(via.cuDevicePrimaryCtxRetain(&context, 0));
    OK(via.help.cuCtxSetCurrent(context));
    OK(via.cuMemAlloc_v2(&p, IPC_BYTES));
    OK(via.help.cuIpcGetMemHandle(&handle, p));
    for (unsigned i = 0; i < sizeof handle; i++)
        printf("%02x", (unsigned char)handle.reserved[i]);
    putchar('\n');
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    if (argc < 2)
        fail("usage: route_calls ROUTE [runtime|addresses] | list | export");
    if (!strcmp(argv[1], "list"))
        return list();
    if (!strcmp(argv[1], "export"))
        return export();
    route = argv[1];
    int runtime = !strncmp(what, "runtime", 7);
    resolve(runtime);
    if (strstr(what, "addresses"))
        return print_addresses(runtime), 0;
    if (runtime)
        run_runtime();
    else
        run_driver();
    print_books();
    return 0;
}
