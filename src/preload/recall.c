/* Native stacks that are recognised; see recall.h. */
#include "preload/recall.h"

#include <errno.h>
#include <string.h>

#include "preload/hot.h"

struct vt_unwind_steps vt_unwind_steps;

#ifdef __x86_64__

#define SETS 256u
#define WAYS 4u
#define FRAMES 96u /* of a stack that is remembered; a deeper one is unwound each time */

struct known {
    const void *cfa, *ip;
    uint64_t salt, hash;
    unsigned count;
    uint32_t offset[FRAMES];
    const void *at[FRAMES]; /* the return addresses */
};
static struct known table[SETS][WAYS]; /* pages that are not used cost nothing */
static uint8_t next[SETS];             /* which way gives room */

/* A stack that was recognised earns 1, a stack that is measured costs PRICE: a program whose stacks are all different, or of
 * which too many begin at one place, does not pay for learning them for ever. */
#define PRICE 32
#define MOST (64 * PRICE)
static int credit = 1024 * PRICE;

static unsigned set_of(const struct vt_call_place *at)
{
    uint64_t h = ((uintptr_t)at->cfa ^ (uintptr_t)at->ip << 16) * 0x9e3779b97f4a7c15ull;
    return (unsigned)(h >> 56) % SETS;
}

/* No sanitizer: these are other functions' frames. */
static inline __attribute__((no_sanitize("address", "undefined", "thread"))) const void *word(const void *base,
                                                                                              uint32_t offset)
{
    return *(const void *const *)((const char *)base + offset);
}

static VT_HOT bool is_here(const struct known *k, const void *cfa)
{
    const void *base = (const char *)cfa - sizeof(void *);
    for (unsigned i = 0; i < k->count; i++)
        if (word(base, k->offset[i]) != k->at[i])
            return false;
    return true;
}

VT_HOT bool vt_recall(const struct vt_call_place *at, uint64_t *hash)
{
    unsigned set = set_of(at);
    for (unsigned way = 0; way < WAYS; way++) {
        const struct known *k = &table[set][way];
        if (k->cfa != at->cfa || k->ip != at->ip || k->salt != vt_stack_salt() || !is_here(k, at->cfa))
            continue;
        *hash = k->hash;
        int now = __atomic_load_n(&credit, __ATOMIC_RELAXED); /* one that is taken meanwhile may be lost: no matter */
        __atomic_store_n(&credit, now + (now < MOST), __ATOMIC_RELAXED);
        return true;
    }
    return false;
}

/* Registers by their numbers in the ABI's supplement. */
enum { STACK_POINTER = 7, RETURN_ADDRESS = 16 };

/* unw_cursor_t is 127 words, unw_context_t is ucontext_t: with room to spare. */
#define CURSOR_WORDS 192
#define CONTEXT_WORDS 192

static unsigned measure(const struct vt_call_place *at, const struct vt_stack *s, uint32_t *offset)
{
    uint64_t context[CONTEXT_WORDS], cursor[CURSOR_WORDS], ip, sp, last = 0;
    uint64_t base = (uintptr_t)at->cfa - sizeof(void *);
    const struct vt_unwind_steps *u = &vt_unwind_steps;
    unsigned k = 0;
    u->context(context);
    if (u->begin(cursor, context) < 0)
        return 0;
    for (unsigned steps = 0; k < s->count && steps < s->count + VT_OWN_FRAMES; steps++) {
        if (u->get(cursor, RETURN_ADDRESS, &ip) < 0 || u->get(cursor, STACK_POINTER, &sp) < 0)
            return 0;
        if (k || sp == (uintptr_t)at->cfa) {
            uint64_t offset_here = sp - sizeof(void *) - base;
            bool sound = ip == (uintptr_t)s->ip[k] && offset_here < 8u << 20 && (!k || offset_here > last) &&
                         word((const void *)base, (uint32_t)offset_here) == s->ip[k];
            if (!sound) /* a signal's frame, or one that the two ways of unwinding see differently */
                return 0;
            last = offset_here;
            offset[k++] = (uint32_t)offset_here;
        }
        if (u->step(cursor) <= 0)
            break;
    }
    return k;
}

void vt_recall_measure(const struct vt_call_place *at, const struct vt_stack *s, struct vt_stack_places *places)
{
    int saved = errno;
    places->count = 0;
    bool may = vt_unwind_steps.get && s->count && s->count <= FRAMES && s->ip[0] == at->ip;
    if (may && __atomic_load_n(&credit, __ATOMIC_RELAXED) >= PRICE) {
        __atomic_fetch_sub(&credit, PRICE, __ATOMIC_RELAXED);
        places->count = measure(at, s, places->offset) == s->count ? s->count : 0;
    }
    errno = saved;
}

void vt_recall_learn(const struct vt_call_place *at, const struct vt_stack *s, const struct vt_stack_places *places)
{
    if (!places->count)
        return;
    unsigned set = set_of(at);
    struct known *k = &table[set][next[set]++ % WAYS];
    k->cfa = at->cfa;
    k->ip = at->ip;
    k->salt = vt_stack_salt();
    k->hash = s->hash;
    k->count = places->count;
    memcpy(k->offset, places->offset, places->count * sizeof k->offset[0]);
    memcpy(k->at, s->ip, places->count * sizeof k->at[0]);
}

#else

bool vt_recall(const struct vt_call_place *at, uint64_t *hash)
{
    (void)at;
    (void)hash;
    return false;
}

void vt_recall_measure(const struct vt_call_place *at, const struct vt_stack *s, struct vt_stack_places *places)
{
    (void)at;
    (void)s;
    places->count = 0;
}

void vt_recall_learn(const struct vt_call_place *at, const struct vt_stack *s, const struct vt_stack_places *places)
{
    (void)at;
    (void)s;
    (void)places;
}

#endif
