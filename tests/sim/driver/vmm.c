/*
 * Virtual memory management: address reservations, physical memory handles, mappings.
 *
 * Physical memory belongs to the handle.  It is freed when the last reference (cuMemCreate, cuMemRetainAllocationHandle,
 * cuMemImportFromShareableHandle) was released and the last mapping removed, in either order.  cuMemUnmap takes whole
 * mappings only, though several that follow each other.  Reserved address space never costs memory.
 */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct interval {
    uintptr_t addr;
    size_t bytes;
    struct sim_handle *handle; /* NULL in the list of reservations */
    size_t offset;
    CUmemAccess_flags access;
};

struct intervals {
    struct interval *item; /* sorted by address, never overlapping */
    size_t count, room;
};

#define BUCKETS 4096
static struct sim_handle *buckets[BUCKETS];
static uint64_t last_handle = 0x5100;
static struct intervals reservations, mappings;

/* ---- sorted intervals ---- */

/* Index of the first interval that ends behind addr. */
static size_t after(const struct intervals *list, uintptr_t addr)
{
    size_t low = 0, high = list->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (list->item[middle].addr + list->item[middle].bytes <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct interval *around(const struct intervals *list, uintptr_t addr)
{
    size_t at = after(list, addr);

    return at < list->count && list->item[at].addr <= addr ? &list->item[at] : NULL;
}

static void insert(struct intervals *list, struct interval new)
{
    size_t at = after(list, new.addr);

    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->item = realloc(list->item, list->room * sizeof(*list->item));
    }
    memmove(&list->item[at + 1], &list->item[at], (list->count - at) * sizeof(*list->item));
    list->item[at] = new;
    list->count++;
}

static void remove_at(struct intervals *list, size_t at, size_t count)
{
    list->count -= count;
    memmove(&list->item[at], &list->item[at + count], (list->count - at) * sizeof(*list->item));
}

CUresult sim_vmm_describe(uintptr_t addr, uintptr_t *base, size_t *bytes, int *device)
{
    struct interval *m = around(&mappings, addr);

    if (m == NULL) {
        return around(&reservations, addr) != NULL ? CUDA_ERROR_NOT_MAPPED : CUDA_ERROR_NOT_FOUND;
    }
    *base = m->addr;
    *bytes = m->bytes;
    *device = m->handle->physical->device != NULL ? m->handle->physical->device->index : -1;
    return CUDA_SUCCESS;
}

bool sim_vmm_is_mapped(uintptr_t addr)
{
    return around(&mappings, addr) != NULL;
}

/* ---- address space ---- */

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
    char *base, *start;

    REQUIRE(out != NULL && bytes != 0 && bytes % SIM_PAGE == 0 && flags == 0);
    REQUIRE((alignment & (alignment - 1)) == 0);
    alignment = alignment < SIM_PAGE ? SIM_PAGE : alignment;
    if (wish != 0 && wish % alignment == 0) {
        base = mmap((void *)wish, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == (char *)wish) {
            insert(&reservations, (struct interval){.addr = wish, .bytes = bytes});
            *out = wish;
            return CUDA_SUCCESS;
        }
        if (base != MAP_FAILED) {
            munmap(base, bytes);
        }
    }
    base = bytes > (size_t)1 << 46
               ? MAP_FAILED
               : mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    start = (char *)sim_round_up((uintptr_t)base, alignment);
    if (start > base) {
        munmap(base, (size_t)(start - base));
    }
    if (start < base + alignment) {
        munmap(start + bytes, (size_t)(base + alignment - start));
    }
    insert(&reservations, (struct interval){.addr = (uintptr_t)start, .bytes = bytes});
    *out = (uintptr_t)start;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr ptr, size_t bytes)
{
    struct interval *r = around(&reservations, ptr);
    size_t at;

    REQUIRE(r != NULL && r->addr == ptr && r->bytes == bytes);
    at = after(&mappings, ptr);
    REQUIRE(at == mappings.count || mappings.item[at].addr >= ptr + bytes);
    remove_at(&reservations, (size_t)(r - reservations.item), 1);
    munmap((void *)(uintptr_t)ptr, bytes);
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

struct sim_handle *sim_handle_find(CUmemGenericAllocationHandle value)
{
    struct sim_handle *h;

    for (h = buckets[value % BUCKETS]; h != NULL && h->value != value; h = h->next) {
    }
    return h;
}

struct sim_handle *sim_handle_new(struct sim_physical *physical)
{
    struct sim_handle *h = calloc(1, sizeof(*h));

    h->value = ++last_handle;
    h->physical = physical;
    h->refs = 1;
    h->next = buckets[h->value % BUCKETS];
    buckets[h->value % BUCKETS] = h;
    physical->handles++;
    return h;
}

static void handle_check_end(struct sim_handle *h)
{
    struct sim_physical *p = h->physical;
    struct sim_handle **at;

    if (h->refs > 0 || h->mappings > 0) {
        return;
    }
    for (at = &buckets[h->value % BUCKETS]; *at != h; at = &(*at)->next) {
    }
    *at = h->next;
    free(h);
    if (--p->handles > 0) {
        return;
    }
    if (p->device != NULL) {
        sim_device_refund(p->device, p->bytes);
        p->device->live_bytes -= p->bytes;
        p->device->live_count--;
    }
    free(p);
}

static CUresult check_location(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        return sim_device_check(location->id);
    }
    REQUIRE(location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
            location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
    return CUDA_SUCCESS;
}

struct sim_physical *sim_physical_new(size_t bytes)
{
    struct sim_physical *p = calloc(1, sizeof(*p));

    p->bytes = bytes;
    p->id = ++sim.serial;
    return p;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags)
{
    struct sim_device *device = NULL;
    struct sim_physical *p;

    REQUIRE(out != NULL && prop != NULL && bytes != 0 && bytes % SIM_PAGE == 0 && flags == 0);
    REQUIRE(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    TRY(check_location(&prop->location));
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        device = &sim.device[prop->location.id];
        TRY(sim_device_charge(device, bytes));
        device->live_bytes += bytes;
        device->live_count++;
    }
    p = sim_physical_new(bytes);
    p->prop = *prop;
    p->device = device;
    *out = sim_handle_new(p)->value;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle value)
{
    struct sim_handle *h = sim_handle_find(value);

    REQUIRE(h != NULL && h->refs > 0);
    h->refs--;
    handle_check_end(h);
    return CUDA_SUCCESS;
}

static CUresult retain(CUmemGenericAllocationHandle *out, const void *addr)
{
    struct interval *m = around(&mappings, (uintptr_t)addr);

    REQUIRE(out != NULL && m != NULL);
    m->handle->refs++;
    *out = m->handle->value;
    return CUDA_SUCCESS;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *prop)
{
    REQUIRE(out != NULL && prop != NULL);
    TRY(check_location(&prop->location));
    *out = SIM_PAGE;
    return CUDA_SUCCESS;
}

static CUresult properties(CUmemAllocationProp *out, CUmemGenericAllocationHandle value)
{
    struct sim_handle *h = sim_handle_find(value);

    REQUIRE(out != NULL && h != NULL && h->refs > 0);
    *out = h->physical->prop;
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

static CUresult map(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle value)
{
    struct sim_handle *h = sim_handle_find(value);
    struct interval *r = around(&reservations, ptr);
    size_t at;

    REQUIRE(h != NULL && h->refs > 0 && bytes != 0);
    REQUIRE(ptr % SIM_PAGE == 0 && bytes % SIM_PAGE == 0 && offset % SIM_PAGE == 0);
    REQUIRE(offset + bytes <= h->physical->bytes);
    REQUIRE(r != NULL && ptr + bytes <= r->addr + r->bytes);
    at = after(&mappings, ptr);
    REQUIRE(at == mappings.count || mappings.item[at].addr >= ptr + bytes);
    insert(&mappings, (struct interval){.addr = ptr, .bytes = bytes, .handle = h, .offset = offset});
    h->mappings++;
    return CUDA_SUCCESS;
}

/* The mappings that fill [ptr, ptr + bytes) exactly; false if there's a gap or one sticks out. */
static bool whole_mappings(uintptr_t ptr, size_t bytes, size_t *first, size_t *count)
{
    uintptr_t at = ptr;

    *first = after(&mappings, ptr);
    for (*count = 0; at < ptr + bytes; (*count)++) {
        struct interval *m = &mappings.item[*first + *count];

        if (*first + *count == mappings.count || m->addr != at || m->bytes > ptr + bytes - at) {
            return false;
        }
        at += m->bytes;
    }
    return *count > 0;
}

static CUresult unmap(CUdeviceptr ptr, size_t bytes)
{
    size_t first, count, i;

    REQUIRE(bytes != 0 && whole_mappings(ptr, bytes, &first, &count));
    for (i = first; i < first + count; i++) {
        mappings.item[i].handle->mappings--;
        handle_check_end(mappings.item[i].handle);
    }
    remove_at(&mappings, first, count);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    size_t first, mapped, i;

    REQUIRE(desc != NULL && count != 0 && bytes != 0 && whole_mappings(ptr, bytes, &first, &mapped));
    for (i = 0; i < count; i++) {
        TRY(check_location(&desc[i].location));
    }
    for (i = first; i < first + mapped; i++) {
        mappings.item[i].access = desc[0].flags;
    }
    return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct interval *m = around(&mappings, ptr);

    REQUIRE(flags != NULL && location != NULL && m != NULL);
    *flags = m->access;
    return CUDA_SUCCESS;
}

/* ---- sharing: a memory file that says whose memory it is ---- */

struct shared {
    char magic[8];
    int pid;
    uint64_t id, bytes;
    CUmemAllocationProp prop;
};

static CUresult export_handle(void *out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type)
{
    struct sim_handle *h = sim_handle_find(value);
    struct shared shared = {.magic = "simphys", .pid = getpid()};
    int fd;

    REQUIRE(out != NULL && h != NULL && h->refs > 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    REQUIRE((h->physical->prop.requestedHandleTypes & type) != 0);
    shared.id = h->physical->id;
    shared.bytes = h->physical->bytes;
    shared.prop = h->physical->prop;
    fd = memfd_create("sim-physical", MFD_CLOEXEC);
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

static struct sim_physical *physical_by_id(uint64_t id)
{
    struct sim_handle *h;
    size_t i;

    for (i = 0; i < BUCKETS; i++) {
        for (h = buckets[i]; h != NULL; h = h->next) {
            if (h->physical->id == id) {
                return h->physical;
            }
        }
    }
    return NULL;
}

static CUresult import_handle(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type)
{
    struct sim_physical *p = NULL;
    struct shared shared;

    REQUIRE(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    REQUIRE(pread((int)(intptr_t)os_handle, &shared, sizeof(shared), 0) == sizeof(shared) &&
            memcmp(shared.magic, "simphys", 8) == 0);
    if (shared.pid == getpid()) {
        p = physical_by_id(shared.id);
    }
    if (p == NULL) { /* of another process, which pays for it */
        p = sim_physical_new(shared.bytes);
        p->prop = shared.prop;
    }
    *out = sim_handle_new(p)->value;
    return CUDA_SUCCESS;
}

void sim_vmm_start_over(void)
{
    memset(buckets, 0, sizeof(buckets));
    reservations.count = mappings.count = 0;
}

/* ---- exports ---- */

EXPORT_OUT(cuMemAddressReserve, ptr,
           (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
           reserve(ptr, size, alignment, addr, flags))
EXPORT(cuMemAddressFree, (CUdeviceptr ptr, size_t size), address_free(ptr, size))
EXPORT_OUT(cuMemCreate, handle,
           (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
            unsigned long long flags),
           create(handle, size, prop, flags))
EXPORT(cuMemRelease, (CUmemGenericAllocationHandle handle), release(handle))
EXPORT_OUT(cuMemRetainAllocationHandle, handle, (CUmemGenericAllocationHandle * handle, void *addr),
           retain(handle, addr))
EXPORT_OUT(cuMemGetAllocationGranularity, out,
           (size_t * out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
           ((void)option, granularity(out, prop)))
EXPORT_OUT(cuMemGetAllocationPropertiesFromHandle, prop,
           (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), properties(prop, handle))
EXPORT(cuMemMap,
       (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags),
       flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(ptr, size, offset, handle))
EXPORT(cuMemUnmap, (CUdeviceptr ptr, size_t size), unmap(ptr, size))
EXPORT(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
       set_access(ptr, size, desc, count))
EXPORT_OUT(cuMemGetAccess, flags, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
           get_access(flags, location, ptr))
EXPORT(cuMemExportToShareableHandle,
       (void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
        unsigned long long flags),
       flags != 0 ? CUDA_ERROR_INVALID_VALUE : export_handle(shareableHandle, handle, handleType))
EXPORT_OUT(cuMemImportFromShareableHandle, handle,
           (CUmemGenericAllocationHandle * handle, void *osHandle, CUmemAllocationHandleType shHandleType),
           import_handle(handle, osHandle, shHandleType))
EXPORT_STREAM(cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz,
              (CUarrayMapInfo * mapInfoList, unsigned int count, CUstream hStream),
              ((void)mapInfoList, (void)count, (void)hStream, CUDA_ERROR_NOT_SUPPORTED))
