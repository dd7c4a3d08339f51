/*
 * Copies and fills.  The card has no data: host memory (pageable, page-locked, managed) is really read and written,
 * reading device memory gives zeros, writing it does nothing.  What is checked as in the real driver is that a device
 * range lies inside one live allocation.
 */
#include "driver.h"

#include <string.h>

enum place { PLACE_HOST, PLACE_DEVICE, PLACE_BAD };

static enum place place_of(uintptr_t addr, size_t bytes)
{
    struct sim_block *block = sim_block_around(addr);
    uintptr_t base;
    size_t size;
    int device;

    if (block != NULL) {
        bool host = block->heap == &sim.host_heap;

        return addr + bytes > block->addr + block->bytes ? PLACE_BAD : host ? PLACE_HOST : PLACE_DEVICE;
    }
    switch (sim_vmm_describe(addr, &base, &size, &device)) {
    case CUDA_SUCCESS:
        return PLACE_DEVICE;
    case CUDA_ERROR_NOT_FOUND:
        return sim_va_is_ours(addr) ? PLACE_BAD : PLACE_HOST;
    default:
        return PLACE_BAD; /* reserved, nothing mapped */
    }
}

static CUresult move(uintptr_t dst, uintptr_t src, size_t bytes)
{
    enum place to = place_of(dst, bytes), from = place_of(src, bytes);

    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    REQUIRE(to != PLACE_BAD && from != PLACE_BAD && dst != 0 && src != 0);
    if (to == PLACE_HOST && from == PLACE_HOST) {
        memmove((void *)dst, (const void *)src, bytes);
    } else if (to == PLACE_HOST) {
        memset((void *)dst, 0, bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult copy(uintptr_t dst, uintptr_t src, size_t bytes)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    return move(dst, src, bytes);
}

static CUresult copy_async(uintptr_t dst, uintptr_t src, size_t bytes, CUstream stream, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(stream, per_thread, &s));
    return s->capture != NULL ? sim_capture_work(s, CU_GRAPH_NODE_TYPE_MEMCPY) : move(dst, src, bytes);
}

static CUresult fill(uintptr_t dst, unsigned int value, size_t element, size_t count)
{
    enum place to = place_of(dst, element * count);
    size_t i;

    REQUIRE(to != PLACE_BAD && dst % element == 0);
    if (to == PLACE_HOST && element == 1) {
        memset((void *)dst, (int)value, count);
        return CUDA_SUCCESS;
    }
    for (i = 0; to == PLACE_HOST && i < count; i++) {
        memcpy((char *)dst + i * element, &value, element); /* little-endian, like the devices */
    }
    return CUDA_SUCCESS;
}

static CUresult fill_now(uintptr_t dst, unsigned int value, size_t element, size_t count)
{
    struct sim_ctx *ctx;

    TRY(sim_ctx_current(&ctx));
    return fill(dst, value, element, count);
}

static CUresult fill_async(uintptr_t dst, unsigned int value, size_t element, size_t count, CUstream stream,
                           bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(stream, per_thread, &s));
    return s->capture != NULL ? sim_capture_work(s, CU_GRAPH_NODE_TYPE_MEMSET) : fill(dst, value, element, count);
}

static CUresult fill_2d(uintptr_t dst, size_t pitch, unsigned int value, size_t element, size_t width, size_t height)
{
    size_t row;

    for (row = 0; row < height; row++) {
        TRY(fill_now(dst + row * pitch, value, element, width));
    }
    return CUDA_SUCCESS;
}

/* Rows of a pitched copy; arrays have no address here, their side counts as device memory. */
static CUresult copy_2d(const CUDA_MEMCPY2D *c)
{
    size_t row;

    REQUIRE(c != NULL);
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        return CUDA_SUCCESS;
    }
    for (row = 0; row < c->Height; row++) {
        uintptr_t src = c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->srcHost : c->srcDevice;
        uintptr_t dst = c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->dstHost : c->dstDevice;
        size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
        size_t dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;

        TRY(copy(dst + (c->dstY + row) * dst_pitch + c->dstXInBytes, src + (c->srcY + row) * src_pitch + c->srcXInBytes,
                 c->WidthInBytes));
    }
    return CUDA_SUCCESS;
}

