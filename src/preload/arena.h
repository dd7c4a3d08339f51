/*
 * Memory for the preload library's own tables, taken from the kernel directly: malloc may be the application's, may be
 * inside a hook of ours already, or may be another tool's. Not thread-safe: the caller holds the state lock.
 */
#ifndef VT_PRELOAD_ARENA_H
#define VT_PRELOAD_ARENA_H

#include <stddef.h>

/* `bytes` zeroed bytes, 16-byte aligned; NULL when there is no memory. */
void *vt_arena_take(size_t bytes);

/* Gives back what vt_arena_take returned for the same size; it is reused for requests of that size. */
void vt_arena_give(void *p, size_t bytes);

/* Unmaps everything: for the child of a fork. */
void vt_arena_drop(void);

/* uthash, configured for this library: memory from the arena, failure reported instead of exit(). */
#define HASH_NONFATAL_OOM 1
#define uthash_malloc(bytes) vt_arena_take(bytes)
#define uthash_free(p, bytes) vt_arena_give(p, bytes)
#define uthash_bzero(p, bytes) ((void)0) /* arena memory is zeroed */
#define uthash_nonfatal_oom(element) ((void)(element), vt_arena_failed = 1)
/* All keys here start with a 64-bit address, handle or hash; what follows is small. */
#define HASH_FUNCTION(key, length, hash) ((hash) = vt_hash_key((key), (length)))

#include <stdint.h>
#include <string.h>

extern int vt_arena_failed;

static inline unsigned vt_hash_key(const void *key, size_t length)
{
    uint64_t a = 0, b = 0;
    memcpy(&a, key, 8);
    if (length > 8)
        memcpy(&b, (const char *)key + 8, length - 8 < 8 ? length - 8 : 8);
    a = (a ^ (a >> 32) ^ b * 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
    return (unsigned)(a >> 32);
}

#include <uthash.h>

#endif
