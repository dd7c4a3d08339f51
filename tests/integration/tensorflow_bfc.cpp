/*
 * A stand-in for TensorFlow's libtensorflow_framework.so.2: an allocator with the real one's names, virtual functions in the
 * real order, attributes and statistics as the real ones are laid out, and its ways: it extends its arena by a call of the
 * driver, asks for a tenth less as long as that is refused, and waits for other threads' memory before it refuses a request.
 * It hands out chunks of 256 bytes' multiples from the front of a region and takes whole regions' worth back to lists by size.
 * And of the C API, the function that runs an operation: what that allocates, threads of the library do.
 *
 * NAMESPACE: tsl, or tensorflow for releases until 2.10.
 */
#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <pthread.h>
#include <sys/time.h>

#ifndef NAMESPACE
#define NAMESPACE tsl
#endif
#define API extern "C" __attribute__((visibility("default")))
#define PUBLIC __attribute__((visibility("default"), noinline))

namespace NAMESPACE
{

struct AllocationAttributes {
    bool retry_on_failure = true, allocation_will_be_logged = false;
    void *freed_by_func = nullptr;
};

struct AllocatorStats {
    int64_t num_allocs = 0, bytes_in_use = 0, peak_bytes_in_use = 0, largest_alloc_size = 0;
    std::optional<int64_t> bytes_limit;
    int64_t bytes_reserved = 0, peak_bytes_reserved = 0;
};

class __attribute__((visibility("default"))) Allocator
{
  public:
    virtual ~Allocator() = default;
    virtual std::string Name() = 0;
    virtual void *AllocateRaw(size_t alignment, size_t bytes) = 0;
    virtual void *AllocateRaw(size_t alignment, size_t bytes, const AllocationAttributes &) = 0;
    virtual void DeallocateRaw(void *) = 0;
};

class __attribute__((visibility("default"))) BFCAllocator : public Allocator
{
  public:
    BFCAllocator(int device, size_t limit, bool grow, const std::string &name);
    ~BFCAllocator() override;
    std::string Name() override;
    void *AllocateRaw(size_t alignment, size_t bytes) override;
    void *AllocateRaw(size_t alignment, size_t bytes, const AllocationAttributes &) override;
    void DeallocateRaw(void *) override;
    virtual size_t AllocatedSize(const void *) const;
    virtual std::optional<AllocatorStats> GetStats();

    int64_t lie = 0; /* added to what it says is in use */

  private:
    void *Find(size_t bytes);
    bool Extend(size_t bytes);
    mutable std::mutex mutex_;
    CUcontext context_ = nullptr;
    size_t limit_, reserved_ = 0, next_;
    std::string name_;
    std::map<char *, size_t> regions_, used_; /* begin: bytes */
    std::multimap<size_t, char *> free_;
    char *at_ = nullptr, *end_ = nullptr;
    AllocatorStats stats_;
};

PUBLIC BFCAllocator::BFCAllocator(int device, size_t limit, bool grow, const std::string &name)
    : limit_(limit), next_(grow ? 2 << 20 : limit), name_(name)
{
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context_, device);
}

PUBLIC BFCAllocator::~BFCAllocator()
{
    cuCtxPushCurrent(context_);
    for (auto &r : regions_)
        cuMemFree((CUdeviceptr)r.first);
    cuCtxPopCurrent(nullptr);
}

PUBLIC std::string BFCAllocator::Name()
{
    return name_;
}

PUBLIC bool BFCAllocator::Extend(size_t bytes)
{
    size_t size = next_ > bytes ? next_ : bytes;
    if (size > limit_ - reserved_)
        size = limit_ - reserved_;
    CUdeviceptr got = 0;
    cuCtxPushCurrent(context_);
    while (size >= bytes && cuMemAlloc(&got, size))
        size = size / 10 * 9 / 256 * 256;
    cuCtxPopCurrent(nullptr);
    if (!got)
        return false;
    next_ *= 2;
    reserved_ += size;
    regions_[(char *)got] = size;
    at_ = (char *)got;
    end_ = at_ + size;
    return true;
}

PUBLIC void *BFCAllocator::Find(size_t bytes)
{
    auto i = free_.find(bytes);
    if (i != free_.end()) {
        char *found = i->second;
        free_.erase(i);
        return found;
    }
    if ((size_t)(end_ - at_) < bytes && !Extend(bytes))
        return nullptr;
    char *found = at_;
    at_ += bytes;
    return found;
}

