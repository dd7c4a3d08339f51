/*
 * Backward (torch::autograd::Engine::execute), and the profiler's step: functions of libtorch_cpu that libtorch_python, and
 * programs in C++, call.
 *
 * The engine is entered by the thread that wants gradients, works on threads of its own, and is entered again from inside
 * (activation checkpointing); all of that is backward, which the outermost call decides. It returns a std::vector: three
 * words, which the C++ ABI returns through a hidden pointer, as C does a struct of that size.
 *
 * What the engine throws passes through our frame, and must end the phase. A landing pad of the compiler's would make this
 * library depend on the C++ exception runtime. But the unwinder asks the personality routine of each frame that it takes
 * away, and a routine that only looks on needs nothing (the C++ ABI's exception handling, level 1).
 */
#include "preload/torch/scopes.h"

#include <string.h>

#include "preload/options.h"
#include "preload/torch/allocator.h"
#include "preload/torch/real.h"
#include "preload/unwound.h"
#include "preload/warn.h"

struct variables {
    void *begin, *end, *room;
};

#define EXECUTE _ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_
#define PROFILER_STEP _ZN5torch8autograd8profiler12profilerStepEv
#define JOIN(a, b) a##b
#define ID(name) JOIN(VT_T_, name)
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

typedef struct variables execute_fn(void *self, const void *roots, const void *inputs, bool keep_graph,
                                    bool create_graph, bool accumulate, const void *outputs);

VT_EXPORT execute_fn vt_torch_execute __asm__(TEXT(EXECUTE));
VT_EXPORT void vt_torch_profiler_step(void) __asm__(TEXT(PROFILER_STEP));

VT_WATCH_UNWINDING(vt_torch_backward_unwound, vt_scope_leave(VT_SCOPE_BACKWARD, 0))

/* Only what runs inside `real` can throw, so whenever this frame is unwound its scope is open. */
static __attribute__((noinline)) VT_UNSANITIZED struct variables inside(execute_fn *real, void *self, const void *roots,
                                                                        const void *inputs, bool keep_graph,
                                                                        bool create_graph, bool accumulate,
                                                                        const void *outputs)
{
    VT_UNWOUND_BY(vt_torch_backward_unwound);
    struct variables r = real(self, roots, inputs, keep_graph, create_graph, accumulate, outputs);
    vt_scope_leave(VT_SCOPE_BACKWARD, 0);
    return r;
}

struct variables vt_torch_execute(void *self, const void *roots, const void *inputs, bool keep_graph, bool create_graph,
                                  bool accumulate, const void *outputs)
{
    execute_fn *real = (execute_fn *)vt_torch_real(ID(EXECUTE));
    if (!real) { /* nobody but us has it, so nobody can have meant it */
        vt_warn("PyTorch's autograd engine was called but is not there");
        return (struct variables){NULL, NULL, NULL};
    }
    if (vt_options()->off)
        return real(self, roots, inputs, keep_graph, create_graph, accumulate, outputs);
    vt_torch_attach();
    vt_torch_report(); /* here nobody holds a lock of PyTorch's, nor Python's */
    vt_scope_enter(VT_SCOPE_BACKWARD, 0, VT_PHASE_BACKWARD, 0);
    return inside(real, self, roots, inputs, keep_graph, create_graph, accumulate, outputs);
}

void vt_torch_profiler_step(void)
{
    void (*real)(void) = (void (*)(void))vt_torch_real(ID(PROFILER_STEP));
    if (!vt_options()->off) {
        vt_torch_attach();
        vt_step_end(VT_STEP_PROFILER, NULL);
    }
    if (real)
        real();
}
