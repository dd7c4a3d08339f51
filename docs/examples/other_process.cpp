// Trains a small model on a card that somebody else uses as well. Its own memory would fit; with the other's it does not.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" int cudaMalloc(void **pointer, size_t bytes);
extern "C" int cudaFree(void *pointer);

static constexpr size_t MiB = 1u << 20;

static void *buffer(size_t bytes)
{
    void *pointer = nullptr;

    if (int error = cudaMalloc(&pointer, bytes)) {
        std::fprintf(stderr, "model: cudaMalloc returned %d\n", error);
        std::exit(1);
    }
    return pointer;
}

static std::vector<void *> load_weights()
{
    std::vector<void *> layers;

    for (int layer = 0; layer < 12; layer++)
        layers.push_back(buffer(96 * MiB));
    return layers;
}

static void train_step(size_t batch)
{
    std::vector<void *> activations;

    for (int layer = 0; layer < 12; layer++)
        activations.push_back(buffer(batch * 6 * MiB));
    for (void *activation : activations)
        cudaFree(activation);
}

int main()
{
    std::vector<void *> weights = load_weights();

    for (size_t batch = 8; batch <= 64; batch *= 2)
        train_step(batch);
    for (void *layer : weights)
        cudaFree(layer);
    return 0;
}
