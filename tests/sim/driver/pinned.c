/*
 * Page-locked host memory: allocated by the driver (cuMemHostAlloc, cuMemAllocHost) or registered by the program.
 *
 * What the driver allocates is real, usable memory, limited by SIM_PINNED_MIB.  Registered ranges stay the program's;
 * they are kept sorted by address, must not overlap, and unregistering needs the exact base.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct range {
    uintptr_t addr;
    size_t bytes;
    unsigned int flags;
};

static struct range *registered;
static size_t registered_count, registered_room;

static CUresult host_alloc(void **out, size_t bytes, unsigned int flags)
{
    struct sim_block *block;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && bytes != 0 && (flags & ~7u) == 0);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    if (bytes > sim.pinned_limit - sim.pinned_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    TRY(sim_block_new_host(bytes, SIM_PINNED, &block));
    sim.pinned_bytes += bytes;
    block->flags = flags;
    block->device = ctx->device;
    sim_ctx_adopt(ctx, block);
    *out = (void *)block->addr;
    return CUDA_SUCCESS;
}

static CUresult host_free(void *ptr)
{
    struct sim_block *block;

    if (ptr == NULL) {
        return CUDA_SUCCESS;
    }
    TRY(sim_capture_forbids());
    block = sim_block_at((uintptr_t)ptr);
    REQUIRE(block != NULL && block->kind == SIM_PINNED);
    sim.pinned_bytes -= block->bytes;
    sim_ctx_disown(block);
    sim_block_free(block);
    return CUDA_SUCCESS;
}

/* Index of the first range that ends behind addr. */
static size_t range_after(uintptr_t addr)
{
    size_t low = 0, high = registered_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (registered[middle].addr + registered[middle].bytes <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static CUresult host_register(void *ptr, size_t bytes, unsigned int flags)
{
    uintptr_t addr = (uintptr_t)ptr;
    struct sim_ctx *ctx;
    size_t at;

    REQUIRE(ptr != NULL && bytes != 0 && addr + bytes > addr && (flags & ~0xfu) == 0);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    at = range_after(addr);
    if (at < registered_count && registered[at].addr < addr + bytes) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    REQUIRE(sim_block_around(addr) == NULL);
    if (registered_count == registered_room) {
        registered_room = registered_room ? 2 * registered_room : 64;
        registered = realloc(registered, registered_room * sizeof(*registered));
    }
    memmove(&registered[at + 1], &registered[at], (registered_count - at) * sizeof(*registered));
    registered[at] = (struct range){addr, bytes, flags};
    registered_count++;
    return CUDA_SUCCESS;
}

static CUresult host_unregister(void *ptr)
{
    uintptr_t addr = (uintptr_t)ptr;
    struct sim_ctx *ctx;
    size_t at;

    REQUIRE(ptr != NULL);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_capture_forbids());
    at = range_after(addr);
    if (at == registered_count || registered[at].addr != addr) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    registered_count--;
    memmove(&registered[at], &registered[at + 1], (registered_count - at) * sizeof(*registered));
    return CUDA_SUCCESS;
}

/* The device sees host memory at the host's own address. */
static CUresult device_pointer(CUdeviceptr *out, void *ptr, unsigned int flags)
{
    uintptr_t addr = (uintptr_t)ptr;
    struct sim_block *block = sim_block_around(addr);
    size_t at = range_after(addr);

    REQUIRE(out != NULL && ptr != NULL && flags == 0);
    REQUIRE((block != NULL && block->kind == SIM_PINNED) || (at < registered_count && registered[at].addr <= addr));
    *out = addr;
    return CUDA_SUCCESS;
}

static CUresult device_pointer_v1(CUdeviceptr_v1 *out, void *ptr, unsigned int flags)
{
    CUdeviceptr wide;

    REQUIRE(out != NULL);
    TRY(device_pointer(&wide, ptr, flags));
    REQUIRE(wide <= UINT32_MAX);
    *out = (CUdeviceptr_v1)wide;
    return CUDA_SUCCESS;
}

static CUresult get_flags(unsigned int *out, void *ptr)
{
    struct sim_block *block = sim_block_around((uintptr_t)ptr);
    size_t at = range_after((uintptr_t)ptr);

    REQUIRE(out != NULL && ptr != NULL);
    if (block != NULL && block->kind == SIM_PINNED) {
        *out = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
        return CUDA_SUCCESS;
    }
    REQUIRE(at < registered_count && registered[at].addr <= (uintptr_t)ptr);
    *out = registered[at].flags | CU_MEMHOSTREGISTER_DEVICEMAP;
    return CUDA_SUCCESS;
}

bool sim_host_registered(uintptr_t addr)
{
    size_t at = range_after(addr);

    return at < registered_count && registered[at].addr <= addr;
}

void sim_pinned_start_over(void)
{
    registered_count = 0;
    sim.pinned_bytes = 0;
}

/* ---- exports ---- */

EXPORT_OUT(cuMemHostAlloc, pp, (void **pp, size_t bytesize, unsigned int Flags), host_alloc(pp, bytesize, Flags))
EXPORT_OUT(cuMemAllocHost, pp, (void **pp, unsigned int bytesize), host_alloc(pp, bytesize, 0))
EXPORT_OUT(cuMemAllocHost_v2, pp, (void **pp, size_t bytesize), host_alloc(pp, bytesize, 0))
EXPORT(cuMemFreeHost, (void *p), host_free(p))
EXPORT(cuMemHostRegister, (void *p, size_t bytesize, unsigned int Flags), host_register(p, bytesize, Flags))
EXPORT(cuMemHostRegister_v2, (void *p, size_t bytesize, unsigned int Flags), host_register(p, bytesize, Flags))
EXPORT(cuMemHostUnregister, (void *p), host_unregister(p))
EXPORT_OUT(cuMemHostGetDevicePointer, pdptr, (CUdeviceptr_v1 * pdptr, void *p, unsigned int Flags),
           device_pointer_v1(pdptr, p, Flags))
EXPORT_OUT(cuMemHostGetDevicePointer_v2, pdptr, (CUdeviceptr * pdptr, void *p, unsigned int Flags),
           device_pointer(pdptr, p, Flags))
EXPORT_OUT(cuMemHostGetFlags, pFlags, (unsigned int *pFlags, void *p), get_flags(pFlags, p))