static CUresult copy_2d_async(const CUDA_MEMCPY2D *c, CUstream stream, bool per_thread)
{
    struct sim_stream *s;

    TRY(sim_stream_find(stream, per_thread, &s));
    return s->capture != NULL ? sim_capture_work(s, CU_GRAPH_NODE_TYPE_MEMCPY) : copy_2d(c);
}

/* ---- exports ---- */

EXPORT_STREAM(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), copy(dst, src, ByteCount))
EXPORT_STREAM(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
              copy(dstDevice, (uintptr_t)srcHost, ByteCount))
EXPORT_STREAM(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
              copy((uintptr_t)dstHost, srcDevice, ByteCount))
EXPORT_STREAM(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
              copy(dstDevice, srcDevice, ByteCount))
EXPORT_STREAM(cuMemcpyPeer, cuMemcpyPeer_ptds,
              (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
               size_t ByteCount),
              ((void)dstContext, (void)srcContext, copy(dstDevice, srcDevice, ByteCount)))
EXPORT_STREAM(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *pCopy), copy_2d(pCopy))
EXPORT_STREAM(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *pCopy), copy_2d(pCopy))
EXPORT_STREAM(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *pCopy),
              pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS)

EXPORT_STREAM(cuMemcpyAsync, cuMemcpyAsync_ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
              copy_async(dst, src, ByteCount, hStream, per_thread))
EXPORT_STREAM(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
              (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
              copy_async(dstDevice, (uintptr_t)srcHost, ByteCount, hStream, per_thread))
EXPORT_STREAM(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
              (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
              copy_async((uintptr_t)dstHost, srcDevice, ByteCount, hStream, per_thread))
EXPORT_STREAM(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
              (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
              copy_async(dstDevice, srcDevice, ByteCount, hStream, per_thread))
EXPORT_STREAM(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
              (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
               size_t ByteCount, CUstream hStream),
              ((void)dstContext, (void)srcContext, copy_async(dstDevice, srcDevice, ByteCount, hStream, per_thread)))
EXPORT_STREAM(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
              copy_2d_async(pCopy, hStream, per_thread))
EXPORT_STREAM(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
              pCopy == NULL ? CUDA_ERROR_INVALID_VALUE
                            : sim_stream_find_work(hStream, per_thread, CU_GRAPH_NODE_TYPE_MEMCPY))

EXPORT_STREAM(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr dstDevice, unsigned char uc, size_t N),
              fill_now(dstDevice, uc, 1, N))
EXPORT_STREAM(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr dstDevice, unsigned short us, size_t N),
              fill_now(dstDevice, us, 2, N))
EXPORT_STREAM(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr dstDevice, unsigned int ui, size_t N),
              fill_now(dstDevice, ui, 4, N))
EXPORT_STREAM(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
              (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height),
              fill_2d(dstDevice, dstPitch, uc, 1, Width, Height))
EXPORT_STREAM(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
              (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height),
              fill_2d(dstDevice, dstPitch, us, 2, Width, Height))
EXPORT_STREAM(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
              (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height),
              fill_2d(dstDevice, dstPitch, ui, 4, Width, Height))
EXPORT_STREAM(cuMemsetD8Async, cuMemsetD8Async_ptsz,
              (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),
              fill_async(dstDevice, uc, 1, N, hStream, per_thread))
EXPORT_STREAM(cuMemsetD16Async, cuMemsetD16Async_ptsz,
              (CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream),
              fill_async(dstDevice, us, 2, N, hStream, per_thread))
EXPORT_STREAM(cuMemsetD32Async, cuMemsetD32Async_ptsz,
              (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),
              fill_async(dstDevice, ui, 4, N, hStream, per_thread))
