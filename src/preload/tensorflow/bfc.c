/* The table of TensorFlow's allocators; see bfc.h. */
#include "preload/tensorflow/bfc.h"

#include <link.h>
#include <string.h>

#include "preload/elf.h"
#include "preload/loaded.h"
#include "preload/resolve.h"
#include "preload/tensorflow/table.h"

#define ALLOCATORS 128u
#define PLACES 512u
#define GONE 1u

static struct vt_bfc allocators[ALLOCATORS];
static uint32_t taken;                /* of allocators; atomic */
static struct vt_bfc *places[PLACES]; /* by address; GONE: was there */

#ifndef VT_TENSORFLOW_NAME
#define VT_TENSORFLOW_NAME "GPU_" /* "GPU_0_bfc"; the host's are "gpu_host_bfc", "cpu_bfc", ... */
#endif

/* --- the real functions --- */

static const struct {
    const char *allocate, *deallocate, *destroy, *size, *stats, *name;
} names[VT_BFC_NAMESPACES] = {
    [VT_BFC_TSL] = {"_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
                    "_ZN3tsl12BFCAllocator13DeallocateRawEPv", "_ZN3tsl12BFCAllocatorD2Ev",
                    "_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv", "_ZN3tsl12BFCAllocator8GetStatsEv",
                    "_ZN3tsl12BFCAllocator4NameB5cxx11Ev"},
    [VT_BFC_TENSORFLOW] = {"_ZN10tensorflow12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE",
                           "_ZN10tensorflow12BFCAllocator13DeallocateRawEPv", "_ZN10tensorflow12BFCAllocatorD2Ev",
                           "_ZNK10tensorflow12BFCAllocator13AllocatedSizeEPKv", NULL,
                           "_ZN10tensorflow12BFCAllocator4NameB5cxx11Ev"},
};

/* In the library that has the virtual table, else in any: a derived class may live elsewhere. */
static void *find(const struct link_map *map, const char *name)
{
    void *found = map && name ? vt_elf_symbol(map, name) : NULL;
    return found || !name ? found : vt_loaded_symbol("", name);
}

static struct vt_bfc_functions functions_in(const struct link_map *map, enum vt_bfc_namespace n)
{
    return (struct vt_bfc_functions){.allocate = (vt_bfc_allocate_fn *)find(map, names[n].allocate),
                                     .deallocate = (vt_bfc_deallocate_fn *)find(map, names[n].deallocate),
                                     .destroy = (vt_bfc_destroy_fn *)find(map, names[n].destroy),
                                     .size = (vt_bfc_size_fn *)find(map, names[n].size),
                                     .stats = find(map, names[n].stats),
                                     .name = find(map, names[n].name)};
}

static bool object_of(const void *self, struct vt_object *o)
{
    return vt_object_at(*(const void *const *)self, o); /* of the virtual table */
}

struct vt_bfc_functions vt_bfc_functions_of(const void *self, enum vt_bfc_namespace n)
{
    struct vt_object o;
    return functions_in(object_of(self, &o) ? o.link_map : NULL, n);
}

/* --- what an allocator is --- */

/* A std::string as the C++ library has it; returned through a hidden pointer. One of more than 15 characters lies in memory
 * that only the program's operator delete may free: it is left there, once per allocator. */
struct text {
    const char *begin;
    uint64_t length;
    char here[16];
};
typedef struct text name_fn(const void *self);

/* The number in "GPU_<number>_bfc"; -1: another one's name. */
static int number_in(const struct text *t)
{
    uint64_t i = sizeof VT_TENSORFLOW_NAME - 1;
    int number = 0;
    if (t->length <= i || t->length > 64 || memcmp(t->begin, VT_TENSORFLOW_NAME, i))
        return -1;
    for (; i < t->length && t->begin[i] >= '0' && t->begin[i] <= '9' && number < 1000; i++)
        number = number * 10 + (t->begin[i] - '0');
    return number;
}

