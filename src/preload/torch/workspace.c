/*
 * Workspaces that PyTorch makes for cuBLAS: its caching allocator hands them out like tensors, on whatever line needs the
 * first matrix product, and they stay. They would pass for activations or gradients. They are made by three functions of
 * libtorch_cuda (aten/src/ATen/cuda/CublasHandlePool.cpp, 1.11 to 2.15; a version has one or two of them), which are called
 * a few times per thread and stream; what is allocated inside of them is booked under another name.
 *
 * They return an at::DataPtr through a hidden pointer, as the C++ ABI has it: on x86-64 that is the first argument and the
 * result; on other machines a struct of its four words comes out the same.
 */
#include "preload/torch/scopes.h"

#include <stddef.h>
#include <string.h>

#include "preload/options.h"
#include "preload/torch/real.h"

struct data_pointer {
    void *data, *context, *deleter;
    uint64_t device;
};

#ifdef __x86_64__
typedef void *made;

static made make_nothing(void *result)
{
    return memset(result, 0, sizeof(struct data_pointer));
}

#define PLAIN (void *result)
#define SIZED (void *result, size_t bytes)
#define PASS_PLAIN (result)
#define PASS_SIZED (result, bytes)
#define NOTHING make_nothing(result)
#else
typedef struct data_pointer made;

#define PLAIN (void)
#define SIZED (size_t bytes)
#define PASS_PLAIN ()
#define PASS_SIZED (bytes)
#define NOTHING ((struct data_pointer){NULL, NULL, NULL, 0})
#endif

#define WORKSPACE(name, parameters, arguments)                   \
    VT_EXPORT made name parameters;                              \
    VT_EXPORT made name parameters                               \
    {                                                            \
        typedef made function parameters;                        \
        function *real = (function *)vt_torch_real(VT_T_##name); \
        if (!real)                                               \
            return NOTHING;                                      \
        uint8_t around = vt_phase_tls.workspace;                 \
        vt_phase_tls.workspace = !vt_options()->off;             \
        made r = real arguments;                                 \
        vt_phase_tls.workspace = around;                         \
        return r;                                                \
    }

WORKSPACE(_ZN2at4cuda15getNewWorkspaceEv, PLAIN, PASS_PLAIN)
WORKSPACE(_ZN2at4cuda25getNewCUDABlasLtWorkspaceEv, PLAIN, PASS_PLAIN)
WORKSPACE(_ZN2at4cuda25allocateCUDABlasWorkspaceEm, SIZED, PASS_SIZED)

/* Their callers. Both return a pointer and have no argument; one that comes is handed on, should a version return more. */
#define CALLER(name)                                             \
    VT_EXPORT void *name(void *first);                           \
    VT_EXPORT void *name(void *first)                            \
    {                                                            \
        typedef void *function(void *);                          \
        function *real = (function *)vt_torch_real(VT_T_##name); \
        if (!real)                                               \
            return NULL;                                         \
        uint8_t around = vt_phase_tls.workspace;                 \
        vt_phase_tls.workspace = !vt_options()->off;             \
        void *r = real(first);                                   \
        vt_phase_tls.workspace = around;                         \
        return r;                                                \
    }

CALLER(_ZN2at4cuda24getCurrentCUDABlasHandleEv)
CALLER(_ZN2at4cuda22getCUDABlasLtWorkspaceEv)
