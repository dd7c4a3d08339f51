/* Names of frameworks, and who preallocates; see frameworks.h. */
#include "analysis/frameworks.h"
#include "analysis/fragmentation.h"

#include <stdio.h>
#include <string.h>

#include "analysis/modules.h"

#define PREALLOCATES (1u << VT_FRAMEWORK_JAX | 1u << VT_FRAMEWORK_TENSORFLOW)

static const char *const names[] = {
    [VT_FRAMEWORK_TORCH] = "PyTorch", [VT_FRAMEWORK_JAX] = "JAX", [VT_FRAMEWORK_TENSORFLOW] = "TensorFlow"};

/* By a library's path; 0: not known. */
static unsigned framework_of(const char *path)
{
    const char *name = vt_basename(path);

    if (!strncmp(name, "libc10", 6) || !strncmp(name, "libtorch", 8))
        return 1u << VT_FRAMEWORK_TORCH;
    if (!strncmp(name, "xla_", 4) || !strncmp(name, "pjrt", 4) || !strncmp(name, "libjax", 6) || strstr(path, "/jax"))
        return 1u << VT_FRAMEWORK_JAX;
    if (!strncmp(name, "libtensorflow", 13) || !strncmp(name, "_pywrap_tensorflow", 18))
        return 1u << VT_FRAMEWORK_TENSORFLOW;
    return 0;
}

unsigned vt_frameworks_on(const struct vt_model *m, int device)
{
    uint64_t i, count = vt_reading_count(m->reading, VT_ALLOCATORS);
    unsigned found = 0;

    for (i = 0; i < count; i++) {
        const struct vt_allocator *allocator = vt_reading_allocator(m->reading, i);

        if (allocator && allocator->device == device && allocator->framework &&
            allocator->framework < sizeof names / sizeof names[0])
            found |= 1u << allocator->framework;
    }
    for (i = 0; !found && i < m->site_count; i++) {
        const struct vt_module *module = NULL;

        if (m->sites[i].pool && m->sites[i].record->device == device)
            module = vt_reading_module(m->reading, m->sites[i].module);
        if (module)
            found = framework_of(vt_reading_chars(m->reading, module->path));
    }
    return found;
}

unsigned vt_frameworks_all(const struct vt_model *m)
{
    unsigned found = 0;
    uint32_t i;

    for (i = 0; i < m->device_count; i++)
        found |= vt_frameworks_on(m, m->devices[i].record->ordinal);
    return found;
}

const char *vt_frameworks_name(char *buffer, unsigned frameworks)
{
    size_t used = 0, i;

    for (i = 1; i < sizeof names / sizeof names[0]; i++)
        if (frameworks & 1u << i)
            used += (size_t)snprintf(buffer + used, VT_FRAMEWORKS_NAME - used, "%s%s", used ? " and " : "", names[i]);
    if (!used)
        snprintf(buffer, VT_FRAMEWORKS_NAME, "the framework");
    return buffer;
}

const char *vt_frameworks_tensors(unsigned frameworks)
{
    return frameworks == 1u << VT_FRAMEWORK_JAX ? "arrays" : "tensors";
}

uint64_t vt_frameworks_arena(const struct vt_model *m, int device)
{
    uint64_t bytes = 0, count = 0;
    unsigned frameworks = vt_frameworks_on(m, device);
    uint32_t i;

    if (!frameworks || frameworks & ~PREALLOCATES)
        return 0;
    for (i = 0; i < m->site_count; i++)
        if (m->sites[i].pool && m->sites[i].record->device == device && vt_kind_is_memory(m->sites[i].record->kind)) {
            bytes += m->sites[i].live_bytes;
            count += m->sites[i].live_count;
        }
    return count <= 1 ? bytes : 0;
}

bool vt_frameworks_cannot_grow(const struct vt_model *m, const struct vt_failure *failure)
{
    unsigned frameworks = vt_frameworks_on(m, failure->device);

    return vt_refused_by_framework(failure) && frameworks && !(frameworks & ~PREALLOCATES);
}
