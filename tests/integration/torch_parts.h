/* The declarations that torch_cpu.cpp and torch_python.cpp share: as much of PyTorch's as its names and layouts need. */
#ifndef TORCH_PARTS_H
#define TORCH_PARTS_H

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace at
{

enum class RecordScope : uint8_t { FUNCTION, USER_SCOPE = 7, NUM_SCOPES = 10 };

struct __attribute__((visibility("default"))) ObserverContext {
    virtual ~ObserverContext() = default;
};

struct __attribute__((visibility("default"))) RecordFunction {
    explicit RecordFunction(const char *name);
    virtual ~RecordFunction();
    const char *name() const;
    std::string name_;
    std::vector<std::unique_ptr<ObserverContext>> contexts_;
};

class RecordFunctionCallback
{
  public:
    std::unique_ptr<ObserverContext> (*start_)(const RecordFunction &);
    void (*end_)(const RecordFunction &, ObserverContext *);
    double sampling_prob_ = 1.0;
    std::array<bool, (size_t)RecordScope::NUM_SCOPES> scopes_ = {};
    bool needs_inputs_ = false, needs_outputs_ = false, needs_ids_ = false;
};

struct StepCallbacks {
    size_t count;
};

uint64_t addGlobalCallback(RecordFunctionCallback);
StepCallbacks getStepCallbacks(RecordScope);

class Tensor
{
  public:
    long value;
};

} // namespace at

namespace torch
{
namespace autograd
{

struct Edge {
    void (*work)(void *);
    void *argument;
};

struct __attribute__((visibility("default"))) Engine {
    bool threaded = true;
    virtual ~Engine() = default;
    virtual std::vector<at::Tensor> execute(const std::vector<Edge> &roots, const std::vector<at::Tensor> &inputs,
                                            bool keep_graph, bool create_graph, bool accumulate,
                                            const std::vector<Edge> &outputs);
};

namespace profiler
{
void profilerStep();
int profilerSteps();
} // namespace profiler
} // namespace autograd
} // namespace torch

#endif
