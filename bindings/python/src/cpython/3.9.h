/* Python 3.9, and 3.10 by way of 3.10.h. */
#include "slot.h"
#include <frameobject.h>

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state && ts->recursion_depth == 0;
}

/* The state whose thread has the GIL. */
static inline int cpython_is_attached(PyThreadState *ts) { return _PyThreadState_UncheckedGet() == ts; }

#ifndef CPYTHON_LINES_OF
#define CPYTHON_LINES_OF co_lnotab
#define BYTES_OF_LASTI 1
#endif
#define CPYTHON_LINES(code) ((code)->CPYTHON_LINES_OF)
#define CPYTHON_NAME(code) ((code)->co_name)
#define CPYTHON_UNMONITOR(code) ((void)(code))

static inline int cpython_first_frame(PyThreadState *ts, const void **frame, cpython_reader *read)
{
    return read(frame, &ts->frame, sizeof *frame);
}

static inline int cpython_read_frame(struct cpython_place *to, const void *frame, cpython_reader *read)
{
    PyFrameObject f;
    if (read(&f, frame, sizeof f) < 0)
        return -1;
    *to = (struct cpython_place){f.f_back, f.f_code, f.f_lasti < 0 ? f.f_lasti : f.f_lasti * BYTES_OF_LASTI, 0};
    return 0;
}
