// Computes the size of an attention matrix in 32 bits: for a long sequence the product overflows, becomes negative, and as
// a size it is larger than any card.
#include <cstddef>
#include <cstdio>

extern "C" int cudaMalloc(void **pointer, size_t bytes);
extern "C" int cudaFree(void *pointer);

static int attention(int heads, int sequence)
{
    int elements = heads * sequence * sequence;
    void *scores = nullptr;
    int error = cudaMalloc(&scores, elements * sizeof(float));

    if (!error)
        cudaFree(scores);
    return error;
}

int main()
{
    for (int sequence = 1024; sequence <= 16384; sequence *= 2)
        if (int error = attention(8, sequence)) {
            std::fprintf(stderr, "attention: %d tokens: cudaMalloc returned %d\n", sequence, error);
            return 1;
        }
    return 0;
}
