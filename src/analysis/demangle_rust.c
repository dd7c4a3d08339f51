/*
 * Rust names; see demangle.h. Both manglings are read by libiberty (GNU binutils and GCC use it), if it was there when
 * this was built. What it writes is limited: a v0 name refers back to parts of itself, so that a few bytes can stand for
 * gigabytes, and the reader itself has no limit for its output.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/demangle.h"

#define SYMBOL_MOST \
    2048 /* longer ones stay as they are: the reader is recursive, and the thread's stack may be small */
#define NAME_MOST 1024

/* "17h" and 16 hexadecimal digits: what the older mangling puts at the end of what is a C++ name otherwise. Behind it
 * there may be what LLVM adds (".llvm.123"). */
static bool is_legacy(const char *symbol)
{
    const char *at = symbol;

    if (strncmp(symbol, "_ZN", 3))
        return false;
    while ((at = strstr(at, "17h"))) {
        at += 3;
        if (strspn(at, "0123456789abcdef") == 16 && at[16] == 'E' && (!at[17] || at[17] == '.'))
            return true;
    }
    return false;
}

static bool is_v0(const char *symbol)
{
    return !strncmp(symbol, "_R", 2) && isupper((unsigned char)symbol[2]);
}

#ifdef VT_LIBIBERTY
#include <libiberty/demangle.h>

struct text {
    jmp_buf full;
    size_t used;
    char name[NAME_MOST + 1];
};

static void append(const char *part, size_t length, void *opaque)
{
    struct text *text = opaque;
    size_t room = NAME_MOST - text->used;

    memcpy(text->name + text->used, part, length < room ? length : room);
    text->used += length < room ? length : room;
    if (length > room)
        longjmp(text->full, 1);
}

/* A name that is cut off says so. */
static char *read_name(const char *symbol)
{
    struct text text;

    text.used = 0;
    if (setjmp(text.full))
        memcpy(text.name + NAME_MOST - 3, "...", 3);
    else if (!rust_demangle_callback(symbol, 0, append, &text) || !text.used)
        return NULL;
    text.name[text.used] = '\0';
    return strdup(text.name);
}
#else
static char *read_name(const char *symbol)
{
    (void)symbol;
    return NULL;
}
#endif

char *vt_demangle_rust(const char *symbol)
{
    if ((!is_legacy(symbol) && !is_v0(symbol)) || strlen(symbol) > SYMBOL_MOST)
        return NULL;
    return read_name(symbol);
}
