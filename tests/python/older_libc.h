/*
 * Included before everything in taker.so and shifted.so: the versions of symbols that a C library older than this machine's
 * has as well, because the libraries are loaded into the interpreters of other systems. glibc 2.34 moved these functions
 * from libdl and libpthread into libc, under a new version; the first version of each is still there, and the same.
 */
#ifndef VT_TESTS_PYTHON_OLDER_LIBC_H
#define VT_TESTS_PYTHON_OLDER_LIBC_H

#include <features.h>

#if defined __GLIBC__ && defined __x86_64__
#define FIRST_VERSION "GLIBC_2.2.5"
#elif defined __GLIBC__ && defined __aarch64__
#define FIRST_VERSION "GLIBC_2.17"
#endif

#ifdef FIRST_VERSION
#define OLDER(name) __asm__(".symver " #name "," #name "@" FIRST_VERSION)
OLDER(dladdr);
OLDER(dlopen);
OLDER(dlsym);
OLDER(pthread_create);
OLDER(pthread_join);
#endif

#endif
