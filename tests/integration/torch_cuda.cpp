/*
 * A stand-in for PyTorch's libtorch_cuda.so: makes workspaces for cuBLAS by functions with the real ones' names, which
 * return their result (at::DataPtr: four words, with a destructor) as the C++ ABI has it. They are called through the
 * procedure linkage table, as in the real library.
 */
#include <cstddef>
#include <memory>
#include <new>

#define API extern "C" __attribute__((visibility("default")))
#define PUBLIC                            \
    __attribute__((visibility("default"), \
                   noinline)) /* clang inlines what could be interposed; PyTorch is built by gcc */

API void *torch_malloc(int device, size_t bytes, void *stream);
API void torch_free(int device, void *p, void *stream);

namespace at
{

static void give_back(void *p)
{
    torch_free(0, p, nullptr);
}

class DataPtr
{
  public:
    explicit DataPtr(void *p) : data(p), context(p, give_back)
    {
    }
    void *get() const
    {
        return data;
    }

  private:
    void *data;
    std::unique_ptr<void, void (*)(void *)> context;
    struct {
        signed char type, index;
    } device = {1, 0};
};
static_assert(sizeof(DataPtr) == 32, "as the real one");

namespace cuda
{

static DataPtr make(size_t bytes)
{
    void *p = torch_malloc(0, bytes, nullptr);
    if (!p)
        throw std::bad_alloc();
    return DataPtr(p);
}

PUBLIC DataPtr getNewWorkspace()
{
    return make(32u << 20);
}

PUBLIC DataPtr getNewCUDABlasLtWorkspace()
{
    return make(1u << 20);
}

PUBLIC DataPtr allocateCUDABlasWorkspace(size_t bytes)
{
    return make(bytes);
}

/* In some builds the functions above are part of these, which are called for every matrix product. */
PUBLIC void *getCurrentCUDABlasHandle()
{
    static auto workspace = new DataPtr(make(16u << 20));
    return workspace->get();
}

PUBLIC void *getCUDABlasLtWorkspace()
{
    if (!getCurrentCUDABlasHandle()) /* first, as PyTorch does: it has its workspace already or makes it now */
        return nullptr;
    static auto workspace = new DataPtr(make(8u << 20));
    return workspace->get();
}

} // namespace cuda
} // namespace at

/* A matrix product. 0: it got its handle and workspace. */
API int torch_product(void)
{
    return at::cuda::getCurrentCUDABlasHandle() && at::cuda::getCUDABlasLtWorkspace() ? 0 : 1;
}

/* Makes a workspace of each kind and keeps it. 0: all is as it should be. */
API int torch_workspaces(size_t bytes)
{
    static auto first = new at::DataPtr(at::cuda::getNewWorkspace()); /* kept for good, as PyTorch does */
    static auto second = new at::DataPtr(at::cuda::getNewCUDABlasLtWorkspace());
    static auto third = new at::DataPtr(at::cuda::allocateCUDABlasWorkspace(bytes));
    return first->get() && second->get() && third->get() ? 0 : 1;
}

/* One that is given back. 1: there was no memory for it. */
API int torch_short_workspace(size_t bytes)
{
    try {
        return at::cuda::allocateCUDABlasWorkspace(bytes).get() ? 0 : 2;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}
