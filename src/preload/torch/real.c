/* Finds PyTorch's functions in the loaded libraries; see real.h. */
#include "preload/torch/real.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "preload/elf.h"
#include "preload/stack.h"

struct vt_torch_found vt_torch_found[VT_T_COUNT];

static const struct {
    const char *name, *library;
} functions[VT_T_COUNT] = {
#define X(name, library) {#name, library},
    VT_TORCH_EXPORTS(X)
#undef X
};

struct search {
    const char *library; /* beginning of the file's name */
    const char *symbol;  /* NULL: the library itself is looked for */
    void *found;
    const char *path;
};

extern const char __ehdr_start __attribute__((visibility("hidden"))); /* the linker's: where this library begins */

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *s = argument;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    struct link_map map = {.l_addr = info->dlpi_addr};
    (void)size;
    if (strncmp(name, s->library, strlen(s->library)) || info->dlpi_addr == (uintptr_t)&__ehdr_start)
        return 0;
    s->path = info->dlpi_name;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            map.l_ld = (ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (s->symbol && map.l_ld)
        s->found = vt_elf_symbol(&map, s->symbol);
    return !s->symbol || s->found;
}

void *vt_torch_look_up(enum vt_torch_function f)
{
    uint64_t salt = vt_stack_salt();
    struct search s = {.library = functions[f].library, .symbol = functions[f].name};
    dl_iterate_phdr(visit, &s);
    __atomic_store_n(&vt_torch_found[f].function, s.found, __ATOMIC_RELAXED);
    __atomic_store_n(&vt_torch_found[f].salt, salt, __ATOMIC_RELEASE);
    return s.found;
}

void *vt_torch_symbol(const char *library, const char *symbol)
{
    struct search s = {.library = library, .symbol = symbol};
    dl_iterate_phdr(visit, &s);
    return s.found;
}

bool vt_torch_has_refusals(void)
{
    return vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE) ||
           vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE) ||
           vt_torch_real(VT_T__ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE);
}

bool vt_torch_uncached(void)
{
    static int known; /* 1: no, 2: yes */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        const char *value = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
        answer = value && strcmp(value, "0") ? 2 : 1; /* before 2.7 "0" switched it off as well */
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

const char *vt_torch_library(void)
{
    struct search s = {.library = "libc10_cuda.so"};
    dl_iterate_phdr(visit, &s);
    return s.path ? s.path : "";
}
