/*
 * A stand-in for PyTorch's libc10_cuda.so: a caching allocator that takes segments from cudaMalloc, splits them into blocks,
 * and tells libc10 about every block and every refusal as PyTorch's does: under its own lock, with its own totals, and in
 * the form of one release. Its other backends hand on what the driver gives them. The sizes are PyTorch's own: blocks are
 * multiples of 512 bytes; segments have 2 MiB, 20 MiB or a multiple of 2 MiB.
 */
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <thread>

#include <cuda_runtime_api.h>

#define API extern "C" __attribute__((visibility("default")))

namespace c10
{
struct Device {
    int8_t type, index;
};
void reportMemoryUsageToProfiler(void *, int64_t, Device);
void reportMemoryUsageToProfiler(void *, int64_t, int64_t, int64_t, Device);
void reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device);
void reportOutOfMemoryToProfiler(int64_t, int64_t, int64_t, Device);
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device);
void reportOutOfMemoryToProfiler(size_t, size_t, size_t, Device);
} // namespace c10

namespace
{

constexpr size_t MIB = 1 << 20;
enum { OLD, TOTALS, SIZES, ODD }; /* the forms of the reports: until 1.9, 1.10 to 2.0, since then, an unreleased one */
enum { NATIVE, ASYNC };

struct Block {
    size_t bytes;
    bool used;
    char *segment;
};

struct Pool {
    std::recursive_mutex mutex;
    std::map<char *, Block> blocks;
    size_t allocated = 0, reserved = 0, limit = SIZE_MAX, async_bytes = 0;
};

Pool pools[4];
int form = SIZES, backend = NATIVE;
int told_type = 1; /* c10::DeviceType: CUDA */
int64_t lie = 0;   /* added to the totals that are told */

void tell(int device, void *block, int64_t bytes)
{
    Pool &p = pools[device];
    c10::Device where = {(int8_t)told_type, (int8_t)device};
    if (form == OLD)
        c10::reportMemoryUsageToProfiler(block, bytes, where);
    else if (form == TOTALS)
        c10::reportMemoryUsageToProfiler(block, bytes, (int64_t)p.allocated + lie, (int64_t)p.reserved, where);
    else
        c10::reportMemoryUsageToProfiler(block, bytes, (size_t)(p.allocated + lie), p.reserved, where);
}

void tell_refusal(int device, size_t bytes)
{
    Pool &p = pools[device];
    c10::Device where = {(int8_t)told_type, (int8_t)device};
    if (form == TOTALS)
        c10::reportOutOfMemoryToProfiler((int64_t)bytes, (int64_t)p.allocated, (int64_t)p.reserved, where);
    else if (form == SIZES)
        c10::reportOutOfMemoryToProfiler((int64_t)bytes, p.allocated, p.reserved, where);
    else if (form == ODD)
        c10::reportOutOfMemoryToProfiler(bytes, p.allocated, p.reserved, where);
}

size_t rounded(size_t bytes)
{
    return bytes < 512 ? 512 : (bytes + 511) / 512 * 512;
}

size_t segment_for(size_t bytes)
{
    return bytes <= MIB ? 2 * MIB : bytes < 10 * MIB ? 20 * MIB : (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

std::map<char *, Block>::iterator free_block(Pool &p, size_t bytes)
{
    auto best = p.blocks.end();
    for (auto i = p.blocks.begin(); i != p.blocks.end(); ++i)
        if (!i->second.used && i->second.bytes >= bytes &&
            (best == p.blocks.end() || i->second.bytes < best->second.bytes))
            best = i;
    return best;
}

size_t release_unused(Pool &p)
{
    size_t released = 0;
    for (auto i = p.blocks.begin(); i != p.blocks.end();) {
        auto next = std::next(i);
        bool whole = !i->second.used && i->first == i->second.segment &&
                     (next == p.blocks.end() || next->second.segment != i->second.segment);
        if (whole && cudaFree(i->first) == cudaSuccess) {
            released += i->second.bytes;
            p.reserved -= i->second.bytes;
            p.blocks.erase(i);
        }
        i = next;
    }
    return released;
}

bool new_segment(Pool &p, size_t bytes)
{
    void *got = nullptr;
    if (p.reserved + bytes > p.limit || cudaMalloc(&got, bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    p.reserved += bytes;
    p.blocks[(char *)got] = {bytes, false, (char *)got};
    return true;
}

void *take(int device, std::map<char *, Block>::iterator i, size_t bytes)
{
    Pool &p = pools[device];
    if (i->second.bytes - bytes >= 512) {
        p.blocks[i->first + bytes] = {i->second.bytes - bytes, false, i->second.segment};
        i->second.bytes = bytes;
    }
    i->second.used = true;
    p.allocated += i->second.bytes;
    tell(device, i->first, (int64_t)i->second.bytes);
    return i->first;
}

__attribute__((noinline)) void *native_malloc(int device, size_t asked)
{
    Pool &p = pools[device];
    std::lock_guard<std::recursive_mutex> hold(p.mutex);
    size_t bytes = rounded(asked), segment = segment_for(bytes), device_free, device_total;
    auto i = free_block(p, bytes);
    bool found = i != p.blocks.end() || new_segment(p, segment);
    if (!found) {
        release_unused(p);
        found = new_segment(p, segment);
    }
    if (!found) {
        cudaMemGetInfo(&device_free, &device_total);
        tell_refusal(device, bytes);
        return nullptr;
    }
    return take(device, free_block(p, bytes), bytes);
}

void merge(Pool &p, std::map<char *, Block>::iterator i)
{
    auto next = std::next(i);
    if (next != p.blocks.end() && !next->second.used && next->second.segment == i->second.segment) {
        i->second.bytes += next->second.bytes;
        p.blocks.erase(next);
    }
    if (i == p.blocks.begin())
        return;
    auto before = std::prev(i);
    if (!before->second.used && before->second.segment == i->second.segment) {
        before->second.bytes += i->second.bytes;
        p.blocks.erase(i);
    }
}

void native_free(int device, void *block)
{
    Pool &p = pools[device];
    std::lock_guard<std::recursive_mutex> hold(p.mutex);
    auto i = p.blocks.find((char *)block);
    if (i == p.blocks.end() || !i->second.used)
        abort();
    size_t bytes = i->second.bytes;
    i->second.used = false;
    p.allocated -= bytes;
    merge(p, i);
    tell(device, block, -(int64_t)bytes);
}

} // namespace

API void torch_set(int form_, int backend_, int type)
{
    form = form_;
    backend = backend_;
    told_type = type;
}

API void torch_lie(int64_t bytes)
{
    lie = bytes;
}

API void torch_limit(int device, size_t bytes)
{
    pools[device].limit = bytes;
}

/* The two are alike from outside: a pointer, or none. */
API void *torch_malloc(int device, size_t bytes, void *stream)
{
    void *p = nullptr;
    if (backend == ASYNC) {
        std::lock_guard<std::recursive_mutex> hold(pools[device].mutex);
        if (cudaMallocAsync(&p, bytes, (cudaStream_t)stream) == cudaSuccess)
            return p;
        cudaGetLastError();
        return nullptr;
    }
    if (getenv("PYTORCH_NO_CUDA_MEMORY_CACHING"))
        return cudaMalloc(&p, bytes) == cudaSuccess ? p : nullptr;
    return native_malloc(device, bytes);
}

API void torch_free(int device, void *p, void *stream)
{
    if (backend == ASYNC)
        cudaFreeAsync(p, (cudaStream_t)stream);
    else if (getenv("PYTORCH_NO_CUDA_MEMORY_CACHING"))
        cudaFree(p);
    else
        native_free(device, p);
}

/* As memory that PyTorch's own parts take: through the cache even where tensors are not. */
API void *torch_raw_alloc(int device, size_t bytes)
{
    return native_malloc(device, bytes);
}

API void torch_raw_delete(int device, void *p)
{
    native_free(device, p);
}

API void torch_empty_cache(int device)
{
    std::lock_guard<std::recursive_mutex> hold(pools[device].mutex);
    release_unused(pools[device]);
}

/* How large a workspace could be, found out by trying. */
API size_t torch_cache_info(int device, void *stream)
{
    size_t device_free, device_total;
    void *dummy = nullptr;
    std::lock_guard<std::recursive_mutex> hold(pools[device].mutex);
    cudaMemGetInfo(&device_free, &device_total);
    for (size_t guess = device_free; guess; guess >>= 1) {
        if (cudaMallocAsync(&dummy, guess, (cudaStream_t)stream) == cudaSuccess) {
            cudaFreeAsync(dummy, (cudaStream_t)stream);
            return guess;
        }
        cudaGetLastError();
    }
    return 0;
}

API void torch_mem_get_info(size_t *device_free, size_t *device_total)
{
    cudaMemGetInfo(device_free, device_total);
}

/* Reports without anything behind them: what a replay of a graph's pool looks like, or a report that got lost. */
API void torch_tell(int device, void *block, int64_t bytes, int64_t change)
{
    std::lock_guard<std::recursive_mutex> hold(pools[device].mutex);
    pools[device].allocated += (size_t)change;
    tell(device, block, bytes);
}

API void torch_refuse(int device, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> hold(pools[device].mutex);
    tell_refusal(device, bytes);
}

API size_t torch_allocated(int device)
{
    return pools[device].allocated;
}

API size_t torch_reserved(int device)
{
    return pools[device].reserved;
}

/* Pairs of requests and returns, for measuring; nothing else happens between them. */
API void torch_pairs(int device, size_t bytes, long pairs)
{
    for (long i = 0; i < pairs; i++)
        torch_free(device, torch_malloc(device, bytes, nullptr), nullptr);
}

/* On a thread of its own, as PyTorch's backward. */
API void torch_pairs_elsewhere(int device, size_t bytes, long pairs)
{
    std::thread(torch_pairs, device, bytes, pairs).join();
}

/* On a thread without Python: requests by two ways that are alike but for the function (their frames have the same size, so that
 * the innermost frames lie at the same places), by turns, and by a third whose frame has another size each time. */
static thread_local void *volatile escaped;
#define WAY(name)                                                                 \
    extern "C" __attribute__((noinline)) void name(int device, size_t bytes)      \
    {                                                                             \
        torch_free(device, torch_malloc(device, bytes, nullptr), nullptr);        \
        escaped = nullptr;                                                        \
    }
WAY(way_of_one)
WAY(way_of_another)

extern "C" __attribute__((noinline)) void way_of_any_size(int device, size_t bytes, long i)
{
    escaped = __builtin_alloca(16 + static_cast<size_t>(i % 7) * 64);
    torch_free(device, torch_malloc(device, bytes, nullptr), nullptr);
    escaped = nullptr;
}

API void torch_ways_elsewhere(int device, long rounds)
{
    std::thread([=] {
        for (long i = 0; i < rounds; i++) {
            way_of_one(device, 1024);
            way_of_another(device, 2048);
            if (i % 3 == 0)
                way_of_one(device, 1024);
            way_of_any_size(device, 4096, i);
        }
    }).join();
}

/* The same without an allocator behind the reports: what the reports cost alone. */
API void torch_report_pairs(int device, long pairs)
{
    Pool &p = pools[device];
    for (long i = 0; i < pairs; i++) {
        char *block = (char *)0x7f0000000000 + i % 1024 * 512;
        p.allocated += 512;
        tell(device, block, 512);
        p.allocated -= 512;
        tell(device, block, -512);
    }
}

static double best_of(int device, long pairs, int batches)
{
    double best = 1e18;
    for (int i = 0; i < batches; i++) {
        timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        torch_report_pairs(device, pairs);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)pairs;
        best = ns < best ? ns : best;
    }
    return best;
}

__attribute__((noinline)) static double down(int device, int depth, long pairs, int batches)
{
    double best = depth > 0 ? down(device, depth - 1, pairs, batches) : best_of(device, pairs, batches);
    __asm__ volatile("" : "+x"(best)); /* no tail call: the frame must be there */
    return best;
}

/* Nanoseconds of a pair of reports on a thread of its own, so many frames down; the fastest of the batches. */
API double torch_time_deep(int device, int depth, long pairs, int batches)
{
    double best = 0;
    std::thread([&] { best = down(device, depth, pairs, batches); }).join();
    return best;
}
