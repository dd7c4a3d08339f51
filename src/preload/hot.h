/*
 * Marks what the path of every tensor runs through. The compiler and the linker put it side by side: spread over the library it
 * was on a dozen pages of code and as many of data, for each of which the processor needs an entry of tables that the program
 * needs itself.
 */
#ifndef VT_PRELOAD_HOT_H
#define VT_PRELOAD_HOT_H

#define VT_HOT __attribute__((hot))                    /* a function */
#define VT_HOT_DATA __attribute__((section("vt_hot"))) /* what it reads and writes */

#endif
