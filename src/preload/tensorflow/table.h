/*
 * Functions of TensorFlow's libraries that this library exports as well, once: the export list, the answers of dlsym and the
 * wrappers are made from the table. (ELF name, beginning of the name of the library that has the real one.)
 *
 * The allocator's are the functions of its virtual table that hand memory out and take it back, and what ends it. They are
 * exported by libtensorflow_framework, whose tables of BFCAllocator and of the classes derived from it refer to them by
 * symbol (R_X86_64_64, no -Bsymbolic; read with readelf from the wheel of TensorFlow 2.21.0), so the definition that the
 * loader finds first stands in the table. The class was tensorflow::BFCAllocator until 2.10 and has been tsl::BFCAllocator
 * since. TFE_Execute is part of TensorFlow's C API: its Python module calls it for every operation.
 */
#ifndef VT_PRELOAD_TENSORFLOW_TABLE_H
#define VT_PRELOAD_TENSORFLOW_TABLE_H

#define VT_TENSORFLOW_EXPORTS(X)                                                                  \
    X(_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE, "libtensorflow")         \
    X(_ZN3tsl12BFCAllocator13DeallocateRawEPv, "libtensorflow")                                   \
    X(_ZN3tsl12BFCAllocatorD1Ev, "libtensorflow")                                                 \
    X(_ZN3tsl12BFCAllocatorD2Ev, "libtensorflow")                                                 \
    X(_ZN10tensorflow12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE, "libtensorflow") \
    X(_ZN10tensorflow12BFCAllocator13DeallocateRawEPv, "libtensorflow")                           \
    X(_ZN10tensorflow12BFCAllocatorD1Ev, "libtensorflow")                                         \
    X(_ZN10tensorflow12BFCAllocatorD2Ev, "libtensorflow")                                         \
    X(TFE_Execute, "libtensorflow")

#endif
