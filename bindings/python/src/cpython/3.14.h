/* Python 3.14 and later, which are not tested: as 3.13, but without a count of the levels of C recursion. */
#include "since_3.13.h"

static inline void cpython_limit_recursion(PyThreadState *ts, size_t stack_size)
{
    (void)ts;
    (void)stack_size;
}
