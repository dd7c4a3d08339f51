/*
 * A stand-in for PyTorch's libtorch_python.so: calls libtorch_cpu as the real one does, through its procedure linkage table,
 * and offers it to the test programs as C functions.
 */
#include <cstdio>
#include <stdexcept>

#include "torch_parts.h"

#define API extern "C" __attribute__((visibility("default")))

API void *torch_scope_begin(const char *name)
{
    return new at::RecordFunction(name);
}

API void torch_scope_end(void *scope)
{
    delete static_cast<at::RecordFunction *>(scope);
}

/* Lets the engine do some work. 0: done; 1: it threw; 2: its answer did not arrive as it was given. */
API int torch_backward(void (*work)(void *), void *argument, int threaded)
{
    torch::autograd::Engine engine;
    engine.threaded = threaded;
    std::vector<torch::autograd::Edge> roots = {{work, argument}};
    std::vector<at::Tensor> inputs(5);
    try {
        auto made = engine.Engine::execute(roots, inputs, true, false, true, {});
        return made.size() == 3 && made[0].value == 5 && made[1].value == 5 && made[2].value == 0 ? 0 : 2;
    } catch (const std::exception &) {
        return 1;
    }
}

API void torch_profiler_step()
{
    torch::autograd::profiler::profilerStep();
}

API int torch_profiler_steps()
{
    return torch::autograd::profiler::profilerSteps();
}

/* Work that fails. */
API void torch_throw(void *)
{
    throw std::runtime_error("out of memory");
}
