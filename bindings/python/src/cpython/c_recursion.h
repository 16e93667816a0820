/* Python 3.12 and 3.13 count the levels of C recursion of each state. */

/* Bytes of a goroutine's stack that one level of C recursion may take. */
#define BYTES_PER_LEVEL 640

static inline void cpython_limit_recursion(PyThreadState *ts, size_t stack_size)
{
    size_t levels = stack_size / BYTES_PER_LEVEL;
    if (levels < (size_t)ts->c_recursion_remaining)
        ts->c_recursion_remaining = (int)levels;
}

#include "up_to_3.13.h"
