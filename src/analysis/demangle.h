/*
 * C++ and Rust names. C++: demangled with the process's or the system's libstdc++ (found at run time, not linked), and
 * shortened to the qualified name. Rust, both manglings: libiberty's reader, linked statically where it was there when
 * this was built; without it the older mangling is read as the C++ that it looks like, and the newer one (v0) stays.
 *
 * Names come from files: hostile input. Thread-safe.
 */
#ifndef VRAMTRACK_DEMANGLE_H
#define VRAMTRACK_DEMANGLE_H

#include <stdbool.h>

/*
 * The qualified name without arguments and return type of a symbol: "_ZN3Foo3barEi" -> "Foo::bar". A name that is not
 * mangled, or cannot be demangled, comes back as it is. Returns a new string (free() it), or NULL when memory ran out.
 */
char *vt_demangle(const char *symbol);

/* Does this look like a mangled name? */
bool vt_is_mangled(const char *name);

/* The name of a Rust symbol without its hash: "core::fmt::write". NULL if it is none or cannot be read. As above. */
char *vt_demangle_rust(const char *symbol);

/*
 * Cuts arguments and return type off a demangled name, in place; those of functions around it too, and of lambdas:
 * "real::go(int)::{lambda(int)#1}::operator()(int) const" -> "real::go::{lambda}::operator()" (the second of a kind is
 * "{lambda#2}"). These are the words for what debug information leaves unnamed (dwarf.c).
 */
void vt_demangled_shorten(char *name);

#endif
