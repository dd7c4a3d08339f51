/*
 * The demo: a "training loop" as it could be anybody's, with a bug.
 *
 * A network of a few layers allocates weights, gradients and momentum once, and activations in every step, which it frees
 * again. A Monitor keeps a snapshot of the last activations for a plot, and forgets to free the one before it. Sizes are
 * fractions of the card, so the program runs out of memory after some forty steps on any GPU.
 *
 * Nothing here knows of vramtrack.
 */
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

class Buffer
{
  public:
    explicit Buffer(size_t bytes)
    {
        check(cudaMalloc(&data_, bytes), "cudaMalloc");
    }
    ~Buffer()
    {
        cudaFree(data_);
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

  private:
    void *data_ = nullptr;
};

class Layer
{
  public:
    explicit Layer(size_t bytes) : weights_(bytes), gradients_(bytes), momentum_(bytes)
    {
    }

  private:
    Buffer weights_, gradients_, momentum_;
};

class Monitor
{
  public:
    void snapshot_activations(size_t bytes)
    {
        check(cudaMalloc(&snapshot_, bytes), "snapshot_activations"); /* the bug: who frees the one before? */
    }

  private:
    void *snapshot_ = nullptr;
};

class Network
{
  public:
    Network(size_t layers, size_t card) : activation_bytes_(card / 128)
    {
        for (size_t i = 0; i < layers; i++)
            layers_.push_back(new Layer(card / 64));
    }
    ~Network()
    {
        for (Layer *layer : layers_)
            delete layer;
    }

    void train_step(Monitor &monitor)
    {
        std::vector<Buffer *> activations;

        for (size_t i = 0; i < layers_.size(); i++)
            activations.push_back(new Buffer(activation_bytes_));
        std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* where the kernels would run */
        for (Buffer *activation : activations)
            delete activation;
        monitor.snapshot_activations(2 * activation_bytes_);
    }

  private:
    std::vector<Layer *> layers_;
    size_t activation_bytes_;
};

int train()
{
    size_t unused, card;
    int step = 0;

    check(cudaMemGetInfo(&unused, &card), "cudaMemGetInfo");
    try {
        Network network(6, card);
        Monitor monitor;

        for (step = 1; step <= 1000; step++) {
            network.train_step(monitor);
            if (step % 10 == 0)
                printf("step %d\n", step);
        }
    } catch (const std::exception &error) {
        fflush(stdout);
        fprintf(stderr, "train: step %d: %s\n", step, error.what());
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    cudaDeviceProp properties;

    /* `train --device` names the GPU, if there is one that works. */
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
        fprintf(stderr, "train: no GPU\n");
        return 2;
    }
    printf("GPU: %s, %zu MiB\n", properties.name, properties.totalGlobalMem >> 20);
    if (argc > 1 && std::string(argv[1]) == "--device")
        return 0;
    return train();
}
