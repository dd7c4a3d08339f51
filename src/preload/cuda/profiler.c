/* cudaProfilerStart and cudaProfilerStop: where a program wants to be looked at. They are marks in the recording. */
#include "preload/call.h"
#include "preload/marks.h"

VT_EXPORT CUresult cuProfilerStart(void)
{
    VT_BEGIN(cuProfilerStart);
    CUresult r = real();
    if (call.record)
        vt_mark("cudaProfilerStart");
    return VT_END(r);
}

VT_EXPORT CUresult cuProfilerStop(void)
{
    VT_BEGIN(cuProfilerStop);
    CUresult r = real();
    if (call.record)
        vt_mark("cudaProfilerStop");
    return VT_END(r);
}
