/* Messages of the preload library. */
#include "preload/warn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Names of variables and files come from outside: their control characters would reach the terminal. */
static void make_plain(char *text, int n)
{
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == 0x7f || (c == 0xc2 && i + 1 < n && ((unsigned char)text[i + 1] & 0xe0) == 0x80))
            text[i] = '?';
        if (c == 0xc2 && text[i] == '?' && i + 1 < n) /* U+0080 to U+009F take two bytes */
            text[++i] = '?';
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
    make_plain(line, n);
    line[n++] = '\n';
    /* syscall(): write() is a cancellation point */
    if (syscall(SYS_write, 2, line, (size_t)n) < 0)
        errno = saved;
    errno = saved;
}
