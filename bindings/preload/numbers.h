/* The numbers of files, and the kernel's table of files. */

#ifndef GOSCHED_PRELOAD_NUMBERS_H
#define GOSCHED_PRELOAD_NUMBERS_H

#include "base.h"

/* The highest number of a file that the program has closed, and of an open file of the program's; -1: none. */
extern atomic_int highest_closed;
void note_closed(int fd);
int highest_file(void);
/* The number of entries of the process's table, or -1. */
int table_size(void);
/*
 * The length that the table would have without libgosched's own files. The table grows by powers of two and never
 * shrinks, so it has room for each file ever open; `highest_closed` covers those that the program has closed. errno
 * stays.
 */
int programs_table_size(void);
/* The least number of entries of a table. */
enum { SMALLEST_TABLE = 64 };

#endif
