/*
 * Multicast objects: handles like those of physical memory, released by cuMemRelease and mapped by cuMemMap, but without
 * memory of their own.  What is bound to them is only counted.
 */
#include "vmm.h"

static CUresult multicast_create(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
    struct sim_physical *p;

    REQUIRE(out != NULL && prop != NULL && prop->numDevices != 0 && prop->size != 0 && prop->size % SIM_PAGE == 0);
    p = sim_physical_new(prop->size);
    p->multicast = true;
    p->prop.requestedHandleTypes = (CUmemAllocationHandleType)prop->handleTypes;
    *out = sim_handle_new(p)->value;
    return CUDA_SUCCESS;
}

static struct sim_handle *multicast_find(CUmemGenericAllocationHandle value)
{
    struct sim_handle *h = sim_handle_find(value);

    return h != NULL && h->refs > 0 && h->physical->multicast ? h : NULL;
}

static CUresult multicast_add_device(CUmemGenericAllocationHandle value, CUdevice dev)
{
    REQUIRE(multicast_find(value) != NULL);
    return sim_device_check(dev);
}

static CUresult multicast_bind(CUmemGenericAllocationHandle value, size_t offset, size_t bytes)
{
    struct sim_handle *h = multicast_find(value);

    REQUIRE(h != NULL && bytes != 0 && offset % SIM_PAGE == 0 && offset + bytes <= h->physical->bytes);
    h->physical->bound += bytes;
    return CUDA_SUCCESS;
}

static CUresult multicast_bind_memory(CUmemGenericAllocationHandle value, size_t offset,
                                      CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes)
{
    struct sim_handle *m = sim_handle_find(memory);

    REQUIRE(m != NULL && m->refs > 0 && !m->physical->multicast && memory_offset + bytes <= m->physical->bytes);
    return multicast_bind(value, offset, bytes);
}

static CUresult multicast_bind_address(CUmemGenericAllocationHandle value, size_t offset, CUdeviceptr ptr, size_t bytes)
{
    REQUIRE(sim_vmm_is_mapped(ptr));
    return multicast_bind(value, offset, bytes);
}

static CUresult multicast_unbind(CUmemGenericAllocationHandle value, CUdevice dev, size_t bytes)
{
    struct sim_handle *h = multicast_find(value);

    TRY(sim_device_check(dev));
    REQUIRE(h != NULL && h->physical->bound >= bytes);
    h->physical->bound -= bytes;
    return CUDA_SUCCESS;
}

static CUresult multicast_granularity(size_t *out, const CUmulticastObjectProp *prop)
{
    REQUIRE(out != NULL && prop != NULL);
    *out = SIM_PAGE;
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuMulticastCreate, mcHandle, (CUmemGenericAllocationHandle * mcHandle, const CUmulticastObjectProp *prop),
           multicast_create(mcHandle, prop))
EXPORT(cuMulticastAddDevice, (CUmemGenericAllocationHandle mcHandle, CUdevice dev), multicast_add_device(mcHandle, dev))
EXPORT(cuMulticastBindMem,
       (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
        size_t memOffset, size_t size, unsigned long long flags),
       flags != 0 ? CUDA_ERROR_INVALID_VALUE : multicast_bind_memory(mcHandle, mcOffset, memHandle, memOffset, size))
EXPORT(cuMulticastBindAddr,
       (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
        unsigned long long flags),
       flags != 0 ? CUDA_ERROR_INVALID_VALUE : multicast_bind_address(mcHandle, mcOffset, memptr, size))
EXPORT(cuMulticastUnbind, (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size),
       ((void)mcOffset, multicast_unbind(mcHandle, dev, size)))
EXPORT_OUT(cuMulticastGetGranularity, out,
           (size_t * out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option),
           ((void)option, multicast_granularity(out, prop)))
