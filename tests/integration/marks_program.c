/* Leaves marks by vramtrack.h, or by NVTX (marks_program nvtx), around allocations of known sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <vramtrack/vramtrack.h>

#ifdef WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#define KIB 1024

static void *make(size_t bytes)
{
    void *p;
    if (cudaMalloc(&p, bytes) != cudaSuccess)
        exit(3);
    return p;
}

static void marks(void)
{
    vramtrack_range_push("before anything");
    void *first = make(4 * KIB);
    vramtrack_range_pop("before anything");
    vramtrack_mark("begun");
    for (int epoch = 0; epoch < 3; epoch++) {
        vramtrack_range_push("epoch");
        void *p = make(8 * KIB);
        vramtrack_moment("epoch");
        if (epoch < 2)
            cudaFree(p);
        vramtrack_range_pop("epoch");
        vramtrack_step();
    }
    vramtrack_moment("end");
    vramtrack_moment("a name that is much longer than the room for it");
    vramtrack_moment(NULL);
    vramtrack_mark(NULL);
    cudaFree(first);
}

#ifdef WITH_NVTX
static void nvtx(void)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("test");
    nvtxEventAttributes_t a = {0};
    a.version = NVTX_VERSION;
    a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = "with attributes";
    make(4 * KIB);
    printf("%d ", nvtxRangePushA("outer"));
    make(8 * KIB);
    printf("%d ", nvtxRangePushEx(&a));
    make(12 * KIB);
    nvtxDomainRangePushEx(domain, &a);
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    nvtxDomainRangePushEx(domain, &a);
    make(16 * KIB);
    nvtxDomainRangePop(domain);
    nvtxDomainRangePop(domain);
    printf("%d ", nvtxRangePop());
    make(20 * KIB);
    nvtxMarkA("marked");
    nvtxDomainMarkEx(domain, &a);
    printf("%d\n", nvtxRangePop());
    make(24 * KIB);
}
#endif

int main(int argc, char **argv)
{
#ifdef WITH_NVTX
    if (argc > 1 && !strcmp(argv[1], "nvtx")) {
        nvtx();
        fflush(stdout);
        if (argc > 2) { /* a child that has the variable without the library */
            unsetenv("LD_PRELOAD");
            execl(argv[0], argv[0], "nvtx", (char *)NULL);
        }
        return 0;
    }
#endif
    (void)argc, (void)argv;
    marks();
    puts("done");
    fflush(stdout);
    _exit(0);
}
