/*
 * cuGetProcAddress with the versions that callers name, before cuInit: which function comes back, and that it takes the
 * arguments of that version. Prints "ROUTE NAME VERSION FLAGS: CODE STATUS PLACE" lines.
 */
#include "regr.h"

static __typeof__(&cuGetProcAddress) four;
static __typeof__(&cuGetProcAddress_v2) five;

static void *ask(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
    void *p = (void *)1, *q = (void *)1, *r = (void *)1;
    int code = CODE(four(name, &p, version, flags));
    printf("four %s %d %d: %d - %s\n", name, version, (int)flags, code, code ? "-" : place(p));
    code = CODE(five(name, &q, version, flags, &status));
    printf("five %s %d %d: %d %d %s\n", name, version, (int)flags, code, (int)status, code ? "-" : place(q));
    MUST(CODE(five(name, &r, version, flags, NULL)) == code && (code || r == q));
    return code ? NULL : q;
}

#define CALL(type, p) ((__typeof__(&type))(p))

int main(void)
{
    static const struct {
        const char *name;
        int version, flags;
    } asked[] = {
        {"", 0, 0},
        {"cuInit", 2000, 0},
        {"cuMemAlloc", 2000, 0},
        {"cuMemAlloc", 3010, 0},
        {"cuMemAlloc", 3020, 0},
        {"cuMemAlloc", 13000, 0},
        {"cuMemAlloc", 1000, 0},
        {"cuMemFree", 3010, 0},
        {"cuMemFree", 3020, 0},
        {"cuMemAllocPitch", 3010, 0},
        {"cuMemAllocHost", 3010, 0},
        {"cuMemAllocHost", 3020, 0},
        {"cuMemHostRegister", 4000, 0},
        {"cuMemHostRegister", 6050, 0},
        {"cuArrayCreate", 3010, 0},
        {"cuArrayCreate", 3020, 0},
        {"cuIpcOpenMemHandle", 4010, 0},
        {"cuIpcOpenMemHandle", 11000, 0},
        {"cuMemAllocAsync", 11010, 0},
        {"cuMemAllocAsync", 11020, 0},
        {"cuMemAllocAsync", 11020, 1},
        {"cuMemAllocAsync", 11020, 2},
        {"cuMemFreeAsync", 11020, 2},
        {"cuMemAllocFromPoolAsync", 11020, 2},
        {"cuMemCreate", 10020, 2},
        {"cuMemCreate", 10020, 0},
        {"cuCtxCreate", 2000, 0},
        {"cuCtxCreate", 3020, 0},
        {"cuCtxCreate", 11040, 0},
        {"cuCtxCreate", 12050, 0},
        {"cuCtxCreate", 13000, 0},
        {"cuGraphAddNode", 12020, 0},
        {"cuGraphAddNode", 12030, 0},
        {"cuGraphInstantiate", 10000, 0},
        {"cuGraphInstantiate", 11000, 0},
        {"cuDevicePrimaryCtxRelease", 7000, 0},
        {"cuDevicePrimaryCtxRelease", 11000, 0},
        {"cuCtxGetDevice", 2000, 0},
        {"cuCtxGetDevice", 13000, 0},
        {"cuGetProcAddress", 11030, 0},
        {"cuGetProcAddress", 12000, 0},
        {"cuGetExportTable", 3000, 0},
        {"cuMemGetInfo", 3020, 0},
        {"cuMemAlloc", 99999, 0},
        {"cuMemAlloc_v2", 13000, 0},
        {"cuNoSuchThing", 13000, 0},
    };
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    MUST(h);
    four = (__typeof__(four))dlsym(h, "cuGetProcAddress");
    five = (__typeof__(five))dlsym(h, "cuGetProcAddress_v2");
    for (unsigned i = 0; i < sizeof asked / sizeof asked[0]; i++)
        ask(asked[i].name, asked[i].version, (cuuint64_t)asked[i].flags);
    printf("dlsym cuMemAlloc: %s\n", place(dlsym(h, "cuMemAlloc")));
    printf("dlsym cuGetExportTable: %s\n", place(dlsym(h, "cuGetExportTable")));
    fflush(stdout);

    /* The same base name, four argument lists. */
    CUcontext c;
    CUdevice d;
    CUdeviceptr p;
    CUdeviceptr_v1 narrow = 0;
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param.smCount.val = 3};
    CUctxCreateParams params = {0};
    CUgraph g;
    CUgraphNode node;
    OK(CALL(cuInit, ask("cuInit", 2000, 0))(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, CALL(cuMemAlloc_v2, ask("cuMemAlloc", 3020, 0))(&p, 4096));
    OK(CALL(cuCtxCreate, ask("cuCtxCreate", 2000, 0))(&c, 0, 0));
    OK(CALL(cuCtxCreate_v2, ask("cuCtxCreate", 3020, 0))(&c, 0, 1));
    OK(CALL(cuCtxCreate_v3, ask("cuCtxCreate", 11040, 0))(&c, &affinity, 1, 0, 2));
    OK(CALL(cuCtxGetDevice, ask("cuCtxGetDevice", 2000, 0))(&d));
    MUST(d == 2);
    OK(CALL(cuCtxCreate_v4, ask("cuCtxCreate", 12050, 0))(&c, &params, 0, 1));
    OK(CALL(cuCtxGetDevice_v2, ask("cuCtxGetDevice", 13000, 0))(&d, c));
    MUST(d == 1);
    IS(CUDA_ERROR_INVALID_DEVICE, CALL(cuCtxCreate_v4, ask("cuCtxCreate", 12050, 0))(&c, &params, 0, 7));
    OK(CALL(cuMemAlloc_v2, ask("cuMemAlloc", 3020, 0))(&p, 5 * MIB));
    IS(CUDA_ERROR_OUT_OF_MEMORY,
       CALL(cuMemAlloc, ask("cuMemAlloc", 3010, 0))(&narrow, 4096)); /* does not fit 32 bits */
    IS(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree, ask("cuMemFree", 3010, 0))(12345));
    OK(CALL(cuGraphCreate, ask("cuGraphCreate", 10000, 0))(&g, 0));
    CUgraphNodeParams a = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                           .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}},
                                     .bytesize = 6 * MIB}};
    OK(CALL(cuGraphAddNode, ask("cuGraphAddNode", 12020, 0))(&node, g, NULL, 0, &a));
    a.alloc.bytesize = 7 * MIB;
    OK(CALL(cuGraphAddNode_v2, ask("cuGraphAddNode", 12030, 0))(&node, g, NULL, NULL, 0, &a));
    return 25;
}
