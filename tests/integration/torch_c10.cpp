/*
 * A stand-in for PyTorch's libc10.so: the functions that its allocator for CUDA tells of blocks and of refused requests, in
 * every form that releases have had. They count their calls and keep the last arguments.
 */
#include <cstddef>
#include <cstdint>
#include <cstring>

#define PUBLIC __attribute__((visibility("default")))

extern "C" {
PUBLIC uint64_t c10_calls[6];
PUBLIC int64_t c10_last[5];
}

namespace c10
{

struct Device {
    int8_t type, index;
};

static void note(int form, const void *block, int64_t bytes, int64_t allocated, int64_t reserved, Device device)
{
    __atomic_add_fetch(&c10_calls[form], 1, __ATOMIC_RELAXED);
    int64_t last[5] = {(int64_t)(intptr_t)block, bytes, allocated, reserved, device.type * 256 + device.index};
    for (int i = 0; i < 5; i++)
        __atomic_store_n(&c10_last[i], last[i], __ATOMIC_RELAXED);
}

PUBLIC void reportMemoryUsageToProfiler(void *block, int64_t bytes, Device device)
{
    note(0, block, bytes, 0, 0, device);
}

PUBLIC void reportMemoryUsageToProfiler(void *block, int64_t bytes, int64_t allocated, int64_t reserved, Device device)
{
    note(1, block, bytes, allocated, reserved, device);
}

PUBLIC void reportMemoryUsageToProfiler(void *block, int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    note(2, block, bytes, (int64_t)allocated, (int64_t)reserved, device);
}

PUBLIC void reportOutOfMemoryToProfiler(int64_t bytes, int64_t allocated, int64_t reserved, Device device)
{
    note(3, nullptr, bytes, allocated, reserved, device);
}

PUBLIC void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device)
{
    note(4, nullptr, bytes, (int64_t)allocated, (int64_t)reserved, device);
}

PUBLIC void reportOutOfMemoryToProfiler(size_t bytes, size_t allocated, size_t reserved, Device device)
{
    note(5, nullptr, (int64_t)bytes, (int64_t)allocated, (int64_t)reserved, device);
}

} // namespace c10
