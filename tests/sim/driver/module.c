/*
 * Modules, libraries, kernels: enough that ordinary programs load code and launch it.  Nothing runs.  A module takes one
 * page of the card for its code, and any name asked of it exists: functions at once, variables as 4 KiB of memory that
 * belongs to the module and can't be freed by anyone else.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define GLOBAL_BYTES 4096

struct sim_function {
    struct sim_module *module;
    char *name;
    struct sim_function *next;
};

struct sim_global {
    char *name;
    struct sim_block *block;
    struct sim_global *next;
};

struct sim_module {
    struct sim_ctx *ctx;
    struct sim_module *next; /* in the context's list: a module goes with its context */
    struct sim_function *functions;
    struct sim_global *globals;
};

static CUresult load(CUmodule *out, const void *image)
{
    struct sim_module *module;
    struct sim_ctx *ctx;

    REQUIRE(out != NULL && image != NULL);
    TRY(sim_ctx_current(&ctx));
    TRY(sim_device_charge(ctx->device, SIM_PAGE));
    module = sim_object_new(SIM_T_MODULE, sizeof(*module));
    module->ctx = ctx;
    module->next = ctx->modules;
    ctx->modules = module;
    *out = (CUmodule)module;
    return CUDA_SUCCESS;
}

static CUresult find(const void *handle, struct sim_module **out)
{
    *out = (struct sim_module *)handle;
    return sim_object_is(handle, SIM_T_MODULE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static void module_free(struct sim_module *module)
{
    while (module->functions != NULL) {
        struct sim_function *f = module->functions;

        module->functions = f->next;
        free(f->name);
        sim_object_free(f);
    }
    while (module->globals != NULL) {
        struct sim_global *g = module->globals;

        module->globals = g->next;
        sim_block_free(g->block);
        free(g->name);
        free(g);
    }
    sim_device_refund(module->ctx->device, SIM_PAGE);
    sim_object_free(module);
}

void sim_module_forget(struct sim_ctx *ctx)
{
    while (ctx->modules != NULL) {
        struct sim_module *module = ctx->modules;

        ctx->modules = module->next;
        module_free(module);
    }
}

static CUresult unload(const void *handle)
{
    struct sim_module *module, **at;

    TRY(find(handle, &module));
    for (at = &module->ctx->modules; *at != module; at = &(*at)->next) {
    }
    *at = module->next;
    module_free(module);
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *out, const void *handle, const char *name)
{
    struct sim_module *module;
    struct sim_function *f;

    REQUIRE(out != NULL && name != NULL && *name != '\0');
    TRY(find(handle, &module));
    for (f = module->functions; f != NULL && strcmp(f->name, name) != 0; f = f->next) {
    }
    if (f == NULL) {
        f = sim_object_new(SIM_T_FUNCTION, sizeof(*f));
        f->module = module;
        f->name = strdup(name);
        f->next = module->functions;
        module->functions = f;
    }
    *out = (CUfunction)f;
    return CUDA_SUCCESS;
}

static CUresult get_global(CUdeviceptr *out, size_t *bytes, const void *handle, const char *name)
{
    struct sim_module *module;
    struct sim_global *g;

    REQUIRE(name != NULL && *name != '\0');
    TRY(find(handle, &module));
    for (g = module->globals; g != NULL && strcmp(g->name, name) != 0; g = g->next) {
    }
    if (g == NULL) {
        struct sim_block *block;

        TRY(sim_block_new(&module->ctx->device->heap, GLOBAL_BYTES, SIM_GLOBAL, &block));
        g = calloc(1, sizeof(*g));
        g->name = strdup(name);
        g->block = block;
        g->next = module->globals;
        module->globals = g;
    }
    if (out != NULL) {
        *out = g->block->addr;
    }
    if (bytes != NULL) {
        *bytes = g->block->bytes;
    }
    return CUDA_SUCCESS;
}

static CUresult get_global_v1(CUdeviceptr_v1 *out, unsigned int *bytes, CUmodule handle, const char *name)
{
    CUdeviceptr wide;
    size_t size;

    TRY(get_global(&wide, &size, handle, name));
    REQUIRE(wide <= UINT32_MAX);
    if (out != NULL) {
        *out = (CUdeviceptr_v1)wide;
    }
    if (bytes != NULL) {
        *bytes = (unsigned int)size;
    }
    return CUDA_SUCCESS;
}

static CUresult loading_mode(CUmoduleLoadingMode *out)
{
    REQUIRE(out != NULL);
    *out = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static CUresult function_attribute(int *out, CUfunction_attribute attribute, const void *f)
{
    REQUIRE(out != NULL);
    if (!sim_object_is(f, SIM_T_FUNCTION)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
           : attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION         ? 90
           : attribute == CU_FUNC_ATTRIBUTE_BINARY_VERSION      ? 90
                                                                : 0;
    return CUDA_SUCCESS;
}

static CUresult function_check(const void *f)
{
    return sim_object_is(f, SIM_T_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_module(CUmodule *out, CUfunction f)
{
    REQUIRE(out != NULL);
    TRY(function_check(f));
    *out = (CUmodule)((struct sim_function *)f)->module;
    return CUDA_SUCCESS;
}

static CUresult function_name(const char **out, const void *f)
{
    REQUIRE(out != NULL);
    TRY(function_check(f));
    *out = ((const struct sim_function *)f)->name;
    return CUDA_SUCCESS;
}

/* Kernels and functions are one thing here, as are libraries and modules. */
static CUresult same(void **out, const void *handle, enum sim_type type)
{
    REQUIRE(out != NULL);
    if (!sim_object_is(handle, type)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = (void *)handle;
    return CUDA_SUCCESS;
}

static CUresult launch(const void *f, unsigned int blocks, unsigned int threads, CUstream stream, bool per_thread)
{
    TRY(function_check(f));
    REQUIRE(blocks != 0 && threads != 0 && threads <= 1024);
    return sim_stream_find_work(stream, per_thread, CU_GRAPH_NODE_TYPE_KERNEL);
}

static CUresult occupancy(int *out, const void *f, int block)
{
    REQUIRE(out != NULL && block > 0);
    TRY(function_check(f));
    *out = 2048 / block;
    return CUDA_SUCCESS;
}

/* ---- exports ---- */

EXPORT_OUT(cuModuleLoad, module, (CUmodule * module, const char *fname), load(module, fname))
EXPORT_OUT(cuModuleLoadData, module, (CUmodule * module, const void *image), load(module, image))
EXPORT_OUT(cuModuleLoadDataEx, module,
           (CUmodule * module, const void *image, unsigned int numOptions, CUjit_option *options, void **optionValues),
           ((void)numOptions, (void)options, (void)optionValues, load(module, image)))
EXPORT_OUT(cuModuleLoadFatBinary, module, (CUmodule * module, const void *fatCubin), load(module, fatCubin))
EXPORT(cuModuleUnload, (CUmodule hmod), unload(hmod))
EXPORT_OUT(cuModuleGetLoadingMode, mode, (CUmoduleLoadingMode * mode), loading_mode(mode))
EXPORT_OUT(cuModuleGetFunction, hfunc, (CUfunction * hfunc, CUmodule hmod, const char *name),
           get_function(hfunc, hmod, name))
EXPORT_OUT(cuModuleGetGlobal, dptr, (CUdeviceptr_v1 * dptr, unsigned int *bytes, CUmodule hmod, const char *name),
           get_global_v1(dptr, bytes, hmod, name))
EXPORT_OUT(cuModuleGetGlobal_v2, dptr, (CUdeviceptr * dptr, size_t *bytes, CUmodule hmod, const char *name),
           get_global(dptr, bytes, hmod, name))

EXPORT_OUT(cuLibraryLoadData, library,
           (CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
            unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
            unsigned int numLibraryOptions),
           ((void)jitOptions, (void)jitOptionsValues, (void)numJitOptions, (void)libraryOptions,
            (void)libraryOptionValues, (void)numLibraryOptions, load((CUmodule *)library, code)))
EXPORT_OUT(cuLibraryLoadFromFile, library,
           (CUlibrary * library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
            unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
            unsigned int numLibraryOptions),
           ((void)jitOptions, (void)jitOptionsValues, (void)numJitOptions, (void)libraryOptions,
            (void)libraryOptionValues, (void)numLibraryOptions, load((CUmodule *)library, fileName)))
EXPORT(cuLibraryUnload, (CUlibrary library), unload(library))
EXPORT_OUT(cuLibraryGetKernel, pKernel, (CUkernel * pKernel, CUlibrary library, const char *name),
           get_function((CUfunction *)pKernel, library, name))
EXPORT_OUT(cuLibraryGetModule, pMod, (CUmodule * pMod, CUlibrary library), same((void **)pMod, library, SIM_T_MODULE))
EXPORT_OUT(cuKernelGetFunction, pFunc, (CUfunction * pFunc, CUkernel kernel),
           same((void **)pFunc, kernel, SIM_T_FUNCTION))
EXPORT_OUT(cuLibraryGetGlobal, dptr, (CUdeviceptr * dptr, size_t *bytes, CUlibrary library, const char *name),
           get_global(dptr, bytes, library, name))
EXPORT_OUT(cuLibraryGetManaged, dptr, (CUdeviceptr * dptr, size_t *bytes, CUlibrary library, const char *name),
           get_global(dptr, bytes, library, name))
EXPORT_OUT(cuKernelGetAttribute, pi, (int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev),
           ((void)dev, function_attribute(pi, attrib, kernel)))

EXPORT_OUT(cuFuncGetAttribute, pi, (int *pi, CUfunction_attribute attrib, CUfunction hfunc),
           function_attribute(pi, attrib, hfunc))
EXPORT(cuFuncSetAttribute, (CUfunction hfunc, CUfunction_attribute attrib, int value),
       ((void)attrib, (void)value, function_check(hfunc)))
EXPORT(cuFuncSetCacheConfig, (CUfunction hfunc, CUfunc_cache config), ((void)config, function_check(hfunc)))
EXPORT_OUT(cuFuncGetModule, hmod, (CUmodule * hmod, CUfunction hfunc), function_module(hmod, hfunc))
EXPORT_OUT(cuFuncGetName, name, (const char **name, CUfunction hfunc), function_name(name, hfunc))
EXPORT(cuFuncLoad, (CUfunction function), function_check(function))
EXPORT_STREAM(cuLaunchKernel, cuLaunchKernel_ptsz,
              (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
               unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
               CUstream hStream, void **kernelParams, void **extra),
              ((void)sharedMemBytes, (void)kernelParams, (void)extra,
               launch(f, gridDimX *gridDimY *gridDimZ, blockDimX *blockDimY *blockDimZ, hStream, per_thread)))
EXPORT_STREAM(cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
              (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
              ((void)kernelParams, (void)extra, config == NULL)
                  ? CUDA_ERROR_INVALID_VALUE
                  : launch(f, config->gridDimX * config->gridDimY * config->gridDimZ,
                           config->blockDimX * config->blockDimY * config->blockDimZ, config->hStream, per_thread))
EXPORT_STREAM(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
              (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
               unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
               CUstream hStream, void **kernelParams),
              ((void)sharedMemBytes, (void)kernelParams,
               launch(f, gridDimX *gridDimY *gridDimZ, blockDimX *blockDimY *blockDimZ, hStream, per_thread)))
EXPORT_OUT(cuOccupancyMaxActiveBlocksPerMultiprocessor, numBlocks,
           (int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize),
           ((void)dynamicSMemSize, occupancy(numBlocks, func, blockSize)))
EXPORT(cuProfilerStart, (void), CUDA_SUCCESS)
EXPORT(cuProfilerStop, (void), CUDA_SUCCESS)