PUBLIC void *BFCAllocator::AllocateRaw(size_t alignment, size_t bytes)
{
    return AllocateRaw(alignment, bytes, AllocationAttributes());
}

PUBLIC void *BFCAllocator::AllocateRaw(size_t, size_t bytes, const AllocationAttributes &how)
{
    if (!bytes)
        return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    size_t rounded = (bytes + 255) / 256 * 256;
    void *found = Find(rounded);
    if (!found && how.retry_on_failure)
        found = Find(rounded); /* after a wait for other threads */
    if (!found)
        return nullptr;
    used_[(char *)found] = rounded;
    stats_.num_allocs++;
    stats_.bytes_in_use += (int64_t)rounded;
    return found;
}

PUBLIC void BFCAllocator::DeallocateRaw(void *p)
{
    if (!p)
        return;
    std::lock_guard<std::mutex> lock(mutex_);
    auto i = used_.find((char *)p);
    stats_.bytes_in_use -= (int64_t)i->second;
    free_.emplace(i->second, i->first);
    used_.erase(i);
}

PUBLIC size_t BFCAllocator::AllocatedSize(const void *p) const
{
    std::lock_guard<std::mutex> lock(mutex_);
    return used_.at((char *)p);
}

PUBLIC std::optional<AllocatorStats> BFCAllocator::GetStats()
{
    std::lock_guard<std::mutex> lock(mutex_);
    AllocatorStats s = stats_;
    s.bytes_in_use += lie;
    return s;
}

} // namespace NAMESPACE

using NAMESPACE::AllocationAttributes;
using NAMESPACE::BFCAllocator;

/* As TensorFlow's: a class of its own for the GPU, whose table has the base's functions. */
class __attribute__((visibility("default"))) GPUBFCAllocator : public BFCAllocator
{
  public:
    using BFCAllocator::BFCAllocator;
    ~GPUBFCAllocator() override;
};

GPUBFCAllocator::~GPUBFCAllocator() = default;

API void *bfc_new(int device, size_t limit, int grow, const char *name)
{
    return new GPUBFCAllocator(device, limit, grow, name);
}

API void bfc_delete(void *a)
{
    delete (NAMESPACE::Allocator *)(BFCAllocator *)a;
}

API void *bfc_take(void *a, size_t bytes, int insist)
{
    AllocationAttributes how;
    how.retry_on_failure = insist;
    NAMESPACE::Allocator *allocator = (BFCAllocator *)a;
    return insist == 2 ? allocator->AllocateRaw(64, bytes) : allocator->AllocateRaw(64, bytes, how);
}

API void bfc_give(void *a, void *p)
{
    NAMESPACE::Allocator *allocator = (BFCAllocator *)a;
    allocator->DeallocateRaw(p);
}

API size_t bfc_in_use(void *a)
{
    return (size_t)((BFCAllocator *)a)->GetStats()->bytes_in_use;
}

API void bfc_lie(void *a, long bytes)
{
    ((BFCAllocator *)a)->lie = bytes;
}

/* Threads at once: each takes and gives chunks, and keeps every eighth. Returns the bytes that are kept, as asked for. */
API size_t bfc_threads(void *a, int threads, int times)
{
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([=] {
            for (int i = 0; i < times; i++) {
                void *p = bfc_take(a, 256u * (1u + (unsigned)(i * 7 + t) % 5u), 1);
                if (i % 8)
                    bfc_give(a, p);
            }
        });
    for (auto &t : all)
        t.join();
    return bfc_in_use(a);
}

/* --- the C API --- */

struct operation {
    const char *name;
    std::function<void()> work;
};
extern "C" {
__attribute__((visibility("default"))) int tfe_executed;
}
API const char *TFE_OpGetName(const operation *o, void *)
{
    return o->name;
}

API void TFE_Execute(operation *o, void **results, int *count, void *status)
{
    __atomic_add_fetch(&tfe_executed, 1, __ATOMIC_RELAXED);
    if (results)
        results[0] = o;
    if (count)
        *count = 1;
    (void)status;
    if (o->work)
        o->work();
}

