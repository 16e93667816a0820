/* Opening files. */

#ifndef GOSCHED_PRELOAD_OPENING_H
#define GOSCHED_PRELOAD_OPENING_H

#include "base.h"

/* Whether opening waits for the other end of a FIFO, which a goroutine pinned to the same thread may open. */
bool is_fifo(int dir, const char *path, int flags);

#endif
