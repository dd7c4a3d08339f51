/*
 * What is known of the PJRT C API, through which JAX (and whatever else runs XLA from a plugin) makes its buffers.
 *
 * Read from xla/pjrt/c/pjrt_c_api.h of openxla/xla at the versions 0.33, 0.90 and 0.114, from its CHANGELOG.md, and from the
 * tables that real plugins of the versions 0.115 and 0.116 return. Nothing of the header is needed to build: a table of
 * functions is an array of words, and so are the arguments of a call.
 *
 * The table: word 0 is its size in bytes, 1 a chain of extensions, 2 to 4 the version ({size, extensions, int major, int
 * minor}); the functions follow. Within major 0 functions are only added at the end; up to VT_PJRT_REQUIRED this held
 * from 0.33 on, behind it something was rearranged in 0.57.
 *
 * A call: every function takes a pointer to one struct and returns an error or NULL (the functions about errors return
 * nothing). Word 0 of the struct is its size in bytes as the caller knows it, word 1 a chain of extensions; what follows
 * is below. A callee refuses a struct that is smaller than it expects, and takes one that is larger.
 */
#ifndef VT_PRELOAD_JAX_PJRT_H
#define VT_PRELOAD_JAX_PJRT_H

#include <stdbool.h>
#include <stdint.h>

#define VT_PJRT_MAJOR 0
#define VT_PJRT_ORDERED_MINOR 57 /* from here on the functions behind VT_PJRT_REQUIRED lie where they are said to */

/* Words of the table. */
enum {
    VT_PJRT_TABLE_BYTES = 0,
    VT_PJRT_TABLE_EXTENSIONS = 1,
    VT_PJRT_TABLE_VERSION = 4, /* low half: major */
    VT_PJRT_Error_Destroy = 5,
    VT_PJRT_Error_Message = 6,
    VT_PJRT_Error_GetCode = 7,
    VT_PJRT_Client_Create = 15,
    VT_PJRT_Client_Destroy = 16,
    VT_PJRT_Client_PlatformName = 17,
    VT_PJRT_Client_AddressableDevices = 21,
    VT_PJRT_Client_BufferFromHostBuffer = 27,
    VT_PJRT_Device_LocalHardwareId = 36,
    VT_PJRT_Device_AddressableMemories = 37,
    VT_PJRT_Device_MemoryStats = 39,
    VT_PJRT_Memory_Kind = 41,
    VT_PJRT_Executable_Destroy = 45,
    VT_PJRT_Executable_Name = 46,
    VT_PJRT_Executable_NumOutputs = 49,
    VT_PJRT_LoadedExecutable_Destroy = 55,
    VT_PJRT_LoadedExecutable_GetExecutable = 56,
    VT_PJRT_LoadedExecutable_Execute = 60,
    VT_PJRT_Buffer_Destroy = 63,
    VT_PJRT_Buffer_OnDeviceSizeInBytes = 69,
    VT_PJRT_Buffer_Memory = 71,
    VT_PJRT_Buffer_Delete = 72,
    VT_PJRT_Buffer_IsDeleted = 73,
    VT_PJRT_Buffer_CopyToDevice = 74,
    VT_PJRT_REQUIRED = 75, /* words that a table must have */
    VT_PJRT_Buffer_CopyToMemory = 97,
    VT_PJRT_Client_CreateViewOfDeviceBuffer = 98,
    VT_PJRT_Executable_GetCompiledMemoryStats = 101,
    VT_PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer = 109,
    VT_PJRT_Client_CreateUninitializedBuffer = 117,
    VT_PJRT_Buffer_DonateWithControlDependency = 130,
    VT_PJRT_Buffer_Bitcast = 136
};

/* Words of arguments. */
enum {
    VT_PJRT_SIZE = 0,   /* of every call */
    VT_PJRT_OBJECT = 2, /* what most calls are about: the client, the buffer, the executable, the error */
    VT_PJRT_Client_Create_client = 8,
    VT_PJRT_Client_BufferFromHostBuffer_buffer = 14,
    VT_PJRT_Client_CreateUninitializedBuffer_buffer = 9,
    VT_PJRT_Client_CreateViewOfDeviceBuffer_buffer = 12,
    VT_PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_buffer = 4,
    VT_PJRT_Buffer_CopyToDevice_buffer = 4,
    VT_PJRT_Buffer_CopyToMemory_buffer = 4,
    VT_PJRT_Buffer_DonateWithControlDependency_buffer = 5,
    VT_PJRT_Buffer_Bitcast_buffer = 7,
    VT_PJRT_Error_GetCode_code = 3, /* int */
    VT_PJRT_Execute_arguments = 4,  /* buffers [device][argument] */
    VT_PJRT_Execute_devices = 5,
    VT_PJRT_Execute_argument_count = 6,
    VT_PJRT_Execute_outputs = 7 /* buffers [device][output], filled by the call */
};

/* Words of the answers to our own questions: one or two follow the object. */
enum {
    VT_PJRT_ANSWER = 3,
    VT_PJRT_ANSWER_LENGTH = 4, /* of a list or a text */
    VT_PJRT_CompiledMemoryStats_code = 3,
    VT_PJRT_CompiledMemoryStats_arguments = 4,
    VT_PJRT_CompiledMemoryStats_outputs = 5,
    VT_PJRT_CompiledMemoryStats_aliased = 6, /* bytes of arguments that outputs are put into */
    VT_PJRT_CompiledMemoryStats_temporary = 7,
    VT_PJRT_MemoryStats_in_use = 3,
    VT_PJRT_MemoryStats_limit = 10, /* the word behind this and the next ones: its low byte says whether it is known */
    VT_PJRT_MemoryStats_largest_free = 18,
    VT_PJRT_MemoryStats_pool = 20,
    VT_PJRT_MemoryStats_pool_peak = 22
};

#define VT_PJRT_RESOURCE_EXHAUSTED 8 /* an error's code, as absl::StatusCode */

typedef void *vt_pjrt_fn(void *arguments);

/* A call of our own. Larger than any of the structs: what later versions add is zero. */
struct vt_pjrt_question {
    uint64_t word[32];
};

/* Can this word of the caller's arguments be read? */
static inline bool vt_pjrt_has(const uint64_t *arguments, unsigned word)
{
    return arguments && arguments[VT_PJRT_SIZE] >= (word + 1) * sizeof(uint64_t);
}

#endif
