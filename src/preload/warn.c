/* Messages of the preload library. */
#include "preload/warn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "views/out.h"

/* Names of variables and files come from outside: what is not plain text would reach the terminal. */
static void make_plain(char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned size = vt_utf8_sequence(text + i, n - i), bytes = size ? size : 1;

        if (!size || !vt_utf8_plain(text + i, size))
            memset(text + i, '?', bytes);
        i += bytes;
    }
}

void vt_warn(const char *format, ...)
{
    char line[1024];
    int saved = errno, n = snprintf(line, sizeof line, "vramtrack: ");
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    if (m > 0)
        n += m < (int)sizeof line - n - 2 ? m : (int)sizeof line - n - 2;
    make_plain(line, (size_t)n);
    line[n++] = '\n';
    /* syscall(): write() is a cancellation point */
    if (syscall(SYS_write, 2, line, (size_t)n) < 0)
        errno = saved;
    errno = saved;
}
