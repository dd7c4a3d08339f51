/*
 * Names of ranges, by number. A loop may put its counter into a name, so numbers in names are folded ("step 12" and
 * "step 13" are both "step N"), and beyond VT_RANGES different names all are one, "other".
 */
#ifndef VT_PRELOAD_RANGE_H
#define VT_PRELOAD_RANGE_H

#include <stdint.h>

#define VT_RANGES 1024u

/* The number of a name, from 1; 0 for NULL and the empty name. Takes no lock of the state; may be called anywhere but in a
 * signal handler that interrupted our own work, where it is 0. */
uint16_t vt_range_number(const char *name);

/* The same, with the numbers in it as they are: for names that this library makes. */
uint16_t vt_range_exact(const char *name);

/* Its name; "" for 0. Lives as long as the process. */
const char *vt_range_name(uint16_t number);

void vt_range_forget(void);

#endif
