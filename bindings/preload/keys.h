/* pthread keys. */

#ifndef GOSCHED_PRELOAD_KEYS_H
#define GOSCHED_PRELOAD_KEYS_H

#include "base.h"

/* Gives the calling goroutine other values of pthread keys, and returns its values so far. NULL: the values of a new
   goroutine. */
void *exchange_values(void *given);

#endif
