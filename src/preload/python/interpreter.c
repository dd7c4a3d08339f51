/*
 * Finding the interpreter, and deciding whether it is one that can be read.
 *
 * It is found by its exported functions and type objects: in the executable (Debian's python3 is static), in a libpython
 * of the global scope, or in one that an embedding program opened RTLD_LOCAL. All that is asked of it here is constant
 * data and functions that work before Py_Initialize. PyPy and others have different names and are not found.
 */
#include "preload/python/interpreter.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/hot.h"
#include "preload/resolve.h"

VT_HOT_DATA struct vt_py *vt_py_current;

/* Threads that look at the same time find the same; each fills a place of its own, and one is published. */
static VT_HOT_DATA struct vt_py candidates[8];
static unsigned candidates_used;

#ifdef VT_PYTHON_TEST_SHIFT
void vt_python_test_shift(struct vt_py_layout *layout); /* of the test: puts wrong offsets in */
#else
static void vt_python_test_shift(struct vt_py_layout *layout)
{
    (void)layout;
}
#endif

/* --- where it is --- */

static int count_adds(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(unsigned long long *)data = info->dlpi_adds;
    return 1;
}

static int find_libpython(struct dl_phdr_info *info, size_t size, void *data)
{
    char *path = data;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(name, "libpython3", 10) != 0 || strlen(info->dlpi_name) >= PATH_MAX)
        return 0;
    strcpy(path, info->dlpi_name);
    return 1;
}

/* A scope in which the interpreter's symbols are found; NULL with *found false: there is none. A libpython that could be
 * closed is kept, because its functions are called and its objects compared with from now on. */
static void *find_scope(bool *found)
{
    char path[PATH_MAX];
    void *get = vt_real_dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    Dl_info info;
    if (get) {
        if (dladdr(get, &info) && info.dli_fname && strstr(info.dli_fname, ".so"))
            dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        *found = true;
        return RTLD_DEFAULT;
    }
    void *handle = NULL;
    if (dl_iterate_phdr(find_libpython, path))
        handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    *found = handle;
    return handle;
}

/* --- what it is --- */

struct version {
    unsigned major, minor, micro;
    bool final;
    uint32_t hex; /* PY_VERSION_HEX; 0: not known (before 3.11) */
};

/* Py_Version is data since 3.11; before, the text of Py_GetVersion ("3.9.2 (default, ..."; "3.10.0rc1 ...") tells. */
static bool read_version(void *scope, struct version *v)
{
    const unsigned long *hex = vt_real_dlsym(scope, "Py_Version");
    if (hex) {
        v->hex = (uint32_t)*hex;
        v->major = v->hex >> 24, v->minor = v->hex >> 16 & 255, v->micro = v->hex >> 8 & 255;
        v->final = (v->hex >> 4 & 15) == 15;
        return true;
    }
    const char *(*get)(void) = (const char *(*)(void))vt_real_dlsym(scope, "Py_GetVersion");
    const char *text = get ? get() : NULL;
    int end = 0;
    if (!text || sscanf(text, "%u.%u.%u%n", &v->major, &v->minor, &v->micro, &end) != 3)
        return false;
    v->final = text[end] == ' ' || text[end] == '+' || !text[end];
    return true;
}

/* Its functions and types: false if one is missing (before 3.7 there is no PyInterpreterState_Main). */
static bool read_symbols(void *scope, struct vt_py *py)
{
    void *finalizing = vt_real_dlsym(scope, "Py_IsFinalizing"); /* 3.13 */
    if (!finalizing)
        finalizing = vt_real_dlsym(scope, "_Py_IsFinalizing");
    py->finalizing = (int (*)(void))finalizing;
    py->this_thread = (void *(*)(void))vt_real_dlsym(scope, "PyGILState_GetThisThreadState");
    py->main_interp = (void *(*)(void))vt_real_dlsym(scope, "PyInterpreterState_Main");
    py->head_interp = (void *(*)(void))vt_real_dlsym(scope, "PyInterpreterState_Head");
    py->gil_holder = (void *(*)(void))vt_real_dlsym(scope, "_PyThreadState_UncheckedGet");
    py->code_type = vt_real_dlsym(scope, "PyCode_Type");
    py->text_type = vt_real_dlsym(scope, "PyUnicode_Type");
    py->bytes_type = vt_real_dlsym(scope, "PyBytes_Type");
    return finalizing && py->this_thread && py->main_interp && py->code_type && py->text_type && py->bytes_type;
}

