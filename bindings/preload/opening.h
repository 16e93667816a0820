/* Opening files. */

#ifndef GOSCHED_PRELOAD_OPENING_H
#define GOSCHED_PRELOAD_OPENING_H

#include "base.h"

/* Whether opening waits for the other end of a FIFO, which may be opened by a goroutine that is pinned to the same thread. */
bool is_fifo(int dir, const char *path, int flags);

#endif
