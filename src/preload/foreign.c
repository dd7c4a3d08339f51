/* Answers look-ups of functions that frameworks' libraries have and this one exports; see foreign.h. */
#include "preload/foreign.h"

#include <dlfcn.h>
#include <string.h>

#include "preload/elf.h"
#include "preload/nccl/table.h"
#include "preload/resolve.h"
#include "preload/stack.h"
#include "preload/tensorflow/table.h"
#include "preload/torch/table.h"

#define X(n, library) VT_EXPORT void n(void); /* as their own files have them: mangled names of C++ functions */
VT_TORCH_EXPORTS(X)
VT_TENSORFLOW_EXPORTS(X)
VT_NCCL_EXPORTS(X)
#undef X

static const struct {
    const char *name, *library;
    void *wrapper;
} foreign[] = {
#define X(n, library) {#n, library, (void *)n},
    VT_TORCH_EXPORTS(X) VT_TENSORFLOW_EXPORTS(X) VT_NCCL_EXPORTS(X)
#undef X
};
#define FOREIGN (sizeof foreign / sizeof *foreign)

/* Would the caller find it without us: by a library that it is linked with, or because somebody behind us has it? */
static bool has_provider(const void *caller, const char *name, const char *library)
{
    struct vt_object o;
    return (vt_object_at(caller, &o) && vt_elf_needs(o.link_map, library)) ||
           vt_real_dlsym(RTLD_NEXT, name); /* last: the caller asks dlerror() about it */
}

bool vt_foreign(void *handle, const char *name, const void *caller, void **answer)
{
    unsigned i = 0;
    while (i < FOREIGN && strcmp(foreign[i].name, name))
        i++;
    if (i == FOREIGN)
        return false;
    *answer = handle == RTLD_DEFAULT ? foreign[i].wrapper : vt_real_dlsym(handle, name);
    if (*answer == foreign[i].wrapper && !has_provider(caller, name, foreign[i].library))
        *answer = NULL;
    return true;
}
