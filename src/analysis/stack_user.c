/*
 * The user frame: the one line to blame. Frames are ranked by how likely they are the user's own code, and the innermost
 * of the best rank is taken. Python comes before native code: the user of a Python program thinks in its lines.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

/* Best first. */
enum rank {
    OWN_PYTHON,     /* under a path that the user named as his */
    OWN_SOURCE,     /* native, the same */
    USER_PYTHON,    /* a file that is neither installed nor the interpreter's */
    TYPED_PYTHON,   /* typed in: python -c, a prompt, a notebook's cell */
    LIBRARY_PYTHON, /* installed packages and the standard library */
    MADE_PYTHON,    /* made by a program: <...>; or no file at all */
    SOURCE,         /* native, with a source file that is not a system header */
    NODE,           /* native without sources: the autograd node, which is what a backward thread is about */
    VISIBLE,
    NOT_AT_ALL
};

/* Is the file under one of the prefixes? A prefix ends at a folder or is the whole path. */
static bool is_under(const char *file, const char *paths)
{
    while (paths && *paths) {
        size_t length = strcspn(paths, ":");

        if (length && !strncmp(file, paths, length) &&
            (paths[length - 1] == '/' || file[length] == '/' || !file[length]))
            return true;
        paths += length + (paths[length] == ':');
    }
    return false;
}

/* ".../lib/python3.12/..." or ".../lib/python312.zip/...": the interpreter's own library. */
static bool is_standard_library(const char *file)
{
    const char *at = file;

    while ((at = strstr(at, "/python"))) {
        const char *rest = at + strlen("/python");
        size_t digits = strspn(rest, "0123456789.");
        bool in_lib = (at - file >= 4 && !strncmp(at - 4, "/lib", 4)) ||
                      (at - file >= 6 && !strncmp(at - 6, "/lib64", 6));

        rest += digits;
        if (in_lib && digits &&
            (*rest == '/' || vt_starts(rest, "t/") || vt_starts(rest, "d/") || vt_starts(rest, "zip/")))
            return true;
        at++;
    }
    return false;
}

/* A framework that lies elsewhere: `pip install --target`, a build system's tree, a checkout that was installed in place. Folders
 * that a program of the user's does not have. */
static bool is_framework(const char *file)
{
    static const char *const folders[] = {"/tensorflow/python/", "/tensorflow/dtensor/python/",
                                          "/keras/src/",         "/torch/nn/",
                                          "/torch/optim/",       "/torch/autograd/",
                                          "/torch/utils/",       "/torch/distributed/",
                                          "/torch/cuda/",        "/torch/_",
                                          "/jax/_src/",          "/cupy/_",
                                          "/numba/cuda/",        "/transformers/models/",
                                          "/deepspeed/runtime/"};
    size_t i;

    for (i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (strstr(file, folders[i]))
            return true;
    return false;
}

bool vt_is_python_library(const char *file)
{
    return strstr(file, "/site-packages/") || strstr(file, "/dist-packages/") || is_standard_library(file) ||
           is_framework(file);
}

static enum rank rank_python(const struct vt_display_frame *frame, const char *paths)
{
    static const char *const typed[] = {"<string>", "<stdin>", "<console>", "<ipython-input", "<python-input", "<cell"};
    size_t i;

    if (!frame->file)
        return MADE_PYTHON;
    if (is_under(frame->file, paths))
        return OWN_PYTHON;
    for (i = 0; i < sizeof typed / sizeof typed[0]; i++)
        if (vt_starts(frame->file, typed[i]))
            return TYPED_PYTHON;
    if (*frame->file == '<')
        return MADE_PYTHON;
    return vt_is_python_library(frame->file) ? LIBRARY_PYTHON : USER_PYTHON;
}

/* torch::autograd::generated::MulBackward0::apply, and nodes of C++ extensions. */
static bool is_node(const char *function)
{
    const char *at = strstr(function, "Backward");

    return at && strstr(at, "::apply");
}

static enum rank rank_native(const struct vt_display_frame *frame, const char *paths)
{
    if (frame->file && is_under(frame->file, paths))
        return OWN_SOURCE;
    if (frame->file && frame->line && !vt_fold_is_foreign(frame->file))
        return SOURCE;
    return frame->function && is_node(frame->function) ? NODE : VISIBLE;
}

void vt_choose_user(struct vt_trace *trace, const char *paths)
{
    enum rank best = NOT_AT_ALL, rank;
    uint32_t i;

    trace->user = VT_NONE;
    for (i = 0; i < trace->count; i++) {
        const struct vt_display_frame *frame = &trace->frames[i];

        if (frame->hidden)
            continue;
        rank = frame->lang == VT_LANG_PYTHON ? rank_python(frame, paths) : rank_native(frame, paths);
        if (rank < best) {
            best = rank;
            trace->user = i;
        }
    }
}

/* PyTorch's caching allocator stands below every tensor: it says nothing about one in particular. */
static bool is_allocator(const struct vt_display_frame *frame)
{
    return vt_starts(frame->function, "c10::") || vt_starts(frame->function, "at::detail::") ||
           (frame->module && vt_starts(vt_basename(frame->module), "libc10"));
}

const struct vt_display_frame *vt_trace_leaf(const struct vt_trace *trace)
{
    const struct vt_display_frame *user = vt_trace_user(trace);
    uint32_t i;

    if (!user || user->lang != VT_LANG_PYTHON)
        return NULL;
    for (i = 0; i < trace->user; i++) {
        const struct vt_display_frame *frame = &trace->frames[i];

        if (frame->lang == VT_LANG_NATIVE && !frame->hidden && frame->function && !is_allocator(frame))
            return frame;
    }
    return NULL;
}

/* A variable of the recorded process's environment, or NULL. */
static const char *recorded(const struct vt_reading *reading, const char *name)
{
    struct vt_text settings = vt_reading_string(reading, vt_reading_header(reading)->environment);
    size_t at = 0, length = strlen(name);

    for (; at < settings.length; at += strnlen(settings.text + at, settings.length - at) + 1)
        if (settings.length - at > length && !strncmp(settings.text + at, name, length) &&
            settings.text[at + length] == '=')
            return settings.text + at + length + 1; /* strings end with a NUL */
    return NULL;
}

struct vt_stack_style vt_stack_style_for(const struct vt_reading *reading, enum vt_show_stacks stacks,
                                         const char *user_paths)
{
    static const char name[] = "VRAMTRACK_USER_PATHS";

    if (!user_paths)
        user_paths = getenv(name);
    return (struct vt_stack_style){stacks, user_paths ? user_paths : recorded(reading, name)};
}
