/*
 * A stand-in for PyTorch's libtorch_cpu.so: scopes that tell registered callbacks (at::RecordFunction), the autograd engine,
 * and the profiler's step, under the names and with the calling conventions of the real one. The engine runs work that the
 * caller hands over: on a thread of its own with the real one's name, or in the calling thread.
 */
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>

#include "torch_parts.h"

#define PUBLIC __attribute__((visibility("default")))

namespace at
{

static std::mutex callbacks_lock;
static std::vector<RecordFunctionCallback> callbacks;

PUBLIC uint64_t addGlobalCallback(RecordFunctionCallback c)
{
    std::lock_guard<std::mutex> hold(callbacks_lock);
    callbacks.push_back(c);
    return callbacks.size();
}

PUBLIC StepCallbacks getStepCallbacks(RecordScope)
{
    return {callbacks.size()};
}

PUBLIC RecordFunction::RecordFunction(const char *name) : name_(name)
{
    std::lock_guard<std::mutex> hold(callbacks_lock);
    for (auto &c : callbacks)
        if (c.scopes_[(size_t)RecordScope::USER_SCOPE])
            contexts_.push_back(c.start_(*this));
}

PUBLIC RecordFunction::~RecordFunction()
{
    std::lock_guard<std::mutex> hold(callbacks_lock);
    size_t i = 0;
    for (auto &c : callbacks)
        if (c.scopes_[(size_t)RecordScope::USER_SCOPE] && i < contexts_.size()) {
            c.end_(*this, contexts_[i].get());
            i++;
        }
}

PUBLIC const char *RecordFunction::name() const
{
    return name_.c_str();
}

} // namespace at

namespace torch
{
namespace autograd
{

PUBLIC std::vector<at::Tensor> Engine::execute(const std::vector<Edge> &roots, const std::vector<at::Tensor> &inputs,
                                               bool keep_graph, bool create_graph, bool accumulate,
                                               const std::vector<Edge> &outputs)
{
    std::exception_ptr thrown;
    auto work = [&] {
        try {
            roots[0].work(roots[0].argument);
        } catch (...) {
            thrown = std::current_exception();
        }
    };
    if (threaded)
        std::thread([&] {
            pthread_setname_np(pthread_self(), "pt_autograd_0");
            work();
        }).join();
    else
        work();
    if (thrown)
        std::rethrow_exception(thrown);
    return {{(long)inputs.size()}, {keep_graph + 2 * create_graph + 4 * accumulate}, {(long)outputs.size()}};
}

namespace profiler
{

static int profiler_steps;

PUBLIC void profilerStep()
{
    profiler_steps++;
}

PUBLIC int profilerSteps()
{
    return profiler_steps;
}

} // namespace profiler
} // namespace autograd
} // namespace torch
