/*
 * How callers find functions and messages: cuGetProcAddress in both ABIs, cuGetExportTable, error names.
 *
 * cuGetProcAddress takes a name without suffix, a CUDA version and flags, and returns the newest export whose ABI
 * existed in that version; with the per-thread flag a _ptsz or _ptds export if there is one.  It works before cuInit.
 * The first ABI (4 arguments) reports a missing name by its return code, the second (5 arguments) by a null pointer
 * and a status, as its header says.
 */
#include "driver.h"

#include <string.h>

static const struct entry {
    const char *name;
    void *function;
    int version;
    bool per_thread;
} entries[] = {
#define SIM_X(export, base, version, stream) {#base, (void *)export, version, stream},
    SIM_TABLE(SIM_X)
#undef SIM_X
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

/* Open addressing over entry numbers plus one; entries of one name follow each other in the table. */
static uint16_t first_with_name[2048];
static bool hashed;

static unsigned int hash(const char *text)
{
    unsigned int h = 5381;

    while (*text != '\0') {
        h = h * 33 + (unsigned char)*text++;
    }
    return h;
}

static void build_hash(void)
{
    size_t i;

    for (i = 0; i < ENTRIES; i++) {
        unsigned int at = hash(entries[i].name) % 2048;

        if (i > 0 && strcmp(entries[i].name, entries[i - 1].name) == 0) {
            continue;
        }
        while (first_with_name[at] != 0) {
            at = (at + 1) % 2048;
        }
        first_with_name[at] = (uint16_t)(i + 1);
    }
    hashed = true;
}

static const struct entry *first_entry(const char *name)
{
    unsigned int at = hash(name) % 2048;

    if (!hashed) {
        build_hash();
    }
    for (; first_with_name[at] != 0; at = (at + 1) % 2048) {
        const struct entry *e = &entries[first_with_name[at] - 1];

        if (strcmp(e->name, name) == 0) {
            return e;
        }
    }
    return NULL;
}

static CUresult find(const char *name, void **out, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *status)
{
    const struct entry *best = NULL, *first, *e;
    bool want_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;

    REQUIRE(name != NULL && *name != '\0' && out != NULL);
    REQUIRE(flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && version <= sim.driver_version);
    *out = NULL;
    first = first_entry(name);
    for (e = first; e != NULL && e < entries + ENTRIES && strcmp(e->name, name) == 0; e++) {
        if (e->version > version || (e->per_thread && !want_thread)) {
            continue;
        }
        /* A per-thread export beats every plain one; among equals the newer ABI wins. */
        if (best == NULL || e->per_thread > best->per_thread ||
            (e->per_thread == best->per_thread && e->version >= best->version)) {
            best = e;
        }
    }
    if (best != NULL) {
        *out = best->function;
    }
    *status = best != NULL    ? CU_GET_PROC_ADDRESS_SUCCESS
              : first != NULL ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

static CUresult find_v1(const char *name, void **out, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;

    TRY(find(name, out, version, flags, &status));
    return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult find_v2(const char *name, void **out, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult ignored;

    return find(name, out, version, flags, status != NULL ? status : &ignored);
}

static CUresult export_table(const void **out, const CUuuid *id)
{
    REQUIRE(out != NULL && id != NULL);
    *out = NULL;
    return CUDA_ERROR_NOT_FOUND; /* the real driver's private tables are not imitated */
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define E(code, text)     \
    {                     \
        code, #code, text \
    }
    E(CUDA_SUCCESS, "no error"),
    E(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    E(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    E(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    E(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    E(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    E(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    E(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    E(CUDA_ERROR_NOT_READY, "device not ready"),
    E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    E(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    E(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    E(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    E(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    E(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    E(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
      "attempt to terminate a thread-local capture sequence from another thread"),
    E(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    E(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef E
};

static CUresult error_text(CUresult code, const char **out, bool name)
{
    size_t i;

    REQUIRE(out != NULL);
    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].code == code) {
            *out = name ? errors[i].name : errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *out = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- exports ---- */

SIM_API CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    SIM_CALL_EARLY(cuGetProcAddress, find_v1(symbol, pfn, cudaVersion, flags));
}

SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *symbolStatus)
{
    SIM_CALL_EARLY(cuGetProcAddress_v2, find_v2(symbol, pfn, cudaVersion, flags, symbolStatus));
}

SIM_API CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    SIM_CALL_EARLY(cuGetExportTable, export_table(ppExportTable, pExportTableId));
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    SIM_CALL_EARLY(cuGetErrorString, error_text(error, pStr, false));
}

SIM_API CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    SIM_CALL_EARLY(cuGetErrorName, error_text(error, pStr, true));
}