static void say(struct vt_py *py, const struct version *v, bool free_threaded, const char *what)
{
    snprintf(py->found, sizeof py->found, "CPython %u.%u.%u%s%s%s", v->major, v->minor, v->micro,
             free_threaded ? " (free-threaded)" : "", what ? " " : "", what ? what : "");
}

/* What keeps this version from being read, or NULL. */
static const char *objection(void *scope, struct vt_py *py, const struct version *v, bool *free_threaded)
{
    bool complete = read_symbols(scope, py);
    if (v->major != 3 || v->minor < VT_PY_OLDEST)
        return "is older than what vramtrack reads (3.8)";
    if (v->minor > VT_PY_NEWEST)
        return "is newer than this version of vramtrack knows";
    if (!v->final)
        return "is not a final release: its frames are not read";
    if (!complete)
        return "lacks functions that version should have: its frames are not read";
    const void *runtime = vt_real_dlsym(scope, "_PyRuntime");
    if (v->minor >= 13 && (!runtime || !vt_py_debug_header(runtime, v->hex, free_threaded)))
        return "does not describe itself as that version should: its frames are not read";
    const struct vt_py_layout *layout = vt_py_layout(v->minor, *free_threaded);
    if (!layout)
        return "is a build that vramtrack does not know";
    py->at = *layout;
    vt_python_test_shift(&py->at);
    py->plain = !*free_threaded && !memcmp(&py->at, layout, sizeof *layout) ? v->minor : 0;
    if (!vt_py_debug_agrees(&py->at, runtime))
        return "has other offsets than that version should: its frames are not read";
    const struct vt_py_types types = {vt_real_dlsym(scope, "PyType_Type"), py->code_type, py->text_type, py->bytes_type,
                                      vt_real_dlsym(scope, "PyFrame_Type")};
    if (!vt_py_types_agree(&py->at, &types))
        return "has objects of an unknown layout: its frames are not read";
    return NULL;
}

static bool examine(void *scope, struct vt_py *py)
{
    struct version v = {0};
    bool free_threaded = false;
    if (!read_version(scope, &v))
        return false;
    const char *what = objection(scope, py, &v, &free_threaded);
    py->usable = !what;
    say(py, &v, free_threaded, what);
    return true;
}

static void publish(const struct vt_py *found)
{
    unsigned i = __atomic_fetch_add(&candidates_used, 1, __ATOMIC_RELAXED);
    struct vt_py *none = NULL, *py = &candidates[i];
    if (i >= sizeof candidates / sizeof *candidates)
        return; /* so many threads at once: one of the others has published */
    *py = *found;
    py->status = py->found;
    __atomic_compare_exchange_n(&vt_py_current, &none, py, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void vt_python_prepare(void)
{
    static unsigned long long searched; /* the loader's count when nothing was found */
    unsigned long long adds = 0;
    if (vt_py())
        return;
    int saved = errno;
    bool found;
    dl_iterate_phdr(count_adds, &adds);
    if (adds && adds == __atomic_load_n(&searched, __ATOMIC_RELAXED))
        return;
    void *scope = find_scope(&found);
    struct vt_py py = {0};
    if (found && examine(scope, &py))
        publish(&py);
    else
        __atomic_store_n(&searched, adds, __ATOMIC_RELAXED);
    errno = saved;
}

/* --- what is said of it --- */

void vt_py_disable(struct vt_py *py, const char *what)
{
    if (__atomic_exchange_n(&py->disabled, true, __ATOMIC_ACQ_REL))
        return;
    snprintf(py->refusal, sizeof py->refusal, "%s %s", py->found, what);
    __atomic_store_n(&py->status, py->refusal, __ATOMIC_RELEASE);
}

const char *vt_python_status(void)
{
    const struct vt_py *py = vt_py();
    return py ? __atomic_load_n(&py->status, __ATOMIC_ACQUIRE) : "no Python in this process";
}

bool vt_python_finalizing(void)
{
    const struct vt_py *py = vt_py();
    return py && py->finalizing && py->finalizing();
}
