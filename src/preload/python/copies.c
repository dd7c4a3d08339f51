/*
 * Which copy of its instructions a frame runs: in free-threaded builds since 3.14 each thread specializes a copy of its own
 * ("thread-local bytecode", Objects/codeobject.c). A code object has an array of them, with its size in front; a frame has
 * the number of the one that it runs, 0 being the one in the code object itself.
 *
 * A thread that has given its state back, as a call into CUDA usually has, does not hold up the freeing of memory: another
 * thread may put a longer array in this one's place and free it while it is read here. So arrays are read through the
 * kernel, which answers a bad address with an error, and what comes out counts if the code object still has that array.
 * The copies themselves stay where they are as long as a thread has their number, so they are looked up once.
 */
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/python/interpreter.h"

#define TRIES 4

/* What was looked up, for all threads. An entry vouches for itself, so that nobody waits, nor a signal handler: what two
 * threads write at once matches nothing. */
#define KNOWN_BITS 13
#define NEIGHBOURS 4

static struct copy {
    uint64_t start;
    uint64_t check; /* the hash of what it is looked up by, ^ start */
} known[(1u << KNOWN_BITS) + NEIGHBOURS];

/* co_version tells a code object from a later one at its address. */
static uint64_t hash_of(const void *code, uint32_t version, int32_t index)
{
    __uint128_t product = (__uint128_t)((uintptr_t)code ^ 0x9e3779b97f4a7c15ull) *
                          (((uint64_t)version << 32 | (uint32_t)index) ^ 0xd1b54a32d192ed03ull);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static const char *recall(uint64_t hash)
{
    const struct copy *c = &known[hash >> (64 - KNOWN_BITS)];
    for (unsigned i = 0; i < NEIGHBOURS; i++, c++) {
        uint64_t start = load(&c->start);
        if ((load(&c->check) ^ start) == hash)
            return (const char *)(uintptr_t)start;
    }
    return NULL;
}

static void remember(uint64_t hash, const char *start)
{
    static unsigned next;
    struct copy *c = &known[hash >> (64 - KNOWN_BITS)];
    unsigned i = 0;
    while (i < NEIGHBOURS && load(&c[i].start) && (load(&c[i].check) ^ load(&c[i].start)) != hash)
        i++;
    if (i == NEIGHBOURS)
        i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % NEIGHBOURS;
    __atomic_store_n(&c[i].start, (uintptr_t)start, __ATOMIC_RELAXED);
    __atomic_store_n(&c[i].check, hash ^ (uintptr_t)start, __ATOMIC_RELAXED);
}

static bool read_entry(const void *array, uint32_t index, uint64_t *size, const char **entry)
{
    const char *from_entry = (const char *)array + sizeof *size + (uint64_t)index * sizeof *entry;
    struct iovec to[] = {{size, sizeof *size}, {entry, sizeof *entry}};
    struct iovec from[] = {{(void *)(uintptr_t)array, sizeof *size}, {(void *)(uintptr_t)from_entry, sizeof *entry}};
    return syscall(SYS_process_vm_readv, syscall(SYS_gettid), to, 2ul, from, 2ul, 0ul) ==
           (long)(sizeof *size + sizeof *entry);
}

static const char *look_up(const struct vt_py_layout *at, const void *code, uint32_t index)
{
    void *const *slot = (void *const *)((const char *)code + at->code_tlbc);
    for (unsigned tries = 0; tries < TRIES; tries++) {
        const void *array = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        uint64_t size = 0;
        const char *entry = NULL;
        bool read = array && read_entry(array, index, &size, &entry);
        if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) == array) /* a system call lies between the two */
            return read && index < size ? entry : NULL;
    }
    return NULL;
}

static bool within(const char *instr, const char *start, uint64_t size)
{
    return start && (uintptr_t)instr - (uintptr_t)start < size;
}

const char *vt_py_copy(const struct vt_py_layout *at, const void *code, int32_t index, const char *instr)
{
    uint64_t size = 2 * vt_py_get64(code, at->ob_size);
    uint32_t version = vt_py_get32(code, at->code_version);
    uint64_t hash = hash_of(code, version, index);
    const char *start = version ? recall(hash) : NULL;
    if (within(instr, start, size))
        return start;
    if (index < 0 || !within(instr, start = look_up(at, code, (uint32_t)index), size))
        return NULL;
    remember(hash, start);
    return start;
}
