/*
 * The table of names; see range.h. Entries are only added, so reading needs no lock; adding takes a lock of its own, which is
 * held for the copying of one name.
 */
#include "preload/range.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "preload/state.h"
#include "recording/utf8.h"

#define NAME_BYTES 64u
#define SLOTS 4096u            /* a power of two */
#define FOLD_ALL VT_RANGES / 2 /* so many names, and digits inside of words are folded as well */
#define OTHER (VT_RANGES + 1)

static char names[VT_RANGES + 2][NAME_BYTES] = {[OTHER] = "other"};
static uint16_t slots[SLOTS]; /* number of a name, by its hash; 0: free */
static uint32_t used;
static int adding;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Puts N for each number; one that belongs to a word ("layer3", "fp16") stays unless `all`. */
static void fold(const char *name, bool all, char *to)
{
    unsigned n = 0;
    char before = 0;
    while (*name && n + 1 < NAME_BYTES) {
        if (is_digit(*name) && (all || !is_letter(before))) {
            to[n++] = 'N';
            while (is_digit(*name))
                name++;
            before = 'N';
            continue;
        }
        before = is_digit(*name) ? before : *name; /* the digits behind a kept one are kept */
        to[n++] = *name++;
    }
    to[*name ? vt_utf8_whole(to, n) : n] = 0;
}

static uint32_t hash_of(const char *text)
{
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h ^ h >> 15;
}

static uint16_t find(const char *name, uint32_t hash)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        uint16_t n = __atomic_load_n(&slots[(hash + i) % SLOTS], __ATOMIC_ACQUIRE);
        if (!n || !strcmp(names[n], name))
            return n;
    }
    return 0;
}

static uint16_t add(const char *name, uint32_t hash)
{
    uint16_t n = find(name, hash);
    if (n || used >= VT_RANGES)
        return n ? n : OTHER;
    n = (uint16_t)(used + 1);
    strcpy(names[n], name);
    unsigned i = hash % SLOTS;
    while (slots[i])
        i = (i + 1) % SLOTS;
    __atomic_store_n(&slots[i], n, __ATOMIC_RELEASE);
    __atomic_store_n(&used, n, __ATOMIC_RELEASE);
    return n;
}

static uint16_t find_or_add(const char *name)
{
    uint32_t hash = hash_of(name);
    uint16_t n = find(name, hash);
    if (n || vt_tls.busy)
        return n;
    vt_tls.busy = 1; /* a signal handler must not wait for the lock that its own thread holds */
    while (__atomic_exchange_n(&adding, 1, __ATOMIC_ACQUIRE))
        sched_yield();
    n = add(name, hash);
    __atomic_store_n(&adding, 0, __ATOMIC_RELEASE);
    vt_tls.busy = 0;
    return n;
}

uint16_t vt_range_number(const char *name)
{
    char folded[NAME_BYTES];
    if (!name || !*name)
        return 0;
    fold(name, __atomic_load_n(&used, __ATOMIC_ACQUIRE) >= FOLD_ALL, folded);
    return find_or_add(folded);
}

uint16_t vt_range_exact(const char *name)
{
    char cut[NAME_BYTES];
    strncpy(cut, name, sizeof cut - 1);
    cut[sizeof cut - 1] = 0;
    vt_utf8_mend(cut, sizeof cut);
    return find_or_add(cut);
}

const char *vt_range_name(uint16_t number)
{
    return number <= OTHER ? names[number] : "";
}

void vt_range_forget(void)
{
    adding = 0; /* another thread may have held it at the fork */
}