/* As its Python module calls it: from another function, through the procedure linkage table. */
static int run(const char *name, const std::function<void()> &work)
{
    operation o = {name, work};
    void *result = nullptr;
    int count = 0;
    TFE_Execute(&o, &result, &count, nullptr);
    return result == &o && count == 1;
}

API int tfe_run(const char *name)
{
    return run(name, {});
}

/* --- operations that allocate: on threads of the library --- */

static void worker(const std::function<void()> &work)
{
    std::thread(work).join();
}

/* Nobody is inside. */
API void *tfe_idle_take(void *a, size_t bytes)
{
    void *p = nullptr;
    worker([&] { p = bfc_take(a, bytes, 1); });
    return p;
}

API void *tfe_take(void *a, size_t bytes)
{
    void *p = nullptr;
    run("take", [&] { p = tfe_idle_take(a, bytes); });
    return p;
}

/* A temporary, and what is kept in its place. */
API void *tfe_take_again(void *a, size_t bytes)
{
    void *p = nullptr;
    run("take_again", [&] {
        worker([&] {
            bfc_give(a, bfc_take(a, bytes, 1));
            p = bfc_take(a, bytes, 1);
        });
    });
    return p;
}

/* The thread goes on when the operation has returned. */
API void *tfe_take_late(void *a, size_t bytes)
{
    void *p = nullptr;
    std::promise<void> returned;
    std::thread t;
    run("take_late", [&] {
        t = std::thread([&] {
            returned.get_future().wait();
            p = bfc_take(a, bytes, 1);
        });
    });
    returned.set_value();
    t.join();
    return p;
}

/* Two at once. */
API void *tfe_take_both(void *a, size_t bytes)
{
    static std::mutex mutex;
    static std::condition_variable arrived;
    static int inside;
    void *p = nullptr;
    auto meet = [](int number) {
        std::unique_lock<std::mutex> lock(mutex);
        inside++;
        arrived.notify_all();
        arrived.wait(lock, [=] { return inside >= number; });
    };
    run("take_both", [&] {
        meet(2);
        p = tfe_idle_take(a, bytes);
        meet(4);
    });
    return p;
}

/* Python is called back, on the same thread or on one of the library's; then memory is taken. */
API void *tfe_call_and_take(void (*callback)(), int elsewhere, void *a, size_t bytes)
{
    void *p = nullptr;
    run("call_and_take", [&] {
        if (elsewhere)
            worker(callback);
        else
            callback();
        p = tfe_idle_take(a, bytes);
    });
    return p;
}

API int tfe_throw(void *a, size_t bytes)
{
    try {
        run("throw", [&] {
            tfe_idle_take(a, bytes);
            throw std::runtime_error("an error");
        });
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}

/* A thread that ends inside. */
API void tfe_exit()
{
    pthread_t t;
    pthread_create(
        &t, nullptr,
        [](void *) -> void * {
            run("exit", [] { pthread_exit(nullptr); });
            return nullptr;
        },
        nullptr);
    pthread_join(t, nullptr);
}

/* From deeper in the stack than what comes next: only then can it be told that the call has ended. */
static __attribute__((noinline)) int jump(jmp_buf back)
{
    volatile char deep[1024] = {};
    static void *to;
    to = back;
    return run("jump", [] { longjmp(*(jmp_buf *)to, 1); }) + deep[0];
}

API void tfe_jump()
{
    jmp_buf back;
    if (!setjmp(back))
        jump(back);
}

/* Runs operations while a signal handler does. */
API int tfe_interrupted(int times)
{
    static volatile sig_atomic_t signals;
    struct sigaction action = {}, before;
    itimerval often = {{0, 50}, {0, 50}}, never = {};
    action.sa_handler = [](int) { signals = signals + run("signal", {}); };
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, nullptr);
    for (int i = 0; i < times || signals < 100; i++)
        run("interrupted", {});
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before, nullptr);
    return signals;
}

/* As with TF_GPU_ALLOCATOR=cuda_malloc_async. */
API size_t tfe_take_cuda(size_t bytes)
{
    CUdeviceptr p = 0;
    run("take_cuda", [&] {
        worker([&] {
            CUcontext context;
            cuInit(0);
            cuDevicePrimaryCtxRetain(&context, 0);
            cuCtxSetCurrent(context);
            if (cuMemAllocAsync(&p, bytes, nullptr))
                p = 0;
        });
    });
    return (size_t)p;
}
