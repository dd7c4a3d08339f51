/*
 * Memory of others: opened IPC handles and external memory. It is listed as imported and belongs to nobody's total here.
 * Opening the same IPC handle again gives the same pointer and one more reference.
 */
#include "preload/arena.h"
#include "preload/context.h"
#include "preload/track.h"

struct opened {
    UT_hash_handle hh;
    uint64_t pointer;
    uint32_t references;
};
static struct opened *opened;

/* One more reference to an opened pointer; true if it is the first. */
static bool open_once(uint64_t pointer)
{
    struct opened *o = NULL;
    if (!vt_state_lock(true))
        return false;
    HASH_FIND(hh, opened, &pointer, sizeof pointer, o);
    if (!o && (o = vt_arena_take(sizeof *o))) {
        o->pointer = pointer;
        HASH_ADD(hh, opened, pointer, sizeof o->pointer, o);
    }
    bool first = o && o->references++ == 0;
    vt_state_unlock();
    return first;
}

/* What closing does to an opened pointer. */
enum closing { CLOSE_UNKNOWN, CLOSE_ONE, CLOSE_LAST };

static enum closing close_once(uint64_t pointer)
{
    struct opened *o = NULL;
    enum closing what = CLOSE_UNKNOWN;
    if (!vt_state_recording() || !vt_state_lock(false))
        return what;
    HASH_FIND(hh, opened, &pointer, sizeof pointer, o);
    if (o && o->references) /* else closed already: the driver will say so */
        what = --o->references ? CLOSE_ONE : CLOSE_LAST;
    vt_state_unlock();
    return what;
}

VT_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle handle, unsigned int flags)
{
    VT_BEGIN(cuIpcOpenMemHandle_v2);
    CUresult r = real(p, handle, flags);
    if (r || !call.record)
        return VT_END(r);
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_IMPORTED,
                         .space = VT_SPACE_POINTER,
                         .device = w.device,
                         .owner = w.context,
                         .key = *p,
                         .address = *p};
    if (open_once(*p)) {
        a.bytes = a.requested = vt_size_behind(*p);
        vt_record_alloc(&call, &a);
    }
    return VT_END(r);
}

VT_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
    VT_BEGIN(cuIpcCloseMemHandle);
    struct vt_freeing f = {0};
    enum closing what = call.record ? close_once(p) : CLOSE_UNKNOWN;
    if (what == CLOSE_LAST)
        vt_free_begin(&call, &f, VT_SPACE_POINTER, p, VT_KINDS(VT_KIND_IMPORTED), true);
    CUresult r = real(p);
    if (r && what != CLOSE_LAST) /* to name what was wrong with the pointer */
        vt_free_begin(&call, &f, VT_SPACE_POINTER, p, 0, true);
    vt_free_end(&call, &f, (int)r);
    if (r && what != CLOSE_UNKNOWN)
        open_once(p);
    return VT_END(r);
}

VT_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    VT_BEGIN(cuImportExternalMemory);
    CUresult r = real(memory, desc);
    if (r || !call.record)
        return VT_END(r);
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_IMPORTED,
                         .space = VT_SPACE_EXTERNAL,
                         .device = w.device,
                         .owner = w.context,
                         .bytes = desc->size,
                         .requested = desc->size};
    a.key = a.address = (uint64_t)(uintptr_t)*memory;
    vt_record_alloc(&call, &a);
    return VT_END(r);
}

/* The mapped buffer is a view of the imported object, whose bytes are counted there: 0 here. cuMemFree ends it. */
VT_EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *p, CUexternalMemory memory,
                                                   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    VT_BEGIN(cuExternalMemoryGetMappedBuffer);
    CUresult r = real(p, memory, desc);
    if (r || !call.record)
        return VT_END(r);
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_IMPORTED,
                         .space = VT_SPACE_POINTER,
                         .device = w.device,
                         .owner = w.context,
                         .key = *p,
                         .address = *p,
                         .requested = desc->size};
    vt_record_alloc(&call, &a);
    return VT_END(r);
}

VT_EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
                                                           const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
    VT_BEGIN(cuExternalMemoryGetMappedMipmappedArray);
    CUresult r = real(array, memory, desc);
    if (r || !call.record)
        return VT_END(r);
    struct vt_where w = vt_where_now();
    struct vt_alloc a = {.kind = VT_KIND_IMPORTED, .space = VT_SPACE_MIPMAP, .device = w.device, .owner = w.context};
    a.key = a.address = (uint64_t)(uintptr_t)*array;
    vt_record_alloc(&call, &a);
    return VT_END(r);
}

VT_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    VT_BEGIN(cuDestroyExternalMemory);
    struct vt_freeing f;
    vt_free_begin(&call, &f, VT_SPACE_EXTERNAL, (uint64_t)(uintptr_t)memory, VT_KINDS(VT_KIND_IMPORTED), true);
    CUresult r = real(memory);
    vt_free_end(&call, &f, (int)r);
    return VT_END(r);
}

void vt_import_forget(void)
{
    opened = NULL;
}
