/* Python 3.14 and later, which are not tested: as 3.13, but without a count of the levels of C recursion. */
#include "since_3.13.h"

static inline void cpython_limit_recursion(PyThreadState *ts, size_t stack_size)
{
    (void)ts;
    (void)stack_size;
}

/* The frames of goroutines are not known. */
static inline int cpython_is_attached(PyThreadState *ts)
{
    (void)ts;
    return 1;
}

#define CPYTHON_LINES(code) ((code)->co_linetable)
#define CPYTHON_NAME(code) ((code)->co_qualname)
#define CPYTHON_UNMONITOR(code) ((code)->_co_monitoring = NULL)

static inline int cpython_first_frame(PyThreadState *ts, const void **frame, cpython_reader *read)
{
    (void)ts;
    (void)read;
    *frame = NULL;
    return 0;
}

static inline int cpython_read_frame(struct cpython_place *to, const void *frame, cpython_reader *read)
{
    (void)to;
    (void)frame;
    (void)read;
    return -1;
}
