/* The numbers of files, and the kernel's table of files. */

#ifndef GOSCHED_PRELOAD_NUMBERS_H
#define GOSCHED_PRELOAD_NUMBERS_H

#include "base.h"

/* The highest number of a file that the program has closed, and of a file of the program's that is open; -1: none. */
extern atomic_int highest_closed;
void note_closed(int fd);
int highest_file(void);
/* The length of the process's table, or -1. */
int table_size(void);
/*
 * The length that the table would have without libgosched's own files, which make it longer. The table grows by powers of
 * two and never shrinks: so it has room for each file that was open since the start. `highest_closed` knows those that
 * the program has closed. errno stays.
 */
int programs_table_size(void);
/* The length in numbers of files that no table is below. */
enum { SMALLEST_TABLE = 64 };

#endif
