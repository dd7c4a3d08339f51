/*
 * Functions of PyTorch's libraries that this library exports as well, once: the export list, the answers of dlsym and the
 * real functions are made from the table. (ELF name, beginning of the name of the library that has the real one.)
 *
 * The names are those of libc10 in torch 1.6 to 2.14, read from its binaries and its history (c10/core/Allocator.h): the
 * totals were added in 1.10 and became size_t between 2.0 and 2.6; the report of an out-of-memory came in 1.13 and went
 * the same way, and once had a third form. A libc10_cuda refers to one name of each function. "libtorch_cuda" without more:
 * builds that split it (BUILD_SPLIT_CUDA) have libtorch_cuda_cu.so and libtorch_cuda_cpp.so, and a function that is not found
 * would be looked for at every matrix product.
 */
#ifndef VT_PRELOAD_TORCH_TABLE_H
#define VT_PRELOAD_TORCH_TABLE_H

#define VT_TORCH_EXPORTS(X)                                                                             \
    X(_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE, "libc10.so")                                 \
    X(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE, "libc10.so")                               \
    X(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE, "libc10.so")                               \
    X(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE, "libc10.so")                                 \
    X(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE, "libc10.so")                                 \
    X(_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE, "libc10.so")                                 \
    X(_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_, \
      "libtorch_cpu.so")                                                                                \
    X(_ZN5torch8autograd8profiler12profilerStepEv, "libtorch_cpu.so")                                   \
    X(_ZN2at4cuda15getNewWorkspaceEv, "libtorch_cuda")                                                  \
    X(_ZN2at4cuda25getNewCUDABlasLtWorkspaceEv, "libtorch_cuda")                                        \
    X(_ZN2at4cuda25allocateCUDABlasWorkspaceEm, "libtorch_cuda")                                        \
    X(_ZN2at4cuda24getCurrentCUDABlasHandleEv, "libtorch_cuda")                                         \
    X(_ZN2at4cuda22getCUDABlasLtWorkspaceEv, "libtorch_cuda")

#endif
