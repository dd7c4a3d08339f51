/*
 * Native functions that call back, each a frame of its own with a name to be seen in a report: nested.py's way into and
 * out of C; and one that allocates when a Python object dies. Loaded with ctypes.
 */
#include <stddef.h>

#define NEST(n)                                                                          \
    __attribute__((visibility("default"), noinline)) int nest_##n(int (*callback)(void)) \
    {                                                                                    \
        int result = callback();                                                         \
        __asm__ volatile("" ::: "memory"); /* no tail call */                            \
        return result + n;                                                               \
    }                                                                                    \
    int nest_##n(int (*callback)(void))

int nest_0(int (*)(void)), nest_1(int (*)(void)), nest_2(int (*)(void)), nest_3(int (*)(void)), nest_4(int (*)(void));
NEST(0);
NEST(1);
NEST(2);
NEST(3);
NEST(4);

/* A capsule's destructor. */
__attribute__((visibility("default"))) int (*nest_malloc)(void **, size_t);
__attribute__((visibility("default"))) size_t nest_bytes;
__attribute__((visibility("default"))) void nest_drop(void *capsule);
void nest_drop(void *capsule)
{
    void *memory = capsule;
    nest_malloc(&memory, nest_bytes);
    __asm__ volatile("" ::"r"(memory) : "memory");
}
