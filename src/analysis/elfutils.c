/*
 * Opens elfutils; see elfutils.h.
 */
#include "analysis/elfutils.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct vt_elfutils table;
static bool loaded;

/* The folder of the object that holds this code, with its '/'; empty if unknown. */
static void own_folder(char *folder, size_t bytes)
{
    Dl_info info;
    char *slash;
    ssize_t length;

    folder[0] = '\0';
    if (!dladdr((void *)vt_elfutils, &info) || !info.dli_fname)
        return;
    if (info.dli_fname[0] == '/' && strlen(info.dli_fname) < bytes)
        strcpy(folder, info.dli_fname);
    else if ((length = readlink("/proc/self/exe", folder, bytes - 1)) > 0) /* the command: the name is argv[0] */
        folder[length] = '\0';
    if ((slash = strrchr(folder, '/')))
        slash[1] = '\0';
}

static void *open_in(const char *folder, const char *sub, const char *name)
{
    char path[PATH_MAX];

    if (!*folder || snprintf(path, sizeof path, "%s%s%s", folder, sub, name) >= (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_LOCAL | RTLD_NOW);
}

static bool take(void *elf, void *dw)
{
#define X(name)                                                    \
    if (!(table.name = (__typeof__(table.name))dlsym(elf, #name))) \
        return false;
    VT_ELF_FUNCTIONS(X)
#undef X
#define X(name)                                                   \
    if (!(table.name = (__typeof__(table.name))dlsym(dw, #name))) \
        return false;
    VT_DW_FUNCTIONS(X)
#undef X
#define X(name) table.name = (__typeof__(table.name))dlsym(dw, #name);
    VT_PACK_FUNCTIONS(X)
#undef X
    return table.elf_version(EV_CURRENT) != EV_NONE;
}

/* What libdw needs besides libelf, for machines that have none of it. */
static void open_needed(const char *folder, const char *sub)
{
    static const char *const names[] = {"libz.so.1", "liblzma.so.5", "libbz2.so.1.0"};
    size_t i;

    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!dlopen(names[i], RTLD_LOCAL | RTLD_NOW)) /* the system's own first: the process may use it too */
            open_in(folder, sub, names[i]);
}

/* libdw needs libelf by its soname: opened first, the one that we chose is the one that it gets. */
static bool load_from(const char *folder, const char *sub, bool system)
{
    char path[PATH_MAX];
    void *elf, *dw;

    if (!system &&
        (snprintf(path, sizeof path, "%s%slibdw.so.1", folder, sub) >= (int)sizeof path || access(path, R_OK)))
        return false;
    if (!system)
        open_needed(folder, sub);
    elf = system ? dlopen("libelf.so.1", RTLD_LOCAL | RTLD_NOW) : open_in(folder, sub, "libelf.so.1");
    if (!elf)
        return false;
    dw = system ? dlopen("libdw.so.1", RTLD_LOCAL | RTLD_NOW) : open_in(folder, sub, "libdw.so.1");
    if (dw && take(elf, dw))
        return true;
    if (dw)
        dlclose(dw);
    dlclose(elf);
    return false;
}

static void load(void)
{
    char folder[PATH_MAX];

    own_folder(folder, sizeof folder);
    loaded = load_from(folder, "lib/", false) || load_from(folder, "vramtrack/", false) ||
             load_from(folder, "../lib/vramtrack/", false) || load_from("", "", true);
}

const struct vt_elfutils *vt_elfutils(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return loaded ? &table : NULL;
}
