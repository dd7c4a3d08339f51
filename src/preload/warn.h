/*
 * One-line messages on standard error, each with the prefix "vramtrack: ".
 * One write(2) per line, no stdio streams, errno kept. Not for signal handlers (uses vsnprintf).
 */
#ifndef VT_PRELOAD_WARN_H
#define VT_PRELOAD_WARN_H

void vt_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
