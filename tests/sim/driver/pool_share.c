/*
 * Pools shared with other processes: a memory file that describes the pool, and a blob that describes a pointer in it.
 * An imported pool and its pointers cost nothing here: the exporter has paid.
 */
#include "pool.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared_pool {
    char magic[8];
    CUmemPoolProps props;
};

struct shared_pointer {
    char magic[8];
    uint64_t addr, bytes;
};

static CUresult pool_export(void *out, CUmemoryPool handle, CUmemAllocationHandleType type)
{
    struct shared_pool shared = {.magic = "simpool"};
    struct sim_pool *pool;
    int fd;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && pool->props.handleTypes & type);
    shared.props = pool->props;
    fd = memfd_create("sim-pool", MFD_CLOEXEC);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (pwrite(fd, &shared, sizeof(shared), 0) != sizeof(shared)) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

static CUresult pool_import(CUmemoryPool *out, void *os_handle, CUmemAllocationHandleType type)
{
    struct shared_pool shared;
    struct sim_pool *pool;

    REQUIRE(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    REQUIRE(pread((int)(intptr_t)os_handle, &shared, sizeof(shared), 0) == sizeof(shared) &&
            memcmp(shared.magic, "simpool", 8) == 0);
    pool = sim_pool_new(NULL, &shared.props); /* the exporter pays */
    pool->imported = true;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult pointer_export(CUmemPoolPtrExportData *out, CUdeviceptr ptr)
{
    struct sim_block *block = sim_block_at(ptr);
    struct shared_pointer shared = {.magic = "simptr"};

    REQUIRE(out != NULL && block != NULL && block->kind == SIM_POOLED);
    shared.addr = ptr;
    shared.bytes = block->bytes;
    memset(out, 0, sizeof(*out));
    memcpy(out, &shared, sizeof(shared));
    return CUDA_SUCCESS;
}

static CUresult pointer_import(CUdeviceptr *out, CUmemoryPool handle, const CUmemPoolPtrExportData *data)
{
    struct shared_pointer shared;
    struct sim_block *block;
    struct sim_pool *pool;

    TRY(sim_pool_check(handle, &pool));
    REQUIRE(out != NULL && data != NULL && pool->imported);
    memcpy(&shared, data, sizeof(shared));
    REQUIRE(memcmp(shared.magic, "simptr", 7) == 0);
    TRY(sim_block_new(&pool->heap, shared.bytes, SIM_POOL_IMPORT, &block));
    block->pool = pool;
    pool->live++;
    *out = block->addr;
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT(cuMemPoolExportToShareableHandle,
       (void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType, unsigned long long flags),
       flags != 0 ? CUDA_ERROR_INVALID_VALUE : pool_export(handle_out, pool, handleType))
EXPORT_OUT(cuMemPoolImportFromShareableHandle, pool_out,
           (CUmemoryPool * pool_out, void *handle, CUmemAllocationHandleType handleType, unsigned long long flags),
           flags != 0 ? CUDA_ERROR_INVALID_VALUE : pool_import(pool_out, handle, handleType))
EXPORT_OUT(cuMemPoolExportPointer, shareData_out, (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr),
           pointer_export(shareData_out, ptr))
EXPORT_OUT(cuMemPoolImportPointer, ptr_out,
           (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData),
           pointer_import(ptr_out, pool, shareData))
