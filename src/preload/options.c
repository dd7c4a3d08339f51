/* Reads the environment; see options.h. A bad value keeps the default and is reported when recording starts. */
#include "preload/options.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/hot.h"
#include "preload/process.h"
#include "preload/warn.h"

VT_HOT_DATA struct vt_known_options vt_known_options;

enum option {
    DIR_,
    OFF,
    STACKS,
    DEPTH,
    LIMIT_MB,
    EVENTS,
    REPORT,
    RUN,
    LIBRARY,
    USER_PATHS,
    DEBUG_DIRS,
    SUPPRESSIONS,
    NVML,
    NVTX,
    OPTION_COUNT
};

static const struct {
    const char *name, *accepted;
} table[OPTION_COUNT] = {
    [DIR_] = {"VRAMTRACK_DIR", "a directory"},
    [OFF] = {"VRAMTRACK_OFF", "0 or 1"},
    [STACKS] = {"VRAMTRACK_STACKS", "auto, both, native, python or off"},
    [DEPTH] = {"VRAMTRACK_DEPTH", "a number of frames from 1 to 256"},
    [LIMIT_MB] = {"VRAMTRACK_LIMIT_MB", "MiB from 8 to 65536"},
    [EVENTS] = {"VRAMTRACK_EVENTS", "a number of events from 0 to 100000000"},
    [REPORT] = {"VRAMTRACK_REPORT", "all, oom or off"},
    [RUN] = {"VRAMTRACK_RUN", "set by vramtrack run"},
    [LIBRARY] = {"VRAMTRACK_LIBRARY", "used by vramtrack run"},
    [NVML] = {"VRAMTRACK_NVML", "0 or 1"},
    [NVTX] = {"VRAMTRACK_NVTX", "0 or 1"},
    [DEBUG_DIRS] = {"VRAMTRACK_DEBUG_DIRS", "directories, separated by colons; used by reports"},
    [SUPPRESSIONS] = {"VRAMTRACK_SUPPRESSIONS", "a file; used by reports"},
    [USER_PATHS] = {"VRAMTRACK_USER_PATHS", "path prefixes, separated by colons; used by reports"},
};

static bool number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    uint64_t n = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > high)
            return false;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    if (n < low || n > high)
        return false;
    *value = n;
    return true;
}

static int choice(const char *text, const char *const words[])
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i]))
            return i;
    return -1;
}

static bool set_off(struct vt_options *o, const char *v)
{
    int i = choice(v, (const char *const[]){"0", "1", "", NULL});
    o->off = i == 1;
    return i >= 0;
}

static bool set_nvml(struct vt_options *o, const char *v)
{
    int i = choice(v, (const char *const[]){"1", "0", "", NULL});
    o->nvml = i != 1;
    return i >= 0;
}

static bool set_nvtx(struct vt_options *o, const char *v)
{
    int i = choice(v, (const char *const[]){"0", "1", "", NULL});
    o->nvtx = i == 1;
    return i >= 0;
}

static bool set_stacks(struct vt_options *o, const char *v)
{
    int i = choice(v, (const char *const[]){"auto", "both", "", "native", "python", "off", NULL});
    if (i >= 0) {
        o->native = i < 4;
        o->python = i < 3 || i == 4;
        o->both = i == 1;
    }
    return i >= 0;
}

static bool set_report(struct vt_options *o, const char *v)
{
    int i = choice(v, (const char *const[]){"all", "oom", "off", NULL});
    if (i >= 0)
        o->report = (enum vt_report_mode)i;
    return i >= 0;
}

/* Takes one value over; false if it can't be understood. */
static bool set(struct vt_options *o, enum option option, const char *v)
{
    uint64_t n = 0;
    bool ok = true;
    switch (option) {
    case DIR_:
        o->directory = *v ? v : NULL;
        break;
    case OFF:
        return set_off(o, v);
    case NVML:
        return set_nvml(o, v);
    case NVTX:
        return set_nvtx(o, v);
    case STACKS:
        return set_stacks(o, v);
    case REPORT:
        return set_report(o, v);
    case DEPTH:
        if ((ok = number(v, 1, VT_DEPTH_MAX, &n)))
            o->depth = (unsigned)n;
        break;
    case LIMIT_MB:
        if ((ok = number(v, 8, 65536, &n)))
            o->limit_bytes = n << 20;
        break;
    case EVENTS:
        if ((ok = number(v, 0, 100000000, &n)))
            o->events = n;
        break;
    case RUN: /* the pid of a living `vramtrack run`: a stale one would silence the reports */
        ok = number(v, 1, INT_MAX, &n);
        o->under_run = ok && vt_process_is_run((int)n);
        break;
    default:
        break;
    }
    return ok;
}

/* Walks the VRAMTRACK_ names of the environment; complains about what it can't use if asked to. */
static void read_environment(struct vt_options *o, bool complain)
{
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, "VRAMTRACK_", 10))
            continue;
        const char *equal = strchr(*e, '=');
        if (!equal)
            continue;
        int i = 0;
        while (i < OPTION_COUNT && (strncmp(*e, table[i].name, (size_t)(equal - *e)) || table[i].name[equal - *e]))
            i++;
        if (i == OPTION_COUNT) {
            if (complain)
                vt_warn("%.*s is not an option of vramtrack; ignored", (int)(equal - *e), *e);
        } else if (!set(o, (enum option)i, equal + 1) && complain)
            vt_warn("%s=%.60s is not understood; accepted: %s; ignored", table[i].name, equal + 1, table[i].accepted);
    }
}

const struct vt_options *vt_options_read(void)
{
    struct vt_options o = {
        .native = true, .python = true, .depth = 64, .limit_bytes = 256ull << 20, .events = 1u << 20, .nvml = true};
    read_environment(&o, false);
    vt_known_options.values = o;
    __atomic_store_n(&vt_known_options.read, true, __ATOMIC_RELEASE);
    return &vt_known_options.values;
}

void vt_options_resolve_directory(void)
{
    static char absolute[PATH_MAX];
    const char *directory = vt_options()->directory;
    if (!directory || directory[0] == '/' || !getcwd(absolute, sizeof absolute))
        return;
    size_t n = strlen(absolute);
    if (n + strlen(directory) + 2 > sizeof absolute)
        return;
    absolute[n] = '/';
    strcpy(absolute + n + 1, directory);
    vt_known_options.values.directory = absolute;
}

void vt_options_complain(void)
{
    struct vt_options scratch = {0};
    read_environment(&scratch, true);
}
