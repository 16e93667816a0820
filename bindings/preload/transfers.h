/* Reads and writes. */

#ifndef GOSCHED_PRELOAD_TRANSFERS_H
#define GOSCHED_PRELOAD_TRANSFERS_H

#include "calls.h"

/* write of a goroutine. */
ssize_t do_write(int fd, const void *buf, size_t n, struct counts *c);

#endif
