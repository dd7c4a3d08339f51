/*
 * What an error of XLA's says of memory. How much was asked for: the texts, from issue threads, from tf_allocator_adapter.cc and
 * from the strings in plugins:
 *
 *   Out of memory while trying to allocate 7406166528 bytes.
 *   Out of memory while trying to allocate 1.00GiB.
 *   Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0
 *   Failed to allocate 1.00GiB (1073741824 bytes) of pinned host memory
 *   Allocator (GPU_0_bfc) ran out of memory trying to allocate 32.00GiB (rounded to 34359738368)requested by op
 *   Failed to allocate a 4194304-byte pinned host staging buffer for a device-to-host transfer.
 *   Out of memory allocating 4398046511104 bytes.
 *
 * So: the first number behind "allocate" or "allocating"; if a number in parentheses follows, that one, which is exact.
 *
 * The same code of an error also stands for other things that ran out, as the shared memory of a kernel that is compiled:
 *
 *   Shared memory size limit exceeded: requested 327680, available: 232448
 */
#include <string.h>

#include "preload/jax/plugin.h"

struct text {
    const char *at, *end;
};

static bool is_digit(const struct text *t)
{
    return t->at < t->end && *t->at >= '0' && *t->at <= '9';
}

/* Goes behind a word if it comes next. */
static bool take(struct text *t, const char *word)
{
    size_t length = strlen(word);
    bool there = (size_t)(t->end - t->at) >= length && !memcmp(t->at, word, length);
    t->at += there ? length : 0;
    return there;
}

/* Goes behind the next "allocate " or "allocating ". */
static bool behind_allocate(struct text *t)
{
    static const char stem[] = "llocat";
    const char *found;
    while ((found = memmem(t->at, (size_t)(t->end - t->at), stem, sizeof stem - 1))) {
        t->at = found + sizeof stem - 1;
        if (take(t, "e ") || take(t, "ing "))
            return true;
    }
    return false;
}

/* A number, with a fraction if it has one. */
static double number(struct text *t)
{
    double value = 0, scale = 1;
    for (; is_digit(t); t->at++)
        value = value * 10 + (*t->at - '0');
    if (t->at + 1 < t->end && *t->at == '.' && t->at[1] >= '0' && t->at[1] <= '9')
        for (t->at++; is_digit(t); t->at++)
            value += (*t->at - '0') * (scale /= 10);
    return value;
}

/* The unit behind a number: 1.00GiB, 29.49G, 4096 bytes, 4096-byte. */
static double unit(struct text *t)
{
    static const char prefixes[] = "KMGTPE";
    if (t->at < t->end && (*t->at == ' ' || *t->at == '-'))
        t->at++;
    const char *prefix = t->at < t->end && *t->at ? strchr(prefixes, *t->at) : NULL;
    return prefix ? (double)(1ull << (10 * (prefix - prefixes + 1))) : 1;
}

static uint64_t whole(double bytes)
{
    return bytes < 9e18 ? (uint64_t)bytes : 0;
}

/* The exact number in the parentheses that follow at once. */
static uint64_t exact(struct text *t)
{
    while (t->at < t->end && *t->at != '(' && *t->at != ' ' && !is_digit(t)) /* the rest of the unit */
        t->at++;
    if (t->at < t->end && *t->at == ' ')
        t->at++;
    if (t->at >= t->end || *t->at != '(')
        return 0;
    struct text inside = {t->at + 1, memchr(t->at, ')', (size_t)(t->end - t->at))};
    if (!inside.end)
        return 0;
    while (inside.at < inside.end && !is_digit(&inside))
        inside.at++;
    uint64_t bytes = whole(number(&inside));
    return inside.at == inside.end || *inside.at == 'B' || *inside.at == ' ' ? bytes : 0;
}

#define NEAR 40 /* how far behind "allocate" the number may be */

uint64_t vt_jax_requested_bytes(const char *message, size_t length)
{
    struct text t = {message, message + length};
    while (message && behind_allocate(&t)) {
        struct text near = {t.at, t.end - t.at < NEAR ? t.end : t.at + NEAR};
        while (near.at < near.end && !is_digit(&near))
            near.at++;
        if (near.at == near.end)
            continue;
        near.end = t.end;
        double value = number(&near);
        value *= unit(&near);
        uint64_t precise = exact(&near);
        return precise ? precise : whole(value);
    }
    return 0;
}

static bool contains(const char *message, size_t length, const char *word)
{
    return memmem(message, length, word, strlen(word));
}

bool vt_jax_is_about_memory(const char *message, size_t length)
{
    return message && !contains(message, length, "hared memory") &&
           (contains(message, length, "llocat") || contains(message, length, "f memory"));
}
