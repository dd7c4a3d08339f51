/*
 * Names for code that is in no loaded object's file: what it is, and who generated it.
 *
 * The kernel's name of the memory tells closures of libffi from what JIT compilers make. Whose compiler it was is told by
 * the frames beside the generated ones, which are those of its run time; where they say nothing (an unwinder often ends
 * in generated code), by the compilers that were loaded, if there was only one.
 */
#include <string.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

/* The words, once: they must outlive the frames. */
static const struct {
    const char *generator, *words;
} jit_words[] = {
    {"numba/LLVM", "JIT code (numba/LLVM)"},
    {"XLA", "JIT code (XLA)"},
    {"Julia", "JIT code (Julia)"},
    {"Java", "JIT code (Java)"},
    {".NET", "JIT code (.NET)"},
    {"LuaJIT", "JIT code (LuaJIT)"},
    {"V8", "JIT code (V8)"},
};

static const char *words_for(const char *generator)
{
    size_t i;

    for (i = 0; generator && i < sizeof jit_words / sizeof jit_words[0]; i++)
        if (!strcmp(jit_words[i].generator, generator))
            return jit_words[i].words;
    return "JIT code";
}

/* The compiler that a frame beside generated code belongs to. */
static const char *generator_at(const struct vt_trace *trace, uint32_t i)
{
    const struct vt_display_frame *frame = i < trace->count ? &trace->frames[i] : NULL;

    return frame && !frame->generated && frame->module ? vt_module_generator(frame->module) : NULL;
}

/* The only compiler among the modules of the recording; NULL: there are none, or several. */
static const char *only_generator(const struct vt_reading *reading)
{
    uint64_t i, count = vt_reading_count(reading, VT_MODULES);
    const char *only = NULL, *found;

    for (i = 0; i < count; i++) {
        const struct vt_module *m = vt_reading_module(reading, i);

        if (!m || m->flags & VT_MODULE_MAPPING || !(found = vt_module_generator(vt_reading_chars(reading, m->path))))
            continue;
        if (only && strcmp(only, found))
            return NULL;
        only = found;
    }
    return only;
}

/* Memory of these names holds what a compiler wrote, though the name is there for another purpose. */
static bool is_jit_memory(const char *name)
{
    return !name || vt_starts(name, "/memfd:") || vt_starts(name, "/dev/zero") || vt_starts(name, "/anon_hugepage") ||
           vt_starts(name, "//anon") || vt_starts(name, "/dev/shm/") || vt_starts(name, "/SYSV") ||
           vt_starts(name, "[anon");
}

/* It maps its own trampolines a second time, or keeps them in a file of no name. */
static bool is_closure(const char *name)
{
    return name && (vt_starts(vt_basename(name), "libffi") || vt_starts(name, "/memfd:libffi"));
}

static const char *origin_of(const char *name, const char *generator)
{
    if (is_closure(name))
        return "libffi closure";
    if (is_jit_memory(name))
        return words_for(generator);
    return *name == '[' ? "code on the stack or heap" : NULL;
}

void vt_name_generated(struct vt_trace *trace, const struct vt_reading *reading)
{
    const char *generator;
    uint32_t first, end, i;

    for (first = 0; first < trace->count; first = end) {
        for (end = first; end < trace->count && trace->frames[end].generated; end++)
            ;
        if (end == first) {
            end++;
            continue;
        }
        if (!(generator = generator_at(trace, end)) && !(generator = first ? generator_at(trace, first - 1) : NULL))
            generator = only_generator(reading);
        for (i = first; i < end; i++) {
            struct vt_display_frame *frame = &trace->frames[i];

            frame->origin = origin_of(frame->module, generator);
            if (!frame->function)
                frame->function = frame->origin;
        }
    }
}
