/*
 * The demo: a "training loop" as it could be anybody's, with a bug.
 *
 * Each layer of a network has weights, gradients and momentum for the whole run, and activations that live for one step.
 * A monitor takes a snapshot of the last activations for a plot, and forgets to free the one before it. Sizes are
 * fractions of the card, so the program runs out of memory after some forty steps on any GPU.
 *
 * Nothing here knows of vramtrack.
 */
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

class Layer
{
  public:
    explicit Layer(size_t bytes) : bytes_(bytes)
    {
        check(cudaMalloc(&weights_, bytes_), "weights");
        check(cudaMalloc(&gradients_, bytes_), "gradients");
    }
    ~Layer()
    {
        cudaFree(weights_);
        cudaFree(gradients_);
        cudaFree(momentum_);
    }

    void forward()
    {
        check(cudaMalloc(&activations_, bytes_ / 2), "activations");
    }
    void backward()
    {
        cudaFree(activations_);
    }
    void update()
    {
        if (!momentum_)
            check(cudaMalloc(&momentum_, bytes_), "momentum");
    }

  private:
    size_t bytes_;
    void *weights_ = nullptr, *gradients_ = nullptr, *momentum_ = nullptr, *activations_ = nullptr;
};

class Monitor
{
  public:
    void snapshot_activations(size_t bytes)
    {
        check(cudaMalloc(&snapshot_, bytes), "snapshot"); /* the bug: who frees the one before? */
    }

  private:
    void *snapshot_ = nullptr;
};

static void train_step(std::vector<Layer> &network, Monitor &monitor, size_t layer_bytes)
{
    for (Layer &layer : network)
        layer.forward();
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* where the kernels would run */
    for (Layer &layer : network)
        layer.backward();
    for (Layer &layer : network)
        layer.update();
    monitor.snapshot_activations(layer_bytes);
}

static int train()
{
    size_t unused, card;
    int step = 0;

    check(cudaMemGetInfo(&unused, &card), "cudaMemGetInfo");
    try {
        std::vector<Layer> network;
        Monitor monitor;

        network.reserve(6); /* a Layer can't be copied */
        for (int i = 0; i < 6; i++)
            network.emplace_back(card / 64);
        for (step = 1; step <= 1000; step++) {
            train_step(network, monitor, card / 64);
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