/* NULL: no more room. */
static struct vt_bfc *describe(const void *self, const struct vt_bfc_functions *real, const char *library)
{
    uint32_t i = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
    if (i >= ALLOCATORS) {
        __atomic_store_n(&taken, ALLOCATORS, __ATOMIC_RELAXED);
        return NULL;
    }
    struct vt_bfc *b = &allocators[i];
    int number = -1;
    if (real->name) {
        struct text t = ((name_fn *)real->name)(self);
        number = number_in(&t);
    }
    *b = (struct vt_bfc){.self = self,
                         .real = *real,
                         .library = library,
                         .gpu = number >= 0,
                         .number = (uint8_t)i,
                         .device = (int16_t)number,
                         .stats = real->stats ? 0 : -1};
    return b;
}

/* --- the table --- */

static unsigned home(const void *self)
{
    return (unsigned)((uintptr_t)self * 0x9e3779b97f4a7c15ull >> 55);
}

static bool is_entry(const struct vt_bfc *b)
{
    return (uintptr_t)b > GONE;
}

/* Puts a new one in. Another thread may have been faster: then its entry. */
static struct vt_bfc *put(struct vt_bfc *b)
{
    for (unsigned i = home(b->self), n = 0; n < PLACES; i++, n++) {
        struct vt_bfc **at = &places[i % PLACES], *old = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        if (!old && __atomic_compare_exchange_n(at, &old, b, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return b;
        if (is_entry(old) && old->self == b->self)
            return old;
    }
    return NULL;
}

struct vt_bfc *vt_bfc_of(const void *self, enum vt_bfc_namespace n)
{
    struct vt_object o;
    for (unsigned i = home(self), k = 0; k < PLACES; i++, k++) {
        struct vt_bfc *b = __atomic_load_n(&places[i % PLACES], __ATOMIC_ACQUIRE);
        if (!b)
            break;
        if (is_entry(b) && b->self == self)
            return b;
    }
    if (__atomic_load_n(&taken, __ATOMIC_RELAXED) >= ALLOCATORS)
        return NULL;
    bool known = object_of(self, &o);
    struct vt_bfc_functions real = functions_in(known ? o.link_map : NULL, n);
    if (!real.allocate || !real.deallocate)
        return NULL;
    struct vt_bfc *b = describe(self, &real, known && o.name ? o.name : "");
    return b ? put(b) : NULL;
}

void vt_bfc_forget(struct vt_bfc *b)
{
    for (unsigned i = 0; i < PLACES; i++) {
        struct vt_bfc *old = b;
        __atomic_compare_exchange_n(&places[i], &old, (struct vt_bfc *)GONE, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
}

/* --- its own figures --- */

void vt_bfc_enter(struct vt_bfc *b)
{
    __atomic_add_fetch(&b->inside, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&b->turns, 1, __ATOMIC_SEQ_CST);
}

void vt_bfc_leave(struct vt_bfc *b, int64_t change)
{
    __atomic_add_fetch(&b->sum, (uint64_t)change, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&b->inside, 1, __ATOMIC_SEQ_CST);
}

/* std::optional<AllocatorStats>: the value comes first; of it, int64_t num_allocs and bytes_in_use do. Newer releases have
 * more behind them, so there is room. */
struct answer {
    uint64_t word[64];
};
typedef struct answer stats_fn(const void *self);

bool vt_bfc_ask(const struct vt_bfc *b, struct vt_bfc_stats *s)
{
    if (__atomic_load_n(&b->stats, __ATOMIC_ACQUIRE) < 0)
        return false;
    s->turns = __atomic_load_n(&b->turns, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&b->inside, __ATOMIC_SEQ_CST))
        return false;
    s->sum = __atomic_load_n(&b->sum, __ATOMIC_SEQ_CST);
    struct answer a = ((stats_fn *)b->real.stats)(b->self);
    s->allocations = a.word[0];
    s->bytes = a.word[1];
    return __atomic_load_n(&b->turns, __ATOMIC_SEQ_CST) == s->turns && !__atomic_load_n(&b->inside, __ATOMIC_SEQ_CST);
}
