/*
 * PyTorch's scopes (at::RecordFunction): its optimizers, its data loader and `torch.profiler.record_function` open one
 * each, whether a profiler runs or not, and tell a callback that is registered for user scopes. Ordinary operators have
 * another kind of scope, so nothing is added to them.
 *
 * What is known of the interface (aten/src/ATen/record_function.h from 1.10 to 2.15, and the binaries of 1.13, 2.6, 2.9,
 * 2.11, 2.14 and 2.15): a callback is described by a struct of 40 bytes that is passed by value; its first function returns
 * a std::unique_ptr, which in the C++ ABI goes through a hidden pointer; RecordFunction::name() is exported since 1.12.
 * Before 1.9 the struct was another one under the same name, so at::getStepCallbacks, which came with 1.12, must be
 * there too.
 */
#include "preload/loaded.h"
#include "preload/torch/scopes.h"

#include <errno.h>
#include <string.h>

#include "preload/options.h"
#include "preload/range.h"
#include "preload/torch/real.h"

#define USER_SCOPE 7 /* at::RecordScope::USER_SCOPE */

struct callback { /* at::RecordFunctionCallback */
    void *start, *end;
    double sampling;
    bool scopes[10];
    bool inputs, outputs, ids;
};
_Static_assert(sizeof(struct callback) == 40, "as in libtorch_cpu");

static const char *(*name_of)(const void *function);

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

/* The names that torch/optim/optimizer.py and torch/utils/data/dataloader.py give. */
static enum vt_phase phase_of(const char *name)
{
    return begins(name, "Optimizer.step#")          ? VT_PHASE_OPTIMIZER
           : begins(name, "Optimizer.zero_grad#")   ? VT_PHASE_ZERO_GRAD
           : begins(name, "enumerate(DataLoader)#") ? VT_PHASE_DATA
                                                    : VT_PHASE_NONE;
}

static __attribute__((used)) void scope_begins(const void *function)
{
    const char *name = name_of(function);
    enum vt_phase phase = name ? phase_of(name) : VT_PHASE_NONE;
    vt_scope_enter(VT_SCOPE_FRAMEWORK, (uintptr_t)function, phase, phase ? 0 : vt_range_number(name));
}

static void scope_ends(const void *function, void *context)
{
    (void)context;
    enum vt_phase phase = vt_scope_leave(VT_SCOPE_FRAMEWORK, (uintptr_t)function);
    if (phase == VT_PHASE_OPTIMIZER && !vt_scope_inside(phase)) /* an optimizer may step another one */
        vt_step_end(VT_STEP_OPTIMIZER, name_of(function));
    else if (phase == VT_PHASE_ZERO_GRAD && !vt_scope_inside(phase))
        vt_step_end(VT_STEP_ZERO_GRAD, NULL);
}

#ifdef __aarch64__
/* std::unique_ptr<ObserverContext> start(const RecordFunction &): the result's address is in x8. */
void vt_torch_scope_starts(void);
__asm__(".text\n.p2align 2\n.hidden vt_torch_scope_starts\n.type vt_torch_scope_starts, %function\n"
        "vt_torch_scope_starts:\n"
        "    hint #34\n" /* bti c */
        "    str xzr, [x8]\n"
        "    b scope_begins\n"
        ".size vt_torch_scope_starts, . - vt_torch_scope_starts\n");
#define START ((void *)vt_torch_scope_starts)
#else
static void *scope_starts(void **context, const void *function)
{
    *context = NULL;
    scope_begins(function);
    return context;
}
#define START ((void *)scope_starts)
#endif

/* Registers; false if PyTorch is not loaded, or is none that is known. */
static bool ask(void)
{
    static const char library[] = "libtorch_cpu.so";
    void *add = vt_loaded_symbol(library, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    void *name = vt_loaded_symbol(library, "_ZNK2at14RecordFunction4nameEv");
    if (!add || !name || !vt_loaded_symbol(library, "_ZN2at16getStepCallbacksENS_11RecordScopeE"))
        return false;
    name_of = (const char *(*)(const void *))name;
    struct callback c = {.start = START, .end = (void *)scope_ends, .sampling = 1.0, .scopes[USER_SCOPE] = true};
    ((uint64_t(*)(struct callback))add)(c);
    return true;
}

void vt_torch_attach(void)
{
    static int state; /* 0: not yet, 1: somebody is at it, 2: done */
    int saved = errno, idle = 0;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) || vt_options()->off ||
        !__atomic_compare_exchange_n(&state, &idle, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&state, ask() ? 2 : 0, __ATOMIC_RELEASE);
    errno = saved;
}
