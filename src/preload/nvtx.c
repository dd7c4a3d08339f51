/*
 * NVTX ranges and marks as ours (VRAMTRACK_NVTX=1). Each library that uses NVTX has its own copy of it, which at its first
 * call loads the library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2 there with a function that
 * leads to its tables of entry points. There is no other way in, and the variable is inherited by child processes: so this
 * is done only if it was asked for, and not if somebody else (Nsight Systems) has set it.
 *
 * The numbers and layouts are those of nvtx3/nvToolsExt.h and nvtxDetail/nvtxTypes.h, unchanged since NVTX 2.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "preload/marks.h"
#include "preload/options.h"
#include "preload/phase.h"
#include "preload/range.h"
#include "preload/resolve.h"

#define VARIABLE "NVTX_INJECTION64_PATH"
#define ETID_CALLBACKS 1u
enum { MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_MarkEx = 1, CORE_MarkA = 2, CORE_RangePushEx = 8, CORE_RangePushA = 9, CORE_RangePushW, CORE_RangePop };
enum { CORE2_DomainMarkEx = 1, CORE2_DomainRangePushEx = 4, CORE2_DomainRangePop, CORE2_DomainRegisterStringA = 10 };
#define MESSAGE_ASCII 1
#define MESSAGE_REGISTERED 3

struct attributes { /* nvtxEventAttributes_t */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

struct callbacks { /* NvtxExportTableCallbacks */
    size_t bytes;
    int (*table_of)(int module, void ****table, unsigned *size);
};

/* Names that were registered are numbers of ranges, passed off as handles: past them, memory that can't be theirs. */
static const char handles[VT_RANGES + 2];

static uint16_t number_of(const struct attributes *a)
{
    if (!a || !a->message)
        return 0;
    if (a->message_type == MESSAGE_ASCII)
        return vt_range_number(a->message);
    uintptr_t at = (uintptr_t)a->message - (uintptr_t)handles;
    return a->message_type == MESSAGE_REGISTERED && at < sizeof handles ? (uint16_t)at : 0;
}

/* What they return is the depth of nesting: of the range that was pushed or popped, from 0; negative if there is none. */
static int push(uintptr_t domain, uint16_t number)
{
    int depth = (int)vt_scope_depth(VT_SCOPE_NVTX);
    vt_scope_enter(VT_SCOPE_NVTX, domain, VT_PHASE_NONE, number);
    return depth;
}

static int pop(uintptr_t domain)
{
    int depth = (int)vt_scope_depth(VT_SCOPE_NVTX);
    vt_scope_leave(VT_SCOPE_NVTX, domain);
    return depth - 1;
}

static void mark_ascii(const char *message)
{
    vt_mark(message);
}

static void mark(const struct attributes *a)
{
    vt_mark(vt_range_name(number_of(a)));
}

static void domain_mark(void *domain, const struct attributes *a)
{
    (void)domain;
    mark(a);
}

static int push_ascii(const char *message)
{
    return push(0, vt_range_number(message));
}

static int push_wide(const wchar_t *message)
{
    (void)message;
    return push(0, 0); /* so that its end ends nothing else */
}

static int push_attributes(const struct attributes *a)
{
    return push(0, number_of(a));
}

static int pop_plain(void)
{
    return pop(0);
}

static int domain_push(void *domain, const struct attributes *a)
{
    return push((uintptr_t)domain, number_of(a));
}

static int domain_pop(void *domain)
{
    return pop((uintptr_t)domain);
}

static void *register_ascii(void *domain, const char *text)
{
    (void)domain;
    return (void *)(handles + vt_range_number(text));
}

static void set(void ***table, unsigned size, unsigned entry, void *function)
{
    if (entry < size && table[entry])
        *table[entry] = function;
}

VT_EXPORT int InitializeInjectionNvtx2(const void *(*tables)(uint32_t));

/* Not so in a child that has the variable without LD_PRELOAD: there NVTX has just loaded this library. */
static bool is_preloaded(void)
{
    void *program = dlopen(NULL, RTLD_LAZY);
    void *f = program ? vt_real_dlsym(program, "InitializeInjectionNvtx2") : NULL;
    if (program)
        dlclose(program);
    return f == (void *)InitializeInjectionNvtx2;
}

VT_EXPORT int InitializeInjectionNvtx2(const void *(*tables)(uint32_t))
{
    const struct callbacks *c = tables(ETID_CALLBACKS);
    void ***core = NULL, ***core2 = NULL;
    unsigned size = 0, size2 = 0;
    if (!c || c->bytes < sizeof *c || vt_options()->off || !vt_options()->nvtx || !is_preloaded())
        return 0;
    if (!c->table_of(MODULE_CORE, &core, &size) || !core)
        return 0;
    set(core, size, CORE_MarkEx, (void *)mark);
    set(core, size, CORE_MarkA, (void *)mark_ascii);
    set(core, size, CORE_RangePushEx, (void *)push_attributes);
    set(core, size, CORE_RangePushA, (void *)push_ascii);
    set(core, size, CORE_RangePushW, (void *)push_wide);
    set(core, size, CORE_RangePop, (void *)pop_plain);
    if (c->table_of(MODULE_CORE2, &core2, &size2) && core2) {
        set(core2, size2, CORE2_DomainMarkEx, (void *)domain_mark);
        set(core2, size2, CORE2_DomainRangePushEx, (void *)domain_push);
        set(core2, size2, CORE2_DomainRangePop, (void *)domain_pop);
        set(core2, size2, CORE2_DomainRegisterStringA, (void *)register_ascii);
    }
    return 1;
}

/* At load, before anybody can have used NVTX. */
__attribute__((constructor)) static void announce(void)
{
    Dl_info info;
    int saved = errno;
    if (!vt_options()->off && vt_options()->nvtx && dladdr((void *)handles, &info) && info.dli_fname)
        setenv(VARIABLE, info.dli_fname, 0);
    errno = saved;
}
