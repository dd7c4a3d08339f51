/*
 * C++ names: demangling with the process's or the system's libstdc++ (found at run time, not linked), and shortening to
 * the qualified name.
 */
#ifndef VRAMTRACK_DEMANGLE_H
#define VRAMTRACK_DEMANGLE_H

/*
 * The qualified name without arguments and return type of a symbol: "_ZN3Foo3barEi" -> "Foo::bar". A name that is not
 * mangled, or cannot be demangled, comes back as it is. Returns a new string (free() it), or NULL when memory ran out.
 */
char *vt_demangle(const char *symbol);

/* Cuts arguments and return type off a demangled name, in place. Names without an argument list stay as they are. */
void vt_demangled_shorten(char *name);

#endif
